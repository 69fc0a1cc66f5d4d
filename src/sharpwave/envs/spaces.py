"""Gymnasium spaces: which ones are supported, and their form in JSON."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from sharpwave.types import Array, Nested, as_dtype

__all__ = [
    "check_action_space",
    "check_observation_space",
    "check_same_form",
    "check_spaces",
    "leaf_spaces",
    "space_from_json",
    "space_to_json",
]

Space = gym.Space[Any]
LEAVES = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


def check_spaces(env: Any) -> None:
    """Raise where an environment's spaces are not supported.

    Observations are Box, Discrete, MultiDiscrete, MultiBinary, or Dict and Tuple of supported ones;
    actions Box of floats, Discrete, MultiDiscrete or MultiBinary.

    Args:
        env: An environment or a vector environment.

    Raises:
        TypeError: It names the space.

    Example:
        >>> check_spaces(gym.make("CartPole-v1"))
    """
    observation_space = getattr(env, "single_observation_space", env.observation_space)
    action_space = getattr(env, "single_action_space", env.action_space)
    check_observation_space(observation_space, "observation_space")
    check_action_space(action_space, "action_space")


def check_observation_space(space: Space, name: str) -> None:
    """Raise a TypeError where a space of observations, called `name`, is not supported."""
    for path, leaf in _flattened(space, name):
        if not isinstance(leaf, LEAVES):
            raise TypeError(
                f"{path} must be a Box, Discrete, MultiDiscrete or MultiBinary, or a Dict or "
                f"Tuple of these, got {leaf}"
            )


def check_action_space(space: Space, name: str) -> None:
    """Raise a TypeError where a space of actions, called `name`, is not supported."""
    if not isinstance(space, LEAVES):
        raise TypeError(
            f"{name} must be a Box, Discrete, MultiDiscrete or MultiBinary, got {space}"
        )
    if isinstance(space, spaces.Box) and space.dtype.kind != "f":
        raise TypeError(f"{name} must be a Box of floats, got {space}")


def check_same_form(env: Any, observation_space: Space, action_space: Space) -> None:
    """Raise where a policy made for some spaces cannot play a vector environment.

    Args:
        env: The vector environment to play.
        observation_space: That of the policy. Bounds may differ.
        action_space: That of the policy likewise.

    Raises:
        ValueError: The spaces differ in kind, entries or shape.
    """
    expected = {"observation_space": observation_space, "action_space": action_space}
    for name, wanted in expected.items():
        space = getattr(env, f"single_{name}")
        if not _same_form(space, wanted):
            raise ValueError(f"env must have the {name} of training, {wanted}, got {space}")


def _same_form(space: Space, other: Space) -> bool:
    if isinstance(space, spaces.Dict) and isinstance(other, spaces.Dict):
        return space.keys() == other.keys() and all(_same_form(space[k], other[k]) for k in space)
    if isinstance(space, spaces.Tuple) and isinstance(other, spaces.Tuple):
        return len(space) == len(other) and all(map(_same_form, space, other))
    if isinstance(space, spaces.Box) and isinstance(other, spaces.Box):
        return space.shape == other.shape and space.dtype.kind == other.dtype.kind
    return space == other


def leaf_spaces(space: Space) -> Nested:
    """A space as a tree of its leaf spaces: Dict as dict, Tuple as tuple."""
    if isinstance(space, spaces.Dict):
        return {key: leaf_spaces(inner) for key, inner in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(leaf_spaces(inner) for inner in space.spaces)
    return space


def _flattened(space: Space, path: str) -> list[tuple[str, Space]]:
    if isinstance(space, spaces.Dict):
        items: Any = space.spaces.items()
    elif isinstance(space, spaces.Tuple):
        items = enumerate(space.spaces)
    else:
        return [(path, space)]
    return [leaf for key, inner in items for leaf in _flattened(inner, f"{path}[{key!r}]")]


def space_to_json(space: Space) -> dict[str, Any]:
    """A space as a dict that JSON holds exactly.

    Raises:
        TypeError: The space is of another kind than `check_spaces` supports.

    Example:
        >>> space_to_json(spaces.Discrete(3))
        {'type': 'Discrete', 'n': 3, 'start': 0, 'dtype': 'int64'}
        >>> space_to_json(spaces.Box(-1, 1, (2,)))
        {'type': 'Box', 'low': -1.0, 'high': 1.0, 'shape': [2], 'dtype': 'float32'}
    """
    kind = type(space).__name__
    dtype = None if space.dtype is None else np.dtype(space.dtype).name
    if isinstance(space, spaces.Dict):
        inner = [[key, space_to_json(value)] for key, value in space.spaces.items()]
        return {"type": "Dict", "spaces": inner}
    if isinstance(space, spaces.Tuple):
        return {"type": "Tuple", "spaces": [space_to_json(value) for value in space.spaces]}
    if isinstance(space, spaces.Box):
        low, high = _numbers(space.low), _numbers(space.high)
        return {"type": "Box", "low": low, "high": high, "shape": list(space.shape), "dtype": dtype}
    if isinstance(space, spaces.Discrete):
        return {"type": "Discrete", "n": int(space.n), "start": int(space.start), "dtype": dtype}
    if isinstance(space, spaces.MultiDiscrete):
        return {
            "type": "MultiDiscrete",
            "nvec": space.nvec.tolist(),
            "start": space.start.tolist(),
            "dtype": dtype,
        }
    if isinstance(space, spaces.MultiBinary):
        return {"type": "MultiBinary", "shape": list(space.shape)}
    raise TypeError(f"space must be one of the supported kinds, got {kind}")


def space_from_json(data: dict[str, Any]) -> Space:
    """The space that `space_to_json` wrote.

    Raises:
        ValueError: The kind is unknown.

    Example:
        >>> space_from_json(space_to_json(spaces.MultiBinary(4)))
        MultiBinary(4)
    """
    kind = data.get("type")
    if kind == "Dict":
        return spaces.Dict(OrderedDict((key, space_from_json(x)) for key, x in data["spaces"]))
    if kind == "Tuple":
        return spaces.Tuple([space_from_json(inner) for inner in data["spaces"]])
    if kind == "Box":
        dtype = as_dtype(data["dtype"])
        shape = tuple(data["shape"])
        low, high = (_bounds(data[name], shape, dtype) for name in ("low", "high"))
        return spaces.Box(low, high, shape, dtype.type)
    if kind == "Discrete":
        dtype = as_dtype(data["dtype"])
        # Gymnasium 1.1 knows no other dtype, and no such argument.
        chosen = {} if dtype == np.int64 else {"dtype": dtype.type}
        return spaces.Discrete(data["n"], start=data["start"], **chosen)
    if kind == "MultiDiscrete":
        dtype = as_dtype(data["dtype"])
        nvec, start = (np.array(data[name], dtype) for name in ("nvec", "start"))
        return spaces.MultiDiscrete(nvec, dtype=dtype.type, start=start)
    if kind == "MultiBinary":
        shape = tuple(data["shape"])
        return spaces.MultiBinary(shape[0] if len(shape) == 1 else shape)
    raise ValueError(f"type must be the name of a supported space, got {kind!r}")


def _numbers(bounds: Array) -> Any:
    """Bounds as one number if they are all equal; infinities, which JSON lacks, as strings."""
    if bounds.size > 0 and (bounds == bounds.flat[0]).all():
        return _number(bounds.flat[0].item())
    return [_number(value) for value in bounds.ravel().tolist()]


def _number(value: Any) -> Any:
    return str(value) if value in (float("inf"), float("-inf")) else value


def _bounds(numbers: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    if not isinstance(numbers, list):
        return np.full(shape, _bound(numbers), dtype)
    return np.array([_bound(number) for number in numbers], dtype).reshape(shape)


def _bound(number: Any) -> Any:
    return float(number) if isinstance(number, str) else number
