"""Importance weights for the mismatch of probabilities between samplers and trainers."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from sharpwave.losses.kinds import pick
from sharpwave.losses.sequences import Sequences, read_tokens

__all__ = ["importance_weights", "sampler_mismatch"]


def importance_weights(
    old_log_probs: Tensor,
    sampler_log_probs: Tensor,
    sequences: Sequences,
    *,
    level: str = "sequence",
    mode: str = "mask",
    cap: float = 3.0,
    floor: float = 0.0,
    mask: Tensor | None = None,
) -> Tensor:
    """Importance weights that correct for a sampler whose probabilities differ from the trainer's.

    w = exp(old − sampler) of a token, or of the sum over its sequence. `truncate` bounds w to
    [floor, cap]; `mask` makes it 0 outside.

    Args:
        old_log_probs: [T] old, log-probabilities under the policy that sampled, by the trainer.
        sampler_log_probs: [T] the same by the sampler; where it gave none (NaN), w is 1.
        sequences: Positions of the completions in flat tensors.
        level: "token" or "sequence".
        mode: "truncate" or "mask".
        cap: Largest weight.
        floor: Smallest weight.
        mask: [T] true or 1 where a token counts; None for everywhere.

    Returns:
        [T] w, without gradients.

    Raises:
        ValueError: A name is not known or a shape does not fit.

    Example:
        >>> old, sampler = torch.tensor([0.5, 0.5]).log(), torch.tensor([0.5, 0.125]).log()
        >>> importance_weights(old, sampler, Sequences.of([1, 1]), mode="truncate").tolist()
        [1.0, 3.0]
    """
    summed = pick({"token": False, "sequence": True}, level, "level")
    truncates = pick({"truncate": True, "mask": False}, mode, "mode")
    read = partial(read_tokens, sequences, mask)
    old, sampler = (
        read("old_log_probs", old_log_probs),
        read("sampler_log_probs", sampler_log_probs),
    )
    log_weights = (old - sampler).detach().nan_to_num(nan=0.0)
    if summed:
        log_weights = sequences.spread(sequences.sum(log_weights))
    found = log_weights.exp()
    bounded = found.clamp(floor, cap)
    return bounded if truncates else torch.where(found == bounded, found, 0.0)


def sampler_mismatch(
    log_probs: Tensor, sampler_log_probs: Tensor, sequences: Sequences, mask: Tensor | None = None
) -> dict[str, Tensor]:
    """Differences of the log-probabilities of a sampler from those of the trainer.

    Args:
        log_probs: [T] of the trainer.
        sampler_log_probs: [T] the same by the sampler; where it gave none (NaN), they agree.
        sequences: Positions of the completions in flat tensors.
        mask: [T] true or 1 where a token counts; None for everywhere.

    Returns:
        `sampler_mismatch`, the mean absolute difference over the tokens that count, and
        `sampler_mismatch_max`, the largest; each [], without gradients.

    Raises:
        ValueError: A shape does not fit.

    Example:
        >>> one, other = torch.tensor([-1.0, -2.0]), torch.tensor([-1.5, -2.0])
        >>> found = sampler_mismatch(one, other, Sequences.of([2]))
        >>> found["sampler_mismatch"].item(), found["sampler_mismatch_max"].item()
        (0.25, 0.5)
    """
    read = partial(read_tokens, sequences, mask)
    ours = read("log_probs", log_probs).detach()
    theirs = read("sampler_log_probs", sampler_log_probs)
    apart = (ours - theirs).abs().nan_to_num(nan=0.0)
    count = apart.new_tensor(len(apart)) if mask is None else mask.bool().sum()
    largest = apart.amax() if len(apart) else apart.sum()
    return {
        "sampler_mismatch": apart.sum() / count.clamp_min(1),
        "sampler_mismatch_max": largest,
    }
