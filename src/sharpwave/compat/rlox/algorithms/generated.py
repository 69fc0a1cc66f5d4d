"""Completions by the model's own `generate`, which programs for rlox give it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from sharpwave.llm import Completions, Sampler, TokenBatch, score_all
from sharpwave.llm.sampler import check_prompts

__all__ = ["GeneratedSampler", "sampler_of"]

MAX_TOKENS = 16_384
"""Of one pass that computes log-probabilities."""


class GeneratedSampler(Sampler):
    """Completes by `model.generate(prompts [B, P], max_new_tokens) -> [B, P + T]`.

    What it draws with is the model's own affair; every completion has all T tokens.
    """

    @torch.no_grad()
    def generate(
        self,
        prompts: Any,
        n: int = 1,
        max_new_tokens: int = 64,
        *,
        keys: Sequence[int] | None = None,  # noqa: ARG002
    ) -> Completions:
        """Completions of prompts of one length.

        Raises:
            ValueError: The prompts have different lengths, or `generate` gives other tokens.
        """
        tokens = check_prompts(prompts, self.model, max_new_tokens)
        if len({len(prompt) for prompt in tokens}) > 1:
            raise ValueError("prompts must have one length for a model's own generate")
        ids = torch.stack(tokens).repeat_interleave(n, 0)
        module: Any = self.model.module
        written = module.generate(ids, max_new_tokens=max_new_tokens)
        n_prompt, n_new = ids.shape[1], written.shape[1] - ids.shape[1]
        if len(written) != len(ids) or not torch.equal(written[:, :n_prompt], ids):
            raise ValueError(
                f"generate must give prompt and completion [{len(ids)}, {n_prompt} + T], got "
                f"{tuple(written.shape)}"
            )
        lengths = torch.full((len(ids),), n_prompt, device=ids.device)
        batch = TokenBatch.of_sequences(list(written), lengths)
        log_probs = score_all(self.model, batch, max_tokens=MAX_TOKENS)
        return Completions(
            prompts=tokens,
            prompt=torch.arange(len(ids), device=ids.device) // n,
            tokens=written[:, n_prompt:].reshape(-1),
            offsets=torch.arange(len(ids) + 1, device=ids.device) * n_new,
            log_probs=log_probs,
            plain_log_probs=log_probs,
            finished=torch.ones(len(ids), dtype=torch.bool, device=ids.device),
            version=self.version,
        )


def sampler_of(model: Any) -> Sampler | None:
    """The sampler that calls the model's own `generate`; None for models without one."""
    return GeneratedSampler(model) if hasattr(model, "generate") else None
