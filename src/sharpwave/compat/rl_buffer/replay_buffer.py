"""Uniform replay."""

from sharpwave.buffers.tensors import TensorReplayBatch as ReplayBatch
from sharpwave.buffers.tensors import TensorReplayBuffer as ReplayBuffer

__all__ = ["ReplayBatch", "ReplayBuffer"]
