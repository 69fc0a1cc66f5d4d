"""The loss of supervised fine-tuning, on completions that lie one after another."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from sharpwave.losses.kinds import pick
from sharpwave.losses.sequences import check_shape, widen

__all__ = ["SFT_KINDS", "sft_loss"]

SFT_KINDS: dict[str, Callable[[Tensor], Tensor]] = {
    "nll": lambda log_probs: -log_probs,
    "dft": lambda log_probs: -log_probs.detach().exp() * log_probs,
}
"""The kinds of `sft_loss` by name: the loss of each token, by its log-probability."""


def sft_loss(
    log_probs: Tensor,
    *,
    kind: str = "nll",
    mask: Tensor | None = None,
    n_tokens: Tensor | int | None = None,
) -> Tensor:
    """The loss of supervised fine-tuning: Σ_t m_t ℓ_t / N.

    ℓ is −lp (`nll`) or −sg(exp lp) lp (`dft`, Wu et al., 2025), where sg stops the gradient: tokens
    that the policy finds unlikely then weigh no more than others.

    Args:
        log_probs: [T] lp, log-probabilities of the tokens of all completions, with gradients.
        kind: A key of `SFT_KINDS`.
        mask: [T] m, true or 1 where a token counts; None for everywhere.
        n_tokens: N, tokens that count in the whole update, where this is a micro-batch of it; those
            of this batch if None.

    Returns:
        [] loss, in float32; 0 where nothing counts.

    Raises:
        ValueError: The kind is not known or a shape does not fit.

    Example:
        >>> import torch
        >>> sft_loss(torch.tensor([-1.0, -2.0, -9.0]), mask=torch.tensor([1, 1, 0])).item()
        1.5
    """
    term = pick(SFT_KINDS, kind, "kind")
    tokens = widen(log_probs)
    if mask is not None:
        check_shape("mask", mask, log_probs.shape)
        tokens = tokens.where(mask.bool(), 0.0)
    total = term(tokens).sum()
    if n_tokens is None:
        n_tokens = max(len(tokens), 1) if mask is None else mask.bool().sum().clamp_min(1)
    return total / n_tokens
