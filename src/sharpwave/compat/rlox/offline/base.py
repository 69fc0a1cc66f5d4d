"""What offline algorithms are, and what they learn from, under rlox's names."""

from sharpwave.agents import OfflineAgent as OfflineAlgorithm
from sharpwave.loops.offline_data import OfflineDataset

__all__ = ["OfflineAlgorithm", "OfflineDataset"]
