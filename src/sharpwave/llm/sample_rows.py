"""Completions of a language model with their rewards, for people to read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, overload

import torch
from torch import Tensor

from sharpwave.llm.batch import TokenBatch
from sharpwave.llm.completions import Completions
from sharpwave.llm.prompts import Prompts
from sharpwave.llm.rewards import Scored

__all__ = ["Samples"]


class Samples(Sequence[dict[str, Any]]):
    """A dict for each completion, made when it is asked for: whoever looks at few decodes few.

    Each has `prompt` and `completion`, as text where there is a tokenizer and as lists of tokens
    otherwise; `reward`, None where it was not scored; `rewards` by name, where there are several
    reward functions; `advantage`; `length` in tokens; and `finished`.

    Args:
        prompts: The prompts.
        completions: Their completions.
        scored: Rewards of the completions.
        batch: The batch to learn from, of some or all of them; None where there is none.
        tokenizer: Turns tokens into text.

    Attributes:
        rewards: Of each completion, None where it was not scored.
    """

    def __init__(
        self,
        prompts: Prompts,
        completions: Completions,
        scored: Scored,
        *,
        batch: TokenBatch | None = None,
        tokenizer: Any = None,
    ) -> None:
        self.rewards = _numbers(scored.rewards)
        self._by_name = {name: _numbers(one) for name, one in scored.by_name.items()}
        advantages = torch.full((len(completions),), math.nan)
        if batch is not None and batch.advantages is not None and batch.row is not None:
            advantages[batch.row.cpu()] = batch.advantages.float().cpu()
        self._advantages = _numbers(advantages)
        self._prompts, self._tokenizer = prompts, tokenizer
        self._prompt: list[int] = completions.prompt.tolist()
        self._offsets: list[int] = completions.offsets.tolist()
        self._finished: list[bool] = completions.finished.tolist()
        self._tokens = completions.tokens

    def __len__(self) -> int:
        return len(self.rewards)

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...

    @overload
    def __getitem__(self, index: slice) -> list[dict[str, Any]]: ...

    def __getitem__(self, index: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        row = range(len(self))[index]
        first, last = self._offsets[row], self._offsets[row + 1]
        several = len(self._by_name) > 1
        return {
            "prompt": self._text_of_prompt(self._prompt[row]),
            "completion": self._text(self._tokens[first:last], skip_special_tokens=True),
            "reward": self.rewards[row],
            **({"rewards": {x: one[row] for x, one in self._by_name.items()}} if several else {}),
            "advantage": self._advantages[row],
            "length": last - first,
            "finished": self._finished[row],
        }

    def _text_of_prompt(self, index: int) -> Any:
        """A prompt as it was given; messages of a chat as the model reads them."""
        texts = self._prompts.texts
        if texts is not None and isinstance(texts[index], str):
            return texts[index]
        return self._text(self._prompts.tokens[index])

    def _text(self, tokens: Tensor, **options: Any) -> Any:
        ids = tokens.tolist()
        return ids if self._tokenizer is None else self._tokenizer.decode(ids, **options)


def _numbers(values: Tensor) -> list[float | None]:
    return [None if math.isnan(value) else value for value in values.tolist()]
