"""The state of vector environments, so that a run can go on exactly where it was."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from gymnasium.vector import SyncVectorEnv

from sharpwave.core.tree import map_leaves
from sharpwave.envs.python import PythonVectorEnv
from sharpwave.envs.spaces import leaf_spaces
from sharpwave.envs.subenv_state import GETTERS, SETTERS
from sharpwave.types import Array

__all__ = [
    "environment_state",
    "random_state",
    "restore_environment_state",
    "restore_random_state",
]

State = dict[str, Any]


def environment_state(env: Any) -> State | None:
    """The whole state of a vector environment, for an exact resume.

    A vector environment that has `get_state()` and `set_state(state)` is asked itself. Otherwise
    each environment in it must offer them, and so must wrappers other than Gymnasium's stateless
    ones, TimeLimit and RecordEpisodeStatistics; the random number generators are saved with them.
    The state of vector wrappers, such as VecNormalize, is not part of it; one with the attribute
    `resumable = False` cannot go on within an episode.

    Args:
        env: A vector environment.

    Returns:
        Nested dicts and lists of arrays and JSON values; None where the state is not offered.

    Raises:
        TypeError: An environment's state has values that cannot be saved.

    Example:
        >>> import gymnasium as gym
        >>> environment_state(gym.make_vec("CartPole-v1", num_envs=2)) is None
        True
    """
    base = env.unwrapped
    if not all(getattr(wrapper, "resumable", True) for wrapper in _wrappers(env)):
        return None
    if _offers_state(base):
        return {"vector": base.get_state()}
    states = _of_each(base, "state")
    if states is None or any(state is None for state in states):
        return None
    if isinstance(base, SyncVectorEnv):
        return {"envs": states, "ended": base._autoreset_envs.copy()}
    return {"envs": states}


def restore_environment_state(env: Any, state: State) -> None:
    """Put a vector environment made alike into a saved state.

    Args:
        env: A vector environment.
        state: The result of `environment_state`.

    Raises:
        ValueError: The number of environments or their wrappers differ.
        TypeError: The environment does not take a state.
    """
    base = env.unwrapped
    if "vector" in state:
        if not _offers_state(base):
            raise TypeError(f"env must have get_state and set_state like the saved one, got {env}")
        base.set_state(state["vector"])
        return
    _check_number(env, state["envs"])
    _to_each(base, "state", state["envs"])
    if isinstance(base, SyncVectorEnv):
        base._autoreset_envs[:] = state["ended"]
        # Rows that a reset of the others returns beside theirs; None before the first reset.
        empty = map_leaves(_zeros, leaf_spaces(base.single_observation_space))
        base._env_obs = [empty if obs is None else obs for obs in base._env_obs]


def random_state(env: Any) -> State | None:
    """The random number generators of the environments, for those that start new episodes.

    Returns:
        Nested dicts and lists of arrays and JSON values; None for vector environments that do not
        give them away.

    Example:
        >>> from sharpwave.envs import make_vec_env
        >>> env = make_vec_env("CartPole-v1", 2, seed=0, mode="sync")
        >>> state = random_state(env)
        >>> first, _ = env.reset()
        >>> restore_random_state(env, state)
        >>> again, _ = env.reset()
        >>> bool((first == again).all())
        True
    """
    if _offers_state(env.unwrapped):
        return {"vector": env.unwrapped.get_state()}
    states = _of_each(env.unwrapped, "random")
    return None if states is None else {"envs": states}


def restore_random_state(env: Any, state: State) -> None:
    """Put the generators of a vector environment made alike into a saved state.

    Raises:
        ValueError: The number of environments or their wrappers differ.
    """
    if "vector" in state:
        restore_environment_state(env, state)
        return
    _check_number(env, state["envs"])
    _to_each(env.unwrapped, "random", state["envs"])


def _wrappers(env: Any) -> Iterator[Any]:
    """The vector wrappers around an environment, the outermost first."""
    while env is not env.unwrapped:
        yield env
        env = env.env


def _of_each(base: Any, kind: str) -> list[Any] | None:
    if isinstance(base, PythonVectorEnv | SyncVectorEnv):
        return [GETTERS[kind](env) for env in base.envs]
    if callable(getattr(base, "get_states", None)):  # it asks its environments itself
        return list(base.get_states(kind))
    return None


def _to_each(base: Any, kind: str, states: list[Any]) -> None:
    if isinstance(base, PythonVectorEnv | SyncVectorEnv):
        for env, state in zip(base.envs, states, strict=True):
            SETTERS[kind](env, state)
    elif callable(getattr(base, "set_states", None)):
        base.set_states(kind, states)
    else:
        raise TypeError(f"env must take the state of its environments, {base} does not")


def _check_number(env: Any, states: list[Any]) -> None:
    if len(states) != env.num_envs:
        raise ValueError(f"env must have {len(states)} environments, got {env.num_envs}")


def _offers_state(base: Any) -> bool:
    return all(callable(getattr(base, name, None)) for name in ("get_state", "set_state"))


def _zeros(space: Any) -> Array:
    return np.zeros(space.shape, space.dtype)
