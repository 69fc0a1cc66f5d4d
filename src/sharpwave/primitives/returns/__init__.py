"""Returns and advantages: GAE, V-trace, n-step and discounted returns.

Time-major functions (`gae`, `vtrace`, `n_step_returns`) tell *terminated* (nothing follows) from
*truncated* (the episode was cut; the value of its true final observation still counts). The
`compute_*` functions have one `dones` array and treat every end as terminal.

Inputs may be arrays, lists or torch tensors of any real dtype and any strides; a torch tensor in
`rewards` gives torch tensors out. If it is on CUDA everything is, and nothing waits for the device.
A finite number that does not fit float32 where float32 is used raises ValueError, but on CUDA. NaN
and inf propagate: a NaN reward makes every earlier result of its environment NaN.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sharpwave import _native
from sharpwave.core.lazy import torch

__all__ = [
    "compute_gae",
    "compute_gae_batched",
    "compute_gae_batched_f32",
    "compute_vtrace",
    "discounted_returns",
    "gae",
    "n_step_returns",
    "vtrace",
]


def compute_gae(
    rewards: Any,
    values: Any,
    dones: Any,
    last_value: Any,
    gamma: float,
    lam: float,
    *,
    out: tuple[Any, Any] | None = None,
) -> tuple[Any, Any]:
    """Generalized advantage estimation of one trajectory.

    δ_t = r_t + γ (1 - d_t) V_{t+1} - V_t and A_t = δ_t + γ λ (1 - d_t) A_{t+1}; returns are A + V.

    Args:
        rewards: [T].
        values: [T], V of the state before each step.
        dones: [T], any dtype; numbers between 0 and 1 weigh what follows by 1 - d.
        last_value: V of the state after the last step.
        gamma: Discount γ, from 0 to 1.
        lam: λ, from 0 to 1.
        out: Two contiguous arrays [T] of the result's dtype to write into.

    Returns:
        (advantages, returns), each [T]: float32 if rewards and values are, otherwise float64.

    Raises:
        ValueError: A shape, gamma or lam does not fit.
        TypeError: An argument is not numeric.

    Example:
        >>> advantages, returns = compute_gae([1, 1], [0.5, 0.5], [0, 1], 0.7, 0.99, 0.95)
        >>> [round(float(a), 5) for a in advantages]
        [1.46525, 0.5]
    """
    if getattr(rewards, "is_cuda", False):
        from sharpwave.primitives.returns import tensors

        return tensors.gae_trajectory(rewards, values, dones, last_value, gamma, lam, out)
    return _native.compute_gae(rewards, values, dones, last_value, gamma, lam, out)


def compute_gae_batched(
    rewards: Any,
    values: Any,
    dones: Any,
    last_values: Any,
    n_steps: int,
    gamma: float,
    lam: float,
    *,
    out: tuple[Any, Any] | None = None,
) -> tuple[Any, Any]:
    """`compute_gae` of E trajectories of n_steps each, env-major, in float64.

    Args:
        rewards: [E, T], or the same flat: environment 0's steps first.
        values: Shape of rewards.
        dones: Shape of rewards.
        last_values: [E], V after the last step of each.
        n_steps: T.
        gamma: Discount, from 0 to 1.
        lam: λ, from 0 to 1.
        out: Two contiguous float64 arrays of rewards' shape to write into.

    Returns:
        (advantages, returns), float64, of rewards' shape.

    Raises:
        ValueError: rewards does not hold exactly len(last_values) * n_steps steps, or a shape
            differs.

    Example:
        >>> advantages, _ = compute_gae_batched([1, 1, 2, 2], [0] * 4, [0] * 4, [0, 0], 2, 1.0, 1.0)
        >>> advantages.tolist()
        [2.0, 1.0, 4.0, 2.0]
    """
    if getattr(rewards, "is_cuda", False):
        arguments = (rewards, values, dones, last_values, n_steps, gamma, lam, out)
        from sharpwave.primitives.returns import tensors

        return tensors.gae_batched(*arguments, torch.float64)
    return _native.compute_gae_batched(
        rewards, values, dones, last_values, n_steps, gamma, lam, out
    )


def compute_gae_batched_f32(
    rewards: Any,
    values: Any,
    dones: Any,
    last_values: Any,
    n_steps: int,
    gamma: float,
    lam: float,
    *,
    out: tuple[Any, Any] | None = None,
) -> tuple[Any, Any]:
    """`compute_gae_batched` in float32.

    Example:
        >>> advantages, _ = compute_gae_batched_f32([1, 1], [0, 0], [0, 1], [9], 2, 1.0, 1.0)
        >>> advantages.tolist(), str(advantages.dtype)
        ([2.0, 1.0], 'float32')
    """
    if getattr(rewards, "is_cuda", False):
        arguments = (rewards, values, dones, last_values, n_steps, gamma, lam, out)
        from sharpwave.primitives.returns import tensors

        return tensors.gae_batched(*arguments, torch.float32)
    return _native.compute_gae_batched_f32(
        rewards, values, dones, last_values, n_steps, gamma, lam, out
    )


def gae(
    rewards: Any,
    values: Any,
    *,
    next_values: Any = None,
    bootstrap: Any = None,
    final_values: Any = None,
    terminated: Any,
    truncated: Any = None,
    gamma: float = 0.99,
    lam: float = 0.95,
    out: tuple[Any, Any] | None = None,
) -> tuple[Any, Any]:
    """Generalized advantage estimation of a time-major rollout, right at truncation.

    δ_t = r_t + γ (1 - terminated_t) V'_t - V_t and
    A_t = δ_t + γ λ (1 - (terminated_t or truncated_t)) A_{t+1}; returns are A + V.

    Args:
        rewards: [T, N] or [T].
        values: Shape of rewards, V of the state before each step.
        next_values: Shape of rewards, V' of the state each step really led to; at a truncated step
            the value of the true final observation, not of the reset one. Not read where
            terminated.
        bootstrap: [N] (a number for [T]), V after the last step; V'_t is then values[t + 1].
            Exactly one of next_values and bootstrap is given.
        final_values: Shape of rewards, beside bootstrap: V' where truncated, the value of the true
            final observation. Read only there.
        terminated: Shape of rewards, nonzero where nothing follows.
        truncated: Shape of rewards, nonzero where the episode was cut; needs next_values or
            final_values.
        gamma: Discount γ, from 0 to 1.
        lam: λ, from 0 to 1.
        out: Two contiguous arrays of rewards' shape and the result's dtype to write into.

    Returns:
        (advantages, returns) of rewards' shape: float32 if rewards and values are, otherwise
        float64.

    Raises:
        ValueError: A shape does not fit, both or neither of next_values and bootstrap are given, or
            truncated is set somewhere while only bootstrap is known.

    Example:
        >>> advantages, _ = gae([[1.0], [1.0]], [[0.5], [0.5]], bootstrap=[0.7],
        ...                     terminated=[[False], [True]])
        >>> advantages.round(5).tolist()
        [[1.46525], [0.5]]
    """
    if getattr(rewards, "is_cuda", False):
        from sharpwave.primitives.returns import tensors

        return tensors.gae(
            rewards,
            values,
            next_values=next_values,
            bootstrap=bootstrap,
            final_values=final_values,
            terminated=terminated,
            truncated=truncated,
            gamma=gamma,
            lam=lam,
            out=out,
        )
    if final_values is not None:
        next_values, bootstrap = (
            _next_values(values, next_values, bootstrap, final_values, truncated),
            None,
        )
    return _native.gae(
        rewards, values, next_values, bootstrap, terminated, truncated, gamma, lam, out
    )


def compute_vtrace(
    log_rhos: Any,
    rewards: Any,
    values: Any,
    dones: Any,
    bootstrap_value: float,
    gamma: float,
    rho_bar: float = 1.0,
    c_bar: float = 1.0,
) -> tuple[Any, Any]:
    """V-trace targets of one trajectory in float32; `vtrace` with λ = 1 and every end terminal.

    Args:
        log_rhos: [T], log π(a|s) - log μ(a|s).
        rewards: [T].
        values: [T].
        dones: [T], any dtype.
        bootstrap_value: V of the state after the last step.
        gamma: Discount, from 0 to 1.
        rho_bar: Clipping threshold ρ̄ of importance weights; inf for none.
        c_bar: Clipping threshold c̄ of the trace weights.

    Returns:
        (vs, pg_advantages), float32 [T].

    Raises:
        ValueError: A shape or a number does not fit.

    Example:
        >>> vs, pg_advantages = compute_vtrace([0.0], [1.0], [0.5], [False], 2.0, 0.5)
        >>> vs.tolist(), pg_advantages.tolist()
        ([2.0], [1.5])
    """
    if getattr(rewards, "is_cuda", False):
        steps = (log_rhos, rewards, values, dones)
        from sharpwave.primitives.returns import tensors

        return tensors.vtrace_trajectory(*steps, bootstrap_value, gamma, rho_bar, c_bar)
    return _native.compute_vtrace(
        log_rhos, rewards, values, dones, bootstrap_value, gamma, rho_bar, c_bar
    )


def vtrace(
    log_rhos: Any,
    rewards: Any,
    values: Any,
    *,
    next_values: Any = None,
    bootstrap: Any = None,
    final_values: Any = None,
    terminated: Any,
    truncated: Any = None,
    gamma: float = 0.99,
    lam: float = 1.0,
    rho_bar: float = 1.0,
    c_bar: float = 1.0,
    pg_rho_bar: float | None = None,
    out: tuple[Any, Any] | None = None,
) -> tuple[Any, Any]:
    """V-trace targets of a time-major rollout, right at truncation.

    With ρ = exp(log_rhos), end_t = terminated_t or truncated_t and V' as in `gae`:
    δ_t = min(ρ̄, ρ_t) (r_t + γ (1 - terminated_t) V'_t - V_t),
    vs_t = V_t + e_t where e_t = δ_t + γ λ (1 - end_t) min(c̄, ρ_t) e_{t+1},
    pg_t = min(pg_ρ̄, ρ_t) (r_t + γ F_t - V_t), where F_t is vs_{t+1}, but V'_t at truncation and
    after the last step, and 0 at termination.

    Args:
        log_rhos: Shape of rewards, log π(a|s) - log μ(a|s).
        rewards: [T, N] or [T].
        values: Shape of rewards.
        next_values: Shape of rewards; see `gae`.
        bootstrap: [N]; see `gae`.
        final_values: Shape of rewards; see `gae`.
        terminated: Shape of rewards.
        truncated: Shape of rewards; needs next_values or final_values.
        gamma: Discount γ, from 0 to 1.
        lam: λ, from 0 to 1.
        rho_bar: Clipping threshold ρ̄, not negative; inf for none.
        c_bar: Clipping threshold c̄.
        pg_rho_bar: Clipping threshold of the policy-gradient weights; ρ̄ if None.
        out: Two contiguous arrays of rewards' shape and the result's dtype to write into.

    Returns:
        (vs, pg_advantages) of rewards' shape: float32 if log_rhos, rewards and values are,
        otherwise float64.

    Raises:
        ValueError: As `gae`, or a bar is negative.

    Example:
        >>> vs, _ = vtrace([0.0], [1.0], [0.5], bootstrap=2.0, terminated=[False], gamma=0.5)
        >>> vs.tolist()
        [2.0]
    """
    if getattr(rewards, "is_cuda", False):
        from sharpwave.primitives.returns import tensors

        return tensors.vtrace(
            log_rhos,
            rewards,
            values,
            next_values=next_values,
            bootstrap=bootstrap,
            final_values=final_values,
            terminated=terminated,
            truncated=truncated,
            gamma=gamma,
            lam=lam,
            rho_bar=rho_bar,
            c_bar=c_bar,
            pg_rho_bar=pg_rho_bar,
            out=out,
        )
    if final_values is not None:
        next_values, bootstrap = (
            _next_values(values, next_values, bootstrap, final_values, truncated),
            None,
        )
    return _native.vtrace(
        log_rhos,
        rewards,
        values,
        next_values,
        bootstrap,
        terminated,
        truncated,
        gamma,
        lam,
        rho_bar,
        c_bar,
        pg_rho_bar,
        out,
    )


def n_step_returns(
    rewards: Any, next_values: Any, terminated: Any, truncated: Any, n: int, gamma: float
) -> Any:
    """Returns of at most n steps, cut at the end of the episode and of the rollout.

    G_t = Σ_{k<m} γ^k r_{t+k} + γ^m (1 - terminated_{t+m-1}) V'_{t+m-1}, where m <= n is the number
    of steps really taken before termination, truncation or the end of the rollout.

    Args:
        rewards: [T, N] or [T].
        next_values: Shape of rewards, V' of the state each step really led to.
        terminated: Shape of rewards.
        truncated: Shape of rewards.
        n: At least 1.
        gamma: Discount γ, from 0 to 1.

    Returns:
        Returns of rewards' shape: float32 if rewards and next_values are, otherwise float64.

    Raises:
        ValueError: A shape does not fit, or n is 0.

    Example:
        >>> n_step_returns([1, 1, 1], [8, 8, 8], [0, 0, 1], [0, 0, 0], 2, 0.5).tolist()
        [3.5, 1.5, 1.0]
    """
    if getattr(rewards, "is_cuda", False):
        from sharpwave.primitives.returns import tensors

        return tensors.n_step_returns(rewards, next_values, terminated, truncated, n, gamma)
    return _native.n_step_returns(rewards, next_values, terminated, truncated, n, gamma)


def discounted_returns(rewards: Any, dones: Any, gamma: float, bootstrap: Any = 0.0) -> Any:
    """Discounted sums of rewards to the end of the episode: G_t = r_t + γ (1 - d_t) G_{t+1}.

    Args:
        rewards: [T, N] or [T].
        dones: Shape of rewards.
        gamma: Discount γ, from 0 to 1.
        bootstrap: G after the last step, a number or [N].

    Returns:
        Returns of rewards' shape: float32 if rewards is, otherwise float64.

    Raises:
        ValueError: A shape does not fit.

    Example:
        >>> discounted_returns([1, 1, 1], [0, 1, 0], 0.5, bootstrap=4.0).tolist()
        [1.5, 1.0, 3.0]
    """
    if getattr(rewards, "is_cuda", False):
        from sharpwave.primitives.returns import tensors

        return tensors.discounted_returns(rewards, dones, gamma, bootstrap)
    return _native.discounted_returns(rewards, dones, gamma, bootstrap)


def _next_values(
    values: Any, next_values: Any, bootstrap: Any, final_values: Any, truncated: Any
) -> Any:
    """The values V' of what each step led to, from those at the ends of episodes and rollout."""
    if next_values is not None:
        raise ValueError("final_values go with bootstrap; next_values have them already")
    if bootstrap is None:
        raise ValueError("exactly one of next_values and bootstrap must be given")
    values, final_values = _array(values), _array(final_values)
    if final_values.shape != values.shape:
        raise ValueError(
            f"final_values must have shape {values.shape} like values, got {final_values.shape}"
        )
    last = _array(bootstrap).astype(values.dtype)
    if last.shape != values.shape[1:]:
        raise ValueError(
            f"bootstrap must have shape {values.shape[1:]} like one step of values,"
            f" got {last.shape}"
        )
    following = np.concatenate([values[1:], last[None]])
    if truncated is None:
        return following
    cut = _array(truncated) != 0
    if cut.shape != values.shape:
        raise ValueError(f"truncated must have shape {values.shape} like values, got {cut.shape}")
    return np.where(cut, final_values, following)


def _array(given: Any) -> Any:
    """An array of what is given; of a tensor that has a gradient its values."""
    return np.asarray(given.detach() if hasattr(given, "detach") else given)
