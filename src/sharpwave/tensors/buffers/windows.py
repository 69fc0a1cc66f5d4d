"""Windows of observations with what led there, of replay buffers of tensors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from sharpwave.buffers.views import Sequence
from sharpwave.tensors.buffers.fields import Fields
from sharpwave.tensors.buffers.rows import Rows, Which
from sharpwave.tensors.buffers.transfers import to_device
from sharpwave.types import Nested

__all__ = ["ArrivalWindows", "Ring", "TensorArrivalBatch", "check_windows"]


@dataclass
class TensorArrivalBatch:
    """Windows of a replay buffer, B of T rows, each an observation and what led there.

    Attributes:
        observations: [B, T, *obs_shape], or a dict of such.
        prev_actions: [B, T, *action_shape] of the step that led there; zero where `is_first`.
        rewards: [B, T] likewise.
        is_first: [B, T] bool, the first observation of an episode.
        is_last: [B, T] bool, the last one.
        is_terminal: [B, T] bool, the last one of an episode that terminated.
        indices: [B, T] int64, ids of the steps that begin there, for `update`; -1 at the last
            observation of an episode, where none does.
        extras: The extra fields of these steps by name; zero where there is none.
    """

    observations: Nested
    prev_actions: Nested
    rewards: Tensor
    is_first: Tensor
    is_last: Tensor
    is_terminal: Tensor
    indices: Tensor
    extras: dict[str, Nested] = field(default_factory=dict, kw_only=True)


def check_windows(view: object) -> Sequence:
    """The view, if tensor buffers give its windows.

    Raises:
        TypeError: It is another view.
    """
    plain = isinstance(view, Sequence) and (view.arrivals, view.cross) == (True, True)
    if not plain or (view.pad, view.stride, view.fields) != (False, 1, None):  # type: ignore[attr-defined]
        raise TypeError(
            "view must be Sequence(length, context=..., arrivals=True, cross=True), "
            f"which tensor buffers give, got {view!r}"
        )
    assert isinstance(view, Sequence)
    return view


class Ring:
    """Position of a ring of steps, as tensors that captured work reads.

    The step that environment e took as number t of all has the id t * num_envs + e.

    Args:
        buffer_size: Slots.
        num_envs: Rows in a slot.
        device: Storage device of steps.

    Attributes:
        steps: Steps ever added, [] int64.
        cuts: [buffer_size] bool, slots whose steps do not follow those in the slots before.
        stale: Steps that were overwritten before they were written over, [] int64.
    """

    def __init__(self, buffer_size: int, num_envs: int, device: torch.device) -> None:
        self._size, self._n = buffer_size, num_envs
        self.steps = torch.zeros((), dtype=torch.int64, device=device)
        self.cuts = torch.zeros(buffer_size, dtype=torch.bool, device=device)
        self.stale = torch.zeros((), dtype=torch.int64, device=device)
        self._cuts: list[int] = []

    def follow(self, steps: int, cuts: list[int]) -> None:
        """Say where the ring stands."""
        self.steps.fill_(steps)
        if cuts != self._cuts:
            self._cuts = list(cuts)
            self.cuts.zero_()
            self.cuts[cuts] = True

    def places(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """The places of steps by their ids [K], and which of them are to be written.

        Those are still there, and of equal ids the last one.
        """
        time = ids // self._n
        is_there = (time >= self.steps - self._size) & (time < self.steps) & (ids >= 0)
        self.stale += ((ids >= 0) & (time < self.steps - self._size)).sum()
        in_order, order = torch.sort(ids, stable=True)
        is_newest = torch.ones_like(is_there)
        is_newest[:-1] = in_order[1:] != in_order[:-1]
        written = torch.empty_like(is_there)
        written[order] = is_newest
        return time % self._size * self._n + ids % self._n, written & is_there


class ArrivalWindows:
    """Draws and reads windows of a ring of steps, where they are kept.

    Nothing waits for the device, and what changes with time are tensors: a captured gradient step
    draws anew whenever it is replayed.

    Args:
        rows: The steps.
        ring: Position of the ring.
        fields: Fields of a row.
        buffer_size: Slots of the ring.
        num_envs: Rows in a slot.
        length: Rows of a window.
        store_device: Storage device of steps.
        device: Device of batches.
    """

    def __init__(
        self,
        rows: Rows,
        ring: Ring,
        fields: Fields,
        buffer_size: int,
        num_envs: int,
        length: int,
        store_device: torch.device,
        device: torch.device,
    ) -> None:
        self._rows, self._ring, self._fields = rows, ring, fields
        self._size, self._n, self._length = buffer_size, num_envs, length
        self._store_device, self._device = store_device, device
        self._offsets = torch.arange(length, device=store_device)
        # A row that is not read: on CUDA it comes out as zeros and costs nothing.
        self._nowhere = -1 if store_device.type == "cuda" else 0
        parts: dict[str, list[int]] = {}
        for i, name in enumerate(fields.names):
            parts.setdefault(name.partition(".")[0], []).append(i)
        self._parts: dict[str, Which] = {name: tuple(which) for name, which in parts.items()}
        self._extra = [name for name in parts if name not in _STEP]

    def least_steps(self, steps: int) -> int:
        """Steps of each environment after which there is a window for sure."""
        return self._length + (1 if steps > self._size else 0)

    @torch.no_grad()
    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """The ids [count] of first steps, all with equal chances.

        The caller has seen that there are `least_steps`.
        """
        steps = self._ring.steps
        # Nobody knows what led to the oldest step, once others were overwritten.
        lowest = steps - steps.clamp(max=self._size) + (steps > self._size)
        times = (steps - 1 - self._offsets)[:, None].expand(-1, self._n)
        envs = torch.arange(self._n, device=self._store_device)
        rows = (self._is_last(times, self._places(times, envs)).long() + 1).cumsum(0)
        newest = steps - 1 - (rows < self._length).sum(0)  # whose window is complete, by env
        ends = (newest - lowest + 1).clamp(min=0).cumsum(0)
        chances = torch.rand(
            count, generator=generator, dtype=torch.float64, device=self._store_device
        )
        points = (chances * ends[-1]).long().clamp(max=ends[-1] - 1)
        drawn = torch.searchsorted(ends, points, right=True)
        before = torch.where(drawn > 0, ends[drawn - 1], 0)
        return (lowest + points - before) * self._n + drawn

    @torch.no_grad()
    def read(self, ids: Tensor) -> TensorArrivalBatch:
        """The windows that begin with the steps of these ids [B]."""
        env = (ids % self._n)[:, None]
        times = (ids // self._n)[:, None] + self._offsets
        places = self._places(times, env)
        last = self._is_last(times, places)
        # Step k is row k and one more for every end before it; an end is the row after its step.
        row_of_step = self._offsets + last.long().cumsum(1) - last.long()
        wanted = self._offsets.expand(len(ids), -1).contiguous()
        step = torch.searchsorted(row_of_step, wanted, right=True) - 1
        is_end = row_of_step.gather(1, step) != wanted
        place, time = places.gather(1, step), times.gather(1, step)
        before = self._places(time - 1, env)
        is_first = (time == 0) | self._is_last(time - 1, before)
        is_first &= ~is_end
        done, truncated = self._rows.columns((*self._parts["done"], *self._parts["truncated"]))
        terminal = is_end & done[place] & ~truncated[place]
        led = torch.where(is_end, place, torch.where(is_first, self._nowhere, before))
        begins = torch.where(is_end, self._nowhere, place)
        return TensorArrivalBatch(
            observations=self._observations(place, is_end),
            prev_actions=self._part("action", led, is_first),
            rewards=self._part("reward", led, is_first),
            is_first=to_device(is_first, self._device),
            is_last=to_device(is_end, self._device),
            is_terminal=to_device(terminal, self._device),
            indices=to_device(torch.where(is_end, -1, time * self._n + env), self._device),
            extras={name: self._part(name, begins, is_end) for name in self._extra},
        )

    def _places(self, times: Tensor, env: Tensor) -> Tensor:
        return times % self._size * self._n + env

    def _is_last(self, times: Tensor, places: Tensor) -> Tensor:
        """True where an episode ends with a step, or is cut after it."""
        (done,) = self._rows.columns(self._parts["done"])
        return done[places] | self._ring.cuts[(times + 1) % self._size]

    def _observations(self, place: Tensor, is_end: Tensor) -> Nested:
        """Those that steps begin with, and of the ends what they led to."""
        found = self._read("obs", torch.where(is_end, self._nowhere, place))
        ends = self._read("next_obs", torch.where(is_end, place, self._nowhere))
        mask = to_device(is_end, self._device)
        for row, end in zip(found, ends, strict=True):
            torch.where(_like(mask, row), end, row, out=row)
        return self._nested("obs", found)

    def _part(self, name: str, place: Tensor, is_missing: Tensor) -> Nested:
        found = self._read(name, place)
        mask = to_device(is_missing, self._device)
        for row in found:
            row.masked_fill_(_like(mask, row), 0)
        return self._nested(name, found)

    def _read(self, name: str, place: Tensor) -> list[Tensor]:
        which = self._parts[name]
        leaves = [self._fields.leaves[i] for i in which]
        count = place.numel()
        out = [torch.empty(count, *x.shape, dtype=x.dtype, device=self._device) for x in leaves]
        self._rows.read(which, place.reshape(-1), out)
        return [row.view(*place.shape, *row.shape[1:]) for row in out]

    def _nested(self, name: str, tensors: list[Tensor]) -> Any:
        return Fields({name: self._fields.trees[name]}).nested(tensors)[name]


_STEP = ("obs", "action", "reward", "done", "truncated", "next_obs")


def _like(mask: Tensor, row: Tensor) -> Tensor:
    return mask.view(*mask.shape, *(1 for _ in row.shape[mask.dim() :]))
