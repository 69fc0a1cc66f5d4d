"""Returns and advantages of rollouts on a device, time-major [T, N] or [T].

The formulas are those of `sharpwave.primitives`. On CUDA the recurrence x_t = b_t + a_t x_{t+1} is
one launch, parallel in time where environments are few; elsewhere it is a loop in torch.
Results are float32 if the inputs are, otherwise float64, and have no gradients. Nothing waits for
the device.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sharpwave.primitives.backend import HAS_TRITON, check_like, uses_triton
from sharpwave.primitives.returns import plain as plain

if HAS_TRITON:
    from sharpwave.primitives.returns import triton as jit

__all__ = ["discounted_returns", "gae", "n_step_returns", "vtrace", "weighted_gae"]


def gae(
    rewards: Tensor,
    values: Tensor,
    *,
    next_values: Tensor | None = None,
    bootstrap: Tensor | float | None = None,
    final_values: Tensor | None = None,
    terminated: Tensor,
    truncated: Tensor | None = None,
    gamma: float = 0.99,
    lam: float = 0.95,
    out: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """`sharpwave.primitives.gae` of tensors.

    Example:
        >>> rewards, values = torch.ones(2, 1), torch.full((2, 1), 0.5)
        >>> ends = torch.tensor([[False], [True]])
        >>> gae(rewards, values, bootstrap=torch.tensor([0.7]), terminated=ends)[0].tolist()
        [[1.465250015258789], [0.5]]
    """
    check_factor("gamma", gamma)
    check_factor("lam", lam)
    check_steps(
        rewards,
        values=values,
        terminated=terminated,
        truncated=truncated,
        final_values=final_values,
        next_values=next_values,
    )
    last = _bootstrap(rewards, next_values, bootstrap, final_values, truncated)
    mode = "next" if next_values is not None else "last" if truncated is None else "final"
    dtype = result_dtype(rewards, values)
    out = _pair(out, rewards, dtype)
    if uses_triton(rewards):
        after = next_values if mode == "next" else final_values
        jit.gae(rewards, values, last, after, terminated, truncated, mode, gamma, lam, out)
        return out
    values = values.to(dtype)
    if next_values is None:
        next_values = plain.successors(values, last, final_values, truncated)
    plain.gae(
        rewards.to(dtype), values, next_values.to(dtype), terminated, truncated, gamma, lam, out
    )
    return out


def weighted_gae(
    rewards: Tensor,
    values: Tensor,
    last_values: Tensor,
    dones: Tensor,
    *,
    gamma: float,
    lam: float,
    dtype: torch.dtype | None = None,
    out: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """`gae` where dones are numbers between 0 and 1 that weigh what follows by 1 - d.

    Args:
        rewards: [T, N] or [T].
        values: Shape of rewards.
        last_values: [N], no axes for [T].
        dones: Shape of rewards, any dtype.
        gamma: Discount γ, from 0 to 1.
        lam: λ, from 0 to 1.
        dtype: Dtype of the results, if not the one that the inputs give.
        out: Two tensors of rewards' shape and strides and the result's dtype.

    Returns:
        (advantages, returns) of rewards' shape.

    Example:
        >>> rewards, values = torch.ones(2), torch.full((2,), 0.5)
        >>> dones = torch.tensor([0.0, 0.5])
        >>> weighted_gae(rewards, values, torch.tensor(1.0), dones, gamma=1.0, lam=1.0)[0].tolist()
        [2.0, 1.0]
    """
    check_factor("gamma", gamma)
    check_factor("lam", lam)
    check_steps(rewards, values=values, dones=dones)
    check_like("last_values", last_values, rewards.shape[1:], "one step of rewards", rewards.device)
    dtype = dtype or result_dtype(rewards, values)
    out = _pair(out, rewards, dtype)
    if uses_triton(rewards):
        jit.gae(rewards, values, last_values, None, dones, None, "weighted", gamma, lam, out)
    else:
        last_values = last_values.to(dtype)
        plain.weighted_gae(rewards.to(dtype), values.to(dtype), dones, last_values, gamma, lam, out)
    return out


def gae_trajectory(
    rewards: Tensor, values: Any, dones: Any, last_value: Any, gamma: float, lam: float, out: Any
) -> tuple[Any, Any]:
    """`sharpwave.primitives.compute_gae` of tensors."""
    _check_trajectory(rewards)
    last = _filled(last_value, rewards)
    return weighted_gae(rewards, values, last, dones, gamma=gamma, lam=lam, out=out)


def gae_batched(
    rewards: Tensor,
    values: Any,
    dones: Any,
    last_values: Any,
    n_steps: int,
    gamma: float,
    lam: float,
    out: Any,
    dtype: Any,
) -> tuple[Any, Any]:
    """`sharpwave.primitives.compute_gae_batched` of tensors, which are read as they lie."""
    n_envs = last_values.numel()
    if n_steps < 0 or rewards.numel() != n_envs * n_steps:
        raise ValueError(
            f"rewards must hold {n_envs} * {n_steps} steps, one n_steps for each of last_values,"
            f" got {rewards.numel()}"
        )
    for name, tensor in {"values": values, "dones": dones}.items():
        check_like(name, tensor, rewards.shape, "rewards", rewards.device)
    if out is None:
        out = tuple(torch.empty(rewards.shape, dtype=dtype, device=rewards.device) for _ in "ar")
    views = [x.reshape(n_envs, n_steps).T for x in (rewards, values, dones)]
    targets = tuple(x.view(n_envs, n_steps).T for x in out)
    if not rewards.is_contiguous():
        views[0] = views[0].T.contiguous().T
    last = last_values.reshape(n_envs)
    options: Any = {"gamma": gamma, "lam": lam, "dtype": dtype, "out": (targets[0], targets[1])}
    weighted_gae(views[0], views[1], last, views[2], **options)
    return out[0], out[1]


def vtrace(
    log_rhos: Tensor,
    rewards: Tensor,
    values: Tensor,
    *,
    next_values: Tensor | None = None,
    bootstrap: Tensor | float | None = None,
    final_values: Tensor | None = None,
    terminated: Tensor,
    truncated: Tensor | None = None,
    gamma: float = 0.99,
    lam: float = 1.0,
    rho_bar: float = 1.0,
    c_bar: float = 1.0,
    pg_rho_bar: float | None = None,
    out: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """`sharpwave.primitives.vtrace` of tensors.

    Example:
        >>> one = torch.ones(1)
        >>> vs, _ = vtrace(0 * one, one, one / 2, bootstrap=2.0, terminated=0 * one, gamma=0.5)
        >>> vs.tolist()
        [2.0]
    """
    check_factor("gamma", gamma)
    check_factor("lam", lam)
    bars = (rho_bar, c_bar, rho_bar if pg_rho_bar is None else pg_rho_bar)
    for name, bar in zip(("rho_bar", "c_bar", "pg_rho_bar"), bars, strict=True):
        if not bar >= 0:
            raise ValueError(f"{name} must not be negative, got {bar}")
    check_steps(
        rewards,
        log_rhos=log_rhos,
        values=values,
        terminated=terminated,
        truncated=truncated,
        final_values=final_values,
        next_values=next_values,
    )
    last = _bootstrap(rewards, next_values, bootstrap, final_values, truncated)
    mode = "next" if next_values is not None else "last" if truncated is None else "final"
    dtype = result_dtype(log_rhos, rewards, values)
    out = _pair(out, rewards, dtype)
    if uses_triton(rewards):
        after = next_values if mode == "next" else final_values
        steps = (log_rhos, rewards, values)
        jit.vtrace(steps, last, after, terminated, truncated, mode, gamma, lam, bars, out)
        return out
    values = values.to(dtype)
    if next_values is None:
        next_values = plain.successors(values, last, final_values, truncated)
    steps = (log_rhos.to(dtype), rewards.to(dtype), values)
    ends = (terminated, truncated)
    plain.vtrace(*steps, next_values.to(dtype), *ends, gamma, lam, bars, out)
    return out


def vtrace_trajectory(
    log_rhos: Any,
    rewards: Tensor,
    values: Any,
    dones: Any,
    bootstrap_value: Any,
    gamma: float,
    rho_bar: float,
    c_bar: float,
) -> tuple[Any, Any]:
    """`sharpwave.primitives.compute_vtrace` of tensors, in float32."""
    _check_trajectory(rewards)
    log_rhos, rewards, values = (x.float() for x in (log_rhos, rewards, values))
    last = _filled(bootstrap_value, rewards)
    options: Any = {"bootstrap": last, "terminated": dones, "gamma": gamma}
    return vtrace(log_rhos, rewards, values, **options, rho_bar=rho_bar, c_bar=c_bar)


def n_step_returns(
    rewards: Tensor,
    next_values: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    n: int,
    gamma: float,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Returns of at most n steps; `sharpwave.primitives.n_step_returns` has the formula.

    Args:
        rewards: [T, N] or [T].
        next_values: Shape of rewards, V' of the state each step really led to.
        terminated: Shape of rewards.
        truncated: Shape of rewards.
        n: At least 1.
        gamma: Discount γ, from 0 to 1.
        out: A contiguous tensor of rewards' shape and the result's dtype to write into.

    Returns:
        Returns of rewards' shape.

    Raises:
        ValueError: A shape or device does not fit, or n is 0.

    Example:
        >>> ones, ends = torch.ones(3), torch.tensor([0, 0, 1])
        >>> n_step_returns(ones, 8 * ones, ends, 0 * ends, 2, 0.5).tolist()
        [3.5, 1.5, 1.0]
    """
    check_factor("gamma", gamma)
    if n < 1:
        raise ValueError(f"n must be at least 1, got {n}")
    steps: Any = {"next_values": next_values, "terminated": terminated, "truncated": truncated}
    check_steps(rewards, **steps)
    dtype = result_dtype(rewards, next_values)
    out = _single(out, rewards, dtype)
    if uses_triton(rewards):
        jit.n_step_returns(rewards, next_values, terminated, truncated, n, gamma, out)
    else:
        numbers = (rewards.to(dtype), next_values.to(dtype))
        plain.n_step_returns(*numbers, terminated, truncated, n, gamma, out)
    return out


def discounted_returns(
    rewards: Tensor,
    dones: Tensor,
    gamma: float,
    bootstrap: Tensor | float = 0.0,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Discounted sums to the end of the episode: G_t = r_t + γ (1 - d_t) G_{t+1}.

    Args:
        rewards: [T, N] or [T].
        dones: Shape of rewards; numbers between 0 and 1 weigh what follows by 1 - d.
        gamma: Discount γ, from 0 to 1.
        bootstrap: G after the last step, a number or [N].
        out: A contiguous tensor of rewards' shape and the result's dtype to write into.

    Returns:
        Returns of rewards' shape, float32 if rewards is, otherwise float64.

    Raises:
        ValueError: A shape or device does not fit.

    Example:
        >>> discounted_returns(torch.ones(3), torch.tensor([0, 1, 0]), 0.5, 4.0).tolist()
        [1.5, 1.0, 3.0]
    """
    check_factor("gamma", gamma)
    check_steps(rewards, dones=dones)
    dtype = result_dtype(rewards)
    out = _single(out, rewards, dtype)
    shape = rewards.shape[1:]
    if not isinstance(bootstrap, Tensor):
        bootstrap = torch.full(shape, bootstrap, dtype=dtype, device=rewards.device)
    elif bootstrap.dim() == 0:
        bootstrap = bootstrap.expand(shape).contiguous()
    check_like("bootstrap", bootstrap, shape, "one step of rewards", rewards.device)
    if uses_triton(rewards):
        jit.discounted_returns(rewards, dones, gamma, bootstrap, out)
    else:
        plain.discounted_returns(rewards.to(dtype), dones, gamma, bootstrap, out)
    return out


def result_dtype(*tensors: Tensor) -> torch.dtype:
    """float32 if all are, otherwise float64."""
    for tensor in tensors:
        if tensor.dtype is not torch.float32:
            return torch.float64
    return torch.float32


def check_factor(name: str, value: float) -> None:
    """Raise if a discount or λ does not lie in [0, 1]."""
    if not 0 <= value <= 1:
        raise ValueError(f"{name} must be between 0 and 1, got {value}")


def check_steps(rewards: Any, **others: Any) -> None:
    """Raise if the arguments of a rollout do not fit each other; None is passed over."""
    if not isinstance(rewards, Tensor):
        raise TypeError(f"rewards must be a tensor, got {type(rewards).__name__}")
    if rewards.dim() not in (1, 2):
        raise ValueError(f"rewards must have shape [T, N] or [T], got {tuple(rewards.shape)}")
    shape, device = rewards.shape, rewards.device
    for name, tensor in others.items():
        if tensor is not None:
            check_like(name, tensor, shape, "rewards", device)


def _check_trajectory(rewards: Tensor) -> None:
    if rewards.dim() != 1:
        raise ValueError(f"rewards must have 1 axis, got shape {tuple(rewards.shape)}")


def _bootstrap(
    rewards: Tensor,
    next_values: Tensor | None,
    bootstrap: Tensor | float | None,
    final_values: Tensor | None,
    truncated: Tensor | None,
) -> Tensor | None:
    """Return the values after the last step as a tensor; None where all of `next_values` are known.

    Raises:
        TypeError: A number stands for the values of several environments.
        ValueError: The values that are given do not say what each step led to.
    """
    if (next_values is None) == (bootstrap is None):
        raise ValueError("exactly one of next_values and bootstrap must be given")
    if bootstrap is None:
        if final_values is not None:
            raise ValueError("final_values go with bootstrap; next_values have them already")
        return None
    if truncated is not None and final_values is None:
        raise ValueError("truncated needs final_values or next_values: the values of what was cut")
    if not isinstance(bootstrap, Tensor):
        if rewards.dim() != 1:
            raise TypeError(f"bootstrap must be a tensor on {rewards.device}, got {bootstrap!r}")
        bootstrap = _filled(bootstrap, rewards)
    check_like("bootstrap", bootstrap, rewards.shape[1:], "one step of rewards", rewards.device)
    return bootstrap


def _filled(number: Any, like: Tensor) -> Tensor:
    """A number or tensor as a tensor without axes beside `like`."""
    if isinstance(number, Tensor):
        return number.to(like.device).reshape(())
    dtype = like.dtype if like.is_floating_point() else torch.float64
    return torch.full((), float(number), dtype=dtype, device=like.device)


def _pair(
    out: tuple[Tensor, Tensor] | None, rewards: Tensor, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    if out is None:
        return torch.empty_like(rewards, dtype=dtype), torch.empty_like(rewards, dtype=dtype)
    if not isinstance(out, tuple) or len(out) != 2:
        raise TypeError(f"out must be a tuple of two tensors, got {type(out).__name__}")
    for tensor in out:
        _check_out(tensor, rewards, dtype)
    return out


def _single(out: Tensor | None, rewards: Tensor, dtype: torch.dtype) -> Tensor:
    if out is None:
        return torch.empty_like(rewards, dtype=dtype)
    _check_out(out, rewards, dtype)
    return out


def _check_out(out: Any, rewards: Tensor, dtype: torch.dtype) -> None:
    check_like("out", out, rewards.shape, "rewards", rewards.device)
    if out.dtype != dtype:
        raise ValueError(f"out must have dtype {dtype}, got {out.dtype}")
    if not out.is_contiguous() and out.stride() != rewards.stride():
        raise ValueError(f"out must be contiguous, got strides {out.stride()}")
