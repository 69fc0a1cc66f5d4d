"""Datasets for offline learning: scripted experts, mixtures of policies, and normalized scores.

Belongs here: what makes, names and scores datasets for offline learning.

The names are imported at their first use, so that a score needs no environments.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sharpwave.datasets.action_noise import EpsilonNoise as EpsilonNoise
    from sharpwave.datasets.action_noise import GaussianNoise as GaussianNoise
    from sharpwave.datasets.collecting import collect as collect
    from sharpwave.datasets.description import read_description as read_description
    from sharpwave.datasets.experts import expert as expert
    from sharpwave.datasets.experts import expert_ids as expert_ids
    from sharpwave.datasets.kinds import KINDS as KINDS
    from sharpwave.datasets.kinds import make_dataset as make_dataset
    from sharpwave.datasets.kinds import mixture as mixture
    from sharpwave.datasets.parts import Part as Part
    from sharpwave.datasets.recorded_run import TrainingStopped as TrainingStopped
    from sharpwave.datasets.scores import REFERENCES as REFERENCES
    from sharpwave.datasets.scores import Reference as Reference
    from sharpwave.datasets.scores import episode_returns as episode_returns
    from sharpwave.datasets.scores import measure_reference as measure_reference
    from sharpwave.datasets.scores import normalized_score as normalized_score
    from sharpwave.datasets.scores import reference as reference
    from sharpwave.datasets.training import TRAINED_KINDS as TRAINED_KINDS
    from sharpwave.datasets.training import record_training as record_training

_MODULES = {
    "EpsilonNoise": "sharpwave.datasets.action_noise",
    "GaussianNoise": "sharpwave.datasets.action_noise",
    "KINDS": "sharpwave.datasets.kinds",
    "Part": "sharpwave.datasets.parts",
    "REFERENCES": "sharpwave.datasets.scores",
    "Reference": "sharpwave.datasets.scores",
    "collect": "sharpwave.datasets.collecting",
    "episode_returns": "sharpwave.datasets.scores",
    "expert": "sharpwave.datasets.experts",
    "expert_ids": "sharpwave.datasets.experts",
    "make_dataset": "sharpwave.datasets.kinds",
    "measure_reference": "sharpwave.datasets.scores",
    "mixture": "sharpwave.datasets.kinds",
    "normalized_score": "sharpwave.datasets.scores",
    "TRAINED_KINDS": "sharpwave.datasets.training",
    "TrainingStopped": "sharpwave.datasets.recorded_run",
    "record_training": "sharpwave.datasets.training",
    "read_description": "sharpwave.datasets.description",
    "reference": "sharpwave.datasets.scores",
}

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULES[name]), name)
    globals()[name] = value  # found without coming here again
    return value
