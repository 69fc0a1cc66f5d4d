"""Replay buffer of transitions as torch tensors."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from sharpwave.buffers.replay import check_count, check_rewritten
from sharpwave.buffers.views import NStep, Sequence
from sharpwave.core.tree import map_leaves
from sharpwave.tensors.buffers.base import ResetStrategy, TensorBuffer
from sharpwave.tensors.buffers.fields import Fields, TensorField, extra_fields, field_tree
from sharpwave.tensors.buffers.look_ahead import LookAhead
from sharpwave.tensors.buffers.native_rows import NativeRows
from sharpwave.tensors.buffers.rows import Rows, TensorColumns
from sharpwave.tensors.buffers.statistics import StatsTracker
from sharpwave.tensors.buffers.transfers import to_device
from sharpwave.tensors.buffers.windows import (
    ArrivalWindows,
    Ring,
    TensorArrivalBatch,
    check_windows,
)
from sharpwave.types import Nested

__all__ = ["TensorReplayBatch", "TensorReplayBuffer"]


@dataclass
class TensorReplayBatch:
    """Transitions of a replay buffer, B of them.

    Attributes:
        observations: [B, *obs_shape], or a dict of such.
        actions: [B, *action_shape].
        rewards: [B].
        dones: [B] bool, where the episode ended.
        truncateds: [B] bool, where it ended by being cut.
        next_observations: Like observations.
        extras: The extra fields by name.
        discounts: [B], what the value of `next_observations` counts, 0 where an episode terminated.
            Only of n-step transitions; None elsewhere.
    """

    observations: Nested
    actions: Nested
    rewards: Tensor
    dones: Tensor
    truncateds: Tensor
    next_observations: Nested
    extras: dict[str, Nested] = field(default_factory=dict, kw_only=True)
    discounts: Tensor | None = field(default=None, kw_only=True)

    @property
    def terminateds(self) -> Tensor:
        """[B] bool, where nothing follows: a value target is not bootstrapped there."""
        return self.dones & ~self.truncateds


class TensorReplayBuffer(TensorBuffer):
    """Replay buffer of torch tensors: the newest steps of `num_envs` environments, drawn uniformly.

    On the CPU the rows are in the native engine; on CUDA they are tensors, a step is written in one
    launch and a batch read in one, and no call waits for the device. With CPU storage and CUDA
    output, batches are put together in page-locked memory and copied while the device computes.

    Args:
        buffer_size: Steps to keep of each environment.
        num_envs: Environments; every `add` brings one step of each.
        obs_shape: The shape of an observation, or a dict of shapes (nested, if need be).
        action_shape: The shape of an action, or a dict of shapes.
        stats_tracker: Is given rewards and dones of every `add`.
        obs_dtype: Of observations and next observations; for dicts a dict, where float32 is the
            default, or one for all.
        action_dtype: Likewise.
        device: Device of batches.
        store_device: Storage device of steps, by default `device`.
        reset_strategy: Strategy of adding to a full buffer.
        extra_fields: More fields by name: a dtype, a `(dtype, shape)` pair or a dict of these.
        seed: Random seed of the draws.
        generator: Draws instead, on the storage device. `torch.default_generator` makes draws
            follow `torch.manual_seed`.

    Example:
        >>> buffer = TensorReplayBuffer(100, num_envs=2, obs_shape=(3,), action_shape=())
        >>> obs = torch.zeros(2, 3)
        >>> buffer.add(obs, torch.ones(2), torch.ones(2), torch.tensor([False, True]), obs)
        >>> batch = buffer.get(2)
        >>> batch.observations.shape, batch.rewards.tolist()
        (torch.Size([2, 3]), [1.0, 1.0])
    """

    STEP = ("obs", "action", "reward", "done", "truncated", "next_obs")
    """The fields that are not extra ones."""

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
        store_device: torch.device | str | None = None,
        reset_strategy: ResetStrategy = ResetStrategy.RECURRENT,
        *,
        extra_fields: Mapping[str, Any] | None = None,
        seed: int = 0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(
            buffer_size,
            num_envs,
            stats_tracker,
            device=device,
            store_device=store_device,
            reset_strategy=reset_strategy,
            fields=_step_fields(obs_shape, obs_dtype, action_shape, action_dtype, extra_fields),
            seed=seed,
            generator=generator,
        )
        self._rows = self._make_rows()
        self._look_ahead = LookAhead(self.fields, self.buffer_size, self.num_envs)
        self._clock: Ring | None = None  # which is kept where something asks for it
        self._windows: dict[int, ArrivalWindows] = {}

    def _make_rows(self) -> Rows:
        places = (self.fields, self.buffer_size, self.num_envs)
        if self.store_device.type == "cpu":
            return NativeRows(*places, self.device)
        return TensorColumns(*places, self.store_device, self.device)

    def add(
        self,
        obs: Nested,
        action: Nested,
        reward: Any,
        done: Any,
        next_obs: Nested,
        truncated: Any = None,
        *,
        infos: Mapping[str, Any] | None = None,
        done_reasons: SequenceOf[str | None] | Mapping[str, Any] | None = None,
        **extras: Any,
    ) -> None:
        """Add one step of every environment.

        Args:
            obs: [N, *obs_shape], before the step. Tensors and arrays of any device; they are cast
                to the dtype of their field.
            action: [N, *action_shape].
            reward: [N].
            done: [N], nonzero where the episode ended, for whatever reason.
            next_obs: Like obs, what the step led to; at the end of an episode its last observation.
            truncated: [N], nonzero where it ended by being cut; None is nowhere.
            infos: Metrics for the tracker, [N] each.
            done_reasons: For the tracker.
            **extras: The extra fields, and metrics of the tracker.

        Raises:
            ValueError, TypeError: For shapes and names that do not fit; nothing has changed then.
            RuntimeError: The buffer is full and its strategy is ERROR.
        """
        columns, metrics = self._split_names(extras)
        step = {
            "obs": obs,
            "action": action,
            "reward": reward,
            "done": done,
            "truncated": self._never if truncated is None else truncated,
            "next_obs": next_obs,
            **columns,
        }
        tensors = self.fields.flat(step, self.num_envs)
        self._write(tensors)
        if self.stats_tracker is not None:
            self.stats_tracker.update(done, reward, {**metrics, **(infos or {})}, done_reasons)

    def _write(self, tensors: list[Tensor]) -> None:
        slot = self._make_room()
        self._rows.write(slot, tensors)
        self._look_ahead.wrote(slot)
        self._steps += 1
        self._tell_clock()

    def cut(self) -> None:
        """Say that what is added next does not follow what was added before.

        It is for environments that were reset, or exchanged, in the middle of episodes: n-step
        transitions do not go on over there.
        """
        if self._steps:
            self._look_ahead.cut(self.position)
            self._tell_clock()

    def _tell_clock(self) -> None:
        if self._clock is not None:
            self._clock.follow(self._steps, self._look_ahead.cuts)

    def _followed_clock(self) -> Ring:
        if self._clock is None:
            self._clock = Ring(self.buffer_size, self.num_envs, self.store_device)
            self._tell_clock()
        return self._clock

    def get_windows(
        self, batch_size: int, view: Sequence, *, generator: torch.Generator | None = None
    ) -> TensorArrivalBatch:
        """Draw windows of observations with what led there, with replacement.

        All windows are equally likely; those that begin with the oldest step are left out once
        others were overwritten. On a CUDA device nothing waits for it, and a captured gradient step
        draws anew, from what is there then, whenever it is replayed.

        Args:
            batch_size: Batch size.
            view: `Sequence(length, context=..., arrivals=True, cross=True)`.
            generator: Draws instead of the buffer's own: one that a CUDA graph knows.

        Raises:
            ValueError: There are fewer steps than rows of a window.
            TypeError: `view` is another one.

        Example:
            >>> from sharpwave import Sequence
            >>> buffer = TensorReplayBuffer(100, num_envs=1, obs_shape=(), action_shape=())
            >>> for t in range(3):
            ...     step = torch.tensor([float(t)])
            ...     buffer.add(step, step, step, torch.tensor([t == 2]), step + 1)
            >>> batch = buffer.get_windows(1, Sequence(3, arrivals=True, cross=True))
            >>> batch.observations.shape, batch.indices.shape
            (torch.Size([1, 3]), torch.Size([1, 3]))
        """
        check_count("batch_size", batch_size, 1)
        rows = check_windows(view).rows
        windows = self._windows.get(rows)
        if windows is None:
            places = (self.buffer_size, self.num_envs, rows, self.store_device, self.device)
            windows = ArrivalWindows(self._rows, self._followed_clock(), self.fields, *places)
            self._windows[rows] = windows
        least = windows.least_steps(self._steps)
        if self.current_size < least:
            raise ValueError(
                f"there must be {least} steps of each environment for windows of {rows} rows, "
                f"got {self.current_size}"
            )
        return windows.read(windows.draw(batch_size, generator or self.generator))

    @torch.no_grad()
    def update(self, indices: Any, **fields: Nested) -> None:
        """Write extra fields of steps over.

        Args:
            indices: Ids of steps, of any shape, those of `get_windows`; -1 is passed over, and
                steps that were overwritten meanwhile are dropped, which `stale_updates` counts. Of
                equal ids the last one counts.
            **fields: New values by the name of their field, `[*indices.shape, ...]` each. What
                happened cannot be changed: obs, action, reward and flags are refused.

        Raises:
            TypeError, ValueError: For names and values that do not fit; nothing has changed then.
            IndexError: An id was never handed out (where it is known without waiting for a device).
        """
        check_rewritten(fields, self.fields.trees, self.STEP)
        ids = torch.as_tensor(indices).detach()
        shape = ids.shape
        ids = to_device(ids.reshape(-1).to(torch.int64), self.store_device)
        known = self._steps * self.num_envs
        if ids.device.type == "cpu" and not bool(((ids >= -1) & (ids < known)).all()):
            raise IndexError(
                f"indices must be of steps that were added, from -1 to {known - 1}, "
                f"got {int(ids.min())} to {int(ids.max())}"
            )
        part = Fields({name: self.fields.trees[name] for name in fields})
        rows = part.flat(map_leaves(partial(_as_rows, shape), dict(fields)), len(ids))
        places, is_written = self._followed_clock().places(ids)
        which = tuple(self.fields.names.index(name) for name in part.names)
        if which:
            self._rows.rewrite(which, places, rows, is_written)

    @property
    def stale_updates(self) -> int:
        """Steps that `update` came too late for; asking waits for the device."""
        return 0 if self._clock is None else int(self._clock.stale)

    def get(
        self, batch_size: int, *, view: NStep | None = None, out: Any = None
    ) -> TensorReplayBatch:
        """Draw transitions with replacement.

        Args:
            batch_size: Batch size, at most the number of steps in the buffer.
            view: `NStep(n, gamma)` for n-step transitions: rewards are summed, what follows is that
                of the last step, and the batch has `discounts`.
            out: A batch of this buffer, view and size to overwrite, instead of a new one: it stays
                at one address, where a CUDA graph finds it.

        Raises:
            ValueError: There are fewer steps in the buffer, or `out` is another kind of batch.
            TypeError: `view` is another one.
        """
        self._check_batch(batch_size)
        self._check_view(view, out)
        if out is not None:
            targets = self._tensors_of(out, batch_size)
            _, indices = self._rows.sample(batch_size, self.generator, targets)
            self._see_ahead(view, targets, indices, out.discounts)
            found: TensorReplayBatch = out
            return found
        tensors, indices = self._rows.sample(batch_size, self.generator)
        discounts = self._see_ahead(view, tensors, indices)
        return TensorReplayBatch(**self._columns(tensors), discounts=discounts)

    @torch.no_grad()
    def gather(self, indices: Any, *, view: NStep | None = None) -> TensorReplayBatch:
        """The transitions with these indices [B] (slot * num_envs + environment)."""
        self._check_view(view)
        places = torch.as_tensor(indices)
        rows = [to_device(row, self.device) for row in self._rows.gather(places)]
        discounts = self._see_ahead(view, rows, to_device(places, self.store_device))
        return TensorReplayBatch(**self._columns(rows), discounts=discounts)

    def _see_ahead(
        self,
        view: NStep | None,
        tensors: list[Tensor],
        indices: Tensor,
        out: Tensor | None = None,
    ) -> Tensor | None:
        """Make n-step transitions of the tensors of a batch, in place; their discounts."""
        if view is None:
            return None
        return self._look_ahead(self._rows, tensors, indices, view, self.position, out)

    def _check_view(self, view: NStep | None, out: Any = None) -> None:
        if view is not None and (type(view) is not NStep or view.fields is not None):
            raise TypeError(f"view must be NStep(n, gamma) or None, got {view!r}")
        if out is not None and (out.discounts is None) != (view is None):
            raise ValueError("out must be a batch of the same view")

    def _columns(self, tensors: list[Tensor]) -> dict[str, Any]:
        """The arguments of a batch."""
        trees = self.fields.nested(tensors)
        return {
            "observations": trees.pop("obs"),
            "actions": trees.pop("action"),
            "rewards": trees.pop("reward"),
            "dones": trees.pop("done"),
            "truncateds": trees.pop("truncated"),
            "next_observations": trees.pop("next_obs"),
            "extras": trees,
        }

    def _tensors_of(self, batch: TensorReplayBatch, batch_size: int) -> list[Tensor]:
        """The opposite of `_columns`: the tensors of a batch that is to be overwritten."""
        trees = {
            "obs": batch.observations,
            "action": batch.actions,
            "reward": batch.rewards,
            "done": batch.dones,
            "truncated": batch.truncateds,
            "next_obs": batch.next_observations,
            **batch.extras,
        }
        return self.fields.as_they_are(trees, batch_size, self.device)

    def _check_batch(self, batch_size: int) -> None:
        check_count("batch_size", batch_size, 1)
        if self.total_current_size == 0:
            raise ValueError("buffer is empty: add steps before sampling")
        if batch_size > self.total_current_size:
            raise ValueError(
                f"batch_size must be at most {self.total_current_size}, the number of stored "
                f"steps, got {batch_size}"
            )

    def _clear(self) -> None:
        self._rows.clear()
        self._look_ahead.cuts = []
        if self._clock is not None:
            self._clock.follow(0, [])

    def state_dict(self) -> dict[str, Any]:
        """The steps, where the ring stands and the generator, as tensors."""
        indices = torch.arange(self.total_current_size, device=self.store_device)
        state = self._state(self._rows.gather(indices), self._steps)
        return {**state, "cuts": torch.tensor(self._look_ahead.cuts, dtype=torch.int64)}

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict`, also from that of a buffer on another device.

        Draws go on as they would have, if both buffers keep steps on the same kind of device.

        Raises:
            ValueError: The state is of a buffer of other fields, size or environments.
        """
        columns, steps = self._checked_state(state)
        self._rows.restore(columns, steps % self.buffer_size if steps > self.buffer_size else 0)
        self._steps = steps
        self._look_ahead.cuts = torch.as_tensor(state.get("cuts", ())).tolist()
        self._load_generator(state["generator"])
        self._tell_clock()


def _as_rows(shape: torch.Size, value: Any) -> Tensor:
    """Values for ids of this shape, as rows."""
    tensor = torch.as_tensor(value).detach()
    if tensor.shape[: len(shape)] != shape:
        raise ValueError(
            f"new values must have a shape that begins like that of indices, {tuple(shape)}, "
            f"got {tuple(tensor.shape)}"
        )
    return tensor.reshape(shape.numel(), *tensor.shape[len(shape) :])


def _step_fields(
    obs_shape: Any, obs_dtype: Any, action_shape: Any, action_dtype: Any, extra: Any
) -> Fields:
    obs = field_tree("obs", obs_shape, obs_dtype)
    return Fields(
        {
            "obs": obs,
            "action": field_tree("action", action_shape, action_dtype),
            "reward": TensorField(torch.float32),
            "done": TensorField(torch.bool),
            "truncated": TensorField(torch.bool),
            "next_obs": obs,
            **extra_fields(extra, (*TensorReplayBuffer.STEP, "infos", "done_reasons")),
        }
    )
