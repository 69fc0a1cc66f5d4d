"""What offline algorithms are, and what they learn from, under rlox's names."""

from __future__ import annotations

from typing import Any

from sharpwave.train.offline import OfflineAlgorithm
from sharpwave.train.offline_data import OfflineDataset

__all__ = ["ByPosition", "OfflineAlgorithm", "OfflineDataset"]


class ByPosition(OfflineAlgorithm):
    """Takes its options by position too, in the order of `leading_arguments`."""

    def __init__(
        self, dataset: Any, obs_dim: int, act_dim: int, *args: Any, **options: Any
    ) -> None:
        names = list(self.leading_arguments)[3:]
        if len(args) > len(names):
            given = 3 + len(args)
            raise TypeError(f"{type(self).__name__} takes {3 + len(names)} arguments, got {given}")
        by_position = dict(zip(names, args, strict=False))
        twice = sorted(by_position.keys() & options.keys())
        if twice:
            raise TypeError(f"{type(self).__name__} got {twice[0]!r} twice")
        super().__init__(dataset, obs_dim, act_dim, **by_position, **options)
