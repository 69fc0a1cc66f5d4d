"""Multi-agent environments of tests, whose agents die, wait and come as chance has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from gymnasium import spaces

from sharpwave.envs.multi import GroupStep, MultiAgentVectorEnv, MultiStep


class Fates(MultiAgentVectorEnv):
    """Agents that earn, die, are cut off, wait for their turn and begin again at random.

    Args:
        num_envs: N.
        sizes: Agents of each group.
        waits: Share of steps in which a living agent waits for its turn.
        dead: Written into the rows of agents that are gone.
    """

    def __init__(
        self,
        num_envs: int = 3,
        sizes: Mapping[str, int] | None = None,
        *,
        waits: float = 0.0,
        dead: float = 0.0,
        seed: int = 0,
    ) -> None:
        sizes = {"agent": 2} if sizes is None else sizes
        self.num_envs = num_envs
        self.groups = {
            name: tuple(f"{name}_{i}" for i in range(size)) for name, size in sizes.items()
        }
        self.agents = tuple(agent for members in self.groups.values() for agent in members)
        self.observation_spaces = {name: spaces.Box(-9, 9, (2,), np.float32) for name in sizes}
        self.action_spaces = {name: spaces.Discrete(3) for name in sizes}
        self.state_space = spaces.Box(-9, 9, (4,), np.float32)
        self.waits, self.dead = waits, dead
        self.rng = np.random.default_rng(seed)
        self.lives = {name: np.ones((num_envs, size), bool) for name, size in sizes.items()}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> MultiStep:
        del options
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        for lives in self.lives.values():
            lives[:] = True
        return self._told({}, np.zeros(self.num_envs, bool))

    def step(self, actions: Mapping[str, Any]) -> MultiStep:
        fates: dict[str, Any] = {}
        for name, lives in self.lives.items():
            shape = lives.shape
            assert np.shape(actions[name]) == shape
            draws = self.rng.random((2, *shape))
            terminated = lives & (draws[0] < 0.1)
            truncated = lives & (draws[1] < 0.1)
            rewards = np.where(lives, self.rng.normal(size=shape), 0.0)
            lives &= ~(terminated | truncated)
            fates[name] = rewards, terminated, truncated
        left = np.concatenate([lives.any(1, keepdims=True) for lives in self.lives.values()], 1)
        ended = ~left.any(1)
        for lives in self.lives.values():
            lives[ended] = True
        return self._told(fates, ended)

    def _told(self, fates: dict[str, Any], ended: Any) -> MultiStep:
        groups = {}
        for name, lives in self.lives.items():
            shape = lives.shape
            obs, next_obs = self.rng.normal(size=(2, *shape, 2)).astype(np.float32)
            none = np.zeros(shape, bool)
            rewards, terminated, truncated = fates.get(name, (np.zeros(shape), none, none))
            alive = lives & (self.rng.random(shape) >= self.waits)
            obs[~lives] = self.dead
            groups[name] = GroupStep(obs, next_obs, rewards, terminated, truncated, alive, None)
        state, next_state = self.rng.normal(size=(2, self.num_envs, 4)).astype(np.float32)
        return MultiStep(groups, state, next_state, ended, [{}] * self.num_envs)


class Masked(Fates):
    """The same where some actions of every agent that acts are forbidden."""

    def _told(self, fates: dict[str, Any], ended: Any) -> MultiStep:
        step = super()._told(fates, ended)
        return replace(step, groups={k: self._masked(x) for k, x in step.groups.items()})

    def _masked(self, group: GroupStep) -> GroupStep:
        masks = self.rng.random((*group.alive.shape, 3)) < 0.5
        masks |= np.arange(3) == self.rng.integers(0, 3, (*group.alive.shape, 1))
        return group._replace(masks=masks | ~group.alive[..., None])
