"""The base class of the buffers."""

from sharpwave.buffers.tensors import ResetStrategy
from sharpwave.buffers.tensors import TensorBuffer as BaseBuffer

__all__ = ["BaseBuffer", "ResetStrategy"]
