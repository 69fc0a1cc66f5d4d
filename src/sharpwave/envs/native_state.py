"""The whole state of native environments as arrays, checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sharpwave.types import Array

__all__ = ["checked_arrays"]

ARRAYS = {
    "variables": np.float64,
    "steps": np.int64,
    "returns": np.float64,
    "seeds": np.uint64,
    "resets": np.uint64,
    "ended": np.bool_,
}
"""The arrays of a whole state: one column or entry for each environment."""


def checked_arrays(
    state: Mapping[str, Any], env_id: str, num_envs: int, n_variables: int, n_agents: int = 1
) -> list[Array]:
    """Arrays that native environments are restored from, checked.

    Args:
        state: The result of `get_state`.
        env_id: The environments' id.
        num_envs: Number of environments.
        n_variables: Variables of one environment.
        n_agents: Agents of one environment, each of which has a return.

    Raises:
        ValueError: It is not the state of such environments.
    """
    missing = ({*ARRAYS, "id", "is_ready"}) - set(state)
    if missing:
        raise ValueError(f"state must have {sorted(missing)}")
    if state["id"] != env_id:
        raise ValueError(f"state must be of {env_id}, got {state['id']}")
    if not state["is_ready"]:
        raise ValueError("state must be one after a reset")
    arrays = [_as_array(name, state[name], dtype) for name, dtype in ARRAYS.items()]
    for name, array in zip(ARRAYS, arrays, strict=True):
        shape: tuple[int, ...] = (num_envs,)
        if name == "variables":
            shape = (n_variables, num_envs)
        elif name == "returns":
            shape = (n_agents * num_envs,)
        if array.shape != shape:
            raise ValueError(f"{name} must have shape {shape}, got {array.shape}")
    return arrays


def _as_array(name: str, value: Any, dtype: Any) -> Array:
    array: Array = np.asarray(value)
    if array.dtype != dtype:
        raise ValueError(f"{name} must have dtype {np.dtype(dtype)}, got {array.dtype}")
    return np.ascontiguousarray(array)
