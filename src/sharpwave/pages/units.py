"""The unit that the steps of a run are counted in, in words."""

from __future__ import annotations

import re
from typing import Any

from sharpwave.pages.text import count

ENVIRONMENT_STEPS, GRADIENT_STEPS, UPDATES = "environment steps", "gradient steps", "updates"


def singular(unit: str) -> str:
    """One of a unit.

    Example:
        >>> singular("gradient steps"), singular("batches")
        ('gradient step', 'batch')
    """
    return re.sub(r"(?<=ch|sh|ss)es$|(?<=x)es$|s$", "", unit)


def short(unit: str) -> str:
    """A unit on a line with little room: steps of environments are steps.

    Example:
        >>> short("environment steps"), short("gradient steps")
        ('steps', 'gradient steps')
    """
    return "steps" if unit == ENVIRONMENT_STEPS else unit


def counted(n: Any, unit: str) -> str:
    """A number with its unit, in words.

    Example:
        >>> counted(2048, "environment steps"), counted(1, "updates")
        ('2,048 steps', '1 update')
    """
    return f"{count(n)} {singular(short(unit)) if n == 1 else short(unit)}"
