"""Prioritized replay."""

from sharpwave.buffers.tensors import TensorPrioritizedReplayBatch as PrioritizedReplayBatch
from sharpwave.buffers.tensors import TensorPrioritizedReplayBuffer as PrioritizedReplayBuffer

__all__ = ["PrioritizedReplayBatch", "PrioritizedReplayBuffer"]
