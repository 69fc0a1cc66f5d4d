"""Fields of recorded episodes, by the spaces of their environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sharpwave.formats.stream import FINAL_OBS, warn_not_carried
from sharpwave.types import Nested

NO_SEED = -1
LARGEST_SEED = 2**63 - 1


class Recording:
    """The fields of recorded steps and episodes.

    Args:
        observation_space: Observation space of one environment.
        action_space: Likewise.
        infos: Entries of `info` to record with each step, with what a field is given as.
        options: Entries of the `options` of a reset to record, which must be numbers.

    Attributes:
        fields: obs, action, reward (float64), terminated, truncated, and `info.NAME`.
        meta_fields: final_obs, seed (-1 where there was none) and `options.NAME` (NaN likewise).
    """

    def __init__(
        self,
        observation_space: Any,
        action_space: Any,
        infos: Mapping[str, Any],
        options: Sequence[str],
    ) -> None:
        observation = _fields_of("observation_space", observation_space)
        self.fields: dict[str, Any] = {
            "obs": observation,
            "action": _fields_of("action_space", action_space),
            "reward": "float64",
            "terminated": "bool",
            "truncated": "bool",
        }
        self.meta_fields: dict[str, Any] = {FINAL_OBS: observation, "seed": "int64"}
        if infos:
            self.fields["info"] = dict(infos)
        if options:
            self.meta_fields["options"] = dict.fromkeys(options, "float64")
        self._infos = tuple(infos)
        self._options = tuple(options)

    def step(
        self, obs: Nested, action: Nested, reward: Any, terminated: Any, truncated: Any, info: Any
    ) -> dict[str, Any]:
        """The fields of a step; `obs` is what the action answered to.

        Raises:
            KeyError: `info` has no such entry.
        """
        row = {
            "obs": obs,
            "action": as_fields(action),
            "reward": reward,
            "terminated": terminated,
            "truncated": truncated,
        }
        if self._infos:
            missing = [name for name in self._infos if name not in info]
            if missing:
                raise KeyError(f"info must have {missing}, got {list(info)}")
            row["info"] = {name: info[name] for name in self._infos}
        return row

    def meta(self, seed: int | None, options: Mapping[str, Any] | None) -> dict[str, Any]:
        """The fields of an episode that are known at its beginning."""
        given = options or {}
        if seed is not None and seed > LARGEST_SEED:
            warn_not_carried([f"seed {seed}"], "it needs more than 64 bits")
            seed = None
        meta: dict[str, Any] = {"seed": NO_SEED if seed is None else seed}
        if self._options:
            meta["options"] = {name: float(given.get(name, np.nan)) for name in self._options}
        return meta


def as_fields(value: Nested) -> Nested:
    """A copy of a value with dicts for its tuples, as the fields of its space are called."""
    if isinstance(value, dict):
        return {key: as_fields(inner) for key, inner in value.items()}
    if isinstance(value, tuple):
        return {str(number): as_fields(inner) for number, inner in enumerate(value)}
    return np.array(value)


def _fields_of(path: str, space: Any) -> Any:
    children = getattr(space, "spaces", None)
    if isinstance(children, Mapping):
        return {key: _fields_of(f"{path}[{key!r}]", child) for key, child in children.items()}
    if isinstance(children, tuple | list):
        return {str(i): _fields_of(f"{path}[{i}]", child) for i, child in enumerate(children)}
    dtype = getattr(space, "dtype", None)
    if dtype is None or np.dtype(dtype).kind not in "biuf" or space.shape is None:
        raise TypeError(f"{path} must be of numbers with a fixed shape, got {space}")
    return np.dtype(dtype).name, tuple(int(n) for n in space.shape)
