"""Reward functions that a process can import."""

from __future__ import annotations

import os
import time
from typing import Any


def process(completions: Any, prompts: Any) -> list[float]:
    """The process that it is called in."""
    return [float(os.getpid())] * len(completions)


async def lengths(completions: Any, prompts: Any) -> list[float]:
    """Lengths of sequences."""
    return [float(len(one)) for one in completions]


def answers(completions: list[str], answer: list[int]) -> list[float]:
    """1 for completions that are the answers, otherwise 0."""
    return [float(text == str(right)) for text, right in zip(completions, answer, strict=True)]


def stuck_on_short(completions: Any, prompts: Any) -> list[float]:
    """Never comes back where a sequence is short."""
    while min(len(one) for one in completions) < 5:
        time.sleep(0.01)
    return [1.0] * len(completions)


def broken(completions: Any, prompts: Any) -> list[float]:
    """Raises."""
    raise ZeroDivisionError("oh")


def deadly(completions: Any, prompts: Any) -> list[float]:
    """Takes its process with it."""
    os._exit(3)
