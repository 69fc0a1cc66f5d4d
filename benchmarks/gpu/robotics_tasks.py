"""Two tasks of thousands of environments on a GPU, in plain torch: tracking, and cart-poles."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

__all__ = ["CartPoles", "Tracking"]


class _Tasks:
    """N environments whose state stays in the same memory, so that their steps can be captured."""

    capturable = True
    limit: int

    def __init__(self, num_envs: int, device: str, seed: int = 0) -> None:
        self.num_envs, self.device = num_envs, device
        self.generator = torch.Generator(device).manual_seed(seed)
        self.time = torch.zeros(num_envs, dtype=torch.int64, device=device)

    def reset(self, *, seed: int | None = None) -> tuple[Tensor, dict[str, Any]]:
        if seed is not None:
            self.generator.manual_seed(seed)
        self.state.copy_(self.first())
        self.time.zero_()
        return self.observe(self.state), {}

    def step(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, dict[str, Any]]:
        reached, rewards, terminated = self.moved(actions)
        self.time.add_(1)
        truncated = (self.time >= self.limit) & ~terminated
        ended = terminated | truncated
        self.state.copy_(torch.where(ended[:, None], self.first(), reached))
        self.time.masked_fill_(ended, 0)
        infos = {"final_obs": self.observe(reached)}
        return self.observe(self.state), rewards, terminated, truncated, infos

    def close(self) -> None:
        """Nothing to close."""

    state: Tensor

    def first(self) -> Tensor:
        """States of the beginning of episodes."""
        raise NotImplementedError

    def moved(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Reached states, rewards, and where episodes terminate."""
        raise NotImplementedError

    def observe(self, state: Tensor) -> Tensor:
        """Observations of states."""
        raise NotImplementedError


class Tracking(_Tasks):
    """Twelve joints that are pushed towards their targets: 48 observations, 12 actions.

    The state is place, speed, target and the last action of each joint. What is best is to push
    with the difference to the target and against the speed; the reward of a step is then near 0.
    """

    limit = 250

    def __init__(self, num_envs: int, device: str, seed: int = 0) -> None:
        super().__init__(num_envs, device, seed)
        self.single_observation_space = spaces.Box(-np.inf, np.inf, (48,), np.float32)
        self.single_action_space = spaces.Box(-np.inf, np.inf, (12,), np.float32)
        self.state = torch.zeros(num_envs, 48, device=device)

    def first(self) -> Tensor:
        """States of the beginning of episodes."""
        shape = self.num_envs, 48
        return torch.rand(shape, generator=self.generator, device=self.device) * 2 - 1

    def moved(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Reached states, rewards, and where episodes terminate."""
        place, speed, target, _ = self.state.chunk(4, 1)
        pushed = actions.clamp(-2, 2)
        speed = 0.8 * speed + 0.2 * pushed
        place = place + 0.2 * speed
        cost = ((place - target) ** 2).mean(1) + 0.01 * (pushed**2).mean(1)
        reached = torch.cat((place, speed, target, pushed), 1)
        return reached, -cost, place.abs().amax(1) > 5

    def observe(self, state: Tensor) -> Tensor:
        """Observations of states."""
        return state.clone()


class CartPoles(_Tasks):
    """CartPole-v1, whose two actions are read from the sign of one number where `continuous`."""

    limit = 500

    def __init__(
        self, num_envs: int, device: str, seed: int = 0, *, continuous: bool = False
    ) -> None:
        super().__init__(num_envs, device, seed)
        self.continuous = continuous
        self.single_observation_space = spaces.Box(-np.inf, np.inf, (4,), np.float32)
        self.single_action_space: Any = spaces.Discrete(2)
        if continuous:
            self.single_action_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
        self.state = torch.zeros(num_envs, 4, device=device)

    def first(self) -> Tensor:
        """States of the beginning of episodes."""
        shape = self.num_envs, 4
        return torch.rand(shape, generator=self.generator, device=self.device) * 0.1 - 0.05

    def moved(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Reached states, rewards, and where episodes terminate."""
        place, speed, angle, turning = self.state.unbind(1)
        right = actions[:, 0] > 0 if self.continuous else actions > 0
        force = torch.where(right, 10.0, -10.0)
        sine, cosine = angle.sin(), angle.cos()
        pull = (force + 0.05 * turning**2 * sine) / 1.1
        bend = (9.8 * sine - cosine * pull) / (0.5 * (4.0 / 3.0 - 0.1 * cosine**2 / 1.1))
        gain = pull - 0.05 * bend * cosine / 1.1
        place, speed = place + 0.02 * speed, speed + 0.02 * gain
        angle, turning = angle + 0.02 * turning, turning + 0.02 * bend
        fallen = (place.abs() > 2.4) | (angle.abs() > 12 * 2 * np.pi / 360)
        reached = torch.stack((place, speed, angle, turning), 1)
        return reached, torch.ones_like(place), fallen

    def observe(self, state: Tensor) -> Tensor:
        """Observations of states."""
        return state.clone()
