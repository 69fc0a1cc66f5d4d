"""Folders of memmap-replay-buffer: one padded .npy file per field.

`NAME.data.npy` holds [episodes, timesteps, ...], `NAME.data.meta.npy` one value per episode.
Everything but defaults and limits is carried. Its `metadata.pkl` is never opened: a pickle may run
any code, and the arrays say what the fields are. An episode that was never finished is left out.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sharpwave.errors import SharpwaveIOError
from sharpwave.formats.spec import EpisodeField, EpisodeSchema
from sharpwave.formats.stream import Episode, EpisodeStream
from sharpwave.formats.target import existing_file
from sharpwave.types import Array

META = ".data.meta.npy"
STEPS = ".data.npy"
HIDDEN = ("episode_lens", "_initted")


def detect(path: Path) -> bool:
    """Return whether this folder has the files of that library."""
    return (path / f"episode_lens{META}").is_file() and any(path.glob(f"*{STEPS}"))


def read(path: str | os.PathLike[str]) -> EpisodeStream:
    """The finished episodes of a folder, oldest first.

    Args:
        path: The folder.

    Raises:
        SharpwaveIOError: It is no such folder, or a file is damaged.
        ValueError: The files contradict each other.
    """
    path = existing_file(path, "a folder of memmap-replay-buffer", detect)
    meta = {file.name.removesuffix(META): _load(file) for file in sorted(path.glob(f"*{META}"))}
    steps = {file.name.removesuffix(STEPS): _load(file) for file in sorted(path.glob(f"*{STEPS}"))}
    all_lengths = meta["episode_lens"]
    slots = _finished(path, all_lengths)
    lengths = all_lengths[slots].astype(np.int64)
    for name, array in {**meta, **steps}.items():
        if array.ndim < 1 or len(array) != len(all_lengths):
            raise ValueError(
                f"{path}: {name!r} must have {len(all_lengths)} episodes like episode_lens, "
                f"got shape {array.shape}"
            )
    for name, array in steps.items():
        if array.ndim < 2 or lengths.max(initial=0) > array.shape[1]:
            raise ValueError(
                f"{path}: {name!r} must have {lengths.max(initial=1)} timesteps as episode_lens "
                f"says, got shape {array.shape}"
            )
    for name in HIDDEN:
        meta.pop(name, None)
    schema = EpisodeSchema(
        {name: EpisodeField(array.dtype.name, array.shape[2:]) for name, array in steps.items()},
        {name: EpisodeField(array.dtype.name, array.shape[1:]) for name, array in meta.items()},
    )

    def episodes() -> Iterator[Episode]:
        for slot, length in zip(slots.tolist(), lengths.tolist(), strict=True):
            yield Episode(
                {name: np.array(array[slot, :length]) for name, array in steps.items()},
                {name: np.array(array[slot]) for name, array in meta.items()},
            )

    return EpisodeStream(str(path), schema, lengths, episodes)


def _finished(path: Path, lengths: Array) -> npt.NDArray[np.int64]:
    """The slots of finished episodes, oldest first: a ring goes on at `episode_index`."""
    at = _state(path, "episode_index", 0)
    count = _state(path, "num_episodes", int((lengths > 0).sum()))
    capacity = len(lengths)
    slots = (
        np.arange(capacity) if count < capacity else (at + np.arange(capacity)) % max(capacity, 1)
    )
    is_open = (slots == at) & (_state(path, "timestep_index", 0) > 0)
    kept: npt.NDArray[np.int64] = slots[(lengths[slots] > 0) & ~is_open][:count]
    return kept


def _state(path: Path, name: str, default: int) -> int:
    file = path / f"{name}.state.npy"
    return int(_load(file)) if file.is_file() else default


def _load(file: Path) -> Array:
    try:
        array: Array = np.load(file, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise SharpwaveIOError(f"{file} is damaged: {error}") from error
    if array.dtype.kind not in "biuf":
        raise SharpwaveIOError(f"{file} must hold numbers, got {array.dtype}")
    return array
