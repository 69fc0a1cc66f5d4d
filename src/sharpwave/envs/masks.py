"""Action masks: the valid actions in the observations to act on next."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

__all__ = ["action_masks", "choices"]

_METHODS = ("action_masks", "action_mask")
_method_of: WeakKeyDictionary[Any, str | None] = WeakKeyDictionary()


def action_masks(env: Any, infos: dict[str, Any]) -> npt.NDArray[np.bool_] | None:
    """Masks of the valid actions, from the infos or the environments' own method.

    `infos["action_mask"]` is taken if it is there; otherwise the method `action_masks()` or
    `action_mask()` of the vector environment or of its sub-environments. An environment that gives
    no mask allows every action, and so does one that allows none, as some do at the end of an
    episode, where the next action is ignored.

    Args:
        env: A vector environment.
        infos: Returned with the observations to act on.

    Returns:
        [N, n] for n discrete actions; the choices of all dimensions in a row for MultiDiscrete; for
        MultiBinary the bits that may be set, which may be none. None where there are no masks.

    Raises:
        ValueError: A mask has another shape.
    """
    if "action_mask" in infos:
        given = np.asarray(infos["action_mask"])
        has_mask = np.asarray(infos.get("_action_mask", np.ones(len(given), np.bool_)))
        rows = [row if has else None for row, has in zip(given, has_mask, strict=True)]
        return _checked(env, rows)
    masks = _from_method(env.unwrapped)
    return None if masks is None else _checked(env, masks)


def _from_method(base: Any) -> Any:
    if base not in _method_of:
        _method_of[base] = _method(base)
    name = _method_of[base]
    if name is None:
        return None
    return getattr(base, name)() if hasattr(base, name) else base.call(name)


def _method(base: Any) -> str | None:
    for name in _METHODS:
        if hasattr(base, name):
            return name
        if hasattr(base, "call") and all(base.call("has_wrapper_attr", name)):
            return name
    return None


def _checked(env: Any, rows: Any) -> npt.NDArray[np.bool_]:
    parts = choices(env.single_action_space)
    width = sum(parts)
    masks = np.ones((len(rows), width), np.bool_)
    for i, row in enumerate(rows):
        if row is None:
            continue
        mask = np.asarray(row, np.bool_)
        if mask.shape != (width,):
            raise ValueError(
                f"the action mask of environment {i} must have shape ({width},), got {mask.shape}"
            )
        masks[i] = mask
    if isinstance(env.single_action_space, spaces.MultiBinary):
        return masks
    starts = np.cumsum([0, *parts[:-1]])
    allows = np.logical_or.reduceat(masks, starts, axis=1)
    if not allows.all():
        masks |= np.repeat(~allows, parts, axis=1)
    return masks


def choices(space: Any) -> list[int]:
    """Number of masked choices of each dimension of an action.

    Raises:
        ValueError: The actions are not discrete.
    """
    if isinstance(space, spaces.Discrete):
        return [int(space.n)]
    if isinstance(space, spaces.MultiDiscrete):
        return [int(n) for n in space.nvec.ravel()]
    if isinstance(space, spaces.MultiBinary):
        return [1] * int(np.prod(space.shape))
    raise ValueError(f"action masks need a space of discrete actions, got {space}")
