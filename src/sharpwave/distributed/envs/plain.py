"""Compatibility with rlox's protocol: arrays as flat floats, and spaces in its JSON."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from gymnasium import spaces

from sharpwave.core.tree import leaves
from sharpwave.errors import WireError
from sharpwave.types import Array, Nested

__all__ = ["plain_actions", "plain_observations", "plain_space", "space_of_plain"]

_LARGEST = float(np.finfo(np.float32).max)


def plain_space(space: Any) -> str:
    """A space of one environment as rlox's JSON; what it does not know becomes a row of floats.

    Example:
        >>> plain_space(spaces.Discrete(2))
        '{"Discrete": 2}'
        >>> plain_space(spaces.MultiDiscrete([2, 3]))
        '{"MultiDiscrete": [2, 3]}'
        >>> plain_space(spaces.Box(-1, np.inf, (1,)))
        '{"Box": {"low": [-1.0], "high": [3.4028234663852886e+38], "shape": [1]}}'
    """
    if isinstance(space, spaces.Discrete):
        return json.dumps({"Discrete": int(space.n)})
    if isinstance(space, spaces.MultiDiscrete):
        return json.dumps({"MultiDiscrete": space.nvec.ravel().tolist()})
    if isinstance(space, spaces.Box):
        bounds = [np.clip(one, -_LARGEST, _LARGEST).ravel() for one in (space.low, space.high)]
        low, high = (one.astype(np.float64).tolist() for one in bounds)
        return json.dumps({"Box": {"low": low, "high": high, "shape": list(space.shape)}})
    size = spaces.flatdim(space) if isinstance(space, spaces.MultiBinary) else _size(space)
    bounds_of = {"low": [-_LARGEST] * size, "high": [_LARGEST] * size, "shape": [size]}
    return json.dumps({"Box": bounds_of})


def _size(space: Any) -> int:
    """Numbers in one observation."""
    if isinstance(space, spaces.Dict):
        return sum(_size(inner) for inner in space.spaces.values())
    if isinstance(space, spaces.Tuple):
        return sum(_size(inner) for inner in space.spaces)
    return int(np.prod(space.shape))


def space_of_plain(text: str) -> Any:
    """The space that rlox's JSON says.

    Raises:
        WireError: It says something else.

    Example:
        >>> space_of_plain('{"Discrete": 2}')
        Discrete(2)
    """
    try:
        ((kind, said),) = json.loads(text).items()
        if kind == "Discrete":
            return spaces.Discrete(int(said))
        if kind == "MultiDiscrete":
            return spaces.MultiDiscrete([int(n) for n in said])
        shape = tuple(int(n) for n in said["shape"])
        given = {"low": -np.inf, "high": np.inf}
        low, high = (
            np.array([given[name] if x is None else x for x in said[name]], np.float32)
            for name in given
        )
        return spaces.Box(low.reshape(shape), high.reshape(shape), dtype=np.float32)
    except (AssertionError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise WireError(f"a space must be JSON of rlox's, got {text[:200]!r}") from error


def plain_observations(obs: Nested, n: int) -> Array:
    """Observations as floats [n, numbers in one], the leaves of nested ones beside each other."""
    columns = [np.asarray(leaf, np.float32).reshape(n, -1) for _, leaf in leaves(obs)]
    return columns[0] if len(columns) == 1 else np.concatenate(columns, 1)


def plain_actions(request: Any, space: Any) -> Array:
    """The actions of a request of rlox's.

    Args:
        request: Its `actions` are floats in a row.
        space: Space of the actions of all environments.

    Raises:
        WireError: There are more or fewer, or they are not integers where they must be.
    """
    given = np.array(request.actions, np.float32)
    size = int(np.prod(space.shape))
    if len(given) != size:
        raise WireError(f"actions must be {size} numbers for {space}, got {len(given)}")
    if not np.isfinite(given).all():
        raise WireError("actions must be finite")
    with np.errstate(invalid="ignore"):  # of numbers that no integer holds, seen below
        actions: Array = given.astype(space.dtype).reshape(space.shape)
    if actions.dtype.kind != "f" and (actions.ravel() != given).any():
        raise WireError(f"actions must be integers for {space}, got {given[:8].tolist()}")
    return actions
