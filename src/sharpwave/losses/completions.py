"""Log-probabilities of whole completions, from those of their tokens."""

from __future__ import annotations

import torch
from torch import Tensor

from sharpwave.losses.sequences import Sequences, check_shape, widen

__all__ = ["completion_log_probs", "wpo_weights"]


def completion_log_probs(
    log_probs: Tensor,
    sequences: Sequences,
    *,
    mask: Tensor | None = None,
    shared_lengths: Tensor | None = None,
    ld_alpha: float = 1.0,
) -> Tensor:
    """The log-probability of each completion: Σ_t lp, in float32.

    Long completions have small probabilities for their length alone. LD-DPO (Liu et al., 2024)
    weighs what goes beyond the length that both completions of a pair have: the tokens after the
    first `shared_lengths` count α times.

    Args:
        log_probs: [T] log-probabilities of tokens, with gradients.
        sequences: Positions of the completions in flat tensors.
        mask: [T] true or 1 where a token counts; None for everywhere.
        shared_lengths: [B] the smaller number of tokens of the pair that a completion belongs to.
        ld_alpha: α; used with shared_lengths.

    Returns:
        [B].

    Raises:
        ValueError: A shape does not fit.

    Example:
        >>> tokens, pair = torch.tensor([-1.0, -1.0, -1.0, -1.0]), Sequences.of([3, 1])
        >>> shared = torch.tensor([1, 1])
        >>> completion_log_probs(tokens, pair, shared_lengths=shared, ld_alpha=0.5).tolist()
        [-2.0, -1.0]
    """
    check_shape("log_probs", log_probs, sequences.ids.shape)
    tokens = widen(log_probs)
    counted = torch.ones_like(sequences.ids)
    if mask is not None:
        check_shape("mask", mask, sequences.ids.shape)
        tokens, counted = tokens.where(mask.bool(), 0.0), mask.bool().long()
    if shared_lengths is None:
        return sequences.sum(tokens)
    check_shape("shared_lengths", shared_lengths, sequences.lengths.shape)
    # The number of a token among those of its completion that count is its number among all of
    # them, less those of the completions before.
    numbers = counted.cumsum(0)
    starts = sequences.lengths.cumsum(0) - sequences.lengths
    before = torch.cat((numbers.new_zeros(1), numbers))[starts]
    is_shared = numbers - sequences.spread(before) <= sequences.spread(shared_lengths)
    return sequences.sum(torch.where(is_shared, tokens, ld_alpha * tokens))


def wpo_weights(
    log_probs: Tensor, log_collisions: Tensor, sequences: Sequences, mask: Tensor | None = None
) -> Tensor:
    """Weights of completions by their probability under the policy (WPO, Zhou et al., 2024).

    exp(mean_t (lp − log Σ_v p(v)²)): a completion that the policy would draw has about 1. The
    weight of a pair is the product of both.

    Args:
        log_probs: [T] lp, log-probabilities of tokens.
        log_collisions: [T] log Σ_v p(v)² over the vocabulary, where each token was drawn.
        sequences: Positions of the completions in flat tensors.
        mask: [T] true or 1 where a token counts; None for everywhere.

    Returns:
        [B], without gradients; 1 for an empty completion.

    Raises:
        ValueError: A shape does not fit.

    Example:
        >>> half = torch.tensor([0.5, 0.25]).log()
        >>> wpo_weights(half, torch.tensor([0.5, 0.5]).log(), Sequences.of([1, 1])).tolist()
        [1.0, 0.5]
    """
    check_shape("log_collisions", log_collisions, log_probs.shape)
    aligned = (widen(log_probs) - widen(log_collisions)).detach()
    counted = torch.ones_like(aligned) if mask is None else mask.bool().to(aligned.dtype)
    total = completion_log_probs(aligned, sequences, mask=mask)
    return (total / sequences.sum(counted).clamp_min(1)).exp()
