"""Episode statistics."""

from sharpwave.tensors.buffers import StatsTracker

__all__ = ["StatsTracker"]
