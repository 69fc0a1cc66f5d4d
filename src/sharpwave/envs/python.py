"""A vector environment of Python environments, stepped one after the other."""

from __future__ import annotations

import contextlib
import reprlib
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.error import ClosedEnvironmentError
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from sharpwave.core.optional import missing_library
from sharpwave.core.tree import map_leaves
from sharpwave.envs.batching import BadRowError, batched
from sharpwave.envs.spaces import check_spaces, leaf_spaces
from sharpwave.errors import EnvironmentFailed
from sharpwave.types import Array, Nested

__all__ = ["PythonVectorEnv", "made"]

Env = gym.Env[Any, Any]
EnvMaker = Callable[[], Env]


class PythonVectorEnv(VectorEnv[Any, Any, Any]):
    """Steps environments one after the other in this process, with little work around each.

    An environment whose episode ends is reset in the same step: the observation is then the next
    episode's first, and the last one is in `infos["final_obs"]` (Gymnasium's mode SAME_STEP).

    Args:
        makers: Each makes one environment.

    Attributes:
        envs: The environments.

    Raises:
        EnvironmentFailed: A maker raised; `reset` and `step` raise it when an environment does.
        TypeError: A maker made something else than an environment, or the spaces are not supported.
        ValueError: The environments do not have the same spaces, or one was made twice.

    Example:
        >>> env = PythonVectorEnv([lambda: gym.make("CartPole-v1")] * 3)
        >>> obs, infos = env.reset(seed=0)
        >>> obs.shape
        (3, 4)
        >>> obs, rewards, terminated, truncated, infos = env.step(np.array([0, 1, 0]))
        >>> rewards.tolist()
        [1.0, 1.0, 1.0]
        >>> env.close()
    """

    def __init__(self, makers: Sequence[EnvMaker]) -> None:
        if len(makers) == 0:
            raise ValueError("makers must make at least one environment, got none")
        self.envs: list[Env] = []
        try:
            self.envs.extend(made(maker, i) for i, maker in enumerate(makers))
            _check_alike(self.envs)
        except BaseException:
            self._close_quietly()
            raise
        first = self.envs[0]
        self.num_envs = len(self.envs)
        self.spec = first.spec
        self.metadata = {**first.metadata, "autoreset_mode": AutoresetMode.SAME_STEP}
        self.render_mode = first.render_mode
        self.single_observation_space = first.observation_space
        self.single_action_space = first.action_space
        self.observation_space = batch_space(first.observation_space, self.num_envs)
        self.action_space = batch_space(first.action_space, self.num_envs)
        self._leaf_spaces = leaf_spaces(first.observation_space)
        self._actions_shape = (self.num_envs, *(first.action_space.shape or ()))
        self._takes_floats = isinstance(first.action_space, gym.spaces.Box)
        self._rows: list[Nested] = [None] * self.num_envs

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Nested, dict[str, Any]]:
        """Reset all environments, or those in `options["reset_mask"]`.

        Args:
            seed: Environment i gets seed + i; or one seed for each.
            options: For every environment's `reset`.

        Returns:
            Observations [N, ...] and infos.
        """
        self._assert_open()
        seeds = self._seeds(seed)
        mask = np.ones(self.num_envs, np.bool_)
        if options is not None and "reset_mask" in options:
            options = dict(options)
            mask = np.asarray(options.pop("reset_mask"))
            if mask.shape != (self.num_envs,) or mask.dtype != np.bool_:
                raise ValueError(
                    f"reset_mask must be a bool array of shape ({self.num_envs},), "
                    f"got {mask.dtype} of shape {mask.shape}"
                )
        infos: dict[str, Any] = {}
        i = 0
        try:
            for i in np.flatnonzero(mask).tolist():
                self._rows[i], info = self.envs[i].reset(seed=seeds[i], options=options)
                self._add_info(infos, info, i)
        except Exception as error:
            raise self._failure(i, f"reset(seed={seeds[i]})", error) from error
        return self._batch(self._rows, "reset()"), infos

    def step(self, actions: Any) -> tuple[Nested, Array, Array, Array, dict[str, Any]]:
        """Step all environments.

        Args:
            actions: [N, *shape of one action].

        Returns:
            Observations [N, ...], rewards [N] float64, terminated [N], truncated [N], infos.

        Raises:
            EnvironmentFailed: An environment raised or returned what does not fit its spaces. All
                are closed.
            ValueError: The shape of the actions does not fit.
        """
        self._assert_open()
        actions = self._checked_actions(actions)
        rows = self._rows
        rewards = np.zeros(self.num_envs)
        terminated = np.zeros(self.num_envs, np.bool_)
        truncated = np.zeros(self.num_envs, np.bool_)
        infos: dict[str, Any] = {}
        i = 0
        try:
            for i, (env, action) in enumerate(zip(self.envs, actions, strict=True)):
                rows[i], rewards[i], is_terminated, is_truncated, info = env.step(action)
                if is_terminated or is_truncated:
                    terminated[i] = is_terminated
                    truncated[i] = is_truncated
                    # The environment may reuse the observation's memory in its reset.
                    final = {"final_obs": map_leaves(_copied, rows[i]), "final_info": info}
                    self._add_info(infos, final, i)
                    rows[i], info = self._reset_ended(i)
                if info:
                    self._add_info(infos, info, i)
        except EnvironmentFailed:
            raise
        except Exception as error:
            raise self._failure(i, f"step({reprlib.repr(actions[i])})", error) from error
        return self._batch(rows, "step()"), rewards, terminated, truncated, infos

    def _reset_ended(self, i: int) -> tuple[Nested, dict[str, Any]]:
        try:
            return self.envs[i].reset()
        except Exception as error:
            raise self._failure(i, "reset()", error) from error

    def _checked_actions(self, actions: Any) -> Array:
        array: Array = np.asarray(actions)
        if array.shape != self._actions_shape:
            raise ValueError(f"actions must have shape {self._actions_shape}, got {array.shape}")
        if array.dtype.kind == "f" and not self._takes_floats:
            raise TypeError(f"actions must be integers, got {array.dtype}")
        return array

    def _batch(self, rows: list[Nested], doing: str) -> Nested:
        try:
            return batched(self._leaf_spaces, rows)
        except BadRowError as error:
            raise self._failure(error.index, doing, error) from error

    def _seeds(self, seed: int | Sequence[int | None] | None) -> Sequence[int | None]:
        if seed is None:
            return [None] * self.num_envs
        if isinstance(seed, int | np.integer):
            return [int(seed) + i for i in range(self.num_envs)]
        if len(seed) != self.num_envs:
            raise ValueError(f"seed must be one for each of {self.num_envs}, got {len(seed)}")
        return seed

    def render(self) -> tuple[Any, ...]:
        """The frame of each environment."""
        return tuple(env.render() for env in self.envs)

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The results of a method of each environment or its wrappers, or their attribute."""
        values = (env.get_wrapper_attr(name) for env in self.envs)
        return tuple(value(*args, **kwargs) if callable(value) else value for value in values)

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """An attribute of each environment or its wrappers."""
        return self.call(name)

    def set_attr(self, name: str, values: Any) -> None:
        """Set an attribute of each environment: one value for each, or the same for all.

        Args:
            name: The attribute.
            values: A list or tuple of N values, or one value of another type.
        """
        if not isinstance(values, list | tuple):
            values = [values] * self.num_envs
        if len(values) != self.num_envs:
            raise ValueError(f"values must be one for each of {self.num_envs}, got {len(values)}")
        for env, value in zip(self.envs, values, strict=True):
            env.set_wrapper_attr(name, value)

    @property  # type: ignore[misc]
    def np_random(self) -> tuple[np.random.Generator, ...]:  # type: ignore[override]
        """The random number generator of each environment."""
        return self.get_attr("np_random")

    @property
    def np_random_seed(self) -> tuple[int, ...]:  # type: ignore[override]
        """The seed of each environment."""
        return self.get_attr("np_random_seed")

    def close_extras(self, **_: Any) -> None:
        """Close every environment, also after one that raises."""
        self.closed = True
        with contextlib.ExitStack() as stack:
            for env in reversed(self.envs):
                stack.callback(env.close)

    def _close_quietly(self) -> None:
        with contextlib.suppress(Exception):
            self.close()

    def _failure(self, i: int, doing: str, error: Exception) -> Exception:
        self._close_quietly()
        missing = missing_library(error, str(self.envs[i]))
        return missing or EnvironmentFailed(i, doing, "".join(traceback.format_exception(error)))

    def _assert_open(self) -> None:
        if self.closed:
            raise ClosedEnvironmentError("the vector environment is closed")


def made(maker: EnvMaker, index: int) -> Env:
    """The environment that a factory makes, checked.

    Raises:
        EnvironmentFailed: The maker raised.
        ImportError: The environment needs a library that is not installed.
        TypeError: It made something else, or the spaces are not supported.
    """
    try:
        env = maker()
    except Exception as error:
        missing = missing_library(error, _named(maker))
        if missing is not None:
            raise missing from error
        trace = "".join(traceback.format_exception(error))
        raise EnvironmentFailed(index, "being made", trace) from error
    if not isinstance(env, gym.Env):
        raise TypeError(f"env must make a gymnasium.Env, got {_described(env)}")
    for name in ("observation_space", "action_space"):
        if not isinstance(getattr(env, name, None), gym.Space):
            raise TypeError(f"env must have an {name}, {type(env).__name__} has none")
    check_spaces(env)
    return env


def _named(maker: Any) -> str:
    """Name of the environment that a factory makes."""
    first = next(iter(getattr(maker, "args", ())), maker)  # of partial(gym.make, spec)
    for name in ("id", "env_id", "__name__"):
        if isinstance(getattr(first, name, None), str):
            return str(getattr(first, name))
    return first if isinstance(first, str) else "the environment"


def _check_alike(envs: list[Env]) -> None:
    first = envs[0]
    if len({id(env) for env in envs}) < len(envs):
        raise ValueError("env must make a new environment each time, got the same one twice")
    for i, env in enumerate(envs):
        for name in ("observation_space", "action_space"):
            if getattr(env, name) != getattr(first, name):
                raise ValueError(
                    f"environments must have the same {name}: environment {i} has "
                    f"{getattr(env, name)}, environment 0 {getattr(first, name)}"
                )


def _copied(row: Any) -> Any:
    return row.copy() if isinstance(row, np.ndarray) else row


def _described(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"
