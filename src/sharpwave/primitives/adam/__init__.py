"""Steps of Adam, and clipping of gradients by their norm, on one block of parameters."""
