"""Log-probabilities of what was written, as learning computes them."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sharpwave.kernels.log_probs import linear_log_probs, selected_log_probs
from sharpwave.llm.batch import TokenBatch
from sharpwave.llm.model import CausalModel

__all__ = ["Scores", "score", "score_all"]


class Scores(NamedTuple):
    """What a model says of completion tokens.

    Attributes:
        log_probs: [T] of the tokens.
        entropies: [T] of the distributions that they come from; None where not asked for.
    """

    log_probs: Tensor
    entropies: Tensor | None = None


def score(
    model: CausalModel, batch: TokenBatch, *, temperature: float = 1.0, entropy: bool = False
) -> Scores:
    """Log-probabilities of all completion tokens, with gradients, in one pass.

    Sequences are padded on the right, which no token before it attends to. Of a model that gives
    hidden states, the logits of completion tokens alone are computed, and never all in memory.

    Args:
        model: The model.
        batch: The sequences; those of like length together waste least.
        temperature: Logits are divided by it.
        entropy: Whether to give entropies too.
    """
    ids = batch.padded()
    at = batch.sequence, batch.position - 1
    weight = model.head_weight
    log_probs_of: Any
    if weight is None:
        log_probs_of = partial(selected_log_probs, model.logits(ids)[at])
    else:
        log_probs_of = partial(linear_log_probs, model.hidden(ids)[at], weight)
    tokens = batch.completion_tokens
    if entropy:
        return Scores(*log_probs_of(tokens, temperature=temperature, entropy=True))
    return Scores(log_probs_of(tokens, temperature=temperature))


@torch.no_grad()
def score_all(
    model: CausalModel, batch: TokenBatch, *, max_tokens: int, temperature: float = 1.0
) -> Tensor:
    """Log-probabilities [T] without gradients, at most `max_tokens` at a time."""
    log_probs = torch.empty(len(batch.sequence), device=batch.tokens.device)
    numbered = batch.replace(old_log_probs=torch.arange(len(log_probs), device=log_probs.device))
    with model.evaluating():
        for rows in batch.cut(max_tokens):
            part = numbered.select(rows)
            log_probs[part.old_log_probs] = score(model, part, temperature=temperature).log_probs
    return log_probs
