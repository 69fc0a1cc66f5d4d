"""Lazy imports: torch and what needs it, imported at their first use.

Importing torch takes longer than many a run of this library, so modules that may never need it
write `from sharpwave.core.lazy import torch` and pay when they first touch an attribute.
"""

from __future__ import annotations

import importlib
import types
from typing import TYPE_CHECKING, Any

__all__ = ["llm", "losses", "nn", "torch"]


class LazyModule(types.ModuleType):
    """A module that is imported when one of its attributes is asked for."""

    def __getattr__(self, name: str) -> Any:
        module = importlib.import_module(self.__name__)
        value = getattr(module, name)
        self.__dict__[name] = value  # found without coming here again
        return value


if TYPE_CHECKING:
    import torch as torch

    from sharpwave import llm as llm
    from sharpwave import losses as losses
    from sharpwave import nn as nn
else:
    torch = LazyModule("torch")
    nn = LazyModule("sharpwave.nn")
    llm = LazyModule("sharpwave.llm")
    losses = LazyModule("sharpwave.losses")
