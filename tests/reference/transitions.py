"""Transitions of single environments, one step after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np


class Transition(NamedTuple):
    """One step that really happened."""

    obs: Any
    action: Any
    reward: float
    terminated: bool
    truncated: bool
    next_obs: Any
    info: dict[str, Any]
    """Of `obs`."""
    next_info: dict[str, Any]
    """Of `next_obs`."""

    @property
    def ended(self) -> bool:
        return self.terminated or self.truncated


def transitions(
    make: Callable[[], Any], choose: Callable[[Any], Any], seed: int | None = None
) -> Iterator[Transition]:
    """The steps of an environment for ever, reset where an episode ended."""
    env = make()
    obs, info = env.reset(seed=seed)
    while True:
        obs = copied(obs)
        action = choose(obs)
        next_obs, reward, terminated, truncated, next_info = env.step(action)
        next_obs = copied(next_obs)
        yield Transition(obs, action, reward, terminated, truncated, next_obs, info, next_info)
        obs, info = next_obs, next_info
        if terminated or truncated:
            obs, info = env.reset()


def n_step(steps: list[Transition], start: int, n: int, gamma: float) -> tuple[float, float, Any]:
    """(reward, discount, next_obs) of the n-step transition that begins at `start`."""
    reward, discount = 0.0, 1.0
    for step in steps[start : start + n]:
        reward += discount * step.reward
        discount *= gamma
        last = step
        if step.ended:
            break
    return reward, 0.0 if last.terminated else discount, last.next_obs


def copied(obs: Any) -> Any:
    if isinstance(obs, dict):
        return {key: copied(inner) for key, inner in obs.items()}
    if isinstance(obs, tuple):
        return tuple(map(copied, obs))
    return np.array(obs)
