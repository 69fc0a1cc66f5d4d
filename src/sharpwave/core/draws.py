"""Random numbers whose state is a count."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Draws"]


class Draws:
    """A counter-based generator: numbers are a function of its seed and of the call.

    So its whole state is a count, and what a call draws does not depend on threads.

    Args:
        seed: Any integer from 0 to 2**64 - 1.

    Example:
        >>> draws = Draws(7)
        >>> draws.next_call(), draws.next_call()
        ((7, 0), (7, 1))
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._calls = 0

    def next_call(self) -> tuple[int, int]:
        """The seed and the number of a call that nobody else gets."""
        call = (self._seed, self._calls)
        self._calls += 1
        return call

    def get_state(self) -> npt.NDArray[np.uint64]:
        """[2] all that `set_state` needs to go on from here."""
        return np.array([self._seed, self._calls], np.uint64)

    def set_state(self, state: Any) -> None:
        """Goes on from a state that `get_state` gave."""
        self._seed, self._calls = (int(number) for number in state)
