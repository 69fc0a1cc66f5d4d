"""Thousands of cart-poles in plain torch, as somebody would write them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

__all__ = ["CartPoles"]


class CartPoles:
    """CartPole-v1 of tensors, whose state stays in the same memory, so that steps can be captured.

    Args:
        num_envs: Number of cart-poles, N.
        device: Device of all tensors.
        continuous: The two actions are read from the sign of one number.
    """

    capturable = True
    limit = 500

    def __init__(
        self, num_envs: int, device: str, *, continuous: bool = False, seed: int = 0
    ) -> None:
        self.num_envs, self.device, self.continuous = num_envs, device, continuous
        self.generator = torch.Generator(device).manual_seed(seed)
        self.state = torch.zeros(num_envs, 4, device=device)
        self.steps = torch.zeros(num_envs, dtype=torch.int64, device=device)
        self.single_observation_space = spaces.Box(-np.inf, np.inf, (4,), np.float32)
        self.single_action_space: Any = spaces.Discrete(2)
        if continuous:
            self.single_action_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)

    def reset(self, *, seed: int | None = None) -> tuple[Tensor, dict[str, Any]]:
        """Start everywhere."""
        if seed is not None:
            self.generator.manual_seed(seed)
        self.state.copy_(self._first())
        self.steps.zero_()
        return self.state, {}

    def step(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, dict[str, Any]]:
        """Push all carts; the state is written over."""
        place, speed, angle, turning = self.state.unbind(1)
        right = actions[:, 0] > 0 if self.continuous else actions > 0
        force = torch.where(right, 10.0, -10.0)
        sine, cosine = angle.sin(), angle.cos()
        pull = (force + 0.05 * turning**2 * sine) / 1.1
        bend = (9.8 * sine - cosine * pull) / (0.5 * (4.0 / 3.0 - 0.1 * cosine**2 / 1.1))
        gain = pull - 0.05 * bend * cosine / 1.1
        place, speed = place + 0.02 * speed, speed + 0.02 * gain
        angle, turning = angle + 0.02 * turning, turning + 0.02 * bend
        terminated = (place.abs() > 2.4) | (angle.abs() > 12 * 2 * np.pi / 360)
        self.steps.add_(1)
        truncated = (self.steps >= self.limit) & ~terminated
        ended = terminated | truncated
        reached = torch.stack((place, speed, angle, turning), 1)
        self.state.copy_(torch.where(ended[:, None], self._first(), reached))
        self.steps.masked_fill_(ended, 0)
        infos = {"final_obs": reached}
        return self.state, torch.ones_like(place), terminated, truncated, infos

    def close(self) -> None:
        """Nothing to close."""

    def _first(self) -> Tensor:
        shape = self.num_envs, 4
        return torch.rand(shape, generator=self.generator, device=self.device) * 0.1 - 0.05
