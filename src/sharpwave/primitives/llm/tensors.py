"""Group advantages and token KL on a device; the formulas are those of `sharpwave.primitives`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sharpwave.primitives.backend import HAS_TRITON, check_like, uses_triton
from sharpwave.primitives.llm import plain as plain
from sharpwave.primitives.llm.groups import resolve_scale
from sharpwave.primitives.returns.tensors import result_dtype

if HAS_TRITON:
    from sharpwave.primitives.llm import triton as jit

__all__ = ["ESTIMATORS", "group_advantages", "token_kl", "token_kl_terms"]

ESTIMATORS = ("k1", "k2", "k3", "weighted")
WIDEST_GROUP = 8192  # what one program of the Triton kernel holds


def group_advantages(
    rewards: Tensor,
    group_size: int,
    *,
    mask: Tensor | None = None,
    ddof: int = 0,
    eps: float = 0.0,
    leave_one_out: bool = False,
    scale: str | None = None,
) -> Tensor:
    """(r - mean) / standard deviation within groups, 0 where the deviation is below 1e-8.

    Args:
        rewards: [G, group_size], or the same flat: group 0 first.
        group_size: Completions per group.
        mask: Shape of rewards, nonzero where a completion was scored. Others count nowhere,
            whatever their reward is, and have advantage 0.
        ddof: 0 for the population standard deviation, 1 for that of a sample (TRL).
        eps: Added to the standard deviation (TRL: 1e-4).
        leave_one_out: Take off the mean of the other rewards of the group (RLOO); 0 where there
            are none.
        scale: Divisor of advantages: the standard deviation of the "group", that of all scored
            rewards of the "batch", or "none". By default "group", and "none" with leave_one_out.

    Returns:
        Advantages of rewards' shape, float32 if rewards is, otherwise float64.

    Raises:
        ValueError: group_size is 0 or does not divide the number of rewards, mask has another
            shape, or an option is not known.

    Example:
        >>> group_advantages(torch.tensor([0.0, 2.0, 5.0, 5.0]), 2).tolist()
        [-1.0, 1.0, 0.0, 0.0]
        >>> group_advantages(torch.tensor([0.0, 2.0, 4.0]), 3, leave_one_out=True).tolist()
        [-3.0, 0.0, 3.0]
    """
    if group_size < 1 or rewards.numel() % group_size:
        raise ValueError(
            f"group_size must divide the number of rewards, got {group_size}"
            f" for {rewards.numel()} rewards"
        )
    scale = resolve_scale(ddof, eps, leave_one_out, scale)
    if mask is not None:
        check_like("mask", mask, rewards.shape, "rewards", rewards.device)
        mask = mask.contiguous().view(-1, group_size)
    rewards = rewards.detach().contiguous()
    out = torch.empty_like(rewards, dtype=result_dtype(rewards))
    groups, results = rewards.view(-1, group_size), out.view(-1, group_size)
    kernels = jit if uses_triton(rewards) and group_size <= WIDEST_GROUP else plain
    options: Any = {"ddof": ddof, "eps": float(eps), "leave_one_out": leave_one_out}
    kernels.group_advantages(groups, mask, results, scaled=scale == "group", **options)
    if scale == "batch" and rewards.numel():
        whole = None if mask is None else mask.view(1, -1)
        deviation, count = plain.centered(rewards.view(1, -1).to(out.dtype), whole)
        out *= plain.inverse(plain.standard_deviation(deviation, count, ddof), eps).squeeze()
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
    exp(log_p) d (`weighted`). Gradients do not flow through it; `token_kl_terms` has them.

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
    _check_estimator(estimator)
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


def trajectory_token_kl(log_p: Tensor, log_q: Any, estimator: str, mask: Any) -> Tensor:
    """`sharpwave.primitives.compute_token_kl`: a tensor, because a float waits for the device."""
    if log_p.dim() != 1:
        raise ValueError(f"log_probs_policy must have 1 axis, got shape {tuple(log_p.shape)}")
    return batch_token_kl(log_p, log_q, max(len(log_p), 1), estimator, mask, None).sum()


def batch_token_kl(
    log_p: Tensor, log_q: Any, seq_len: int, estimator: str, mask: Any, out: Any
) -> Tensor:
    """`sharpwave.primitives.compute_batch_token_kl` of tensors."""
    if seq_len < 1 or log_p.numel() % seq_len:
        raise ValueError(
            f"seq_len must divide the number of tokens, got {seq_len} for {log_p.numel()} tokens"
        )
    check_like("log_q", log_q, log_p.shape, "log_p", log_p.device)
    if mask is not None:
        check_like("mask", mask, log_p.shape, "log_p", log_p.device)
        mask = mask.reshape(-1, seq_len)
    p, q = log_p.reshape(-1, seq_len), log_q.reshape(-1, seq_len)
    return token_kl(p, q, estimator=estimator, mask=mask, out=out)


def token_kl_terms(log_probs: Tensor, ref_log_probs: Tensor, estimator: str = "k3") -> Tensor:
    """The terms that `token_kl` sums, one per token, with gradients for the policy.

    A loss averages them as it likes. They are computed in float64, where the parts of k3 cancel and
    those of its gradient, 1 - exp(-d), do too. The reference gets no gradient.

    Args:
        log_probs: Any shape, log-probability of each sampled token under the policy.
        ref_log_probs: Shape of log_probs, the same under the reference.
        estimator: One of `ESTIMATORS`.

    Returns:
        Shape of log_probs, float32 (float64 for float64 log_probs).

    Raises:
        ValueError: A shape or device does not fit, or the estimator is not known.

    Example:
        >>> log_probs = torch.tensor([-1.0, -2.0], requires_grad=True)
        >>> terms = token_kl_terms(log_probs, torch.tensor([-1.5, -2.0]), "k2")
        >>> terms.sum().backward()
        >>> terms.tolist(), log_probs.grad.tolist()
        ([0.125, 0.0], [0.5, 0.0])
    """
    _check_estimator(estimator)
    check_like("ref_log_probs", ref_log_probs, log_probs.shape, "log_probs", log_probs.device)
    terms = plain.kl_terms(log_probs.double(), ref_log_probs.detach().double(), estimator)
    return terms.to(torch.promote_types(log_probs.dtype, torch.float32))


def _check_estimator(estimator: str) -> None:
    if estimator not in ESTIMATORS:
        raise ValueError(f"estimator must be one of {', '.join(ESTIMATORS)}, got {estimator!r}")
