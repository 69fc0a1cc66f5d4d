"""Kernels for tensors on a device: Triton on CUDA, plain torch elsewhere, chosen automatically.

Importing this package imports torch. Nothing in here waits for the device or allocates by what
tensors hold, so everything can be captured in a CUDA graph.
"""
