"""Batches read by the worker processes of torch's DataLoader."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeAlias

import numpy as np

from sharpwave.core.lazy import torch
from sharpwave.episodes.loaders.batch_form import Batch
from sharpwave.episodes.loaders.dataset import EpisodeDataset, mixed_key
from sharpwave.episodes.loaders.items import Items
from sharpwave.episodes.loaders.loader import EpisodeLoader

__all__ = ["WorkerLoader"]

Task: TypeAlias = "tuple[int, bool, Sequence[int] | tuple[int, int]]"
"""A key, whether it also shuffles, and the items of a batch: their numbers, or begin and end."""


class WorkerLoader(EpisodeLoader):
    """The batches of a dataset, read in other processes.

    The same batches as those of `EpisodeLoader`, but where episodes are overwritten while an epoch
    runs, batches are smaller by their items.

    Args:
        dataset: The dataset.
        batch_size: Items of a batch; the last one may have fewer.
        sampler: Gives the numbers of the items of an epoch; None for all.
        num_workers: Number of worker processes.
        worker_options: Further options of torch's DataLoader for them.
        **options: As for `EpisodeLoader`.
    """

    def __init__(
        self,
        dataset: EpisodeDataset,
        batch_size: int,
        *,
        sampler: Iterable[int] | None,
        num_workers: int,
        worker_options: dict[str, Any],
        **options: Any,
    ) -> None:
        super().__init__(dataset, batch_size, **options)
        self._sampler = sampler
        self._tasks = _Tasks()
        self._loader: Any = torch.utils.data.DataLoader(
            _Reading(dataset.items),  # type: ignore[arg-type]
            batch_size=None,
            sampler=self._tasks,
            num_workers=num_workers,
            collate_fn=_unchanged,
            **worker_options,
        )

    def __len__(self) -> int:
        """Number of batches of an epoch."""
        if self._sampler is None:
            return super().__len__()
        full, rest = divmod(len(self._sampler), self.batch_size)  # type: ignore[arg-type]
        return full + (rest > 0 and not self.drop_last)

    def _batches(self, epoch: int) -> Iterator[Batch]:
        self._tasks.following = self._epoch_tasks(epoch)
        for values in self._loader:
            self.dataset.items.reader.refresh()  # raises if it was closed, which workers cannot see
            size = len(values[0]) if values else 0
            if size == self.batch_size or (size > 0 and not self.drop_last):
                yield self._finish.of_tensors(values)

    def _epoch_tasks(self, epoch: int) -> Iterator[Task]:
        key = mixed_key(self.dataset.seed, epoch)
        if self._sampler is not None:
            numbers = iter(self._sampler)
            while some := [int(number) for number in islice(numbers, self.batch_size)]:
                yield key, False, some
            return
        n = len(self.dataset)
        for begin in range(0, n, self.batch_size):
            yield key, self.shuffle, (begin, min(begin + self.batch_size, n))


class _Tasks:
    """Lets the torch loader take the tasks of the epoch that begins."""

    following: Iterator[Task]

    def __iter__(self) -> Iterator[Task]:
        return self.following


class _Reading:
    """Reads batches where it is: in a worker."""

    def __init__(self, items: Items) -> None:
        self._items = items

    def __getitem__(self, task: Task) -> list[Any]:
        key, shuffled, numbers = task
        if isinstance(numbers, tuple):
            begin, end = numbers
            places = self._items.anchors.span(begin, end, key if shuffled else None)
        else:
            places = self._items.anchors.find(numbers)
        _, values = self._items.read_alive(places, key)
        return [torch.from_numpy(np.ascontiguousarray(value)) for value in values]


def _unchanged(values: list[Any]) -> list[Any]:
    return values
