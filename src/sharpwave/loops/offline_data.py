"""Datasets of offline algorithms, in every form that they come in."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np

from sharpwave.buffers import MmapReplayBuffer, OfflineDatasetBuffer, ReplayBuffer, Transition
from sharpwave.buffers.offline import MADE, obs_divisor
from sharpwave.buffers.offline_mixture import OfflineMixture, rows_of
from sharpwave.buffers.schema import RESERVED, RESERVED_IN_BATCH, Field
from sharpwave.learners import Learner
from sharpwave.learners.columns import check_columns
from sharpwave.storage.folder import is_store
from sharpwave.types import Array, BatchDict

MINARI = "minari:"
COLUMNS = ("obs", "next_obs", "actions", "rewards", "terminated", "truncated")
OTHER_NAMES = {
    "observations": "obs",
    "next_observations": "next_obs",
    "action": "actions",
    "reward": "rewards",
    "terminals": "terminated",
    "timeouts": "truncated",
}
"""Names of the columns in other libraries, such as D4RL, and our names for them."""
RETURNS_SPAN = 1000.0
"""Between the best and the worst episode, of rewards that were scaled."""
_CHUNK = 65536


@runtime_checkable
class OfflineDataset(Protocol):
    """Steps to learn from: anything that can be sampled and has a length."""

    def sample(self, batch_size: int, seed: int | None = None) -> BatchDict:
        """A batch with obs, next_obs, actions, rewards and terminated; a function of its seed."""
        ...

    def __len__(self) -> int: ...


def open_dataset(data: Any) -> Any:
    """The dataset that a value stands for.

    Args:
        data: A dataset or buffer; an `EpisodeBuffer`; a dict of columns, or a tuple of them in the
            order of `OfflineDatasetBuffer`; or where one of these lies: a folder of episodes or of
            a replay buffer, a file of any format that can be read, `minari:ID`.

    Raises:
        SharpwaveIOError: There is no such file or folder.
        TypeError: It is none of these.
        ValueError: Columns are missing, or there are no steps.

    Example:
        >>> columns = {"observations": np.zeros((5, 3)), "next_observations": np.zeros((5, 3)),
        ...            "actions": np.zeros((5, 1)), "rewards": np.ones(5), "terminals": np.zeros(5)}
        >>> open_dataset(columns)
        OfflineDatasetBuffer(5 steps in 1 episodes)
    """
    if isinstance(data, str | os.PathLike):
        return _open_path(data)
    if isinstance(data, Mapping):
        return OfflineDatasetBuffer(**_columns(data))
    if isinstance(data, tuple):
        return OfflineDatasetBuffer(**_columns(dict(zip(COLUMNS, data, strict=False))))
    if hasattr(data, "one_episode"):  # an EpisodeBuffer, which few programs have imported
        return OfflineDatasetBuffer.from_episodes(data)
    if isinstance(data, OfflineDataset):
        if not len(data):
            raise ValueError("dataset must hold at least one step, got 0")
        return data
    raise TypeError(
        "dataset must have sample(batch_size, seed) and a length, or be an EpisodeBuffer, columns "
        f"of steps or where they lie, got {type(data).__name__}"
    )


def name_of(data: Any) -> str | None:
    """Name or path by which `open_dataset` finds the dataset in another process, or None."""
    if isinstance(data, str) and data.startswith(MINARI):
        return data
    if isinstance(data, str | os.PathLike):
        return str(Path(data).absolute())
    return None


def _open_path(path: str | os.PathLike[str]) -> Any:
    from sharpwave.formats import FORMATS, read_episodes

    if isinstance(path, str) and path.startswith(MINARI):
        return _of_stream(read_episodes(path.removeprefix(MINARI), "minari"))
    if FORMATS["episodes"].detect(path):
        return OfflineDatasetBuffer.from_episodes(path)
    if is_store(path):
        return MmapReplayBuffer.open(path, read_only=True)
    if (Path(path) / "commit.json").is_file():
        return ReplayBuffer.load(path)
    return _of_stream(read_episodes(path))


def _of_stream(stream: Any) -> OfflineDatasetBuffer:
    from sharpwave.episodes.transitions import transitions_of

    columns: dict[str, Any] = transitions_of(stream)
    return OfflineDatasetBuffer(**columns)


def _columns(given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a dataset; what else has a row for every step is there for learners."""
    known = {OTHER_NAMES.get(name, name): values for name, values in given.items()}
    columns = {name: known[name] for name in COLUMNS if name in known}
    missing = [name for name in COLUMNS[:-1] if name not in columns]
    if missing:
        raise ValueError(f"dataset must have the columns {missing} too, got {list(given)}")
    n = len(columns["rewards"])
    columns.setdefault("truncated", np.zeros(n, np.bool_))
    others = {name: values for name, values in given.items() if _may_be_extra(name, values, n)}
    return {**columns, "extra": others}


def _may_be_extra(name: Any, values: Any, n: int) -> bool:
    taken = {*COLUMNS, *OTHER_NAMES, *MADE, *RESERVED, *RESERVED_IN_BATCH}
    named = isinstance(name, str) and name.isidentifier() and name not in taken
    is_column = isinstance(values, np.ndarray) and values.dtype.kind in "biuf"
    return named and is_column and values.shape[:1] == (n,)


@dataclass(frozen=True)
class StateNormalizer:
    """Observations minus their mean, over their deviation.

    Attributes:
        mean: [...] what is subtracted.
        std: [...] what is divided by.
    """

    mean: Array
    std: Array

    def normalize_obs(self, obs: Any) -> Any:
        """Observations [B, ...] as the networks see them."""
        return ((np.asarray(obs, np.float32) - self.mean) / self.std).astype(np.float32)


def normalizer_of(dataset: Any, wanted: bool | None) -> StateNormalizer | None:
    """The normalizer of observations, or None where they stay as they are.

    Args:
        dataset: The result of `open_dataset`; one that normalizes itself decides.
        wanted: True to normalize, False not to; None to normalize where it is possible.

    Raises:
        TypeError: It is wanted, but observations are nested, images, or can only be
            drawn at random.
    """
    if normalizes(dataset):
        return StateNormalizer(dataset.obs_mean, dataset.obs_std)
    if wanted is None:
        wanted = _can_normalize(dataset)
    if not wanted:
        return None
    mean, variance = _moments(dataset)
    return StateNormalizer(mean.astype(np.float32), obs_divisor(np.sqrt(variance)))


def normalizes(dataset: Any) -> bool:
    """Return whether the batches of a dataset are normalized already."""
    return isinstance(dataset, OfflineDatasetBuffer) and dataset.normalize


def _can_normalize(dataset: Any) -> bool:
    parts = dataset.parts if isinstance(dataset, OfflineMixture) else [dataset]
    return (
        is_readable(dataset)
        and not any(map(normalizes, parts))
        and all(_is_vectors(first_step(part)["obs"]) for part in parts if len(part))
    )


def _is_vectors(obs: Any) -> bool:
    return isinstance(obs, np.ndarray) and obs.dtype.kind == "f" and obs.ndim == 2


def _moments(dataset: Any) -> tuple[Array, Array]:
    """Mean and variance of the observations in batches."""
    if isinstance(dataset, OfflineMixture):
        if any(map(normalizes, dataset.parts)):
            raise ValueError(
                "normalize_obs needs a mixture whose parts do not normalize themselves"
            )
        moments = [_moments(part) for part in dataset.parts]
        mean = sum(share * part for share, (part, _) in zip(dataset.shares, moments, strict=True))
        variance = sum(
            share * (own + (part - mean) ** 2)
            for share, (part, own) in zip(dataset.shares, moments, strict=True)
        )
        return np.asarray(mean), np.asarray(variance)
    total = square = 0.0
    for obs in _chunks(dataset, "obs"):
        total = total + obs.sum(0, dtype=np.float64)
    mean = np.asarray(total / len(dataset))
    for obs in _chunks(dataset, "obs"):
        square = square + ((obs - mean) ** 2).sum(0)
    return mean, np.asarray(square / len(dataset))


def reward_form(
    dataset: Any, scale: float | Literal["returns"], shift: float
) -> tuple[float, float] | None:
    """Scale and shift of rewards; None where they stay as they are.

    Args:
        dataset: The result of `open_dataset`.
        scale: A factor, or "returns" for that with which returns span `RETURNS_SPAN`.
        shift: Added to the scaled rewards.

    Raises:
        TypeError: "returns" is asked for of a dataset that does not know its episodes.
        ValueError: All its returns are the same.
    """
    if scale == "returns":
        if not isinstance(dataset, OfflineDatasetBuffer):
            raise TypeError(
                f'reward_scale="returns" needs a dataset of whole episodes, got '
                f"{type(dataset).__name__}"
            )
        stats = dataset.stats()
        span = stats["max_return"] - stats["min_return"]
        if span == 0:
            raise ValueError('reward_scale="returns" needs returns that differ')
        scale = RETURNS_SPAN / span
    factor = float(scale)
    return None if (factor, shift) == (1.0, 0.0) else (factor, shift)


def action_range(dataset: Any) -> tuple[Array, Array]:
    """The smallest and largest action of each dimension, [d]."""
    parts = dataset.parts if isinstance(dataset, OfflineMixture) else [dataset]
    chunks = [actions for part in parts for actions in _chunks(part, "actions")]
    rows = [actions.reshape(len(actions), -1) for actions in chunks]
    return np.min([each.min(0) for each in rows], 0), np.max([each.max(0) for each in rows], 0)


def is_readable(dataset: Any) -> bool:
    """Return whether all steps of a dataset can be read, and not only drawn at random."""
    parts = dataset.parts if isinstance(dataset, OfflineMixture) else [dataset]
    return all(isinstance(rows_of(part), ReplayBuffer) for part in parts)


def _chunks(dataset: Any, name: str) -> Iterator[Array]:
    rows = rows_of(dataset)
    if not isinstance(rows, ReplayBuffer):
        raise TypeError(
            f"{name} of all steps cannot be read of a {type(dataset).__name__}: normalize it "
            "yourself, and give act_low and act_high"
        )
    ids, view = rows.indices(), Transition((name,))
    for begin in range(0, len(ids), _CHUNK):
        values = rows.gather(ids[begin : begin + _CHUNK], view=view)[name]
        if name == "obs" and not _is_vectors(values):
            raise TypeError("normalize_obs needs observations that are vectors of numbers")
        yield values


def check_extra(dataset: Any, columns: Mapping[str, Field], learner: Learner) -> None:
    """Check that a dataset has the columns that a learner declares.

    Raises:
        ValueError: One of them is missing, or has another dtype or shape.
    """
    parts = dataset.parts if isinstance(dataset, OfflineMixture) else [dataset]
    for part in parts if columns else ():
        if len(part):
            check_columns(first_step(part), columns, 1, learner, "dataset")


def first_step(dataset: Any) -> BatchDict:
    """One step, for the shapes and types of its entries."""
    return rows_of(dataset).sample(1, 0)  # type: ignore[no-any-return]
