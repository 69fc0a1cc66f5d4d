"""Lazy imports: torch and what needs it, imported at their first use.

Importing torch takes longer than many a run of this library, so modules that may never need it
write `from sharpwave.core.lazy import torch` and pay when they first touch an attribute.
"""

from __future__ import annotations

import importlib
import types
from typing import TYPE_CHECKING, Any

from sharpwave.core.optional import missing_library

__all__ = ["import_late", "llm", "losses", "nn", "torch"]


def import_late(module: str, needed_by: str) -> types.ModuleType:
    """A module of this package, or torch.

    Args:
        module: Name of the module.
        needed_by: What needs it.

    Raises:
        ImportError: A library that it needs is not installed; the message says how to install it.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise missing_library(error, needed_by) or error from error


class LazyModule(types.ModuleType):
    """A module that is imported when one of its attributes is asked for."""

    def __getattr__(self, name: str) -> Any:
        own = self.__name__
        module = import_late(own, "this" if own == "torch" else f"{own}.{name}")
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
