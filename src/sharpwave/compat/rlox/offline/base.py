"""The base class of offline algorithms, and their datasets, under rlox's names."""

from sharpwave.agents import OfflineAgent as OfflineAlgorithm
from sharpwave.loops.offline_data import OfflineDataset

__all__ = ["OfflineAlgorithm", "OfflineDataset"]
