"""Returns and advantages as loops over time, all environments at once."""

from __future__ import annotations

import torch
from torch import Tensor


def successors(
    values: Tensor, last: Tensor | None, final: Tensor | None, truncated: Tensor | None
) -> Tensor:
    """V' of every step: `final` where truncated, otherwise the next value."""
    assert last is not None
    following = torch.cat([values[1:], last[None].to(values.dtype)])
    if final is None or truncated is None:
        return following
    return torch.where(truncated != 0, final.to(values.dtype), following)


@torch.no_grad()
def gae(
    rewards: Tensor,
    values: Tensor,
    next_values: Tensor,
    terminated: Tensor,
    truncated: Tensor | None,
    gamma: float,
    lam: float,
    out: tuple[Tensor, Tensor],
) -> None:
    """A_t = δ_t + γ λ (1 - end_t) A_{t+1}; all [T, N] of one dtype."""
    advantages, returns = out
    ended = terminated != 0
    after = torch.where(ended, 0.0, next_values)
    if truncated is not None:
        ended = ended | (truncated != 0)
    deltas = rewards + gamma * after - values
    following = torch.zeros_like(rewards[:1].sum(0))
    for t in reversed(range(len(rewards))):
        following = deltas[t] + torch.where(ended[t], 0.0, gamma * lam * following)
        advantages[t] = following
    torch.add(advantages, values, out=returns)


@torch.no_grad()
def weighted_gae(
    rewards: Tensor,
    values: Tensor,
    dones: Tensor,
    last: Tensor,
    gamma: float,
    lam: float,
    out: tuple[Tensor, Tensor],
) -> None:
    """`gae` where dones are numbers: what follows counts 1 - d."""
    advantages, returns = out
    alive = 1 - dones.to(values.dtype)
    deltas = rewards + gamma * alive * successors(values, last, None, None) - values
    following = torch.zeros_like(last, dtype=values.dtype)
    for t in reversed(range(len(rewards))):
        following = deltas[t] + gamma * lam * alive[t] * following
        advantages[t] = following
    torch.add(advantages, values, out=returns)


@torch.no_grad()
def vtrace(
    log_rhos: Tensor,
    rewards: Tensor,
    values: Tensor,
    next_values: Tensor,
    terminated: Tensor,
    truncated: Tensor | None,
    gamma: float,
    lam: float,
    bars: tuple[float, float, float],
    out: tuple[Tensor, Tensor],
) -> None:
    """Vs and policy-gradient advantages; bars are ρ̄, c̄ and that of the policy gradient."""
    vs, pg_advantages = out
    rho_bar, c_bar, pg_rho_bar = bars
    ended = terminated != 0
    after = torch.where(ended, 0.0, next_values)
    if truncated is not None:
        ended = ended | (truncated != 0)
    rhos = log_rhos.exp()
    deltas = rhos.clamp(max=rho_bar) * (rewards + gamma * after - values)
    traces = gamma * lam * rhos.clamp(max=c_bar)
    correction = torch.zeros_like(rewards[:1].sum(0))
    follows = after[-1:].sum(0)
    for t in reversed(range(len(rewards))):
        follows = torch.where(ended[t], after[t], follows)
        pg_advantages[t] = rhos[t].clamp(max=pg_rho_bar) * (
            rewards[t] + gamma * follows - values[t]
        )
        correction = deltas[t] + torch.where(ended[t], 0.0, traces[t] * correction)
        follows = values[t] + correction
        vs[t] = follows


@torch.no_grad()
def n_step_returns(
    rewards: Tensor,
    next_values: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    n: int,
    gamma: float,
    out: Tensor,
) -> None:
    """All steps at once, n rounds."""
    n_steps = len(rewards)
    ended = (terminated != 0) | (truncated != 0)
    after = torch.where(terminated != 0, 0.0, next_values)
    total = torch.zeros_like(rewards)
    alive = torch.ones_like(ended)
    for k in range(min(n, n_steps)):
        reach = n_steps - k  # steps whose k-th successor lies in the rollout
        going = alive[:reach]
        last = ended[k:] | (k == n - 1)
        last[-1] = True  # nothing follows in the rollout
        gain = rewards[k:] + torch.where(last, gamma * after[k:], 0.0)
        total[:reach] += torch.where(going, gamma**k * gain, 0.0)
        alive[:reach] = going & ~last
    out.copy_(total)


@torch.no_grad()
def discounted_returns(
    rewards: Tensor, dones: Tensor, gamma: float, bootstrap: Tensor, out: Tensor
) -> None:
    """G_t = r_t + γ (1 - d_t) G_{t+1}."""
    following = bootstrap.to(rewards.dtype)
    factors = gamma * (1 - dones.to(rewards.dtype))
    for t in reversed(range(len(rewards))):
        following = rewards[t] + factors[t] * following
        out[t] = following
