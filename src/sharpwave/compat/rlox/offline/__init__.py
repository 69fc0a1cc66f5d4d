"""Offline learning under rlox's names."""

from sharpwave.compat.rlox.offline.base import OfflineAlgorithm, OfflineDataset

__all__ = ["OfflineAlgorithm", "OfflineDataset"]
