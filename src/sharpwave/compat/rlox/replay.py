"""The uniform buffer with columns that are registered and written by handle."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sharpwave import buffers
from sharpwave.buffers.replay import check_count
from sharpwave.buffers.schema import BATCH_NAMES, RESERVED, RESERVED_IN_BATCH, STEP
from sharpwave.types import Array, BatchDict, Ids

_TAKEN = {*STEP, *BATCH_NAMES.values(), *RESERVED, *RESERVED_IN_BATCH}


@dataclass
class _Column:
    name: str
    values: Array  # [capacity, dim] float32
    owners: Ids  # [capacity], the step that each row was written for


class ReplayBuffer(buffers.ReplayBuffer):
    """`sharpwave.ReplayBuffer` with `register_column` and `push_extra`.

    New programs declare extra columns as `fields` of `sharpwave.ReplayBuffer`, which stores them in
    the rows and lets `push` take them.

    Example:
        >>> import numpy as np
        >>> buffer = ReplayBuffer(capacity=10, obs_dim=2, act_dim=1)
        >>> handle = buffer.register_column("log_prob", 1)
        >>> buffer.push(np.zeros(2), [0.0], 1.0, False, False, np.zeros(2))
        >>> buffer.push_extra(handle, [-0.5])
        >>> buffer.sample(1, seed=0)["log_prob"]
        array([-0.5], dtype=float32)
    """

    __slots__ = ("_columns",)

    def register_column(self, name: str, dim: int) -> int:
        """Add a float32 column before the first push.

        Args:
            name: Its key in batches.
            dim: Its width. With 1, batches hold [B], otherwise [B, dim].

        Returns:
            The handle that `push_extra` takes.

        Raises:
            ValueError: If the name is in use, or steps were pushed already, or the buffer has
                `n_envs`.
        """
        check_count("dim", dim, 1)
        if self.n_envs is not None:
            raise ValueError("columns of a buffer with n_envs must be declared as fields")
        columns = getattr(self, "_columns", [])
        if not isinstance(name, str) or not name:
            raise TypeError(f"name must be a string that is not empty, got {name!r}")
        if name in _TAKEN or any(column.name == name for column in columns):
            raise ValueError(f"name must not be in use, got {name!r}")
        if self._engine.stats()["pushed"] > 0:
            raise ValueError("register_column must be called before the first push")
        nobody = np.full(self.capacity, np.iinfo(np.uint64).max, np.uint64)
        values = np.zeros((self.capacity, dim), np.float32)
        self._columns: list[_Column] = [*columns, _Column(name, values, nobody)]
        # Buffers without columns keep the native sample.
        self.__class__ = _ReplayBufferWithColumns
        return len(columns)

    def push_extra(self, handle: int, values: npt.ArrayLike) -> None:
        """Write a column of the newest step; of steps that are not written it reads as zeros.

        Raises:
            IndexError: If there is no such handle.
            ValueError: If nothing was pushed, or `values` are not as many as the column is wide.
        """
        columns = getattr(self, "_columns", [])
        if check_count("handle", handle, 0) >= len(columns):
            raise IndexError(f"handle must be less than {len(columns)}, got {handle}")
        column = columns[handle]
        row = np.asarray(values, np.float32).reshape(-1)
        if row.shape != column.values.shape[1:]:
            raise ValueError(f"values must have shape {column.values.shape[1:]}, got {row.shape}")
        if len(self) == 0:
            raise ValueError("push_extra needs a step to write to: push one first")
        newest = self._engine.heads()[0][1] - 1
        slot = newest % self.capacity
        column.values[slot] = row
        column.owners[slot] = newest


class _ReplayBufferWithColumns(ReplayBuffer):
    """The class of a buffer once a column is registered."""

    __slots__ = ()

    def sample(
        self, batch_size: int, seed: int | None = None, *, indices: bool = False, **options: Any
    ) -> BatchDict:
        batch = super().sample(batch_size, seed, indices=True, **options)
        ids = batch["indices"] if indices else batch.pop("indices")
        slots = (ids % np.uint64(self.capacity)).astype(np.intp)
        for column in self._columns:
            # A row that was written for an older step in the same slot does not count.
            written = column.owners[slots] == ids
            values = np.where(written[:, None], column.values[slots], np.float32(0))
            batch[column.name] = values[:, 0] if values.shape[1] == 1 else values
        return batch

    def save(self, path: str | os.PathLike[str]) -> None:  # noqa: ARG002
        raise ValueError(
            "registered columns are not saved to folders: pickle the buffer, or declare them as "
            "fields of sharpwave.ReplayBuffer"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        rebuild, arguments, _ = super().__reduce__()
        return rebuild, arguments, self._columns

    def __setstate__(self, columns: list[_Column]) -> None:
        self._columns = columns
