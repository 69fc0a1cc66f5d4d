"""Which of two completions is preferred: a function of a user's, called and checked."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from sharpwave.llm.completions import Completions
from sharpwave.llm.prompts import Prompts
from sharpwave.llm.rewards import RewardFailed, Scored

__all__ = ["Preferences"]


class Preferences:
    """A function that compares completions, in the place of one that scores them.

    It is called with a list of pairs, each the tokens of prompt and completion [P + T] of two
    completions of a prompt, and gives for each the number of the one that is preferred, 0 or 1, or
    None where neither is.

    Args:
        function: The function.

    Raises:
        TypeError: It cannot be called.

    Example:
        >>> def longer(pairs):
        ...     return [int(len(other) > len(one)) for one, other in pairs]
        >>> Preferences(longer).compare([(torch.arange(3), torch.arange(4))]).tolist()
        [1.0]
    """

    def __init__(self, function: Callable[[list[tuple[Tensor, Tensor]]], Sequence[Any]]) -> None:
        if not callable(function):
            raise TypeError(f"preference_fn must be callable, got {function!r}")
        self._function = function

    def compare(self, pairs: list[tuple[Tensor, Tensor]]) -> Tensor:
        """The number of the preferred one of each pair [N], NaN where neither is.

        Raises:
            RewardFailed: The function raised, or did not give 0, 1 or None for each pair.
        """
        name = getattr(self._function, "__name__", type(self._function).__name__)
        try:
            found = list(self._function(pairs))
        except Exception as error:
            raise RewardFailed(f"preference function {name!r} raised {error!r}") from error
        if len(found) != len(pairs):
            raise RewardFailed(
                f"preference function {name!r} must give a number for each of {len(pairs)} pairs, "
                f"got {len(found)}"
            )
        for row, number in enumerate(found):
            if number is not None and number not in (0, 1):
                raise RewardFailed(
                    f"preference function {name!r} must give 0, 1 or None, got {number!r:.60} in "
                    f"row {row}"
                )
        return torch.tensor([math.nan if number is None else float(number) for number in found])

    def __call__(self, prompts: Prompts, completions: Completions) -> Scored:  # noqa: ARG002
        """1 for the preferred completion of each prompt and 0 for the other, of two each."""
        sequences = completions.sequences()
        second = self.compare(list(zip(sequences[::2], sequences[1::2], strict=True)))
        return Scored(torch.stack([1 - second, second], 1).reshape(-1), {})
