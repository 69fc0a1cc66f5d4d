"""PPO's loss of a minibatch with its gradient, in Triton."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from sharpwave.primitives.launching import launch
from sharpwave.primitives.ppo_loss.plain import EPS, LOG_SQRT_2PI

TILE = 1024
"""Numbers of a block of rows."""

SUMS = tl.constexpr(5)
"""Sums over rows: policy loss, value loss, entropy, divergence, clipped rows. Those of the gradient
of log_std follow."""


@triton.jit
def excess(x):
    """expm1(x) − x without cancellation near 0."""
    series = x * x * (0.5 + x * (1 / 6 + x * (1 / 24 + x * (1 / 120 + x / 720))))
    return tl.where(tl.abs(x) < 0.25, series, tl.exp(x) - 1 - x)


@triton.jit
def categorical(logits, chosen, is_action):
    """Log-probability [R] of chosen columns [R], entropy [R], and the gradients of both [R, C]."""
    x = tl.where(is_action, logits, float("-inf"))
    x = x - tl.max(x, 1)[:, None]
    e = tl.exp(x)
    total = tl.sum(e, 1)[:, None]
    probs = e / total
    log_probs = tl.where(is_action, x - tl.log(total), 0)
    entropy = -tl.sum(probs * log_probs, 1)
    picked = tl.arange(0, logits.shape[1])[None, :] == chosen[:, None]
    log_prob = tl.sum(tl.where(picked, log_probs, 0), 1)
    of_log_prob = tl.where(picked, 1.0, 0.0) - probs
    return log_prob, entropy, of_log_prob, -probs * (log_probs + entropy[:, None])


@triton.jit
def surrogate(log_ratio, advantage, clip):
    """The clipped loss of rows [R] and its derivatives by their log-probabilities.

    Written so that NaN stays NaN.
    """
    ratio = tl.exp(log_ratio)
    low, high = 1 - clip, 1 + clip
    near = tl.where(ratio < low, low, tl.where(ratio > high, high, ratio))
    free, bound = advantage * ratio, advantage * near
    stuck = ((ratio < low) | (ratio > high)) & (free >= bound)
    return -tl.where(free < bound, free, bound), -tl.where(stuck, 0.0, free)


@triton.jit
def value_errors(value, old_value, target, value_clip, CLIPS: tl.constexpr):
    """Squared errors of values [R], and their derivatives."""
    error = value - target
    square = error * error
    slope = 2 * error
    if CLIPS:
        moved = value - old_value
        outside = (moved < -value_clip) | (moved > value_clip)
        near = tl.where(moved < 0, -value_clip, value_clip) + old_value - target
        stuck = outside & (near * near > square)
        square = tl.where(stuck, near * near, square)
        slope = tl.where(stuck, 0.0, slope)
    return square, slope


@triton.jit
def policy_rows(
    output, log_std, actions, old_log_probs, advantages, std, mean, clip, row, inside, n_rows,
    size, ent_coef, eps, constant, GAUSSIAN: tl.constexpr, NORMALIZES: tl.constexpr,
):  # fmt: skip
    """Loss and gradient of rows [R] of the columns in memory, from the actor's output [R, C].

    Returns:
        The sums of policy loss, entropy, divergence and clipped rows; the gradients by output
        [R, C] and by log_std [C], the latter without that of the entropy.
    """
    column = tl.arange(0, output.shape[1])
    is_action = (column < size)[None, :]
    here = inside[:, None] & is_action
    if GAUSSIAN:
        log_stds = tl.load(log_std + column, mask=column < size, other=0)
        shrink = tl.exp(-log_stds)[None, :]
        taken = tl.load(actions + row[:, None] * size + column[None, :], mask=here, other=0)
        scaled = tl.where(here, (taken - output) * shrink, 0)
        log_sum = tl.sum(log_stds, 0)
        log_prob = -0.5 * tl.sum(scaled * scaled, 1) - (log_sum + size * constant)
        entropy = tl.where(inside, log_sum + size * (0.5 + constant), 0)
        of_log_prob = scaled * shrink
    else:
        chosen = tl.load(actions + row, mask=inside, other=0).to(tl.int32)
        log_prob, entropy, of_log_prob, of_entropy = categorical(output, chosen, is_action)

    advantage = tl.load(advantages + row, mask=inside, other=0)
    if NORMALIZES:
        advantage = (advantage - tl.load(mean)) / (tl.load(std) + eps)
    limit = tl.load(clip)
    log_ratio = log_prob - tl.load(old_log_probs + row, mask=inside, other=0)
    log_ratio = tl.where(inside, log_ratio, 0)
    loss, slope = surrogate(log_ratio, advantage, limit)
    loss, slope = tl.where(inside, loss, 0), tl.where(inside, slope, 0) / n_rows
    of_output = slope[:, None] * of_log_prob
    if GAUSSIAN:
        of_std = tl.sum(tl.where(here, slope[:, None] * (scaled * scaled - 1), 0), 0)
    else:
        of_output -= (ent_coef / n_rows) * of_entropy
        of_std = tl.zeros([output.shape[1]], tl.float32)
    of_output = tl.where(here, of_output, 0)

    divergence = excess(log_ratio)
    clipped = tl.where(tl.abs(divergence + log_ratio) > limit, 1.0, 0.0)
    entropy = tl.sum(tl.where(inside, entropy, 0), 0)
    total, distance = tl.sum(loss, 0), tl.sum(divergence, 0)
    return total, entropy, distance, tl.sum(clipped, 0), of_output, of_std


@triton.jit
def value_rows(
    value, old_values, returns, value_clip, row, inside, n_rows, vf_coef, CLIPS: tl.constexpr
):
    """The sum of half the squared errors of rows [R], and their gradient [R]."""
    target = tl.load(returns + row, mask=inside, other=0)
    if CLIPS:
        old_value = tl.load(old_values + row, mask=inside, other=0)
        square, slope = value_errors(value, old_value, target, tl.load(value_clip), True)
    else:
        square, slope = value_errors(value, 0, target, 0, False)
    total = 0.5 * tl.sum(tl.where(inside, square, 0), 0)
    return total, tl.where(inside, (0.5 * vf_coef / n_rows) * slope, 0)


@triton.jit
def loss_kernel(
    output, log_std, values, actions, old_log_probs, old_values, advantages, returns,
    std, mean, clip, value_clip, of_output, of_values, parts,
    n_rows, size, n_parts, vf_coef, ent_coef, eps, constant,
    GAUSSIAN: tl.constexpr, NORMALIZES: tl.constexpr, CLIPS: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Gradients of some rows, and their sums."""
    part = tl.program_id(0)
    row = part * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)
    inside = row < n_rows
    at, here = row[:, None] * size + column[None, :], inside[:, None] & (column < size)[None, :]
    given = tl.load(output + at, mask=here, other=0)
    loss, entropy, divergence, clipped, of_rows, of_std = policy_rows(
        given, log_std, actions, old_log_probs, advantages, std, mean, clip, row, inside, n_rows,
        size, ent_coef, eps, constant, GAUSSIAN, NORMALIZES,
    )  # fmt: skip
    tl.store(of_output + at, of_rows, mask=here)
    value = tl.load(values + row, mask=inside, other=0)
    square, error = value_rows(
        value, old_values, returns, value_clip, row, inside, n_rows, vf_coef, CLIPS
    )
    tl.store(of_values + row, error, mask=inside)
    tl.store(parts + part, loss)
    tl.store(parts + n_parts + part, square)
    tl.store(parts + 2 * n_parts + part, entropy)
    tl.store(parts + 3 * n_parts + part, divergence)
    tl.store(parts + 4 * n_parts + part, clipped)
    if GAUSSIAN:
        tl.store(parts + (SUMS + column) * n_parts + part, of_std, mask=column < size)


@triton.jit
def total_loss(totals, entry, n_rows, vf_coef, ent_coef):
    """The loss, from the sums over rows."""
    weights = tl.where(entry == 0, 1.0, tl.where(entry == 1, vf_coef, -ent_coef))
    return tl.sum(tl.where(entry < 3, weights * totals, 0), 0) / n_rows


@triton.jit
def sum_kernel(
    parts, loss, metrics, of_log_std, n_parts, n_rows, size, vf_coef, ent_coef,
    GAUSSIAN: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """The loss, what is logged, and the gradient of log_std, from the parts [sums, n_parts]."""
    entry = tl.arange(0, WIDTH)
    n_sums = SUMS + size if GAUSSIAN else SUMS
    added = tl.zeros([WIDTH, BLOCK], tl.float32)
    for begin in range(0, n_parts, BLOCK):
        part = begin + tl.arange(0, BLOCK)
        inside = (entry < n_sums)[:, None] & (part < n_parts)[None, :]
        at = entry[:, None] * n_parts + part[None, :]
        added += tl.load(parts + at, mask=inside, other=0)
    totals = tl.sum(added, 1)
    total = total_loss(totals, entry, n_rows, vf_coef, ent_coef)
    tl.store(metrics + entry, totals / n_rows, mask=entry < SUMS)
    tl.store(metrics + SUMS, total)
    tl.store(loss, total)
    if GAUSSIAN:
        is_std = (entry >= SUMS) & (entry < n_sums)
        tl.store(of_log_std + entry - SUMS, totals - ent_coef, mask=is_std)


def ppo_loss(
    output: Tensor,
    log_std: Tensor | None,
    values: Tensor,
    actions: Tensor,
    old_log_probs: Tensor,
    old_values: Tensor,
    advantages: Tensor,
    returns: Tensor,
    clip: Tensor,
    value_clip: Tensor | None,
    vf_coef: float,
    ent_coef: float,
    normalize: bool,
) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor | None, Tensor]]:
    """The loss, what is logged of it, and its gradients by output, log_std and values."""
    n, size = output.shape
    output, values, actions, old_log_probs, old_values, advantages, returns = (
        x.detach().contiguous()
        for x in (output, values, actions, old_log_probs, old_values, advantages, returns)
    )
    std, mean = torch.std_mean(advantages) if normalize else (advantages, advantages)
    columns = triton.next_power_of_2(size)
    rows = max(1, TILE // columns)
    n_parts = -(-n // rows)
    gaussian = log_std is not None
    n_sums = SUMS.value + (size if gaussian else 0)
    of_output, of_values = torch.empty_like(output), torch.empty_like(values)
    parts = values.new_empty((n_sums, n_parts))
    stds = output if log_std is None else log_std.detach()
    of_log_std = None if log_std is None else torch.empty_like(stds)
    loss, metrics = values.new_empty(()), values.new_empty(SUMS.value + 1)
    limits = clip, clip if value_clip is None else value_clip
    launch(
        loss_kernel,
        (n_parts,),
        output,
        *(output, stds, values, actions, old_log_probs, old_values, advantages, returns),
        *(std, mean, *limits, of_output, of_values, parts),
        *(n, size, n_parts, float(vf_coef), float(ent_coef), EPS, LOG_SQRT_2PI),
        GAUSSIAN=gaussian,
        NORMALIZES=normalize,
        CLIPS=value_clip is not None,
        ROWS=rows,
        COLUMNS=columns,
    )
    launch(
        sum_kernel,
        (1,),
        output,
        *(parts, loss, metrics, parts if of_log_std is None else of_log_std),
        *(n_parts, n, size, float(vf_coef), float(ent_coef)),
        GAUSSIAN=gaussian,
        BLOCK=64,
        WIDTH=triton.next_power_of_2(n_sums),
    )
    return loss, metrics, (of_output, of_log_std, of_values)
