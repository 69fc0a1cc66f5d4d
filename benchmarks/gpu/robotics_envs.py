"""Many robots in plain torch, as a simulator would step them, whose best policy is known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

JOINTS = 12
TIME_STEP = 0.05
STRENGTH = 14.0
DAMPING = 4.0
SPRING = 4.0
EFFORT = 0.1
STARTS = 8192


class Tracking:
    """Robots of 12 joints, each of which should follow a wave of its own frequency.

    A joint at p with velocity v is accelerated by 14 a - 4 v - 4 p by its action a in [-1, 1].
    The cost of a step is (p - r)**2 + a**2 / 10, the mean over joints, with the wave at r. Waves go
    on by a rotation of (r, s), so everything is linear and costs are quadratic: the best policy is
    linear too, and follows from Riccati's equation. It stays within the bounds of the actions.

    Observations are p, v, r and s of all joints, [N, 48]. Episodes take `limit` steps, none ends
    before. First states come from a table that is drawn once, so nothing is drawn in a step, which
    may therefore be captured in a CUDA graph.

    Args:
        num_envs: Number of robots, N.
        device: Device of all tensors.
        limit: Steps of an episode.
    """

    capturable = True

    def __init__(self, num_envs: int, device: Any = "cuda", limit: int = 500) -> None:
        self.num_envs, self.limit = num_envs, limit
        self.device = torch.empty(0, device=device).device
        self.single_observation_space = spaces.Box(-np.inf, np.inf, (4 * JOINTS,), np.float32)
        self.single_action_space = spaces.Box(-1.0, 1.0, (JOINTS,), np.float32)
        turns = torch.linspace(1.0, 3.0, JOINTS, dtype=torch.float64) * TIME_STEP
        self._turn = turns.cos().float().to(self.device), turns.sin().float().to(self.device)
        self._dynamics = _dynamics(turns)
        self._starts = _starts(turns / TIME_STEP).to(self.device)
        self._numbers = torch.arange(num_envs, device=self.device)
        self.state = torch.zeros(num_envs, 4 * JOINTS, device=self.device)
        self.steps = torch.zeros(num_envs, dtype=torch.int64, device=self.device)
        self.resets = torch.zeros(num_envs, dtype=torch.int64, device=self.device)

    def reset(self, *, seed: int | None = None) -> tuple[Tensor, dict[str, Any]]:
        """Start everywhere; a seed says where in the table of first states."""
        self.resets.add_(1) if seed is None else self.resets.fill_(7919 * seed)
        self.steps.zero_()
        self.state.copy_(self._first())
        return self.state, {}

    def step(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, dict[str, Any]]:
        """Move all joints; the state is written over."""
        actions = actions.clamp(-1.0, 1.0)
        place, speed, wave, rest = self.state.view(-1, 4, JOINTS).unbind(1)
        cosine, sine = self._turn
        after = place + TIME_STEP * speed
        force = STRENGTH * actions - DAMPING * speed - SPRING * place
        speed = speed + TIME_STEP * force
        wave, rest = cosine * wave + sine * rest, cosine * rest - sine * wave
        reached = torch.cat((after, speed, wave, rest), 1)
        rewards = -((after - wave).square() + EFFORT * actions.square()).mean(1)
        self.steps.add_(1)
        truncated = self.steps >= self.limit
        self.resets.add_(truncated)
        self.steps.masked_fill_(truncated, 0)
        self.state.copy_(torch.where(truncated[:, None], self._first(), reached))
        infos = {"final_obs": reached}
        return self.state, rewards, torch.zeros_like(truncated), truncated, infos

    def _first(self) -> Tensor:
        """First states [N, 48] of the episodes with these numbers."""
        return self._starts[(self._numbers + self.num_envs * self.resets) % STARTS]

    def get_state(self) -> dict[str, Tensor]:
        """Everything that decides what happens next."""
        return {"state": self.state, "steps": self.steps, "resets": self.resets}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on where `get_state` was."""
        for name, tensor in self.get_state().items():
            tensor.copy_(torch.as_tensor(state[name]))

    def close(self) -> None:
        """Nothing is open."""

    def best_policy(self) -> tuple[Tensor, float]:
        """Gains [limit, 4, 12] of the best policy, and its mean return over the first states.

        The action of a joint at step t of an episode is -(gains[t] * state).sum(), with its state
        [4] in the order of observations.
        """
        motion, push = self._dynamics
        cost = torch.zeros(JOINTS, 4, 4, dtype=torch.float64)
        tracked = torch.tensor([1.0, 0.0, -1.0, 0.0], dtype=torch.float64)
        gains = []
        for _ in range(self.limit):
            after = cost + tracked[:, None] * tracked
            pushed = push @ after  # [joints, 4]
            weight = EFFORT + pushed @ push
            gain = (pushed[:, None] @ motion)[:, 0] / weight[:, None]
            rest = gain[:, :, None] * gain[:, None] * weight[:, None, None]
            cost = motion.mT @ after @ motion - rest
            gains.append(gain.T)
        starts = self._starts.cpu().double().view(-1, 4, JOINTS)
        moments = torch.einsum("sij,skj->jik", starts, starts) / len(starts)
        mean = float((cost * moments).sum()) / JOINTS
        return torch.stack(gains[::-1]).float().to(self.device), -mean


def _dynamics(turns: Tensor) -> tuple[Tensor, Tensor]:
    """The motion of a joint by itself, [joints, 4, 4], and by an action, [4]; float64."""
    motion = torch.zeros(JOINTS, 4, 4, dtype=torch.float64)
    motion[:, 0, :2] = torch.tensor([1.0, TIME_STEP], dtype=torch.float64)
    motion[:, 1, :2] = torch.tensor(
        [-TIME_STEP * SPRING, 1 - TIME_STEP * DAMPING], dtype=torch.float64
    )
    motion[:, 2, 2] = motion[:, 3, 3] = turns.cos()
    motion[:, 2, 3], motion[:, 3, 2] = turns.sin(), -turns.sin()
    push = torch.tensor([0.0, TIME_STEP * STRENGTH, 0.0, 0.0], dtype=torch.float64)
    return motion, push


def _starts(frequencies: Tensor) -> Tensor:
    """First states [STARTS, 48]: joints near waves of any phase."""
    generator = torch.Generator().manual_seed(0)
    draws = torch.rand(4, STARTS, JOINTS, generator=generator, dtype=torch.float64)
    height, phase = 0.2 + 0.3 * draws[0], 2 * torch.pi * draws[1]
    wave, rest = height * phase.cos(), height * phase.sin()
    place, speed = wave + 0.4 * (draws[2] - 0.5), frequencies * rest + 0.4 * (draws[3] - 0.5)
    return torch.cat((place, speed, wave, rest), 1).float()
