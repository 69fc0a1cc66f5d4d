"""Multi-agent environments with PettingZoo's interface, many of one kind at once."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.error import ClosedEnvironmentError

from sharpwave.core.finite import all_finite
from sharpwave.core.optional import missing_library
from sharpwave.core.tree import map_leaves
from sharpwave.envs.multi.copies import EnvCopy
from sharpwave.envs.multi.form import Block, Form, GroupArrays, read_form
from sharpwave.envs.multi.state import layers
from sharpwave.envs.multi.vector import GroupStep, MultiAgentVectorEnv, MultiStep
from sharpwave.envs.multi.workers import EnvWorkers, copy_of, made
from sharpwave.errors import EnvironmentFailed, NonFiniteError
from sharpwave.types import Array, Maker, Nested

__all__ = ["PettingZooVectorEnv"]

MODES = ("sync", "async")


class PettingZooVectorEnv(MultiAgentVectorEnv):
    """Steps copies of an environment with PettingZoo's interface, parallel or AEC.

    Names, spaces and the state are read from the environment, which need not be PettingZoo's own.
    Agents may come, die and differ. In an AEC environment that declares `is_parallelizable` all
    agents act at once, in others the one whose turn it is. Masks of actions are taken from the
    entry "action_mask" of an observation, which then is no part of it, or of its info.

    Args:
        makers: Each makes one environment.
        mode: "sync" steps them one after the other in this process, "async" at the same time, each
            in a process of its own (see SubprocessVectorEnv).
        groups: Agents by the name of their group; None for agents of equal spaces whose names
            differ only in their trailing number.
        context: Start method of `multiprocessing`; None for Python's default.

    Raises:
        EnvironmentFailed: A maker raised; `reset` and `step` raise it when an environment raises or
            returns what it should not: agents that are not possible, observations that do not fit
            their space, ends of agents that were gone, masks that allow nothing, a state of another
            shape. Agent and environment are named, and all environments are closed.
        NonFiniteError: `step` raises it for a reward that is NaN or infinite.
        TypeError: A maker made something else, or the spaces are not supported.
        ValueError: `groups` does not fit the agents, or the environments differ.

    Example:
        >>> from sharpwave.envs.multi.toys import Mortal
        >>> env = PettingZooVectorEnv([Mortal] * 3)
        >>> first = env.reset(seed=0)
        >>> first.groups["agent"].obs.shape, first.groups["agent"].alive.tolist()
        ((3, 2, 2), [[True, True], [True, True], [True, True]])
        >>> step = env.step({"agent": np.zeros((3, 2), np.int64)})
        >>> step.groups["agent"].terminated[0].tolist(), step.groups["agent"].alive[0].tolist()
        ([False, True], [True, False])
        >>> env.close()
    """

    def __init__(
        self,
        makers: Sequence[Maker],
        *,
        mode: str = "sync",
        groups: Mapping[str, Sequence[str]] | str | None = None,
        context: str | None = None,
    ) -> None:
        if mode not in MODES:
            raise ValueError(f"mode must be one of {MODES}, got {mode!r}")
        if len(makers) == 0:
            raise ValueError("makers must make at least one environment, got none")
        self.num_envs = len(makers)
        self.closed = False
        self._steps = 0
        self._copies: list[EnvCopy] = []
        self._workers: EnvWorkers | None = None
        first = made(makers[0], 0)
        try:
            form = read_form(first, 0, groups)
            self._take_form(form, first)
            if mode == "async":
                first.close()
                self._workers = EnvWorkers(makers, form, groups, context)
                self._block = self._workers.block
            else:
                self._block = Block(form, self.num_envs)
                self._copies.append(EnvCopy(first, 0, form, self._block))
                for i, maker in enumerate(makers[1:], 1):
                    self._copies.append(copy_of(made(maker, i), i, form, groups, self._block))
                _check_separate([copy.env for copy in self._copies])
        except BaseException:
            self._close_quietly()
            with contextlib.suppress(Exception):
                first.close()
            raise

    def _take_form(self, form: Form, env: Any) -> None:
        self.metadata = dict(getattr(env, "metadata", None) or {})  # type: ignore[misc]
        self.render_mode = getattr(env, "render_mode", None)
        self.agents = tuple(form.keys)
        self.groups = {name: group.agents for name, group in form.groups.items()}
        self.observation_spaces = {x: group.observation_space for x, group in form.groups.items()}
        self.action_spaces = {x: group.action_space for x, group in form.groups.items()}
        self.state_space = form.state_space
        self._ranges = {name: _range(space) for name, space in self.action_spaces.items()}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> MultiStep:
        """Begin new episodes everywhere.

        Args:
            seed: Environment i gets seed + i; None goes on with the environments' own generators.
            options: For every environment.
        """
        self._assert_open()
        seeds = [None if seed is None else int(seed) + i for i in range(self.num_envs)]
        self._steps = 0
        infos = self._of_each("reset", [(seed, options) for seed in seeds])
        return self._result(infos)

    def step(self, actions: Mapping[str, Any]) -> MultiStep:
        """Step all environments.

        Args:
            actions: [N, G, ...] by group; those of agents that do not act are ignored.

        Raises:
            TypeError: They are of another kind.
            ValueError: A group is missing or unknown, a shape does not fit, or an integer is out of
                range. Nothing was stepped.
        """
        self._assert_open()
        checked = self._checked_actions(actions)
        for name, array in checked.items():
            self._block.groups[name].actions[...] = array
        self._steps += 1
        infos = self._of_each("step", [()] * self.num_envs)
        for name, arrays in self._block.groups.items():
            if not all_finite(arrays.rewards):
                raise self._bad_reward(name, arrays.rewards)
        return self._result(infos)

    def render(self) -> tuple[Any, ...]:
        """The frame of each environment."""
        self._assert_open()
        return tuple(self._of_each("render", [()] * self.num_envs))

    def get_states(self, kind: str) -> tuple[Any, ...]:
        """The "state" or "random" state of each environment with its wrappers."""
        self._assert_open()
        return tuple(self._of_each("get_state", [(kind,)] * self.num_envs))

    def set_states(self, kind: str, states: Sequence[Any]) -> None:
        """Put each environment into a state that `get_states` gave."""
        self._assert_open()
        self._of_each("set_state", [(kind, state) for state in states])

    def close(self) -> None:
        """Close every environment, also after one that raises."""
        self.closed = True
        if self._workers is not None:
            self._workers.close()
        with contextlib.ExitStack() as stack:
            for copy in reversed(self._copies):
                stack.callback(copy.env.close)

    def _of_each(self, name: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """The results of a method of each EnvCopy, here or in its process."""
        if self._workers is not None:
            try:
                return self._workers.ask(name, arguments)
            except BaseException:
                self._close_quietly()
                raise
        answers: list[Any] = []
        try:
            answers.extend(
                getattr(copy, name)(*given)
                for copy, given in zip(self._copies, arguments, strict=True)
            )
        except Exception as error:
            self._close_quietly()
            copy = self._copies[len(answers)]
            missing = missing_library(error, str(copy.env))
            trace = "".join(traceback.format_exception(error))
            raise missing or EnvironmentFailed(len(answers), copy.doing, trace) from error
        return answers

    def _checked_actions(self, actions: Mapping[str, Any]) -> dict[str, Array]:
        if not isinstance(actions, Mapping) or actions.keys() != self.groups.keys():
            given = list(actions) if isinstance(actions, Mapping) else type(actions).__name__
            raise ValueError(f"actions must have the groups {list(self.groups)}, got {given}")
        checked = {}
        for name, arrays in self._block.groups.items():
            array: Array = np.asarray(actions[name])
            if array.shape != arrays.actions.shape:
                raise ValueError(
                    f"actions[{name!r}] must have shape {arrays.actions.shape}, got {array.shape}"
                )
            is_box = isinstance(self.action_spaces[name], spaces.Box)
            if array.dtype.kind not in ("fiub" if is_box else "iub"):
                wanted = "numbers" if is_box else "integers"
                raise TypeError(f"actions[{name!r}] must be {wanted}, got {array.dtype}")
            if self._ranges[name] is not None:
                self._check_range(name, array, arrays.alive)
            checked[name] = array
        return checked

    def _check_range(self, name: str, actions: Array, alive: Array) -> None:
        low, high = self._ranges[name]
        outside = (actions < low) | (actions > high)
        if not np.count_nonzero(outside):
            return
        bad = outside.reshape(*alive.shape, -1).any(axis=2) & alive
        for i, row in np.argwhere(bad):  # others are ignored
            raise ValueError(
                f"actions[{name!r}] must be in {self.action_spaces[name]}, got "
                f"{actions[i, row].tolist()} for {self.groups[name][row]!r} of environment {i}"
            )

    def _result(self, infos: Sequence[Mapping[str, Any]]) -> MultiStep:
        block = self._block
        changed = block.changed if np.count_nonzero(block.changed) else None
        state, next_state = _both(block.state, block.next_state, changed)
        return MultiStep(
            groups={name: _group_step(arrays, changed) for name, arrays in block.groups.items()},
            state=state,
            next_state=next_state,
            ended=block.ended.copy(),
            infos=infos,
        )

    def _bad_reward(self, name: str, rewards: Array) -> NonFiniteError:
        i, row = (int(x[0]) for x in np.nonzero(~np.isfinite(rewards)))
        return NonFiniteError(
            f"rewards must be finite, got {rewards[i, row]} for {self.groups[name][row]!r} from "
            f"environment {i} at step {self._steps}"
        )

    def _close_quietly(self) -> None:
        with contextlib.suppress(Exception):
            self.close()

    def _assert_open(self) -> None:
        if self.closed:
            raise ClosedEnvironmentError("the vector environment is closed")


def _range(space: spaces.Space[Any]) -> Any:
    """The lowest and the highest integers of an action; None where actions are continuous."""
    if isinstance(space, spaces.Discrete):
        return int(space.start), int(space.start + space.n - 1)
    if isinstance(space, spaces.MultiDiscrete):
        return space.start, space.start + space.nvec - 1
    return (0, 1) if isinstance(space, spaces.MultiBinary) else None


def _check_separate(envs: list[Any]) -> None:
    if len({id(layers(env)[-1]) for env in envs}) < len(envs):
        raise ValueError("env must make a new environment each time, got the same one twice")


def _group_step(arrays: GroupArrays, changed: Any) -> GroupStep:
    obs, next_obs = _both(arrays.obs, arrays.next_obs, changed)
    has_masks = arrays.masks is not None and np.count_nonzero(arrays.has_masks) > 0
    return GroupStep(
        obs=obs,
        next_obs=next_obs,
        rewards=arrays.rewards.copy(),
        terminated=arrays.terminated.copy(),
        truncated=arrays.truncated.copy(),
        alive=arrays.alive.copy(),
        masks=arrays.masks.copy() if has_masks and arrays.masks is not None else None,
    )


def _both(new: Nested, old: Nested, changed: Any) -> tuple[Nested, Nested]:
    """Copies of the observations to act on next, and of those that the actions led to."""
    if old is None:
        return None, None
    after = map_leaves(lambda leaf: leaf.copy(), old)
    if changed is None:
        return after, after

    def merged(first: Array, last: Array) -> Array:
        rows = last.copy()
        rows[changed] = first[changed]
        return rows

    return map_leaves(merged, new, old), after
