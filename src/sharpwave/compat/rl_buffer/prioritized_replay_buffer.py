"""Prioritized replay."""

from sharpwave.tensors.buffers import TensorPrioritizedReplayBatch as PrioritizedReplayBatch
from sharpwave.tensors.buffers import TensorPrioritizedReplayBuffer as PrioritizedReplayBuffer

__all__ = ["PrioritizedReplayBatch", "PrioritizedReplayBuffer"]
