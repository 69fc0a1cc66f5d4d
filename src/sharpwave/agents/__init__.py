"""Agents: what users hold. A configuration, one choice of learner, a loop, a run.

Belongs here: facades: a configuration, one choice of learner, a loop and a run, saved and loaded.

They are imported at their first use: one without environments does without Gymnasium.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sharpwave.agents.agent import Agent as Agent
    from sharpwave.agents.offline import OfflineAgent as OfflineAgent
    from sharpwave.agents.online import OnlineAgent as OnlineAgent
    from sharpwave.agents.saved_model import load_run as load_run

_MODULES = {
    "Agent": "agent",
    "OfflineAgent": "offline",
    "OnlineAgent": "online",
    "load_run": "saved_model",
}

__all__ = ["Agent", "OfflineAgent", "OnlineAgent", "load_run"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value  # found without coming here again
    return value
