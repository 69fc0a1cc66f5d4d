"""Uniform replay."""

from sharpwave.tensors.buffers import TensorReplayBatch as ReplayBatch
from sharpwave.tensors.buffers import TensorReplayBuffer as ReplayBuffer

__all__ = ["ReplayBatch", "ReplayBuffer"]
