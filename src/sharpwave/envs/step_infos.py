"""Infos of a step of vector environments, in every autoreset mode."""

from __future__ import annotations

from typing import Any

import numpy as np

from sharpwave.envs.autoreset import Step, merged_infos
from sharpwave.types import Doubles, Flags

__all__ = ["SUCCESS", "own_infos", "success_of"]

SUCCESS = ("is_success", "success")
"""Names in infos that say whether an episode reached its goal, in order of precedence."""
OF_THE_RESET = ("final_info", "final_obs", "raw_rewards")
"""Entries of infos that come from resets or wrappers, not from the step itself."""


def own_infos(step: Step) -> dict[str, Any]:
    """The infos of what the actions led to, in Gymnasium's form: arrays [N] with masks `_name`.

    Where an episode ended they are those of its last step, not of the reset that followed.
    """
    hidden = {*OF_THE_RESET, *(f"_{name}" for name in OF_THE_RESET)}
    infos = {name: value for name, value in step.infos.items() if name not in hidden}
    final = step.infos.get("final_info")
    if not isinstance(final, dict):
        return infos
    final = {name: value for name, value in final.items() if name not in hidden}
    return merged_infos(infos, final, step.terminated | step.truncated)


def success_of(infos: dict[str, Any], ended: Flags) -> Doubles | None:
    """Success of the episodes that ended, as far as their infos tell.

    Gymnasium's robotics environments and others say so by `is_success` or `success` in the info of
    the last step.

    Args:
        infos: Of a step, as a vector environment of any mode gave them.
        ended: [N].

    Returns:
        [N], 1 for a success and 0 for none, NaN where no episode ended or nothing is said; None
        where nothing is said at all.

    Example:
        >>> ended = np.array([True, False, True])
        >>> success_of({"is_success": np.array([1.0, 0.0, 0.0])}, ended).tolist()
        [1.0, nan, 0.0]
        >>> success_of({}, ended) is None
        True
    """
    final = infos.get("final_info")
    told = infos if final is None else final
    found: Doubles = np.full(len(ended), np.nan)
    rows = np.flatnonzero(ended).tolist()
    if isinstance(told, dict):
        name = next((name for name in SUCCESS if name in told), None)
        if name is None:
            return None
        known, values = told.get(f"_{name}"), told[name]
        for row in rows:
            if known is None or known[row]:
                found[row] = _number(values[row] if np.ndim(values) else values)
    else:  # one info for each environment
        for row in rows:
            found[row] = _flag_of(told[row])
    return None if np.isnan(found).all() else found


def _flag_of(info: Any) -> float:
    """Success by the info of one environment; NaN if it does not tell."""
    if not isinstance(info, dict):
        return np.nan
    return next((_number(info[name]) for name in SUCCESS if name in info), np.nan)


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return np.nan
