"""n-step transitions of replay buffers of tensors."""

from __future__ import annotations

import torch
from torch import Tensor

from sharpwave.buffers.views import NStep
from sharpwave.primitives.ahead.tensors import look_ahead
from sharpwave.tensors.buffers.fields import Fields
from sharpwave.tensors.buffers.rows import Rows
from sharpwave.tensors.buffers.transfers import to_device

__all__ = ["LookAhead"]


class LookAhead:
    """Makes n-step transitions of drawn ones, and knows where steps do not follow one another.

    Args:
        fields: Fields of a row.
        buffer_size: Slots of the ring.
        num_envs: Rows in a slot.
    """

    def __init__(self, fields: Fields, buffer_size: int, num_envs: int) -> None:
        names = fields.names
        self._buffer_size = buffer_size
        self._num_envs = num_envs
        self._reward = names.index("reward")
        self._ends = names.index("done"), names.index("truncated")
        self._last = tuple(
            i for i, name in enumerate(names) if name.partition(".")[0] == "next_obs"
        )
        self._cuts: list[int] = []
        self._marks: Tensor | None = None

    @property
    def cuts(self) -> list[int]:
        """The slots whose steps do not follow those in the slots before."""
        return self._cuts

    @cuts.setter
    def cuts(self, cuts: list[int]) -> None:
        self._cuts = cuts
        self._marks = None

    def cut(self, position: int) -> None:
        """Say that the step which goes to this slot next does not follow the one before."""
        if position not in self.cuts:
            self.cuts = sorted([*self.cuts, position])

    def wrote(self, slot: int) -> None:
        """Say that a step was written: what comes next follows it, unless it is cut."""
        if self._cuts and (following := (slot + 1) % self._buffer_size) in self._cuts:
            self.cuts = [cut for cut in self._cuts if cut != following]

    @torch.no_grad()
    def __call__(
        self,
        rows: Rows,
        tensors: list[Tensor],
        indices: Tensor,
        view: NStep,
        position: int,
        out: Tensor | None,
    ) -> Tensor:
        """Change the tensors of a batch from single steps to n-step transitions.

        Args:
            rows: Storage that the batch was drawn from.
            tensors: Tensors of the batch [B, ...], on the output device.
            indices: [B] of its rows, on the storage device.
            view: The n-step view: number of steps, and discount factor.
            position: The slot of the next step.
            out: [B] float32 on the output device for the discounts, instead of a new tensor.

        Returns:
            The discounts [B] on the output device.
        """
        stored, dones, truncateds = rows.columns((self._reward, *self._ends))
        if self._cuts and self._marks is None:
            self._marks = to_device(torch.tensor(self._cuts), indices.device)
        rewards = tensors[self._reward]
        discounts = torch.empty_like(rewards) if out is None else out
        if discounts.shape != rewards.shape or discounts.dtype is not rewards.dtype:
            raise ValueError(
                f"discounts of out must be a {rewards.dtype} of shape {tuple(rewards.shape)}, "
                f"got {discounts.dtype} of shape {tuple(discounts.shape)}"
            )
        is_here = rewards.device == indices.device
        last, *found = look_ahead(
            stored,
            dones,
            truncateds,
            indices,
            n=view.n,
            gamma=view.gamma,
            num_envs=self._num_envs,
            position=position,
            cuts=self._marks,
            out=(rewards, discounts) if is_here else None,
        )
        if not is_here:
            for target, values in zip((rewards, discounts), found, strict=True):
                target.copy_(to_device(values, target.device))
        which = (*self._ends, *self._last)
        rows.read(which, last, [tensors[i] for i in which])
        return discounts
