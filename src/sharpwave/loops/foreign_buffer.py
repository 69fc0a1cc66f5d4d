"""Buffers of somebody else's, as buffers of a run."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

import numpy as np

from sharpwave.core.tree import map_leaves
from sharpwave.types import BatchDict, Nested

__all__ = ["ForeignBuffer"]

ENTRIES = ("obs", "actions", "rewards", "next_obs")
_STRIDE = 0x9E3779B97F4A7C15  # neighboring seeds lie far apart


class ForeignBuffer:
    """Pushes the steps of vector environments one by one, and checks what comes back.

    Args:
        buffer: Has `push(obs, action, reward, terminated, truncated, next_obs)`,
            `sample(batch_size)` or `sample(batch_size, seed)`, which returns a dict of arrays with
            the entries obs, actions, rewards, next_obs, and terminated or discounts, and a length.
        seed: Of the seeds that `sample` gets.
        columns: Names of the learner's own columns, which `push` takes by name, and `sample`
            returns.

    Attributes:
        draws: Batches drawn so far, which the next seed depends on.

    Raises:
        TypeError: The buffer lacks a method, or its `push` a column, which is named.

    Example:
        >>> ForeignBuffer([], seed=0)
        Traceback (most recent call last):
            ...
        TypeError: buffer must have push, sample and a length, list lacks push, sample
    """

    def __init__(self, buffer: Any, seed: int, columns: Iterable[str] = ()) -> None:
        if hasattr(buffer, "one_episode"):
            raise TypeError(
                "buffer must not be an EpisodeBuffer, which has episodes only once they are "
                "complete: wrap env in RecordVectorEpisodes to keep them"
            )
        needed = ("push", "sample", "__len__")
        missing = [name for name in needed if not callable(getattr(buffer, name, None))]
        if missing:
            raise TypeError(
                "buffer must have push, sample and a length, "
                f"{type(buffer).__name__} lacks {', '.join(missing)}"
            )
        self.columns = tuple(columns)
        for name in self.columns:
            if not _takes(buffer.push, name):
                raise TypeError(
                    f"buffer must hold the learner's column {name!r}: push of "
                    f"{type(buffer).__name__} must take {name}="
                )
        self.buffer = buffer
        self.draws = 0
        self._seed = seed
        self._takes_seed = _takes_seed(buffer.sample)

    def __len__(self) -> int:
        return len(self.buffer)

    def push_batch(
        self,
        *,
        obs: Nested,
        actions: Nested,
        rewards: Any,
        terminated: Any,
        truncated: Any,
        next_obs: Nested,
        **columns: Any,
    ) -> None:
        """Push one step of every environment, [N, ...] each."""
        for i in range(len(rewards)):
            self.buffer.push(
                _row(obs, i),
                _row(actions, i),
                float(rewards[i]),
                bool(terminated[i]),
                bool(truncated[i]),
                _row(next_obs, i),
                **{name: np.asarray(column)[i] for name, column in columns.items()},
            )

    def sample(self, batch_size: int) -> BatchDict:
        """A batch.

        Raises:
            ValueError: An entry is missing.
        """
        self.draws += 1
        if self._takes_seed:
            drawn = self.buffer.sample(batch_size, (self._seed + self.draws * _STRIDE) % 2**63)
        else:
            drawn = self.buffer.sample(batch_size)
        missing = [name for name in (*ENTRIES, *self.columns) if name not in drawn]
        if "terminated" not in drawn and "discounts" not in drawn:
            missing.append("terminated")
        if missing:
            raise ValueError(
                f"buffer.sample must return the entries {', '.join(missing)} too, got {list(drawn)}"
            )
        own = {name: drawn[name] for name in self.columns}  # which keep their precision
        return {name: map_leaves(_single, entry) for name, entry in drawn.items()} | own

    def update_priorities(self, indices: Any, priorities: Any) -> None:
        """Tell a buffer that draws by priority of the errors [B] of rows that it gave by index."""
        if hasattr(self.buffer, "update_priorities"):
            self.buffer.update_priorities(indices, priorities)


def _parameters(function: Any) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # native code that does not tell
        return []


def _takes(push: Any, name: str) -> bool:
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return any(
        p.kind == p.VAR_KEYWORD or (p.name == name and p.kind in by_name) for p in _parameters(push)
    )


def _takes_seed(sample: Any) -> bool:
    parameters = _parameters(sample)
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return len(positional) > 1 and positional[1].name == "seed"


def _single(leaf: Any) -> Any:
    """Double precision, which is NumPy's habit, as the single precision of networks."""
    if hasattr(leaf, "is_floating_point"):  # a tensor
        return leaf.float() if leaf.is_floating_point() else leaf
    leaf = np.asarray(leaf)
    return leaf.astype(np.float32) if leaf.dtype == np.float64 else leaf


def _row(tree: Nested, i: int) -> Nested:
    return map_leaves(lambda leaf: np.asarray(leaf)[i], tree)
