"""`dataset` and `dataloader`, the methods of whatever holds episodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from sharpwave.buffers.replay import check_count
from sharpwave.core.suggest import did_you_mean
from sharpwave.episodes.loaders.dataset import EpisodeDataset
from sharpwave.episodes.loaders.loader import EpisodeLoader, WorkerLoader
from sharpwave.episodes.loaders.options import WORKER_OPTIONS, DatasetOptions, LoaderOptions

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from sharpwave.episodes.loaders.reader import EpisodeReader

__all__ = ["LoadsEpisodes"]


class LoadsEpisodes:
    """Makes datasets and loaders of the episodes it holds."""

    __slots__ = ()

    def dataset(self: EpisodeReader, **options: Unpack[DatasetOptions]) -> EpisodeDataset:
        """The episodes, steps, transitions or windows that are there now.

        Args:
            **options: Those of `EpisodeDataset`.

        Returns:
            A map-style dataset for torch.

        Raises:
            TypeError: An option is unknown or has the wrong type.
            ValueError: There is no episode, a name is unknown, or options exclude each other.
        """
        _check_known("dataset", options, DatasetOptions)
        return EpisodeDataset(self, **options)

    def dataloader(
        self: EpisodeReader,
        batch_size: int,
        *,
        dataset: EpisodeDataset | None = None,
        shuffle: bool = False,
        drop_last: bool = False,
        device: Any = None,
        pin_memory: bool = False,
        num_workers: int = 0,
        sampler: Iterable[int] | None = None,
        **options: Unpack[LoaderOptions],
    ) -> EpisodeLoader:
        """Batches of the episodes, steps, transitions or windows that are there now.

        Every `iter` of the loader is an epoch, in which each item comes once.

        Args:
            batch_size: Items of a batch; the last one may have fewer.
            dataset: A dataset made before, instead of options for one.
            shuffle: In random order, which depends on `seed` and the number of the epoch alone.
            drop_last: Leave out a last batch that has fewer items.
            device: Device to move tensors to.
            pin_memory: Put tensors in memory from which a GPU copies fast.
            num_workers: Processes that read batches, by torch's DataLoader. Without any, batches
                are read by a few native calls, which is hard to beat.
            sampler: Gives the numbers of the items of an epoch, instead of all.
            **options: Those of `EpisodeDataset`, and of torch's DataLoader for its workers
                (prefetch_factor, persistent_workers, ...).

        Raises:
            TypeError: An option is unknown or has the wrong type.
            ValueError: There is no episode, a name is unknown, or options exclude each other.
        """
        _check_known("dataloader", options, LoaderOptions)
        about_data: dict[str, Any] = dict(options)
        about_workers = {
            name: about_data.pop(name) for name in WORKER_OPTIONS if name in about_data
        }
        if dataset is None:
            dataset = EpisodeDataset(self, **about_data)
        elif not isinstance(dataset, EpisodeDataset):
            raise TypeError(f"dataset must be an EpisodeDataset, got {type(dataset).__name__}")
        elif about_data:
            raise ValueError(f"cannot specify both dataset and {next(iter(about_data))}")
        about_batches: dict[str, Any] = {
            "shuffle": shuffle,
            "drop_last": drop_last,
            "device": device,
            "pin_memory": pin_memory,
        }
        workers = check_count("num_workers", num_workers, 0)
        if sampler is not None and shuffle:
            raise ValueError("cannot specify both sampler and shuffle: they are orders")
        if sampler is None and workers == 0:
            return EpisodeLoader(dataset, batch_size, **about_batches)
        return WorkerLoader(
            dataset,
            batch_size,
            sampler=sampler,
            num_workers=workers,
            worker_options=about_workers if workers > 0 else {},
            **about_batches,
        )


def _check_known(method: str, options: Mapping[str, Any], known: type[DatasetOptions]) -> None:
    for name in options:
        if name not in known.__annotations__:
            hint = did_you_mean(name, known.__annotations__)
            raise TypeError(f"{method} has no option {name!r}{hint}")
