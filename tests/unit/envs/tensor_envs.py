"""Environments that step tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor


class Points:
    """Points on a line that are pushed towards 0; the limit of time cuts their episodes.

    Args:
        num_envs: Number of points.
        device: Where they are.
        limit: Steps of an episode.
        tells_final: Whether infos have the last observations.
    """

    def __init__(
        self,
        num_envs: int,
        device: str = "cpu",
        *,
        limit: int = 20,
        tells_final: bool = True,
    ) -> None:
        self.num_envs = num_envs
        self.device = device
        self.limit = limit
        self.tells_final = tells_final
        self.single_observation_space: Any = spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.single_action_space: Any = spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.generator = torch.Generator(device).manual_seed(0)
        self.closed = False

    def reset(self, *, seed: int | None = None) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            self.generator.manual_seed(seed)
        self.state = self._first()
        self.time = torch.zeros(self.num_envs, dtype=torch.int64, device=self.device)
        return self.observe(self.state), {}

    def step(self, actions: Tensor) -> tuple[Any, Tensor, Tensor, Tensor, dict[str, Any]]:
        place, speed = self.state.unbind(1)
        speed = speed + 0.2 * actions[:, 0]
        place = place + 0.2 * speed
        reached = torch.stack((place, speed), 1)
        self.time += 1
        rewards = -(place**2) - 0.1 * speed**2
        terminated = place.abs() > 2
        truncated = (self.time >= self.limit) & ~terminated
        ended = terminated | truncated
        self.state = torch.where(ended[:, None], self._first(), reached)
        self.time = torch.where(ended, 0, self.time)
        infos = {"final_obs": self.observe(reached)} if self.tells_final else {}
        return self.observe(self.state), rewards, terminated, truncated, infos

    def observe(self, state: Tensor) -> Any:
        return state.clone()

    def close(self) -> None:
        self.closed = True

    def _first(self) -> Tensor:
        draws = torch.rand(self.num_envs, 2, generator=self.generator, device=self.device)
        return 2 * draws - 1

    def get_state(self) -> dict[str, Any]:
        return {
            "state": self.state,
            "time": self.time,
            "generator": self.generator.get_state(),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        self.state = torch.as_tensor(state["state"]).to(self.device)
        self.time = torch.as_tensor(state["time"]).to(self.device)
        self.generator.set_state(torch.as_tensor(state["generator"]))


class NamedPoints(Points):
    """Observations in a dict, as simulators of robots give them, with more than the space says."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.single_observation_space = spaces.Dict({"policy": self.single_observation_space})

    def observe(self, state: Tensor) -> Any:
        return {"policy": state.clone(), "critic": state * 2}


class ReusingPoints(Points):
    """One that writes every observation and mask to the same memory, as fast simulators do."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.memory = torch.zeros(self.num_envs, 2, device=self.device)
        self.mask = torch.ones(self.num_envs, 3, dtype=torch.bool, device=self.device)

    def reset(self, *, seed: int | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self._told({})

    def step(self, actions: Tensor) -> tuple[Any, Tensor, Tensor, Tensor, dict[str, Any]]:
        _, rewards, terminated, truncated, infos = super().step(actions)
        obs, infos = self._told(infos)
        return obs, rewards, terminated, truncated, infos

    def _told(self, infos: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        self.memory.copy_(self.state)
        self.mask[:, 0] = self.state[:, 0] > 0
        return self.memory, {**infos, "action_mask": self.mask}


class Observations:
    """Groups of observations in a mapping that is no dict, as TensorDict is none."""

    def __init__(self, groups: dict[str, Tensor]) -> None:
        self._groups = groups

    def keys(self) -> Any:
        return self._groups.keys()

    def __getitem__(self, name: str) -> Tensor:
        return self._groups[name]


class RslPoints:
    """Points with the interface of environments for rsl_rl: no spaces, no seeds, four parts."""

    def __init__(self, num_envs: int, *, tells_limits: bool = True) -> None:
        self._points = Points(num_envs, tells_final=False)
        self.num_envs, self.device, self.num_actions = num_envs, "cpu", 1
        self.tells_limits = tells_limits
        self._obs, _ = self._points.reset(seed=0)

    def get_observations(self) -> Any:
        return Observations({"policy": self._obs[:, :1], "critic": self._obs})

    def reset(self) -> Any:
        self._obs, _ = self._points.reset()
        return self.get_observations()

    def step(self, actions: Tensor) -> tuple[Any, Tensor, Tensor, dict[str, Any]]:
        self._obs, rewards, terminated, truncated, _ = self._points.step(actions)
        extras = {"time_outs": truncated} if self.tells_limits else {}
        return self.get_observations(), rewards, (terminated | truncated).long(), extras
