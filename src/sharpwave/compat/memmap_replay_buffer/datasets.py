"""One class for each level of a dataset, made of a buffer or its folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sharpwave.compat.memmap_replay_buffer.replay_buffer import ReplayBuffer
from sharpwave.episodes import EpisodeDataset
from sharpwave.episodes.loaders.reader import EpisodeReader

__all__ = [
    "ReplayDataset",
    "ReplayDatasetNStep",
    "ReplayDatasetTimeWindow",
    "ReplayDatasetTimestep",
    "ReplayDatasetTrajectory",
]

Buffer = str | Path | EpisodeReader


class ReplayDatasetTrajectory(EpisodeDataset):
    """Whole episodes.

    Args:
        replay_buffer: A buffer or its folder.
        include_metadata: Whether items have the meta fields.
        **options: Those of `EpisodeDataset`.
    """

    def __init__(
        self, replay_buffer: Buffer, *, include_metadata: bool = True, **options: Any
    ) -> None:
        super().__init__(_opened(replay_buffer), **_meta(include_metadata), **options)


class ReplayDatasetTimestep(EpisodeDataset):
    """Single steps.

    Args:
        replay_buffer: A buffer or its folder.
        include_metadata: Whether items have the meta fields.
        **options: Those of `EpisodeDataset`.
    """

    def __init__(
        self, replay_buffer: Buffer, *, include_metadata: bool = True, **options: Any
    ) -> None:
        super().__init__(
            _opened(replay_buffer), timestep_level=True, **_meta(include_metadata), **options
        )


class ReplayDatasetNStep(EpisodeDataset):
    """Transitions over up to n steps.

    Args:
        replay_buffer: A buffer or its folder.
        n_steps: Steps of a transition.
        include_metadata: Whether items have the meta fields.
        **options: Those of `EpisodeDataset`.
    """

    def __init__(
        self, replay_buffer: Buffer, n_steps: int, *, include_metadata: bool = True, **options: Any
    ) -> None:
        super().__init__(_opened(replay_buffer), n_steps, **_meta(include_metadata), **options)


class ReplayDatasetTimeWindow(EpisodeDataset):
    """One random window of every episode.

    Args:
        replay_buffer: A buffer or its folder.
        window_length: Steps of a window.
        include_metadata: Whether items have the meta fields.
        **options: Those of `EpisodeDataset`.
    """

    def __init__(
        self,
        replay_buffer: Buffer,
        window_length: int,
        *,
        include_metadata: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(
            _opened(replay_buffer),
            window_length=window_length,
            **_meta(include_metadata),
            **options,
        )


ReplayDataset = ReplayDatasetTrajectory


def _opened(buffer: Buffer) -> EpisodeReader:
    if isinstance(buffer, str | Path):
        return ReplayBuffer.from_folder(buffer)
    return buffer


def _meta(included: bool) -> dict[str, Any]:
    return {} if included else {"meta_fields": ()}
