"""Replay buffer in shared memory, which several processes fill and sample."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sharpwave.buffers.shared_memory import SharedBlock
from sharpwave.buffers.views import NStep
from sharpwave.tensors.buffers.base import ResetStrategy
from sharpwave.tensors.buffers.replay import TensorReplayBatch, TensorReplayBuffer
from sharpwave.tensors.buffers.rows import TensorColumns, written
from sharpwave.tensors.buffers.statistics import StatsTracker
from sharpwave.types import Array

__all__ = ["SharedReplayBuffer"]

_ATTEMPTS = 64
_BITS = {1: np.uint8, 2: np.int16, 4: np.int32, 8: np.int64}
"""Storage dtypes of numbers that NumPy does not know, by their size in bytes."""


class SharedReplayBuffer(TensorReplayBuffer):
    """A `TensorReplayBuffer` in shared memory of several processes.

    Make it in one process and hand it to the others, as an argument of `multiprocessing.Process`,
    through a queue or by forking. Every process may add and sample at any time. A row is one step
    as it was added, never a mixture: writers take turns, and readers, who wait for nobody, draw
    rows again that were overwritten while they were read. A process that is killed, even in the
    middle of a write, harms nobody: its unfinished step is never seen.

    Every process draws its own random rows. Statistics are those of the process that added.

    Args:
        buffer_size: As in `TensorReplayBuffer`.
        num_envs: Steps that every `add` brings, of the environments of one process.
        obs_shape: As in `TensorReplayBuffer`.
        action_shape: As in `TensorReplayBuffer`.
        stats_tracker: Stays with the process; a copy has none.
        obs_dtype: As in `TensorReplayBuffer`.
        action_dtype: As in `TensorReplayBuffer`.
        device: Device of batches; steps are in host memory.
        reset_strategy: As in `TensorReplayBuffer`.
        extra_fields: As in `TensorReplayBuffer`.
        seed: Random seed of the draws.

    Raises:
        MemoryError: There is not that much memory to share.

    Example:
        >>> buffer = SharedReplayBuffer(100, num_envs=2, obs_shape=(3,), action_shape=())
        >>> obs, ones = torch.zeros(2, 3), torch.ones(2)
        >>> buffer.add(obs, ones, ones, torch.tensor([False, True]), obs)
        >>> len(buffer), buffer.get(2).rewards.tolist()
        (1, [1.0, 1.0])
    """

    def __init__(
        self,
        buffer_size: int,
        num_envs: int,
        obs_shape: Any,
        action_shape: Any,
        stats_tracker: StatsTracker | None = None,
        obs_dtype: Any = torch.float32,
        action_dtype: Any = torch.float32,
        device: torch.device | str = "cpu",
        reset_strategy: ResetStrategy = ResetStrategy.RECURRENT,
        *,
        extra_fields: Mapping[str, Any] | None = None,
        seed: int = 0,
    ) -> None:
        self._seed = seed
        super().__init__(
            buffer_size,
            num_envs,
            obs_shape,
            action_shape,
            stats_tracker,
            obs_dtype,
            action_dtype,
            device,
            "cpu",
            reset_strategy,
            extra_fields=extra_fields,
            seed=seed,
        )

    def _make_rows(self) -> TensorColumns:
        forms = [(_stored_as(leaf.dtype), leaf.shape) for leaf in self.fields.leaves]
        return self._over(SharedBlock(forms, self.buffer_size, self.num_envs))

    def _over(self, block: SharedBlock) -> TensorColumns:
        """Columns over shared memory, drawn from in an order of this process alone."""
        self._block = block
        self._ring = block.ring
        self._writer: int | None = None
        self._draw_anew()
        self._columns_here = TensorColumns(
            self.fields,
            self.buffer_size,
            self.num_envs,
            self.store_device,
            self.device,
            self._tensors(block.columns),
        )
        return self._columns_here

    def _tensors(self, arrays: list[Array]) -> list[Tensor]:
        """Arrays of the fields as tensors over the same memory."""
        tensors = [torch.from_numpy(array) for array in arrays]
        for i, leaf in enumerate(self.fields.leaves):
            if tensors[i].dtype is not leaf.dtype:
                tensors[i] = tensors[i].view(leaf.dtype)
        return tensors

    def _draw_anew(self) -> None:
        """Take a generator that no other process has."""
        self._process = os.getpid()
        seed = self._seed + self._ring.next_ticket() * 0x9E3779B97F4A7C15
        self.generator = self._own_generator(seed % 2**63)

    @property
    def current_size(self) -> int:
        """Steps per environment in the buffer, of which one may be in the writing."""
        return self._ring.count()

    @property
    def full(self) -> bool:
        """True if the next step meets the `reset_strategy`."""
        return self.current_size >= self.buffer_size

    @property
    def position(self) -> int:
        """The slot of the next step."""
        return self._ring.range()[1] % self.buffer_size

    def _write(self, tensors: list[Tensor]) -> None:
        here = [tensor.cpu() for tensor in tensors]
        with self._writing():
            self._make_room()
            self._rows.write(self._ring.begin() % self.buffer_size, here)
            self._ring.finish()

    def _clear(self) -> None:
        self._ring.clear()

    def reset(self, reset_stats: bool = False) -> None:
        """Forget all steps, for every process; with `reset_stats` also this one's statistics."""
        with self._writing():
            super().reset(reset_stats)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Inside, no other process or thread writes."""
        if self._writer == threading.get_ident():
            yield
            return
        self._ring.lock()
        self._writer = threading.get_ident()
        try:
            yield
        finally:
            self._writer = None
            self._ring.unlock()

    def get(
        self, batch_size: int, *, view: NStep | None = None, out: Any = None
    ) -> TensorReplayBatch:
        """Draw transitions with replacement.

        Args:
            batch_size: Batch size, at most the number of steps in the buffer.
            view: None; steps of several processes are in no order that could be followed.
            out: A batch of this buffer and size to overwrite, instead of a new one.

        Raises:
            ValueError: There are fewer steps in the buffer, or `out` is another kind of batch.
        """
        self._check_batch(batch_size)
        self._check_view(view, out)
        targets = None if out is None else self._tensors_of(out, batch_size)
        if self._process != os.getpid():  # forked, with a copy of the generator
            self._draw_anew()
        rows = self._drawn_rows(batch_size)
        if self.device.type != "cpu":
            rows = self._columns_here.send(rows)
        if targets is not None:
            written(rows, targets)
            found: TensorReplayBatch = out
            return found
        return TensorReplayBatch(**self._columns(rows))

    def get_windows(self, *args: Any, **options: Any) -> Any:  # noqa: ARG002
        """Refused: steps of several processes are in no order."""
        raise TypeError("get_windows needs steps in order, and those of several processes are not")

    def update(self, indices: Any, **fields: Any) -> None:  # noqa: ARG002
        """Refused: steps are not written over while other processes read them."""
        raise TypeError("update needs a buffer of one process")

    def _check_view(self, view: NStep | None, out: Any = None) -> None:  # noqa: ARG002
        if view is not None:
            raise ValueError(
                f"view must be None: steps of several processes are in no order, got {view!r}"
            )

    def _drawn_rows(self, count: int) -> list[Tensor]:
        steps, rows = self._draw(count)
        for _ in range(_ATTEMPTS):
            first = self._ring.range()[0]
            if steps.min() >= first:
                return self._tensors(rows)
            lost = np.flatnonzero(steps < first)
            steps[lost], again = self._draw(len(lost))
            for row, new in zip(rows, again, strict=True):
                row[lost] = new
        with self._writing():  # writers are faster than this reader: let them wait
            return self._tensors(self._draw(count)[1])

    def _draw(self, count: int) -> tuple[Array, list[Array]]:
        """Steps [count] that were whole when drawn, and their rows as they are now."""
        first, end = self._ring.range()
        if first == end:
            raise ValueError("buffer is empty: add steps before sampling")
        n_envs = self.num_envs
        drawn = torch.randint(first * n_envs, end * n_envs, (count,), generator=self.generator)
        rows = drawn.numpy()
        return rows // n_envs, self._block.gather(rows % (self.buffer_size * n_envs))

    def state_dict(self) -> dict[str, Any]:
        """The steps, oldest first, and this process's generator, as tensors."""
        with self._writing():
            first, end = self._ring.range()
            slots = torch.arange(first, end)[:, None] % self.buffer_size * self.num_envs
            rows = self._rows.gather((slots + torch.arange(self.num_envs)).reshape(-1))
            return self._state(rows, end - first)

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict`, for every process.

        Raises:
            ValueError: The state is of a buffer of other fields, size or environments.
        """
        columns, steps = self._checked_state(state)
        oldest = steps % self.buffer_size if steps > self.buffer_size else 0
        with self._writing():
            self._ring.clear()
            for i in range(min(steps, self.buffer_size)):
                slot = (oldest + i) % self.buffer_size
                place = self._ring.begin() % self.buffer_size
                self._rows.write(place, [column[slot] for column in columns])
                self._ring.finish()
        self._load_generator(state["generator"])

    def __getstate__(self) -> dict[str, Any]:
        left_out = ("_rows", "_ring", "_columns_here", "generator", "stats_tracker")
        return {name: value for name, value in vars(self).items() if name not in left_out}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, stats_tracker=None)
        self._rows = self._over(self._block)


def _stored_as(dtype: torch.dtype) -> Any:
    """The dtype of the arrays that hold numbers of a dtype of torch."""
    try:
        return torch.empty(0, dtype=dtype).numpy().dtype
    except TypeError:
        return _BITS[dtype.itemsize]
