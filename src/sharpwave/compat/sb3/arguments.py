"""Arguments of a constructor as JSON values: classes by name, schedules by values, no code."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from enum import Enum
from typing import Any

import numpy as np

from sharpwave.compat.sb3.networks import LIBRARIES
from sharpwave.compat.sb3.refusals import refuse

__all__ = ["SampledSchedule", "from_json", "to_json"]

CLASS, SCHEDULE, UNSAVED = "class", "schedule", "not saved"
POINTS = 1001
NOT_KEPT = ("env", "_init_setup_model", "device", "action_noise")
"""Arguments that a file does not need: the checkpoint has what came of them."""


class SampledSchedule:
    """A schedule by its values at equal distances of the progress remaining, and lines between.

    Args:
        values: From the end of the run, where the progress remaining is 0, to its beginning.

    Example:
        >>> SampledSchedule([0.0, 1.0])(0.25)
        0.25
    """

    def __init__(self, values: Any) -> None:
        self.values = [float(value) for value in values]

    def __call__(self, progress_remaining: float) -> float:
        """The value where `progress_remaining` of the run is still to come."""
        places = np.linspace(0.0, 1.0, len(self.values))
        return float(np.interp(progress_remaining, places, self.values))


def to_json(given: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments as JSON values; what cannot be one is named."""
    return {name: _to_json(value) for name, value in given.items() if name not in NOT_KEPT}


def from_json(saved: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `to_json`.

    Raises:
        ValueError: One was not saved, or names a class that this program does not have.
    """
    return {name: _from_json(name, value) for name, value in saved.items()}


def _to_json(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {str(name): _to_json(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json(entry) for entry in value]
    if isinstance(value, SampledSchedule):
        return {SCHEDULE: value.values}
    if isinstance(value, Enum):
        return value.name.lower()
    if isinstance(value, type):
        return {CLASS: [value.__module__, value.__qualname__]}
    if callable(value):
        try:
            points = [float(value(float(x))) for x in np.linspace(0.0, 1.0, POINTS)]
        except (TypeError, ValueError):
            return {UNSAVED: repr(value)[:80]}
        return {SCHEDULE: points}
    return {UNSAVED: repr(value)[:80]}


def _from_json(name: str, value: Any) -> Any:
    if isinstance(value, list):
        return [_from_json(name, entry) for entry in value]
    if not isinstance(value, Mapping):
        return value
    if set(value) == {SCHEDULE}:
        return SampledSchedule(value[SCHEDULE])
    if set(value) == {CLASS}:
        return _known_class(name, *value[CLASS])
    if set(value) == {UNSAVED}:
        raise refuse(name, value[UNSAVED], f"given to load() again, as {name}=...")
    return {key: _from_json(name, entry) for key, entry in value.items()}


def _known_class(name: str, module: str, qualname: str) -> Any:
    """A class that this program has imported, since nothing is imported for a file.

    It is one of SB3's, or a module or optimizer of torch's kind.
    """
    import torch

    is_theirs = module.partition(".")[0] in LIBRARIES
    found: Any = sys.modules.get(module)
    for part in qualname.split("."):
        found = getattr(found, part, None)
    kinds = (torch.nn.Module, torch.optim.Optimizer)
    if not (isinstance(found, type) and (is_theirs or issubclass(found, kinds))):
        raise refuse(name, f"{module}.{qualname}", f"given to load() again, as {name}=...")
    return found
