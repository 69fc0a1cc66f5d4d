"""The kernels in Triton, each with the function that chooses its blocks and launches it."""
