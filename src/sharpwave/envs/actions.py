"""Maps of a policy's actions to those of an environment: clipping, squashing, scaling."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from sharpwave.types import Array

__all__ = ["ActionMap", "ActionScale"]


class ActionMap:
    """Maps raw actions of a policy into the action space.

    - Box: clipped to the bounds (unbounded dimensions stay), or with `squash`
      low + (tanh(u) + 1) / 2 · (high - low), each dimension with its own bounds.
    - Discrete and MultiDiscrete: raw actions count from 0, those of the space from its `start`.
    - MultiBinary: as int8.

    Args:
        action_space: Of one environment.
        squash: Box actions are squashed instead of clipped.
        clip: Box actions are clipped to ±this, too; None for their bounds alone.

    Attributes:
        low: Lower bounds of Box actions.
        high: Upper bounds.

    Raises:
        TypeError: The space is of another kind.
        ValueError: `squash` is asked for and a dimension has no bounds.

    Example:
        >>> box = spaces.Box(np.array([0, -5], "f"), np.array([1, 5], "f"))
        >>> ActionMap(box).to_env(np.array([[2.0, 2.0]])).tolist()
        [[1.0, 2.0]]
        >>> ActionMap(box, squash=True).to_env(np.array([[0.0, 100.0]])).tolist()
        [[0.5, 5.0]]
        >>> ActionMap(spaces.Discrete(3, start=-1)).to_env(np.array([0, 2])).tolist()
        [-1, 1]
    """

    def __init__(
        self, action_space: gym.Space[Any], squash: bool = False, clip: float | None = None
    ) -> None:
        self.space = action_space
        self.squash = squash and isinstance(action_space, spaces.Box)
        self._start: Array | None = None
        if isinstance(action_space, spaces.Box):
            self._set_bounds(action_space, np.inf if clip is None else clip)
        elif isinstance(action_space, spaces.Discrete | spaces.MultiDiscrete):
            start = np.asarray(action_space.start)
            self._start = start if start.any() else None
        elif not isinstance(action_space, spaces.MultiBinary):
            raise TypeError(
                "action_space must be a Box of floats, Discrete, MultiDiscrete or MultiBinary, "
                f"got {action_space}"
            )
        self._dtype = np.dtype(action_space.dtype)
        self._shape = tuple(action_space.shape or ())

    def _set_bounds(self, box: spaces.Box, clip: float) -> None:
        if box.dtype.kind != "f":
            raise TypeError(f"action_space must be a Box of floats, got {box}")
        bound = box.dtype.type(clip)
        self.low, self.high = np.maximum(box.low, -bound), np.minimum(box.high, bound)
        if self.squash:
            unbounded = ~(np.isfinite(box.low) & np.isfinite(box.high))
            if unbounded.any():
                raise ValueError(
                    "squash needs an action_space with bounds, "
                    f"got {box}, unbounded in {np.argwhere(unbounded).tolist()}"
                )
            # Halves first: high - low may overflow.
            half_low, half_high = box.low / np.float64(2), box.high / np.float64(2)
            self._bias, self._scale = half_low + half_high, half_high - half_low

    def to_env(self, raw: Any) -> Array:
        """Actions of the policy as `env.step` takes them.

        Args:
            raw: Of N environments: Discrete [N], otherwise [N, d] with the dimensions of the space
                in a row (or already in its shape, [N, *shape]).

        Returns:
            [N, *shape] in the dtype of the space.

        Raises:
            ValueError: The shape does not fit.
        """
        actions: Array = np.asarray(raw)
        shape = (len(actions) if actions.ndim > 0 else 1, *self._shape)
        if actions.shape != shape:
            if actions.ndim == 0 or actions.size != np.prod(shape):
                expected = ", ".join(["N", *map(str, self._shape)])
                raise ValueError(f"raw must have shape ({expected}), got {actions.shape}")
            actions = actions.reshape(shape)
        if not isinstance(self.space, spaces.Box):
            if self._start is not None:
                actions = actions + self._start
            return actions.astype(self._dtype, copy=False)
        if self.squash:
            actions = self._bias + self._scale * np.tanh(actions, dtype=np.float64)
        # Clipped in the dtype of the space: rounding may have left the bounds.
        clipped: Array = np.clip(actions.astype(self._dtype, copy=False), self.low, self.high)
        return clipped


class ActionScale:
    """Scales actions between the bounds of a Box space and [-1, 1], each dimension by its own.

    Args:
        action_space: A Box of floats with bounds.

    Attributes:
        bias: [d] action bias, the middle of each dimension.
        scale: [d] action scale, half of its width; 1 where the width is 0.

    Raises:
        TypeError: The space is not a Box of floats.
        ValueError: A dimension has no bounds.

    Example:
        >>> scale = ActionScale(spaces.Box(np.array([0, -5], "f"), np.array([1, 5], "f")))
        >>> scale.to_env(np.array([[0.0, 1.0]])).tolist()
        [[0.5, 5.0]]
        >>> scale.to_unit(np.array([[0.5, 5.0]], "f")).tolist()
        [[0.0, 1.0]]
    """

    def __init__(self, action_space: gym.Space[Any]) -> None:
        if not isinstance(action_space, spaces.Box) or action_space.dtype.kind != "f":
            raise TypeError(f"action_space must be a Box of floats, got {action_space}")
        low, high = action_space.low.reshape(-1), action_space.high.reshape(-1)
        unbounded = ~(np.isfinite(low) & np.isfinite(high))
        if unbounded.any():
            raise ValueError(
                f"action_space must have bounds, got {action_space}, "
                f"unbounded in {np.flatnonzero(unbounded).tolist()}"
            )
        half_low, half_high = low / np.float64(2), high / np.float64(2)
        self.bias = (half_low + half_high).astype(np.float32)
        scale = (half_high - half_low).astype(np.float32)
        self.scale = np.where(scale > 0, scale, np.float32(1))
        self.space = action_space

    def to_env(self, unit: Any) -> Array:
        """Actions [N, d] in [-1, 1] as `env.step` takes them, [N, *shape]."""
        actions = np.asarray(unit, np.float64) * self.scale + self.bias
        shaped = actions.reshape(len(actions), *self.space.shape).astype(self.space.dtype)
        # What np.clip does, in half its time.
        return np.minimum(np.maximum(shaped, self.space.low), self.space.high)  # type: ignore[no-any-return]

    def to_unit(self, actions: Any) -> Array:
        """Actions [N, *shape] of the space as [N, d] float32 in [-1, 1]."""
        rows = np.asarray(actions, np.float32).reshape(len(actions), -1)
        unit: Array = (rows - self.bias) / self.scale
        return unit
