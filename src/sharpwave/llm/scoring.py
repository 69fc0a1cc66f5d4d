"""Log-probabilities of completions, as learning computes them."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import linear

from sharpwave.llm.batch import TokenBatch
from sharpwave.llm.model import CausalModel
from sharpwave.primitives.log_probs.tensors import linear_log_probs, selected_log_probs

__all__ = ["Scores", "score", "score_all"]


SLICE = 1 << 22
"""Logits that are in memory at a time where their sums of squares are asked for."""

DEVICE_SLICE = 1 << 27
"""Logits that are in memory at a time on a device, which small slices would leave waiting."""


class Scores(NamedTuple):
    """Scores of completion tokens by a model.

    Attributes:
        log_probs: [T] log-probabilities of the tokens.
        entropies: [T] entropies of their distributions; None where not asked for.
        log_collisions: [T] log Σ p² of these distributions, without gradients; None where not asked
            for.
    """

    log_probs: Tensor
    entropies: Tensor | None = None
    log_collisions: Tensor | None = None


def score(
    model: CausalModel,
    batch: TokenBatch,
    *,
    temperature: float = 1.0,
    entropy: bool = False,
    collisions: bool = False,
) -> Scores:
    """Log-probabilities of all completion tokens, with gradients, in one pass.

    Of a model that gives hidden states, the logits of completion tokens alone are computed, and
    never all in memory.

    Args:
        model: The model.
        batch: The sequences; those of like length together waste least.
        temperature: Logits are divided by it.
        entropy: Compute entropies too.
        collisions: Compute log-probabilities of drawing a token twice too.
    """
    rows, weight = model.outputs(batch), model.head_weight
    log_probs_of: Any
    if weight is None:
        log_probs_of = partial(selected_log_probs, rows)
    else:
        size = DEVICE_SLICE if rows.is_cuda else None
        log_probs_of = partial(linear_log_probs, rows, weight, slice_size=size)
    found = log_probs_of(batch.completion_tokens, temperature=temperature, entropy=entropy)
    log_probs, entropies = found if entropy else (found, None)
    twice = _log_collisions(rows, weight, temperature) if collisions else None
    return Scores(log_probs, entropies, twice)


@torch.no_grad()
def _log_collisions(rows: Tensor, weight: Tensor | None, temperature: float) -> Tensor:
    """Log Σ_v p(v)² of the distributions of logits, or of hidden states, a few rows at a time."""
    n_tokens = (rows if weight is None else weight.T).shape[-1]
    found = []
    for part in rows.split(max(1, SLICE // n_tokens)):
        logits = (part if weight is None else linear(part, weight)).float() / temperature
        found.append((2 * logits).logsumexp(-1) - 2 * logits.logsumexp(-1))
    return torch.cat(found)


@torch.no_grad()
def score_all(
    model: CausalModel, batch: TokenBatch, *, max_tokens: int, temperature: float = 1.0
) -> Tensor:
    """Log-probabilities [T] without gradients, at most `max_tokens` at a time."""
    log_probs = torch.empty(len(batch.sequence), device=batch.tokens.device)
    numbered = batch.replace(old_log_probs=torch.arange(len(log_probs), device=log_probs.device))
    with model.evaluating():
        for rows in batch.cut(max_tokens, padded=not model.packs):
            part = numbered.select(rows)
            found = score(model, part, temperature=temperature).log_probs
            log_probs = log_probs.to(found.dtype)  # float64 of a model in float64
            log_probs[part.old_log_probs] = found
    return log_probs
