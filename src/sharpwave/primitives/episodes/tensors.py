"""Sums over the episodes of N environments, on the device that they come from."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from sharpwave.primitives.backend import HAS_TRITON, uses_triton

if HAS_TRITON:
    from sharpwave.primitives.episodes import triton as jit

__all__ = ["EpisodeSums"]


class EpisodeSums:
    """Sums of N environments over their episodes, and the last episodes that ended.

    A step is one launch on CUDA.

    Args:
        n_envs: N.
        n_sums: Number of quantities that are summed over an episode.
        n_marks: Number of quantities that are kept of its last step alone.
        n_kept: Minimum number of the last episodes that are kept.
        device: Device of all tensors.

    Attributes:
        running: [n_sums, N] float64, the sums over the episodes in flight.
        count: int64 without axes, the episodes that ended so far.

    Example:
        >>> sums = EpisodeSums(2, n_sums=1, n_marks=0, n_kept=3)
        >>> sums.add([torch.tensor([1.0, 2.0])], torch.tensor([False, True]))
        >>> sums.add([torch.tensor([3.0, 4.0])], torch.tensor([True, False]))
        >>> sums.last(2).tolist(), sums.running.tolist()
        ([[2.0, 4.0]], [[0.0, 4.0]])
    """

    def __init__(
        self,
        n_envs: int,
        n_sums: int,
        n_marks: int,
        n_kept: int,
        device: torch.device | str = "cpu",
    ) -> None:
        self.n_envs = n_envs
        self.running = torch.zeros(n_sums, n_envs, dtype=torch.float64, device=device)
        self.count = torch.zeros((), dtype=torch.int64, device=device)
        # As many episodes may end at once as there are environments. The last column takes what
        # environments write whose episode goes on.
        self._places = max(n_kept, n_envs)
        self._ring = self.running.new_zeros(n_sums + n_marks, self._places + 1)
        self._rows = self.running.unbind(0)
        self._no_marks = self.running.new_zeros(n_marks, n_envs)

    @property
    def device(self) -> torch.device:
        """Device of the sums."""
        return self.running.device

    def add(
        self, gains: Sequence[Tensor | None], ended: Tensor, marks: Tensor | None = None
    ) -> None:
        """Add a step of every environment.

        Args:
            gains: Per sum what is added, [N], or None for nothing.
            ended: [N] bool, where the step was an episode's last.
            marks: [n_marks, N], what is kept of that step; None is 0.
        """
        marks = self._no_marks if marks is None else marks.to(torch.float64).contiguous()
        if uses_triton(self.running):
            given = [(row, gain.contiguous()) for row, gain in enumerate(gains) if gain is not None]
            jit.add_step(
                self.running, self._ring, self.count, given, ended.contiguous(), marks, self._places
            )
        else:
            self._add(gains, ended, marks)

    def _add(self, gains: Sequence[Tensor | None], ended: Tensor, marks: Tensor) -> None:
        for row, gain in zip(self._rows, gains, strict=True):
            if gain is not None:
                row.add_(gain)
        if self.device.type == "cpu" and not ended.any():
            return
        order = ended.cumsum(0)
        slots = torch.where(ended, (order + self.count) % self._places, self._places)
        self._ring.index_copy_(1, slots, torch.cat([self.running, marks]))
        self.running.masked_fill_(ended, 0)
        self.count += order[-1]

    def last(self, n: int) -> Tensor:
        """The last n episodes [n_sums + n_marks, n] in host memory, oldest first; this waits.

        Fewer where fewer ended.
        """
        count = int(self.count)
        return self._ring.cpu()[:, self._slots(max(count - n, 0), count)]

    def restore(self, running: Tensor, episodes: Tensor, count: int) -> None:
        """Go on with these sums in flight and these last episodes, the oldest first."""
        self.running.copy_(running)
        slots = self._slots(count - episodes.shape[1], count)
        self._ring[:, slots.to(self.device)] = episodes.to(self._ring)
        self.count.fill_(count)

    def _slots(self, begin: int, end: int) -> Tensor:
        return torch.arange(begin + 1, end + 1) % self._places  # the first one of all is at place 1
