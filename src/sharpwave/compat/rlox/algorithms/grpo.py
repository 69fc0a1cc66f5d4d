"""`sharpwave.GRPO` as rlox has it."""

from __future__ import annotations

from typing import Any

from sharpwave.algorithms import grpo
from sharpwave.compat.rlox.algorithms.generated import sampler_of
from sharpwave.llm import Prompts

__all__ = ["GRPO"]


class GRPO(grpo.GRPO):
    """`sharpwave.GRPO` that completes by the model's own `generate`.

    An epoch is one update on all prompts, and an evaluation one number.
    """

    def __init__(self, model: Any, *args: Any, sampler: Any = None, **options: Any) -> None:
        super().__init__(model, *args, sampler=sampler or sampler_of(model), **options)

    def train(  # type: ignore[override]
        self, prompts: Any = None, n_epochs: int | None = None, **options: Any
    ) -> Any:
        """Learn from all prompts, `n_epochs` times; see `sharpwave.GRPO.train`."""
        if prompts is None:
            return super().train(None, n_epochs, **options)
        found = Prompts.of(prompts, self.tokenizer)
        self.config = self.config.replace(n_prompts=len(found))
        self.learner.config = self.loop.config = self.config
        return super().train(found, n_epochs, **options)

    def train_step(self, prompts: Any) -> dict[str, float]:
        """One update on prompts; without a reference the divergence from it is 0."""
        return {"kl": 0.0, **super().train_step(prompts)}

    def evaluate(self, prompts: Any = None, *args: Any, **options: Any) -> Any:
        """The mean reward of one completion of each prompt."""
        return super().evaluate(prompts, *args, **options).mean
