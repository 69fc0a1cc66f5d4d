"""On-policy rollouts."""

from sharpwave.buffers.tensors import RolloutBatch, RolloutBuffer

__all__ = ["RolloutBatch", "RolloutBuffer"]
