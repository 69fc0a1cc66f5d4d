"""Runs that learn the same but for rounding."""

from __future__ import annotations

from torch import Tensor


def assert_learned_alike(one: Tensor, other: Tensor, first: Tensor) -> None:
    """Compare the weights of two runs with how far they went from their first ones.

    The device adds up in any order, and where a gradient is about 0 Adam makes a whole step of a
    rounding. A graph that misses a number moves about every weight elsewhere.
    """
    moved = (other - first).norm()
    assert moved > 0
    apart = (one - other).norm()
    assert apart < 0.05 * moved, f"{apart} apart after a way of {moved}"
