"""Episode statistics."""

from sharpwave.buffers.tensors import StatsTracker

__all__ = ["StatsTracker"]
