"""Actions of policies on a device, as environments there take them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces

from sharpwave.core.lazy import torch
from sharpwave.envs import ActionMap, ActionScale

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["TensorActions", "TensorScale", "tensor_actions"]


class TensorActions:
    """`ActionMap.to_env` for tensors on a device.

    Args:
        action_map: From the policy's actions to the environment's.
        device: Device of the actions.
    """

    def __init__(self, action_map: ActionMap, device: Any) -> None:
        space = action_map.space
        self._shape = tuple(space.shape or ())
        self._squash = action_map.squash
        self._start: Tensor | None = None
        self._bounds: tuple[Tensor, Tensor] | None = None
        self._dtype = torch.from_numpy(np.empty(0, space.dtype)).dtype
        if isinstance(space, spaces.Box):
            ends = action_map.low, action_map.high
            low, high = (torch.as_tensor(x, device=device) for x in ends)
            self._bounds = low, high
        else:
            start = np.asarray(getattr(space, "start", 0))
            self._start = torch.as_tensor(start, device=device) if start.any() else None

    def to_env(self, raw: Tensor) -> Tensor:
        """Actions as the environment takes them, [N, *shape]."""
        actions = raw.reshape(len(raw), *self._shape)
        if self._start is not None:
            actions = actions + self._start
        actions = actions.to(self._dtype)
        if self._bounds is None:
            return actions
        low, high = self._bounds
        if self._squash:
            actions = low / 2 + high / 2 + (high / 2 - low / 2) * torch.tanh(actions)
        return torch.clamp(actions, low, high)


class TensorScale:
    """`ActionScale.to_env` for tensors on a device: actions times scale, plus bias.

    Args:
        scale: Between actions in [-1, 1] and those of the environment.
        device: Device of the actions.
    """

    def __init__(self, scale: ActionScale, device: Any) -> None:
        space = scale.space
        self._shape = tuple(space.shape)
        self._dtype = torch.from_numpy(np.empty(0, space.dtype)).dtype
        form = (scale.scale, scale.bias)
        self._scale, self._bias = (torch.as_tensor(x, device=device).double() for x in form)
        self._low, self._high = (torch.as_tensor(x, device=device) for x in (space.low, space.high))

    def to_env(self, unit: Tensor) -> Tensor:
        """Actions [N, d] in [-1, 1] as the environment takes them, [N, *shape]."""
        actions = unit * self._scale + self._bias
        shaped = actions.reshape(len(actions), *self._shape).to(self._dtype)
        return torch.clamp(shaped, self._low, self._high)


def tensor_actions(action_map: ActionMap | ActionScale, device: Any) -> TensorActions | TensorScale:
    """The counterpart of an action map for tensors on a device."""
    if isinstance(action_map, ActionScale):
        return TensorScale(action_map, device)
    return TensorActions(action_map, device)
