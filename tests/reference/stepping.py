"""Steps that single environments take, as every vector environment must report them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class Row(NamedTuple):
    """A step, or where `next_obs` is None a row in which nothing but a reset happens."""

    next_obs: Any
    reward: float
    terminated: bool
    truncated: bool
    obs: Any
    info: dict[str, Any]


def single_rows(make: Callable[[], Any], actions: list[Any], seed: int, mode: str) -> list[Row]:
    """One environment, with the resets where a vector environment of the mode has them."""
    env = make()
    obs, info = env.reset(seed=seed)
    rows: list[Row] = []
    waiting = False
    for action in actions:
        if waiting:
            obs, info = env.reset()
            rows.append(Row(None, 0.0, False, False, obs, info))
            waiting = False
            continue
        next_obs, reward, terminated, truncated, info = env.step(action)
        next_obs = np.array(next_obs) if isinstance(next_obs, np.ndarray) else next_obs
        obs = next_obs
        if terminated or truncated:
            if mode == "next_step":
                waiting = True
            else:
                obs, info = env.reset()
                obs = np.array(obs) if isinstance(obs, np.ndarray) else obs
        rows.append(Row(next_obs, reward, terminated, truncated, obs, info))
    env.close()
    return rows
