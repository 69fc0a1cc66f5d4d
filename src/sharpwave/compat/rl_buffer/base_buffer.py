"""The base class of the buffers."""

from sharpwave.tensors.buffers import ResetStrategy
from sharpwave.tensors.buffers import TensorBuffer as BaseBuffer

__all__ = ["BaseBuffer", "ResetStrategy"]
