"""What offline algorithms are, and what they learn from, under rlox's names."""

from sharpwave.train.offline import OfflineAlgorithm
from sharpwave.train.offline_data import OfflineDataset

__all__ = ["OfflineAlgorithm", "OfflineDataset"]
