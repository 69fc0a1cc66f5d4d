"""Group advantages and token KL on a device; the formulas are those of `sharpwave.primitives`."""

from __future__ import annotations

import torch
from torch import Tensor

from sharpwave.kernels.backend import HAS_TRITON, check_like, uses_triton
from sharpwave.kernels.plain import llm as plain
from sharpwave.kernels.returns import result_dtype

if HAS_TRITON:
    from sharpwave.kernels.jit import llm as jit

__all__ = ["ESTIMATORS", "group_advantages", "token_kl"]

ESTIMATORS = ("k1", "k2", "k3", "weighted")
WIDEST_GROUP = 8192  # what one program of the Triton kernel holds


def group_advantages(rewards: Tensor, group_size: int) -> Tensor:
    """(r - mean) / population standard deviation within groups, 0 where it is below 1e-8.

    Args:
        rewards: [G, group_size], or the same flat: group 0 first.
        group_size: Completions per group.

    Returns:
        Advantages of rewards' shape, float32 if rewards is, otherwise float64.

    Raises:
        ValueError: group_size is 0 or does not divide the number of rewards.

    Example:
        >>> group_advantages(torch.tensor([0.0, 2.0, 5.0, 5.0]), 2).tolist()
        [-1.0, 1.0, 0.0, 0.0]
    """
    if group_size < 1 or rewards.numel() % group_size:
        raise ValueError(
            f"group_size must divide the number of rewards, got {group_size}"
            f" for {rewards.numel()} rewards"
        )
    rewards = rewards.detach().contiguous()
    out = torch.empty_like(rewards, dtype=result_dtype(rewards))
    groups, results = rewards.view(-1, group_size), out.view(-1, group_size)
    if uses_triton(rewards) and group_size <= WIDEST_GROUP:
        jit.group_advantages(groups, results)
    else:
        plain.group_advantages(groups, results)
    return out


def token_kl(
    log_p: Tensor,
    log_q: Tensor,
    *,
    estimator: str = "k1",
    mask: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """KL(policy || reference) of sequences, summed over their tokens.

    With d = log_p - log_q the terms are d (`k1`), d² / 2 (`k2`), exp(-d) - 1 + d (`k3`) or
    exp(log_p) d (`weighted`). Gradients do not flow through it.

    Args:
        log_p: [B, L], log-probability of each sampled token under the policy.
        log_q: Shape of log_p, the same under the reference.
        estimator: One of `ESTIMATORS`.
        mask: Shape of log_p, nonzero where a token counts.
        out: A contiguous tensor [B] of the result's dtype to write into.

    Returns:
        [B], float32 if log_p and log_q are, otherwise float64; sums are kept in float64.

    Raises:
        ValueError: A shape or device does not fit, or the estimator is not known.

    Example:
        >>> token_kl(torch.tensor([[-1.0, -2.0]]), torch.tensor([[-1.5, -2.0]])).tolist()
        [0.5]
    """
    if estimator not in ESTIMATORS:
        raise ValueError(f"estimator must be one of {', '.join(ESTIMATORS)}, got {estimator!r}")
    if log_p.dim() != 2:
        raise ValueError(f"log_p must have shape [B, L], got {tuple(log_p.shape)}")
    check_like("log_q", log_q, log_p.shape, "log_p", log_p.device)
    if mask is not None:
        check_like("mask", mask, log_p.shape, "log_p", log_p.device)
        mask = mask.contiguous()
    dtype = result_dtype(log_p, log_q)
    if out is None:
        out = torch.empty(len(log_p), dtype=dtype, device=log_p.device)
    check_like("out", out, log_p.shape[:1], "the rows of log_p", log_p.device)
    if out.dtype != dtype or not out.is_contiguous():
        raise ValueError(f"out must be contiguous and {dtype}, got {out.dtype}")
    log_p, log_q = log_p.detach().contiguous(), log_q.detach().contiguous()
    (jit if uses_triton(log_p) else plain).token_kl(log_p, log_q, mask, estimator, out)
    return out
