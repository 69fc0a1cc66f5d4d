"""A stretch of play in a vector environment, as it was when it was returned and as it is now."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorEnv

from sharpwave.envs import action_masks, autoreset_mode, make_vec_env
from sharpwave.loops.random_actions import RandomActions
from sharpwave.testing.bits import array_of
from sharpwave.types import Array, Nested

__all__ = ["EnvCase", "Played", "Record", "play"]

N_ENVS = 3
FEW_STEPS = 200
MANY_STEPS = 1100
"""A time limit above this is not waited for."""


@dataclass(frozen=True)
class Played:
    """The result of one step."""

    obs: Nested
    rewards: Any
    terminated: Any
    truncated: Any
    infos: dict[str, Any]

    @property
    def ended(self) -> Array:
        """[N] where an episode ended."""
        ends: Array = array_of(self.terminated).astype(bool) | array_of(self.truncated).astype(bool)
        return ends

    @property
    def arrays(self) -> dict[str, Any]:
        """All but the infos, of which the last observations are kept."""
        columns = {name: value for name, value in vars(self).items() if name != "infos"}
        return {**columns, "final_obs": self.infos.get("final_obs")}


@dataclass
class Record:
    """Steps of a vector environment.

    Attributes:
        first: Observations and infos of the reset.
        returned: Steps, the very arrays that were returned.
        copies: The same, copied before anything else happened.
        resets: Observations before and after resets of some environments in mode disabled, and
            which these were.
        masks: Number of steps with action masks.
        bad_mask: The fault of one of them, in words.
    """

    first: tuple[Nested, dict[str, Any]]
    returned: list[Played] = field(default_factory=list)
    copies: list[Played] = field(default_factory=list)
    resets: list[tuple[Nested, Nested, Array]] = field(default_factory=list)
    masks: int = 0
    bad_mask: Exception | None = None

    @property
    def observations(self) -> list[Nested]:
        """All that were returned, that of the reset first."""
        return [self.first[0], *(step.obs for step in self.copies)]

    @property
    def ends(self) -> list[tuple[int, int]]:
        """Step and environment of each end of an episode."""
        return [
            (number, int(row))
            for number, step in enumerate(self.copies)
            for row in np.flatnonzero(step.ended)
        ]


class EnvCase:
    """An environment to check, or a way to make it.

    Args:
        source: An argument of `make_vec_env`, or a function that makes a vector environment.
        n_steps: Steps to look at; None for one or two episodes by the time limit.
    """

    def __init__(self, source: Any, n_steps: int | None = None) -> None:
        self.source = source
        self.n_steps = n_steps
        self.makes_new = isinstance(source, str) or (
            callable(source) and not isinstance(source, gym.Env | VectorEnv)
        )
        self._made: list[Any] = []

    def make(self) -> Any:
        """A new vector environment, or the one that was given."""
        if not self.makes_new:
            return self._given
        env = None if isinstance(self.source, str) else self.source()
        if not isinstance(env, VectorEnv):
            if env is not None:
                env.close()
            env = make_vec_env(self.source, N_ENVS)
        self._made.append(env)
        return env

    @cached_property
    def _given(self) -> Any:
        return make_vec_env(self.source)

    def release(self) -> None:
        """Close what was made."""
        while self._made:
            self._made.pop().close()

    @cached_property
    def record(self) -> Record:
        """A stretch of play from a reset with seed 7."""
        env = self.make()
        return play(env, self.n_steps or _steps(env), seed=7)


def play(env: Any, n_steps: int, *, seed: int = 0, after: dict[str, Any] | None = None) -> Record:
    """Take random actions that the masks allow, always the same ones.

    Args:
        env: A vector environment.
        n_steps: Steps of each environment.
        seed: Of the reset.
        after: Infos of the last step, to go on from there without a reset.
    """
    record = Record((None, after) if after is not None else copy.deepcopy(env.reset(seed=seed)))
    infos = record.first[1]
    draw = _actions(env.single_action_space)
    is_disabled = autoreset_mode(env) == "disabled"
    for _ in range(n_steps):
        played = Played(*env.step(draw(env.num_envs, _masks(env, infos, record))))
        record.returned.append(played)
        record.copies.append(copy.deepcopy(played))
        infos = played.infos
        if is_disabled and played.ended.any():
            after, infos = env.reset(options={"reset_mask": played.ended})
            record.resets.append((record.copies[-1].obs, copy.deepcopy(after), played.ended))
    return record


def _masks(env: Any, infos: dict[str, Any], record: Record) -> Any:
    try:
        masks = action_masks(env, infos)
    except ValueError as error:
        record.bad_mask = error
        return None
    record.masks += masks is not None
    return masks


def _actions(space: Any) -> Any:
    """Draws actions [n, ...], always the same ones."""
    if isinstance(space, gym.spaces.Box) and not space.is_bounded():
        space = copy.deepcopy(space)
        space.seed(0)
        return lambda n, _: np.stack([space.sample() for _ in range(n)])
    return RandomActions(space, 0).draw


def _steps(env: Any) -> int:
    limit = getattr(getattr(env, "spec", None), "max_episode_steps", None) or 0
    return limit + 10 if FEW_STEPS <= limit <= MANY_STEPS else FEW_STEPS
