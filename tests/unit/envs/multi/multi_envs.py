"""Multi-agent environments for tests, and ways to play them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces

from sharpwave.envs import MultiAgentVectorEnv, MultiStep
from tests.reference.nests import assert_equal

Told = tuple[dict[Any, Any], dict[Any, Any], dict[Any, Any], dict[Any, Any], dict[Any, Any]]


class Trio:
    """Three agents that count their steps; the third ends first, all end at step 4.

    Args:
        spoil: Changes what step number `at` returns.
        at: Which step of an episode; 0 for the reset, whose rewards and flags are empty.
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "trio"}
    render_mode = None
    state_space: spaces.Box | None = spaces.Box(-9, 9, (2,), np.float64)

    def __init__(self, spoil: Callable[[Any, Told], Any] | None = None, at: int = 2) -> None:
        self.possible_agents = ["red_0", "red_1", "blue"]
        self.agents: list[Any] = []
        self.spoil = spoil
        self.at = at
        self.time = 0
        self.seeds: list[int | None] = []
        self.is_closed = False

    def observation_space(self, agent: Any) -> spaces.Space[Any]:
        if agent == "blue":
            return spaces.Dict({"x": spaces.Box(-9, 9, (2,), np.float32), "n": spaces.Discrete(6)})
        return spaces.Box(-9, 9, (3,), np.float32)

    def action_space(self, agent: Any) -> spaces.Space[Any]:
        if agent == "blue":
            return spaces.Box(-1, 1, (2,), np.float32)
        return spaces.Discrete(4)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.seeds.append(seed)
        self.time = 0
        self.agents = list(self.possible_agents)
        obs = {x: self.observe(x) for x in self.agents}
        told: Told = (obs, {}, {}, {}, {x: {} for x in self.agents})
        spoiled = self.spoiled(told)
        return spoiled[0], spoiled[4]

    def step(self, actions: dict[Any, Any]) -> Told:
        assert list(actions) == self.agents
        self.time += 1
        acted = list(self.agents)
        terminated = {x: self.time >= (2 if x == "blue" else 4) for x in acted}
        rewards = {x: float(np.sum(action)) for x, action in actions.items()}
        self.agents = [x for x in acted if not terminated[x]]
        told = (
            {x: self.observe(x) for x in acted},
            rewards,
            terminated,
            dict.fromkeys(acted, False),
            {x: {"time": self.time} for x in acted},
        )
        return self.spoiled(told)

    def observe(self, agent: Any) -> Any:
        if agent == "blue":
            return {"x": np.full(2, self.time, np.float32), "n": self.time}
        return np.full(3, self.time + 0.5, np.float32)

    def spoiled(self, told: Told) -> Told:
        if self.spoil is not None and self.time == self.at:
            return self.spoil(self, told) or told
        return told

    def state(self) -> Any:
        return np.array([self.time, len(self.agents)], np.float64)

    def close(self) -> None:
        self.is_closed = True


def drawn_actions(env: MultiAgentVectorEnv, step: MultiStep, rng: np.random.Generator) -> Any:
    """Random actions that the masks allow."""
    actions: dict[str, Any] = {}
    for name, agents in env.groups.items():
        space: Any = env.action_spaces[name]
        masks = step.groups[name].masks
        rows = (env.num_envs, len(agents))
        if isinstance(space, spaces.Box):
            actions[name] = rng.uniform(space.low, space.high, (*rows, *space.shape))
        elif masks is None:
            actions[name] = rng.integers(0, space.n, rows)
        else:
            flat = [rng.choice(np.flatnonzero(mask)) for mask in masks.reshape(-1, masks.shape[-1])]
            actions[name] = np.array(flat).reshape(rows)
    return actions


def play(env: MultiAgentVectorEnv, n_steps: int, seed: int | None = 3) -> list[MultiStep]:
    """The reset and so many steps with random actions, always the same ones."""
    rng = np.random.default_rng(0)
    steps = [env.reset(seed=seed)]
    for _ in range(n_steps):
        steps.append(env.step(drawn_actions(env, steps[-1], rng)))
    return steps


def assert_same_steps(steps: list[MultiStep], others: list[MultiStep]) -> None:
    assert len(steps) == len(others)
    for step, other in zip(steps, others, strict=True):
        assert step.groups.keys() == other.groups.keys()
        for name, group in step.groups.items():
            for value, wanted in zip(group, other.groups[name], strict=True):
                assert (value is None) == (wanted is None)
                if value is not None:
                    assert_equal(value, wanted)
        for name in ("state", "next_state", "ended"):
            value, wanted = getattr(step, name), getattr(other, name)
            assert (value is None) == (wanted is None)
            if value is not None:
                np.testing.assert_array_equal(value, wanted)
        assert list(step.infos) == list(other.infos)
