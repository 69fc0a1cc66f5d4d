"""Tensor buffers as Python lists, and episode statistics as plain loops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sharpwave.tensors.buffers.fields import Fields

Step = dict[str, Any]


class Steps:
    """Steps of N environments whose every number tells step, environment and field apart."""

    def __init__(self, fields: Fields, num_envs: int, device: str = "cpu") -> None:
        self.fields = fields
        self.num_envs = num_envs
        self.device = device
        self.count = 0
        self._random = np.random.default_rng(0)

    def step(self) -> Step:
        """The arguments of `add`."""
        self.count += 1
        tensors: list[Tensor] = []
        for i, (name, leaf) in enumerate(zip(self.fields.names, self.fields.leaves, strict=True)):
            shape = (self.num_envs, *leaf.shape)
            if name in ("done", "truncated"):
                flags = torch.from_numpy(self._random.random(shape) < 0.3)
                tensors.append(flags & tensors[-1] if name == "truncated" else flags)
            elif leaf.dtype == torch.bool:
                tensors.append(torch.from_numpy(self._random.random(shape) < 0.5))
            else:
                number = torch.arange(self.num_envs).view(-1, *[1] * len(leaf.shape))
                value = self.count * self.num_envs + number + 7 * i
                inner = torch.arange(int(np.prod(leaf.shape))).view(1, *leaf.shape)
                tensors.append((value + inner).expand(shape).to(leaf.dtype))
        nested: Step = self.fields.nested([tensor.to(self.device) for tensor in tensors])
        return nested


class RingOracle:
    """The newest `buffer_size` steps by slot."""

    def __init__(self, buffer_size: int, num_envs: int) -> None:
        self.slots: list[list[Tensor] | None] = [None] * buffer_size
        self.times: list[int] = [0] * buffer_size
        self.now = 0
        self.num_envs = num_envs
        self.position = 0

    def add(self, fields: Fields, step: Step) -> None:
        tensors = [tensor.cpu().clone() for tensor in fields.flat(step, self.num_envs)]
        self.slots[self.position] = tensors
        self.now += 1
        self.times[self.position] = self.now
        self.position = (self.position + 1) % len(self.slots)

    def cut(self) -> None:
        self.now += 1  # no step is of that time

    def __len__(self) -> int:
        return sum(slot is not None for slot in self.slots)

    def row(self, index: int) -> list[Tensor]:
        slot = self.slots[index // self.num_envs]
        assert slot is not None
        return [tensor[index % self.num_envs] for tensor in slot]

    def rows(self) -> list[list[Tensor]]:
        """All rows, by index."""
        return [self.row(i) for i in range(len(self) * self.num_envs)]

    def n_step(
        self, fields: Fields, index: int, n: int, gamma: float
    ) -> tuple[list[Tensor], float]:
        """The row of an n-step transition, and its discount."""
        reward, done, truncated = (fields.names.index(x) for x in ("reward", "done", "truncated"))
        slot, env = divmod(index, self.num_envs)
        found, last = list(self.row(index)), self.row(index)
        total, taken = float(found[reward]), 1
        while taken < n and not last[done]:
            following = (slot + 1) % len(self.slots)
            if self.times[following] != self.times[slot] + 1:
                break
            slot, last = following, self.row(following * self.num_envs + env)
            total += gamma**taken * float(last[reward])
            taken += 1
        for i, name in enumerate(fields.names):
            if name in ("done", "truncated") or name.split(".")[0] == "next_obs":
                found[i] = last[i]
        found[reward] = torch.tensor(total)
        return found, 0.0 if last[done] and not last[truncated] else gamma**taken


class EpisodeOracle:
    """Sums over episodes, one environment after the other."""

    def __init__(self, num_envs: int, window: int, metrics: Sequence[str] = ()) -> None:
        self.window = window
        self.names = ["rewards", "lengths", *metrics]
        self.running = [dict.fromkeys(self.names, 0.0) for _ in range(num_envs)]
        self.episodes: list[dict[str, Any]] = []

    def update(
        self,
        dones: Sequence[bool],
        rewards: Sequence[float],
        infos: Mapping[str, Sequence[float]],
        reasons: Sequence[str | None],
    ) -> None:
        for env, running in enumerate(self.running):
            running["rewards"] += rewards[env]
            running["lengths"] += 1
            for name in self.names[2:]:
                running[name] += infos[name][env]
            if dones[env]:
                self.episodes.append({**running, "reason": reasons[env]})
                for name in self.names:
                    running[name] = 0.0

    def values(self, name: str) -> list[Any]:
        """Of the last episodes, oldest first."""
        return [episode[name] for episode in self.episodes[-self.window :]]


def n_step_row(
    rewards: Any,
    dones: Any,
    truncateds: Any,
    index: int,
    *,
    n: int,
    gamma: float,
    num_envs: int,
    breaks: set[int],
) -> tuple[int, float, float]:
    """The last row of an n-step transition of a ring, the sum of its rewards and its discount.

    The steps in the slots `breaks` do not follow those in the slots before.
    """
    total, taken = float(rewards[index]), 1
    while taken < n and not dones[index]:
        following = (index + num_envs) % len(rewards)
        if following // num_envs in breaks:
            break
        index = following
        total += gamma**taken * float(rewards[index])
        taken += 1
    over = dones[index] and not truncateds[index]
    return index, total, 0.0 if over else gamma**taken
