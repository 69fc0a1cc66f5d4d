"""Cases of environments on a device: their steps on the way to a replay buffer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from case import Case, error
from torch import Tensor


class Walkers:
    """Many walks of 64 numbers, each in a few operations on the device; their episodes are cut."""

    def __init__(self, num_envs: int) -> None:
        from gymnasium import spaces

        self.num_envs, self.device = num_envs, "cuda"
        self.single_observation_space = spaces.Box(-10.0, 10.0, (64,))
        self.single_action_space = spaces.Box(-1.0, 1.0, (8,))

    def reset(self, *, seed: int | None = None) -> tuple[Tensor, dict[str, Any]]:
        """Start everywhere."""
        if seed is not None:
            torch.cuda.manual_seed(seed)
        self.state = torch.rand(self.num_envs, 64, device=self.device)
        self.age = torch.randint(0, 200, (self.num_envs,), device=self.device)
        return self.state, {}

    def step(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, dict[str, Any]]:
        """Walk on."""
        reached = 0.9 * self.state + 0.1 * actions.repeat(1, 8)
        self.age += 1
        truncated = self.age >= 200
        self.state = torch.where(truncated[:, None], 0.5, reached)
        self.age = torch.where(truncated, 0, self.age)
        rewards = -reached.square().mean(1)
        terminated = torch.zeros_like(truncated)
        return self.state, rewards, terminated, truncated, {"final_obs": reached}

    def close(self) -> None:
        """Nothing is open."""


def collect_cases(n_envs: int) -> Iterator[Case]:
    import sharpwave as sw

    for where, buffer in (("on the device", "device"), ("through the host", "memory")):
        agent: Any = sw.SAC(
            Walkers(n_envs),
            device="cuda",
            buffer=buffer,
            buffer_size=64 * n_envs,
            learning_starts=0,
            gradient_steps=0,
        )
        agent.train(2 * n_envs)

        def step(loop: Any = agent.loop) -> Any:
            rows, _ = loop.collector.step(loop._choose)
            loop._store_round(rows)
            return rows

        def check(step: Any = step) -> float:
            rows, after = step(), step()
            kept = ~torch.as_tensor(rows.truncated)
            return error(torch.as_tensor(rows.next_obs)[kept], torch.as_tensor(after.obs)[kept])

        yield Case(
            f"SAC, {n_envs} environments {where}: a step, stored", step, check, 0.0, graph_calls=0
        )
