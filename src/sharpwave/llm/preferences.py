"""Preferences between two completions, by a function or judge of the user."""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from sharpwave.llm.completions import Completions
from sharpwave.llm.prompts import Prompts
from sharpwave.llm.rewards import RewardFailed, Scored

__all__ = ["Preferences"]


class Preferences:
    """Compares completions, in the place of functions that score them.

    A function is called with a list of pairs, each the tokens of prompt and completion [P + T] of
    two completions of a prompt. A judge is an object with a method `judge`, as those of TRL are, or
    a function that takes `prompts` and `completions` by name: it is given the prompts, and lists of
    two completions each, as texts. Both give for each pair the number of the one that is
    preferred, 0 or 1, and None (a judge also -1) where neither is.

    Args:
        function: The function, or the judge.
        tokenizer: Turns completions into text, for a judge.

    Raises:
        TypeError: It cannot be called, or a judge comes without a tokenizer.

    Example:
        >>> def longer(pairs):
        ...     return [int(len(other) > len(one)) for one, other in pairs]
        >>> prompts = sw.llm.Prompts.of([[1]])
        >>> Preferences(longer).compare(prompts, [torch.arange(3)], [torch.arange(4)]).tolist()
        [1.0]
    """

    def __init__(self, function: Any, tokenizer: Any = None) -> None:
        self._call = getattr(function, "judge", function)
        if not callable(self._call):
            raise TypeError(f"preference_fn must be callable, got {function!r}")
        self._name = getattr(function, "__name__", type(function).__name__)
        names = inspect.signature(self._call).parameters.keys()
        self._reads_text = {"prompts", "completions"} <= names
        if self._reads_text and tokenizer is None:
            raise TypeError(f"tokenizer must be given for a judge of texts, such as {self._name!r}")
        self._tokenizer = tokenizer

    def compare(
        self, prompts: Prompts, first: Sequence[Tensor], second: Sequence[Tensor]
    ) -> Tensor:
        """The number of the preferred one of two completions of each prompt [B], NaN for neither.

        Args:
            prompts: The prompts that were completed.
            first: Tokens of a completion of each.
            second: Tokens of another one of each.

        Raises:
            RewardFailed: The function raised, or did not give 0, 1 or None for each pair.
        """
        try:
            found = list(self._ask(prompts, first, second))
        except Exception as error:
            raise RewardFailed(f"preference function {self._name!r} raised {error!r}") from error
        if len(found) != len(prompts):
            raise RewardFailed(
                f"preference function {self._name!r} must give a number for each of {len(prompts)} "
                f"pairs, got {len(found)}"
            )
        if self._reads_text:
            found = [None if number == -1 else number for number in found]
        for row, number in enumerate(found):
            if number is not None and number not in (0, 1):
                raise RewardFailed(
                    f"preference function {self._name!r} must give 0, 1 or None, got "
                    f"{number!r:.60} in row {row}"
                )
        return torch.tensor([math.nan if number is None else float(number) for number in found])

    def _ask(self, prompts: Prompts, first: Sequence[Tensor], second: Sequence[Tensor]) -> Any:
        both = list(zip(first, second, strict=True))
        if not self._reads_text:
            given = [
                prompt.to(one.device) for prompt, one in zip(prompts.tokens, first, strict=True)
            ]
            return self._call(
                [
                    (torch.cat([prompt, one]), torch.cat([prompt, other]))
                    for prompt, (one, other) in zip(given, both, strict=True)
                ]
            )
        decode = self._tokenizer.decode
        return self._call(
            prompts=prompts.texts or [decode(one.tolist()) for one in prompts.tokens],
            completions=[
                [decode(one.tolist(), skip_special_tokens=True) for one in pair] for pair in both
            ],
        )

    def __call__(self, prompts: Prompts, completions: Completions) -> Scored:
        """1 for the preferred completion of each prompt and 0 for the other, of two each.

        Raises:
            RewardFailed: The function raised, or did not give 0, 1 or None for each pair.
        """
        written = list(completions)
        try:
            second = self.compare(prompts, written[::2], written[1::2])
        except RewardFailed as error:
            error.completions = completions
            raise
        return Scored(torch.stack([1 - second, second], 1).reshape(-1), {})
