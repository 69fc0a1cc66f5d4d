"""Returns and advantages in Triton."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from sharpwave.primitives.backend import numel_fits_int32
from sharpwave.primitives.launching import launch
from sharpwave.primitives.scan import (
    Blocks,
    as_matrix,
    choose_blocks,
    exact,
    first_lane,
    incoming,
    laid_out,
    parts,
    walk,
)

MODES = {"last": 0, "next": 1, "final": 2, "weighted": 3}
LAST, NEXT, FINAL, WEIGHTED = (tl.constexpr(number) for number in MODES.values())


@triton.jit
def load_steps(
    rewards, values, after, terminated, truncated, t, env, n_steps, n_envs, stride_t, stride_n,
    MODE: tl.constexpr, TRUNCATED: tl.constexpr,
):  # fmt: skip
    """One step of every lane: reward, value, both kinds of ends, and what `after` holds."""
    inside = (t < n_steps)[:, None] & (env < n_envs)[None, :]
    place = t[:, None] * stride_t + env[None, :] * stride_n
    reward = tl.load(rewards + place, mask=inside, other=0)
    value = tl.load(values + place, mask=inside, other=0)
    terminal = tl.load(terminated + place, mask=inside, other=0)
    cut = terminal
    if TRUNCATED:
        cut = tl.load(truncated + place, mask=inside, other=0)
    final = value
    if MODE == NEXT:
        final = tl.load(after + place, mask=inside, other=0)
    if MODE == FINAL:
        final = tl.load(after + place, mask=inside & (cut != 0), other=0)
    return reward, value, terminal, cut, final


@triton.jit
def value_after(values, last, t, env, n_steps, n_envs, stride_t, stride_n):
    """V at step t of every lane, `last` after the last step."""
    inside = (t < n_steps)[:, None] & (env < n_envs)[None, :]
    place = t[:, None] * stride_t + env[None, :] * stride_n
    value = tl.load(values + place, mask=inside, other=0).to(last.dtype)
    return tl.where((t == n_steps)[:, None], last[None, :], value)


@triton.jit
def successor(terminal, cut, follows, final, MODE: tl.constexpr):
    """V' of a step, 0 where terminated."""
    if MODE == NEXT:
        follows = final
    if MODE == FINAL:
        follows = tl.where(cut != 0, final, follows)
    if MODE != WEIGHTED:
        follows = tl.where(terminal != 0, 0.0, follows)
    return follows


@triton.jit
def gae_kernel(
    rewards, values, last_values, after, terminated, truncated, advantages, returns,
    n_steps, n_envs, stride_t, stride_n, gamma, gamma_low, decay, decay_low,
    MODE: tl.constexpr, TRUNCATED: tl.constexpr, WIDE: tl.constexpr,
    LANES: tl.constexpr, STEPS: tl.constexpr, ENVS: tl.constexpr,
):  # fmt: skip
    """All steps of a block are loaded before the first is used."""
    dtype = advantages.dtype.element_ty
    gamma = exact(gamma, gamma_low, advantages)
    decay = exact(decay, decay_low, advantages)
    env = tl.program_id(0) * ENVS + tl.arange(0, ENVS)
    lane = tl.arange(0, LANES) * STEPS
    if WIDE:
        env = env.to(tl.int64)
        lane = lane.to(tl.int64)
    last = tl.zeros([ENVS], dtype)
    if MODE != NEXT:
        last = tl.load(last_values + env, mask=env < n_envs, other=0).to(dtype)
    carry = tl.zeros([ENVS], dtype)
    n_blocks = tl.cdiv(n_steps, LANES * STEPS)
    for block in range(n_blocks):
        first = (n_blocks - 1 - block) * (LANES * STEPS) + lane
        gains = ()
        kept = ()
        terminals = ()
        cuts = ()
        finals = ()
        for k in tl.static_range(STEPS):
            reward, value, terminal, cut, final = load_steps(
                rewards, values, after, terminated, truncated, first + k, env, n_steps, n_envs,
                stride_t, stride_n, MODE, TRUNCATED,
            )  # fmt: skip
            gains = gains + (reward,)
            kept = kept + (value,)
            terminals = terminals + (terminal,)
            cuts = cuts + (cut,)
            finals = finals + (final,)
        follows = value_after(values, last, first + STEPS, env, n_steps, n_envs, stride_t, stride_n)
        factors = ()
        offsets = ()
        for k in tl.static_range(STEPS - 1, -1, -1):
            value = kept[k].to(dtype)
            terminal = terminals[k]
            if MODE != NEXT:
                ends = (first + k == n_steps - 1)[:, None]
                follows = tl.where(ends, last[None, :], follows)
            next_value = successor(terminal, cuts[k], follows, finals[k].to(dtype), MODE)
            if MODE == WEIGHTED:
                alive = 1.0 - terminal.to(dtype)
                next_value = alive * next_value
                factor = decay * alive
            else:
                ended = terminal != 0
                if TRUNCATED:
                    ended = ended | (cuts[k] != 0)
                factor = tl.where(ended, 0.0, decay).to(dtype)
            factors = (factor,) + factors
            offsets = (gains[k].to(dtype) + gamma * next_value - value,) + offsets
            follows = value
        x = incoming(factors, offsets, carry, LANES, STEPS)
        for k in tl.static_range(STEPS - 1, -1, -1):
            x = walk(factors[k], offsets[k], x)
            t = first + k
            inside = (t < n_steps)[:, None] & (env < n_envs)[None, :]
            place = t[:, None] * stride_t + env[None, :] * stride_n
            tl.store(advantages + place, x, mask=inside)
            tl.store(returns + place, x + kept[k].to(dtype), mask=inside)
        carry = first_lane(x, LANES)


@triton.jit
def vtrace_kernel(
    log_rhos, rewards, values, last_values, after, terminated, truncated, targets, advantages,
    n_steps, n_envs, stride_t, stride_n, gamma, gamma_low, decay, decay_low,
    rho_bar, rho_bar_low, c_bar, c_bar_low, pg_rho_bar, pg_rho_bar_low,
    MODE: tl.constexpr, TRUNCATED: tl.constexpr, WIDE: tl.constexpr,
    LANES: tl.constexpr, STEPS: tl.constexpr, ENVS: tl.constexpr,
):  # fmt: skip
    """The walk of GAE with weights; x is vs - V."""
    dtype = targets.dtype.element_ty
    gamma = exact(gamma, gamma_low, targets)
    decay = exact(decay, decay_low, targets)
    rho_bar = exact(rho_bar, rho_bar_low, targets)
    c_bar = exact(c_bar, c_bar_low, targets)
    pg_rho_bar = exact(pg_rho_bar, pg_rho_bar_low, targets)
    env = tl.program_id(0) * ENVS + tl.arange(0, ENVS)
    lane = tl.arange(0, LANES) * STEPS
    if WIDE:
        env = env.to(tl.int64)
        lane = lane.to(tl.int64)
    last = tl.zeros([ENVS], dtype)
    if MODE != NEXT:
        last = tl.load(last_values + env, mask=env < n_envs, other=0).to(dtype)
    carry = tl.zeros([ENVS], dtype)
    n_blocks = tl.cdiv(n_steps, LANES * STEPS)
    for block in range(n_blocks):
        first = (n_blocks - 1 - block) * (LANES * STEPS) + lane
        value_later = value_after(
            values, last, first + STEPS, env, n_steps, n_envs, stride_t, stride_n
        )
        follows = value_later
        factors = ()
        offsets = ()
        for k in tl.static_range(STEPS - 1, -1, -1):
            t = first + k
            reward, value, terminal, cut, final = load_steps(
                rewards, values, after, terminated, truncated, t, env, n_steps, n_envs, stride_t,
                stride_n, MODE, TRUNCATED,
            )  # fmt: skip
            inside = (t < n_steps)[:, None] & (env < n_envs)[None, :]
            place = t[:, None] * stride_t + env[None, :] * stride_n
            rho = tl.exp(tl.load(log_rhos + place, mask=inside, other=0).to(dtype))
            value = value.to(dtype)
            if MODE != NEXT:
                follows = tl.where((t == n_steps - 1)[:, None], last[None, :], follows)
            next_value = successor(terminal, cut, follows, final.to(dtype), MODE)
            ended = terminal != 0
            if TRUNCATED:
                ended = ended | (cut != 0)
            trace = decay * tl.where(rho > c_bar, c_bar, rho)
            factors = (tl.where(ended, 0.0, trace).to(dtype),) + factors
            gain = reward.to(dtype) + gamma * next_value - value
            offsets = (tl.where(rho > rho_bar, rho_bar, rho) * gain,) + offsets
            follows = value
        x = incoming(factors, offsets, carry, LANES, STEPS)
        for k in tl.static_range(STEPS - 1, -1, -1):
            t = first + k
            reward, value, terminal, cut, final = load_steps(
                rewards, values, after, terminated, truncated, t, env, n_steps, n_envs, stride_t,
                stride_n, MODE, TRUNCATED,
            )  # fmt: skip
            inside = (t < n_steps)[:, None] & (env < n_envs)[None, :]
            place = t[:, None] * stride_t + env[None, :] * stride_n
            rho = tl.exp(tl.load(log_rhos + place, mask=inside, other=0).to(dtype))
            value = value.to(dtype)
            ends = (t == n_steps - 1)[:, None]
            if MODE != NEXT:
                value_later = tl.where(ends, last[None, :], value_later)
            next_value = successor(terminal, cut, value_later, final.to(dtype), MODE)
            leaves = (terminal != 0) | ends
            if TRUNCATED:
                leaves = leaves | (cut != 0)
            target_later = tl.where(leaves, next_value, value_later + x)
            weight = tl.where(rho > pg_rho_bar, pg_rho_bar, rho)
            advantage = weight * (reward.to(dtype) + gamma * target_later - value)
            x = walk(factors[k], offsets[k], x)
            tl.store(targets + place, value + x, mask=inside)
            tl.store(advantages + place, advantage, mask=inside)
            value_later = value
        carry = first_lane(x, LANES)


@triton.jit
def discount_kernel(
    rewards, dones, bootstrap, returns, n_steps, n_envs, stride_t, stride_n, gamma, gamma_low,
    WIDE: tl.constexpr, LANES: tl.constexpr, STEPS: tl.constexpr, ENVS: tl.constexpr,
):  # fmt: skip
    """x_t = r_t + γ (1 - d_t) x_{t+1} from x_T on; steps past the end let it through."""
    dtype = returns.dtype.element_ty
    gamma = exact(gamma, gamma_low, returns)
    env = tl.program_id(0) * ENVS + tl.arange(0, ENVS)
    lane = tl.arange(0, LANES) * STEPS
    if WIDE:
        env = env.to(tl.int64)
        lane = lane.to(tl.int64)
    carry = tl.load(bootstrap + env, mask=env < n_envs, other=0).to(dtype)
    n_blocks = tl.cdiv(n_steps, LANES * STEPS)
    for block in range(n_blocks):
        first = (n_blocks - 1 - block) * (LANES * STEPS) + lane
        factors = ()
        offsets = ()
        for k in tl.static_range(STEPS):
            inside = (first + k < n_steps)[:, None] & (env < n_envs)[None, :]
            place = (first + k)[:, None] * stride_t + env[None, :] * stride_n
            done = tl.load(dones + place, mask=inside, other=0).to(dtype)
            factors = factors + (tl.where(inside, gamma * (1.0 - done), 1.0).to(dtype),)
            offsets = offsets + (tl.load(rewards + place, mask=inside, other=0).to(dtype),)
        x = incoming(factors, offsets, carry, LANES, STEPS)
        for k in tl.static_range(STEPS - 1, -1, -1):
            t = first + k
            x = walk(factors[k], offsets[k], x)
            inside = (t < n_steps)[:, None] & (env < n_envs)[None, :]
            place = t[:, None] * stride_t + env[None, :] * stride_n
            tl.store(returns + place, x, mask=inside)
        carry = first_lane(x, LANES)


@triton.jit
def n_step_kernel(
    rewards, next_values, terminated, truncated, returns, n_steps, n_envs, stride_t, stride_n, n,
    gamma, gamma_low, WIDE: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Every step walks on for itself."""
    dtype = returns.dtype.element_ty
    gamma = exact(gamma, gamma_low, returns)
    env = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    t = tl.program_id(0) * BLOCK_T + tl.arange(0, BLOCK_T)
    if WIDE:
        env = env.to(tl.int64)
        t = t.to(tl.int64)
    inside = (t < n_steps)[:, None] & (env < n_envs)[None, :]
    place = t[:, None] * stride_t + env[None, :] * stride_n
    total = tl.zeros([BLOCK_T, BLOCK_N], dtype)
    discount = tl.full([BLOCK_T, BLOCK_N], 1, dtype)
    going = inside
    for k in range(n):
        at = place + k * stride_t
        reward = tl.load(rewards + at, mask=going, other=0).to(dtype)
        terminal = tl.load(terminated + at, mask=going, other=0) != 0
        cut = tl.load(truncated + at, mask=going, other=0) != 0
        total += tl.where(going, discount * reward, 0.0)
        discount *= gamma
        leaves = tl.where(t + k == n_steps - 1, 1, 0) + tl.where(k == n - 1, 1, 0)
        stops = going & (terminal | cut | (leaves != 0)[:, None])
        reads = stops & (terminal == 0)
        after = tl.load(next_values + at, mask=reads, other=0).to(dtype)
        total += tl.where(reads, discount * after, 0.0)
        going = going & (stops == 0)
    tl.store(returns + place, total, mask=inside)


def gae(
    rewards: Tensor,
    values: Tensor,
    last: Tensor | None,
    after: Tensor | None,
    terminated: Tensor,
    truncated: Tensor | None,
    mode: str,
    gamma: float,
    lam: float,
    out: tuple[Tensor, Tensor],
    blocks: Blocks | None = None,
) -> None:
    """Launch `gae_kernel`; blocks are chosen unless given."""
    advantages, returns = as_matrix(out[0]), as_matrix(out[1])
    n_steps, n_envs = advantages.shape
    if advantages.numel() == 0:
        return
    _check_strides(advantages, returns)
    rewards, values = laid_out(rewards, advantages), laid_out(values, advantages)
    terminated = laid_out(terminated, advantages)
    after = None if after is None else laid_out(after, advantages)
    truncated = None if truncated is None else laid_out(truncated, advantages)
    last = rewards if last is None else last.contiguous()
    stride_t, stride_n = advantages.stride()
    blocks = blocks or choose_blocks(n_steps, n_envs)
    launch(
        gae_kernel,
        (-(-n_envs // blocks.envs),),
        advantages,
        rewards,
        values,
        last,
        rewards if after is None else after,
        terminated,
        terminated if truncated is None else truncated,
        advantages,
        returns,
        n_steps,
        n_envs,
        stride_t,
        stride_n,
        *parts(gamma, advantages.dtype),
        *parts(gamma * lam, advantages.dtype),
        MODE=MODES[mode],
        TRUNCATED=truncated is not None,
        WIDE=not numel_fits_int32(advantages),
        LANES=blocks.lanes,
        STEPS=blocks.steps,
        ENVS=blocks.envs,
        num_warps=blocks.warps,
    )


def vtrace(
    steps: tuple[Tensor, Tensor, Tensor],
    last: Tensor | None,
    after: Tensor | None,
    terminated: Tensor,
    truncated: Tensor | None,
    mode: str,
    gamma: float,
    lam: float,
    bars: tuple[float, float, float],
    out: tuple[Tensor, Tensor],
) -> None:
    """Launch `vtrace_kernel`; steps are log_rhos, rewards and values."""
    targets, advantages = as_matrix(out[0]), as_matrix(out[1])
    n_steps, n_envs = targets.shape
    if targets.numel() == 0:
        return
    _check_strides(targets, advantages)
    log_rhos, rewards, values = (laid_out(x, targets) for x in steps)
    terminated = laid_out(terminated, targets)
    after = None if after is None else laid_out(after, targets)
    truncated = None if truncated is None else laid_out(truncated, targets)
    last = rewards if last is None else last.contiguous()
    stride_t, stride_n = targets.stride()
    blocks = choose_blocks(n_steps, n_envs)
    launch(
        vtrace_kernel,
        (-(-n_envs // blocks.envs),),
        targets,
        log_rhos,
        rewards,
        values,
        last,
        rewards if after is None else after,
        terminated,
        terminated if truncated is None else truncated,
        targets,
        advantages,
        n_steps,
        n_envs,
        stride_t,
        stride_n,
        *parts(gamma, targets.dtype),
        *parts(gamma * lam, targets.dtype),
        *(part for bar in bars for part in parts(bar, targets.dtype)),
        MODE=MODES[mode],
        TRUNCATED=truncated is not None,
        WIDE=not numel_fits_int32(targets),
        LANES=blocks.lanes,
        STEPS=blocks.steps,
        ENVS=blocks.envs,
        num_warps=blocks.warps,
    )


def discounted_returns(
    rewards: Tensor, dones: Tensor, gamma: float, bootstrap: Tensor, out: Tensor
) -> None:
    """Launch `discount_kernel`."""
    returns = as_matrix(out)
    n_steps, n_envs = returns.shape
    if returns.numel() == 0:
        return
    stride_t, stride_n = returns.stride()
    blocks = choose_blocks(n_steps, n_envs)
    launch(
        discount_kernel,
        (-(-n_envs // blocks.envs),),
        returns,
        laid_out(rewards, returns),
        laid_out(dones, returns),
        bootstrap.contiguous(),
        returns,
        n_steps,
        n_envs,
        stride_t,
        stride_n,
        *parts(gamma, returns.dtype),
        WIDE=not numel_fits_int32(returns),
        LANES=blocks.lanes,
        STEPS=blocks.steps,
        ENVS=blocks.envs,
        num_warps=blocks.warps,
    )


def n_step_returns(
    rewards: Tensor,
    next_values: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    n: int,
    gamma: float,
    out: Tensor,
) -> None:
    """Launch `n_step_kernel`."""
    returns = as_matrix(out)
    n_steps, n_envs = returns.shape
    if returns.numel() == 0:
        return
    inputs = [laid_out(x, returns) for x in (rewards, next_values, terminated, truncated)]
    stride_t, stride_n = returns.stride()
    block_t, block_n = (8, 128) if stride_n == 1 and n_envs > 16 else (512, 2)
    launch(
        n_step_kernel,
        (-(-n_steps // block_t), -(-n_envs // block_n)),
        returns,
        *inputs,
        returns,
        n_steps,
        n_envs,
        stride_t,
        stride_n,
        min(n, n_steps),
        *parts(gamma, returns.dtype),
        WIDE=not numel_fits_int32(returns),
        BLOCK_T=block_t,
        BLOCK_N=block_n,
        num_warps=4,
    )


def _check_strides(first: Tensor, second: Tensor) -> None:
    if first.stride() != second.stride():
        raise ValueError(
            f"both tensors of out must have the same strides, got {first.stride()}"
            f" and {second.stride()}"
        )
