"""Multi-layer perceptrons on a device, forwards and backwards in few passes over memory."""
