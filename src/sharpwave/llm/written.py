"""Prompts with their completions and rewards."""

from __future__ import annotations

from typing import NamedTuple

import torch

from sharpwave.llm.completions import Completions
from sharpwave.llm.prompts import Prompts
from sharpwave.llm.rewards import Scored

__all__ = ["Written"]


class Written(NamedTuple):
    """Prompts, their completions, and the rewards of these.

    Attributes:
        prompts: The prompts.
        completions: Their completions.
        scored: Rewards of the completions.
    """

    prompts: Prompts
    completions: Completions
    scored: Scored

    def join(self, other: Written) -> Written:
        """Both, one after the other."""
        texts, more = self.prompts.texts, other.prompts.texts
        return Written(
            Prompts(
                self.prompts.tokens + other.prompts.tokens,
                None if texts is None or more is None else texts + more,
                {
                    x: column + other.prompts.columns[x]
                    for x, column in self.prompts.columns.items()
                },
            ),
            self.completions.join(other.completions),
            Scored(
                torch.cat([self.scored.rewards, other.scored.rewards]),
                {
                    name: torch.cat([one, other.scored.by_name[name]])
                    for name, one in self.scored.by_name.items()
                },
            ),
        )

    def to(self, device: torch.device | str) -> Written:
        """The same with the completions on a device."""
        return self._replace(completions=self.completions.to(device))

    def head(self, n_prompts: int) -> Written:
        """The first prompts, with all of their completions."""
        if n_prompts >= len(self.prompts):
            return self
        completions = self.completions.head(n_prompts)
        rows = len(completions)
        return Written(
            self.prompts.select(range(n_prompts)),
            completions,
            Scored(
                self.scored.rewards[:rows],
                {name: one[:rows] for name, one in self.scored.by_name.items()},
            ),
        )
