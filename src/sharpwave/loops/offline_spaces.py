"""The spaces of a task that only a dataset tells of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces

from sharpwave.loops.offline_data import action_range, first_step, is_readable
from sharpwave.types import Array

if TYPE_CHECKING:
    from sharpwave.config.offline import OfflineConfig

Space = spaces.Space[Any]


def spaces_of(
    dataset: Any,
    config: OfflineConfig,
    env: Any,
    obs_dim: int | None,
    act_dim: int | None,
    kind: str | None,
) -> tuple[Space, Space]:
    """Observation and action space: those of the environment, or what the dataset looks like.

    Args:
        dataset: The result of `open_dataset`.
        config: With bounds of actions, perhaps.
        env: A vector environment, or None.
        obs_dim: Length of the observations, to be checked.
        act_dim: Length of the actions or their number, to be checked.
        kind: "continuous" or "discrete"; None if the environment decides, or the dataset.

    Raises:
        TypeError: The observations are nested and there is no environment.
        ValueError: Something does not fit.
    """
    step = first_step(dataset)
    if env is not None:
        observation_space = env.single_observation_space
        action_space = env.single_action_space
    else:
        observation_space = _observation_space(step["obs"])
        action_space = _action_space(dataset, step["actions"], config, act_dim, kind)
    if kind == "continuous" and not isinstance(action_space, spaces.Box):
        raise TypeError(f"env must have continuous actions, got {action_space}")
    if kind == "discrete" and not isinstance(action_space, spaces.Discrete):
        raise TypeError(f"env must have discrete actions, got {action_space}")
    if isinstance(action_space, spaces.Box) and (
        env is None or config.act_low is not None or config.act_high is not None
    ):
        action_space = _bounded(action_space, config)
    check_dataset(dataset, observation_space, action_space)
    _check_dim("obs_dim", obs_dim, observation_space)
    _check_dim("act_dim", act_dim, action_space)
    return observation_space, action_space


def check_dataset(dataset: Any, observation_space: Space, action_space: Space) -> None:
    """Raise where the steps of a dataset are not of these spaces.

    Raises:
        ValueError: The shape of observations or actions differs.
    """
    step = first_step(dataset)
    if observation_space.shape is not None:
        got = np.shape(step["obs"])[1:]
        if got != observation_space.shape:
            raise ValueError(
                f"dataset must have observations of shape {observation_space.shape}, got {got}"
            )
    if isinstance(action_space, spaces.Discrete) and is_readable(dataset):
        low, high = (int(bound[0]) for bound in action_range(dataset))
        first, last = int(action_space.start), int(action_space.start + action_space.n - 1)
        if low < first or high > last:
            raise ValueError(
                f"dataset must have actions from {first} to {last}, got {low} to {high}"
            )
    size = int(np.prod(np.shape(step["actions"])[1:]))
    wanted = int(np.prod(action_space.shape or ()))
    if size != wanted:
        raise ValueError(f"dataset must have {wanted} numbers in an action, got {size}")


def _observation_space(obs: Any) -> Space:
    if not isinstance(obs, np.ndarray):
        raise TypeError("env must be given where observations are nested: it has their spaces")
    shape = obs.shape[1:]
    if obs.dtype == np.uint8:
        return spaces.Box(0, 255, shape, np.uint8)
    return spaces.Box(-np.inf, np.inf, shape, np.float32)


def _action_space(
    dataset: Any, actions: Array, config: OfflineConfig, act_dim: int | None, kind: str | None
) -> Space:
    if kind is None:
        whole = getattr(dataset, "has_whole_actions", actions.dtype.kind in "iu")
        kind = "discrete" if whole else "continuous"
    if kind == "discrete":
        return spaces.Discrete(int(action_range(dataset)[1][0]) + 1 if act_dim is None else act_dim)
    size = int(np.prod(actions.shape[1:]))
    if config.act_low is None and config.act_high is None:
        low, high = usual_bounds(*action_range(dataset)) if is_readable(dataset) else (-1.0, 1.0)
        return spaces.Box(np.float32(low), np.float32(high), (size,), np.float32)
    return spaces.Box(-np.inf, np.inf, (size,), np.float32)


def usual_bounds(low: Array, high: Array) -> tuple[Array, Array]:
    """-1 and 1 for dimensions whose actions lie inside, and the range of the others.

    Most tasks have actions in [-1, 1] and their data rarely reach the bounds: only what lies beyond
    shows that a task has others.
    """
    usual = (low >= -1) & (high <= 1)
    return np.where(usual, -1, low), np.where(usual, 1, high)


def _bounded(space: spaces.Box, config: OfflineConfig) -> spaces.Box:
    """The space with the bounds of the configuration, where it has some."""
    if config.act_low is None and config.act_high is None:
        return space
    for name in ("act_low", "act_high"):
        shape = np.shape(getattr(config, name) or 0.0)
        if shape not in ((), space.shape):
            raise ValueError(f"{name} must be one number or have shape {space.shape}, got {shape}")
    low = -np.asarray(config.act_high) if config.act_low is None else np.asarray(config.act_low)
    high = -low if config.act_high is None else np.asarray(config.act_high)
    low, high = (np.full(space.shape, bound, np.float32) for bound in (low, high))
    if not (low < high).all():
        raise ValueError(f"act_low must be below act_high, got {low.tolist()} and {high.tolist()}")
    return spaces.Box(low, high, space.shape, np.float32)


def _check_dim(name: str, given: int | None, space: Space) -> None:
    if given is None:
        return
    size = space.n if isinstance(space, spaces.Discrete) else np.prod(space.shape or ())
    found = int(size)
    if given != found:
        raise ValueError(f"{name} must be {found} as in the dataset, got {given}")
