"""Primitives of language-model training: group advantages and token KL.

The KL estimators take the log-probabilities, under the policy and under the reference, of tokens
that were *sampled from the policy*. With d = log p_policy - log p_ref, each sums over the tokens
of a sequence:

| estimator | term | |
|---|---|---|
| `k1` | d | unbiased, may be negative |
| `k2` | d² / 2 | biased, low variance |
| `k3` | exp(-d) - 1 + d | unbiased and never negative |
| `weighted` | exp(log p_policy) d | weighs each sample by its own probability; biased |

Two equal log-probabilities differ by 0 even when both are -inf; other infinities and NaN
propagate. Sums are kept in float64 whatever the dtype. CUDA tensors give CUDA tensors, where a
single number is a tensor without axes, and nothing waits for the device.
"""

from __future__ import annotations

from typing import Any, Literal

from sharpwave import _native
from sharpwave.primitives.llm import groups
from sharpwave.primitives.llm.groups import Scale

__all__ = [
    "compute_batch_group_advantages",
    "compute_batch_token_kl",
    "compute_batch_token_kl_f32",
    "compute_batch_token_kl_schulman",
    "compute_batch_token_kl_schulman_f32",
    "compute_group_advantages",
    "compute_token_kl",
    "compute_token_kl_f32",
    "compute_token_kl_schulman",
    "compute_token_kl_schulman_f32",
]

Estimator = Literal["k1", "k2", "k3", "weighted"]


def compute_group_advantages(
    rewards: Any,
    *,
    mask: Any = None,
    ddof: int = 0,
    eps: float = 0.0,
    leave_one_out: bool = False,
    scale: Scale | None = None,
) -> Any:
    """Advantages within one group of completions: (r - mean) / standard deviation.

    Args:
        rewards: Rewards of the group, any shape.
        mask: Shape of rewards, nonzero where a completion was scored. Others count nowhere,
            whatever their reward is, and have advantage 0.
        ddof: 0 for the population standard deviation, 1 for that of a sample (TRL).
        eps: Added to the standard deviation (TRL: 1e-4).
        leave_one_out: Take off the mean of the other rewards of the group (RLOO); 0 where there
            are none.
        scale: Divisor of advantages: the standard deviation of the "group", that of all scored
            rewards of the "batch", or "none". By default "group", and "none" with leave_one_out.

    Returns:
        Advantages of rewards' shape, float32 if rewards is, otherwise float64. All 0 if the
        standard deviation is below 1e-8.

    Raises:
        ValueError: mask has another shape, or an option is not known.

    Example:
        >>> compute_group_advantages([0.0, 2.0]).tolist()
        [-1.0, 1.0]
        >>> compute_group_advantages([0.0, 2.0, 4.0], leave_one_out=True).tolist()
        [-3.0, 0.0, 3.0]
    """
    is_cuda = getattr(rewards, "is_cuda", False)
    if mask is None and not (is_cuda or ddof or eps or leave_one_out or scale):
        return _native.compute_group_advantages(rewards)
    options: Any = {
        "mask": mask, "ddof": ddof, "eps": eps, "leave_one_out": leave_one_out, "scale": scale
    }  # fmt: skip
    if is_cuda:
        from sharpwave.primitives.llm import tensors

        return tensors.group_advantages(rewards, max(rewards.numel(), 1), **options)
    return groups.group_advantages(rewards, None, **options)


def compute_batch_group_advantages(
    rewards: Any,
    group_size: int,
    *,
    mask: Any = None,
    ddof: int = 0,
    eps: float = 0.0,
    leave_one_out: bool = False,
    scale: Scale | None = None,
) -> Any:
    """`compute_group_advantages` of consecutive groups.

    Args:
        rewards: [G, group_size], or the same flat: the completions of prompt 0 first.
        group_size: Completions per prompt.
        mask: Shape of rewards, nonzero where a completion was scored.
        ddof: See `compute_group_advantages`, as of the following.
        eps: Added to the standard deviation.
        leave_one_out: Take off the mean of the other rewards of the group.
        scale: "group", "batch" or "none".

    Returns:
        Advantages of rewards' shape.

    Raises:
        ValueError: group_size is 0 or does not divide the number of rewards, mask has another
            shape, or an option is not known.

    Example:
        >>> compute_batch_group_advantages([0.0, 2.0, 5.0, 5.0], 2).tolist()
        [-1.0, 1.0, 0.0, 0.0]
        >>> compute_batch_group_advantages([0.0, 2.0, 5.0, 5.0], 2, mask=[1, 1, 1, 0], ddof=1,
        ...     scale="none").tolist()
        [-1.0, 1.0, 0.0, 0.0]
    """
    is_cuda = getattr(rewards, "is_cuda", False)
    if mask is None and not (is_cuda or ddof or eps or leave_one_out or scale):
        return _native.compute_batch_group_advantages(rewards, group_size)
    options: Any = {
        "mask": mask, "ddof": ddof, "eps": eps, "leave_one_out": leave_one_out, "scale": scale
    }  # fmt: skip
    if is_cuda:
        from sharpwave.primitives.llm import tensors

        return tensors.group_advantages(rewards, group_size, **options)
    return groups.group_advantages(rewards, group_size, **options)


def compute_token_kl(
    log_probs_policy: Any,
    log_probs_ref: Any,
    *,
    estimator: Estimator = "k1",
    mask: Any = None,
) -> Any:
    """KL(policy || reference) of one sequence, summed over its tokens.

    Args:
        log_probs_policy: [T], log-probability of each sampled token under the policy.
        log_probs_ref: [T], the same under the reference.
        estimator: See the module's table.
        mask: [T], nonzero where a token counts.

    Returns:
        The sum.

    Raises:
        ValueError: The shapes differ, or the estimator is not known.

    Example:
        >>> compute_token_kl([-1.0, -2.0], [-1.5, -1.0], estimator="k1")
        -0.5
    """
    if getattr(log_probs_policy, "is_cuda", False):
        from sharpwave.primitives.llm import tensors

        return tensors.trajectory_token_kl(log_probs_policy, log_probs_ref, estimator, mask)
    return _native.compute_token_kl(log_probs_policy, log_probs_ref, estimator, mask)


def compute_token_kl_schulman(
    log_probs_policy: Any, log_probs_ref: Any, *, mask: Any = None
) -> Any:
    """`compute_token_kl` with the estimator k3.

    Example:
        >>> compute_token_kl_schulman([-1.0], [-1.0])
        0.0
    """
    return compute_token_kl(log_probs_policy, log_probs_ref, estimator="k3", mask=mask)


def compute_batch_token_kl(
    log_p: Any,
    log_q: Any,
    seq_len: int,
    *,
    estimator: Estimator = "k1",
    mask: Any = None,
    out: Any = None,
) -> Any:
    """KL(policy || reference) of B sequences, each summed over its tokens.

    Args:
        log_p: [B, seq_len] or flat, log-probability of each sampled token under the policy.
        log_q: Shape of log_p, the same under the reference.
        seq_len: Tokens per sequence.
        estimator: See the module's table.
        mask: Shape of log_p, nonzero where a token counts.
        out: A contiguous array [B] of the result's dtype to write into.

    Returns:
        [B], float32 if log_p and log_q are, otherwise float64.

    Raises:
        ValueError: A shape does not fit, seq_len does not divide the number of tokens, or the
            estimator is not known.

    Example:
        >>> compute_batch_token_kl([-1.0, -2.0, -1.0, -1.0], [-1.5, -2.0, -1.0, -3.0], 2).tolist()
        [0.5, 2.0]
    """
    if getattr(log_p, "is_cuda", False):
        from sharpwave.primitives.llm import tensors

        return tensors.batch_token_kl(log_p, log_q, seq_len, estimator, mask, out)
    return _native.compute_batch_token_kl(log_p, log_q, seq_len, estimator, mask, out)


def compute_batch_token_kl_schulman(
    log_p: Any, log_q: Any, seq_len: int, *, mask: Any = None, out: Any = None
) -> Any:
    """`compute_batch_token_kl` with the estimator k3.

    Example:
        >>> compute_batch_token_kl_schulman([-1.0, -2.0], [-1.0, -2.0], 2).tolist()
        [0.0]
    """
    return compute_batch_token_kl(log_p, log_q, seq_len, estimator="k3", mask=mask, out=out)


compute_token_kl_f32 = compute_token_kl
compute_token_kl_schulman_f32 = compute_token_kl_schulman
compute_batch_token_kl_f32 = compute_batch_token_kl
compute_batch_token_kl_schulman_f32 = compute_batch_token_kl_schulman
