"""On-policy rollouts."""

from sharpwave.tensors.buffers import RolloutBatch, RolloutBuffer

__all__ = ["RolloutBatch", "RolloutBuffer"]
