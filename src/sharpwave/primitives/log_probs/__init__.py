"""Log-probabilities of selected tokens and entropies, with gradients, in little memory."""
