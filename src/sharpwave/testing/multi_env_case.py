"""A stretch of play in a multi-agent vector environment."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from gymnasium import spaces

from sharpwave.envs import GroupStep, MultiAgentVectorEnv, MultiStep, make_multi_env
from sharpwave.loops.random_actions import RandomActions
from sharpwave.types import Flags

__all__ = ["AgentLives", "MultiEnvCase", "MultiRecord", "arrays_of", "play_multi"]

N_ENVS = 3
N_STEPS = 120


@dataclass
class MultiRecord:
    """Steps of a multi-agent vector environment; the first is the reset.

    Attributes:
        returned: The very arrays that were returned.
        copies: The same, copied before anything else happened.
    """

    returned: list[MultiStep] = field(default_factory=list)
    copies: list[MultiStep] = field(default_factory=list)

    def add(self, step: MultiStep) -> None:
        """One step more."""
        self.returned.append(step)
        groups = {name: GroupStep(*copy.deepcopy(tuple(x))) for name, x in step.groups.items()}
        arrays = copy.deepcopy((step.state, step.next_state, step.ended))
        self.copies.append(MultiStep(groups, *arrays, list(step.infos)))


class MultiEnvCase:
    """An environment to check, or a way to make it.

    Args:
        source: An argument of `make_multi_env`, or a function that makes a MultiAgentVectorEnv.
        n_steps: Steps to look at.
    """

    def __init__(self, source: Any, n_steps: int | None = None) -> None:
        self.source = source
        self.n_steps = n_steps or N_STEPS
        self.makes_new = isinstance(source, str | type) or not hasattr(source, "step")
        self._made: list[MultiAgentVectorEnv] = []

    def make(self) -> MultiAgentVectorEnv:
        """A new environment, or the one that was given."""
        if not self.makes_new:
            return self._given
        env = None if isinstance(self.source, str) else self.source()
        if not isinstance(env, MultiAgentVectorEnv):
            if env is not None:
                env.close()
            env = make_multi_env(self.source, N_ENVS)
        self._made.append(env)
        return env

    @cached_property
    def _given(self) -> MultiAgentVectorEnv:
        return make_multi_env(self.source)

    def release(self) -> None:
        """Close what was made."""
        while self._made:
            self._made.pop().close()

    @cached_property
    def record(self) -> MultiRecord:
        """A stretch of play from a reset with seed 7."""
        return play_multi(self.make(), self.n_steps, seed=7)


def play_multi(
    env: MultiAgentVectorEnv,
    n_steps: int,
    *,
    seed: int = 0,
    after: MultiStep | None = None,
    of_the_gone: int = 0,
) -> MultiRecord:
    """Take random actions that the masks allow, always the same ones.

    Args:
        env: The environment.
        n_steps: Steps of each environment.
        seed: Of the reset.
        after: The last step, to go on from there without a reset.
        of_the_gone: Draws the actions of agents that do not act, which nobody should look at.
    """
    record = MultiRecord()
    record.add(env.reset(seed=seed) if after is None else after)
    draws = {name: _actions(space, 0) for name, space in env.action_spaces.items()}
    others = {name: _actions(space, 1 + of_the_gone) for name, space in env.action_spaces.items()}
    for _ in range(n_steps):
        last = record.copies[-1]
        actions = {}
        for name, agents in env.groups.items():
            rows = (env.num_envs, len(agents))
            group = last.groups[name]
            masks = None if group.masks is None else group.masks.reshape(rows[0] * rows[1], -1)
            drawn = draws[name](rows[0] * rows[1], masks).reshape(*rows, -1)
            ignored = others[name](rows[0] * rows[1], None).reshape(*rows, -1)
            taken = np.where(group.alive[..., None], drawn, ignored)
            shape = env.action_spaces[name].shape or ()
            actions[name] = taken.reshape(*rows, *shape)
        record.add(env.step(actions))
    return record


def _actions(space: Any, seed: int) -> Any:
    if isinstance(space, spaces.Box) and not space.is_bounded():
        space = copy.deepcopy(space)
        space.seed(seed)
        return lambda n, _: np.stack([space.sample() for _ in range(n)])
    return RandomActions(space, seed).draw


def arrays_of(step: MultiStep) -> dict[str, Any]:
    """Everything of a step but its infos."""
    groups = {name: group._asdict() for name, group in step.groups.items()}
    return {
        "groups": groups,
        "state": step.state,
        "next_state": step.next_state,
        "ended": step.ended,
    }


@dataclass(frozen=True)
class AgentLives:
    """Agents that were alive in the steps of a record, by group.

    Attributes:
        step: A step, after the reset.
        before: [N, G] where an agent was alive before it, or had been and waited.
        gone: [N, G] where it had ended before in this episode, and was not alive again.
    """

    step: MultiStep
    before: dict[str, Flags]
    gone: dict[str, Flags]

    @classmethod
    def of(cls, record: MultiRecord) -> Iterator[AgentLives]:
        """The steps of a record one by one."""
        first, *others = record.copies
        present = {name: group.alive.copy() for name, group in first.groups.items()}
        gone = {name: np.zeros_like(alive) for name, alive in present.items()}
        for step in others:
            yield cls(
                step,
                {name: flags.copy() for name, flags in present.items()},
                {name: flags.copy() for name, flags in gone.items()},
            )
            for name, group in step.groups.items():
                over = group.terminated | group.truncated
                new = step.ended[:, None]
                present[name] = np.where(new, group.alive, (present[name] & ~over) | group.alive)
                gone[name] = np.where(new, False, (gone[name] | over) & ~group.alive)
