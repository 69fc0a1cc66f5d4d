"""Rollouts of single environments, one transition after the other, with advantages by definition.

A policy is anything with `start() -> memory`, `look(memory, obs) -> memory`, `action(memory)` and
`value(memory)`; its memory is all that it knows of an episode so far.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple


@dataclass
class Transition:
    """One step that really happened, and what the policy thought before and after it."""

    row: int
    obs: Any
    action: int
    reward: float
    terminated: bool
    truncated: bool
    value: float
    next_value: float
    is_first: bool
    advantage: float = 0.0

    @property
    def is_last(self) -> bool:
        return self.terminated or self.truncated


class Episode(NamedTuple):
    """A whole episode, and the row in which it ended."""

    row: int
    total: float
    length: int


def rollouts(
    make: Callable[[], Any],
    policy: Any,
    *,
    seed: int,
    n_rollouts: int,
    n_steps: int,
    resets_take_a_row: bool,
    gamma: float,
    lam: float,
) -> list[list[Transition]]:
    """The part of one environment in each of several rollouts of `n_steps` rows."""
    env = make()
    steps = _transitions(env, policy, seed, resets_take_a_row)
    rows = list(itertools.takewhile(lambda step: step.row < n_rollouts * n_steps, steps))
    env.close()
    collected = [[step for step in rows if step.row // n_steps == i] for i in range(n_rollouts)]
    for rollout in collected:
        _fill_advantages(rollout, gamma, lam)
    return collected


def episodes(collected: list[list[Transition]]) -> list[Episode]:
    """The episodes that ended within the rollouts of one environment."""
    found, total, length = [], 0.0, 0
    for step in itertools.chain.from_iterable(collected):
        total, length = total + step.reward, length + 1
        if step.is_last:
            found.append(Episode(step.row, total, length))
            total, length = 0.0, 0
    return found


def _transitions(env: Any, policy: Any, seed: int, resets_take_a_row: bool) -> Iterator[Transition]:
    """Transitions without end."""
    row = 0
    obs, _ = env.reset(seed=seed)
    while True:
        memory, is_first, ended = policy.start(), True, False
        while not ended:
            memory = policy.look(memory, obs)
            action = policy.action(memory)
            next_obs, reward, terminated, truncated, _ = env.step(action)
            yield Transition(
                row,
                obs,
                action,
                reward,
                terminated,
                truncated,
                policy.value(memory),
                0.0 if terminated else policy.value(policy.look(memory, next_obs)),
                is_first,
            )
            obs, row, is_first, ended = next_obs, row + 1, False, terminated or truncated
        obs, _ = env.reset()
        row += resets_take_a_row


def _fill_advantages(rollout: list[Transition], gamma: float, lam: float) -> None:
    """A_t = Σ_k (γλ)^k δ_{t+k}, up to the end of the episode or of the rollout."""
    for t, step in enumerate(rollout):
        weight = 1.0
        for later in rollout[t:]:
            step.advantage += weight * (later.reward + gamma * later.next_value - later.value)
            weight *= gamma * lam
            if later.is_last:
                break
