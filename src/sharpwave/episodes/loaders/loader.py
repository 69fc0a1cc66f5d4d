"""The batches of a dataset, epoch after epoch, read in this process or in workers of torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeAlias

import numpy as np

from sharpwave.buffers.replay import check_count
from sharpwave.core.lazy import torch
from sharpwave.episodes.loaders.batch_form import Batch
from sharpwave.episodes.loaders.cut import Places
from sharpwave.episodes.loaders.dataset import EpisodeDataset, mixed_key
from sharpwave.episodes.loaders.items import Items
from sharpwave.types import Array

__all__ = ["EpisodeLoader", "WorkerLoader"]


class EpisodeLoader:
    """The batches of a dataset.

    Every `iter` is an epoch: each item comes once, in order or shuffled, every epoch differently
    but the same for the same seed. Where episodes are overwritten while an epoch runs, later items
    take the place of theirs, so that batches stay full.

    Args:
        dataset: The dataset.
        batch_size: Items of a batch; the last one may have fewer.
        shuffle: Draw items in a random order that depends on the dataset's seed and the epoch.
        drop_last: Leave out a last batch that has fewer.
        device: Device to move tensors to.
        pin_memory: Put tensors in memory from which a GPU copies fast.

    Attributes:
        epoch: The number of the next epoch. May be set.
    """

    def __init__(
        self,
        dataset: EpisodeDataset,
        batch_size: int,
        *,
        shuffle: bool = False,
        drop_last: bool = False,
        device: Any = None,
        pin_memory: bool = False,
    ) -> None:
        self.dataset = dataset
        self.batch_size = check_count("batch_size", batch_size, 1)
        self.shuffle = bool(shuffle)
        self.drop_last = bool(drop_last)
        self.epoch = 0
        self._finish = Finish(dataset, device, pin_memory=pin_memory)

    def __len__(self) -> int:
        """Number of batches of an epoch, as long as no episode is overwritten."""
        full, rest = divmod(len(self.dataset), self.batch_size)
        return full + (rest > 0 and not self.drop_last)

    def __iter__(self) -> Iterator[Batch]:
        epoch = self.epoch
        self.epoch += 1
        return self._batches(epoch)

    def _batches(self, epoch: int) -> Iterator[Batch]:
        items = self.dataset.items
        key = mixed_key(self.dataset.seed, epoch)
        order = key if self.shuffle else None
        span, cut, read, finish = items.anchors.span, items.cut, items.read, self._finish
        size, end, at = self.batch_size, len(items), 0
        kept: Places | None = None  # of a batch that could not be read
        while at < end or kept is not None:
            upto = min(end, at + size - (0 if kept is None else len(kept[0])))
            places: Places = span(at, upto, order)
            if kept is not None:
                places = _joined(kept, places)
            at, kept = upto, None
            n = len(places[0])
            if n < size and (self.drop_last or n == 0):
                return
            try:
                values = read(cut(places, key))
            except IndexError:
                kept = items.still_there(places)
                continue
            yield finish(values)


def _joined(first: Places, second: Places) -> Places:
    episodes, steps, rows = (np.append(a, b) for a, b in zip(first, second, strict=True))
    return episodes, steps, rows


class Finish:
    """Makes a batch of values: tensors on a device, or arrays, in the form of the dataset.

    Args:
        dataset: Whose values they are.
        device: Device of the tensors; None to leave them.
        pin_memory: Pin the tensors first, where there is a GPU.

    Raises:
        ValueError: A device is given for NumPy arrays.
    """

    def __init__(self, dataset: EpisodeDataset, device: Any, *, pin_memory: bool) -> None:
        if dataset.as_numpy and (device is not None or pin_memory):
            raise ValueError("device and pin_memory are for tensors, not for as_numpy=True")
        self._form = dataset.form
        self._as_numpy = dataset.as_numpy
        self._device = None if device is None else torch.device(device)
        self._pin = bool(pin_memory) and torch.cuda.is_available()

    def __call__(self, arrays: list[Array]) -> Batch:
        """The batch of arrays in the order of the dataset's recipe."""
        if self._as_numpy:
            return self._form(arrays)
        from_numpy = torch.from_numpy
        return self.of_tensors([from_numpy(array) for array in arrays])

    def of_tensors(self, tensors: list[Any]) -> Batch:
        """The same of tensors over memory of the CPU."""
        if self._as_numpy:
            return self._form([tensor.numpy() for tensor in tensors])
        if self._pin:
            tensors = [tensor.pin_memory() for tensor in tensors]
        if self._device is not None:
            device = self._device
            tensors = [tensor.to(device, non_blocking=self._pin) for tensor in tensors]
        return self._form(tensors)


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
