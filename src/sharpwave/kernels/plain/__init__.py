"""The kernels as plain torch: what they are checked against, and what runs without Triton."""
