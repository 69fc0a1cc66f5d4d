"""The gradient of PPO's loss for small networks, in Triton.

A program takes blocks of rows through the actor or the critic, through the loss and back, and sums
up the gradient of all weights in registers. A second kernel adds up what the programs found.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from sharpwave.primitives.launching import launch
from sharpwave.primitives.ppo_loss.plain import EPS, LOG_SQRT_2PI
from sharpwave.primitives.ppo_loss.triton import policy_rows, total_loss, value_rows
from sharpwave.primitives.small_policy.triton import (
    activate,
    linear,
    load_matrix,
    padded,
    widths,
)

ROWS = 32
"""Rows of a block; registers hold no more beside the sums."""
PROGRAMS = 132
"""Programs for each network: with both, two for each processor of a large GPU, which has registers
for no more."""
SUMS = tl.constexpr(5)
"""Sums over rows: policy loss, value loss, entropy, divergence, clipped rows."""
STRIDE = tl.constexpr(8)
BLOCK = 64


@triton.jit
def slope(h, KIND: tl.constexpr):
    """Derivative of the activation, from what it gave."""
    if KIND == "tanh":
        return 1 - h * h
    elif KIND == "relu":
        return tl.where(h > 0, 1.0, 0.0)
    else:
        return tl.where(h > 0, 1.0, h + 1)


@triton.jit
def forward(
    obs, row, inside, layers, WIDTHS: tl.constexpr, PADDED: tl.constexpr,
    KIND: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Rows of observations, both hidden layers and the output."""
    column = tl.arange(0, PADDED[0])
    here = inside[:, None] & (column < WIDTHS[0])[None, :]
    x = tl.load(obs + row[:, None] * WIDTHS[0] + column[None, :], mask=here, other=0)
    first = linear(x, layers[0], layers[1], WIDTHS[0], WIDTHS[1], PADDED[1], PRECISION)
    first = activate(first, KIND)
    second = linear(first, layers[2], layers[3], WIDTHS[1], WIDTHS[2], PADDED[2], PRECISION)
    second = activate(second, KIND)
    output = linear(second, layers[4], layers[5], WIDTHS[2], WIDTHS[3], PADDED[3], PRECISION)
    return x, first, second, output


@triton.jit
def backward(
    x, first, second, of_output, layers, sums, WIDTHS: tl.constexpr, PADDED: tl.constexpr,
    KIND: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The sums of the gradients of weights and biases, with those of these rows."""
    w1, b1, w2, b2, w3, b3 = sums
    w3 = tl.dot(tl.trans(of_output), second, w3, input_precision=PRECISION)
    b3 += tl.sum(of_output, 0)
    weight = load_matrix(layers[4], WIDTHS[3], WIDTHS[2], PADDED[3], PADDED[2])
    of_second = tl.dot(of_output, weight, input_precision=PRECISION) * slope(second, KIND)
    w2 = tl.dot(tl.trans(of_second), first, w2, input_precision=PRECISION)
    b2 += tl.sum(of_second, 0)
    weight = load_matrix(layers[2], WIDTHS[2], WIDTHS[1], PADDED[2], PADDED[1])
    of_first = tl.dot(of_second, weight, input_precision=PRECISION) * slope(first, KIND)
    w1 = tl.dot(tl.trans(of_first), x, w1, input_precision=PRECISION)
    b1 += tl.sum(of_first, 0)
    return w1, b1, w2, b2, w3, b3


@triton.jit
def zeros(PADDED: tl.constexpr):
    """Sums of gradients, to begin with."""
    # Older Triton makes no shape of what it takes from a tuple.
    n0: tl.constexpr = PADDED[0]
    n1: tl.constexpr = PADDED[1]
    n2: tl.constexpr = PADDED[2]
    n3: tl.constexpr = PADDED[3]
    w1, b1 = tl.zeros([n1, n0], tl.float32), tl.zeros([n1], tl.float32)
    w2, b2 = tl.zeros([n2, n1], tl.float32), tl.zeros([n2], tl.float32)
    return w1, b1, w2, b2, tl.zeros([n3, n2], tl.float32), tl.zeros([n3], tl.float32)


@triton.jit
def store_layer(at, weight, bias, n_in, n_out):
    """Write a weight and a bias one after the other."""
    row, column = tl.arange(0, weight.shape[0]), tl.arange(0, weight.shape[1])
    inside = (row < n_out)[:, None] & (column < n_in)[None, :]
    tl.store(at + row[:, None] * n_in + column[None, :], weight, mask=inside)
    tl.store(at + n_out * n_in + row, bias, mask=row < n_out)


@triton.jit
def store_network(at, w1, b1, w2, b2, w3, b3, WIDTHS: tl.constexpr):
    """Write the layers of a network one after the other."""
    store_layer(at, w1, b1, WIDTHS[0], WIDTHS[1])
    at += WIDTHS[1] * (WIDTHS[0] + 1)
    store_layer(at, w2, b2, WIDTHS[1], WIDTHS[2])
    at += WIDTHS[2] * (WIDTHS[1] + 1)
    store_layer(at, w3, b3, WIDTHS[2], WIDTHS[3])


@triton.jit(do_not_specialize=["n_rows", "n_parameters", "n_actor"])
def gradient_kernel(
    parts, sums, rows, obs, actions, old_log_probs, old_values, advantages, returns,
    log_std, std, mean, clip, value_clip, actor, critic,
    n_rows, n_parameters, n_actor, vf_coef, ent_coef, eps, constant,
    ACTOR: tl.constexpr, ACTOR_PADDED: tl.constexpr,
    CRITIC: tl.constexpr, CRITIC_PADDED: tl.constexpr,
    GAUSSIAN: tl.constexpr, NORMALIZES: tl.constexpr, CLIPS: tl.constexpr,
    KIND: tl.constexpr, PRECISION: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Gradients of the actor in some programs, of the critic in others."""
    program, n_programs = tl.program_id(0), tl.num_programs(0)
    place = parts + program.to(tl.int64) * n_parameters
    sums += program * STRIDE
    if tl.program_id(1) == 0:
        size: tl.constexpr = ACTOR[3]
        aw1, ab1, aw2, ab2, aw3, ab3 = zeros(ACTOR_PADDED)
        padded_size: tl.constexpr = ACTOR_PADDED[3]
        of_std = tl.zeros([padded_size], tl.float32)
        loss, entropy, divergence, clipped = 0.0, 0.0, 0.0, 0.0
        for begin in range(program * ROWS, n_rows, n_programs * ROWS):
            number = begin + tl.arange(0, ROWS)
            inside = number < n_rows
            row = tl.load(rows + number, mask=inside, other=0)
            x, first, second, output = forward(
                obs, row, inside, actor, ACTOR, ACTOR_PADDED, KIND, PRECISION
            )
            one, two, three, four, of_output, more = policy_rows(
                output, log_std, actions, old_log_probs, advantages, std, mean, clip, row, inside,
                n_rows, size, ent_coef, eps, constant, GAUSSIAN, NORMALIZES,
            )  # fmt: skip
            loss, entropy, divergence, clipped, of_std = (
                loss + one, entropy + two, divergence + three, clipped + four, of_std + more
            )  # fmt: skip
            aw1, ab1, aw2, ab2, aw3, ab3 = backward(
                x, first, second, of_output, actor, (aw1, ab1, aw2, ab2, aw3, ab3),
                ACTOR, ACTOR_PADDED, KIND, PRECISION,
            )  # fmt: skip
        skipped = 0
        if GAUSSIAN:
            column = tl.arange(0, ACTOR_PADDED[3])
            tl.store(place + column, of_std, mask=column < size)
            skipped = size
        store_network(place + skipped, aw1, ab1, aw2, ab2, aw3, ab3, ACTOR)
        tl.store(sums, loss)
        tl.store(sums + 2, entropy)
        tl.store(sums + 3, divergence)
        tl.store(sums + 4, clipped)
    else:
        cw1, cb1, cw2, cb2, cw3, cb3 = zeros(CRITIC_PADDED)
        total = 0.0
        for begin in range(program * ROWS, n_rows, n_programs * ROWS):
            number = begin + tl.arange(0, ROWS)
            inside = number < n_rows
            row = tl.load(rows + number, mask=inside, other=0)
            x, first, second, output = forward(
                obs, row, inside, critic, CRITIC, CRITIC_PADDED, KIND, PRECISION
            )
            is_value = (tl.arange(0, CRITIC_PADDED[3]) == 0)[None, :]
            value = tl.sum(tl.where(is_value, output, 0), 1)
            square, error = value_rows(
                value, old_values, returns, value_clip, row, inside, n_rows, vf_coef, CLIPS
            )
            total += square
            of_value = tl.where(is_value, error[:, None], 0.0)
            cw1, cb1, cw2, cb2, cw3, cb3 = backward(
                x, first, second, of_value, critic, (cw1, cb1, cw2, cb2, cw3, cb3),
                CRITIC, CRITIC_PADDED, KIND, PRECISION,
            )  # fmt: skip
        store_network(place + n_actor, cw1, cb1, cw2, cb2, cw3, cb3, CRITIC)
        tl.store(sums + 1, total)


@triton.jit
def sum_kernel(
    parts, sums, out, metrics, n_programs, n_parameters, n_rows, n_stds, vf_coef, ent_coef,
    GAUSSIAN: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradient of some parameters, from the parts [n_programs, n_parameters]; the metrics."""
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    totals = tl.zeros([BLOCK], tl.float32)
    for begin in range(0, n_programs, PARTS):
        part = begin + tl.arange(0, PARTS)
        inside = (part < n_programs)[:, None] & (column < n_parameters)[None, :]
        at = part[:, None] * n_parameters + column[None, :]
        totals += tl.sum(tl.load(parts + at, mask=inside, other=0), 0)
    if GAUSSIAN:
        totals -= tl.where(column < n_stds, ent_coef, 0.0)
    tl.store(out + column, totals, mask=column < n_parameters)
    if tl.program_id(0) == 0:
        entry = tl.arange(0, STRIDE)
        found = tl.zeros([STRIDE], tl.float32)
        for begin in range(0, n_programs, PARTS):
            part = begin + tl.arange(0, PARTS)
            inside = (part < n_programs)[:, None] & (entry < SUMS)[None, :]
            at = part[:, None] * STRIDE + entry[None, :]
            found += tl.sum(tl.load(sums + at, mask=inside, other=0), 0)
        tl.store(metrics + entry, found / n_rows, mask=entry < SUMS)
        tl.store(metrics + SUMS, total_loss(found, entry, n_rows, vf_coef, ent_coef))


def gradient(
    rows: Tensor,
    obs: Tensor,
    columns: Sequence[Tensor],
    actor: Sequence[Tensor],
    critic: Sequence[Tensor],
    log_std: Tensor | None,
    out: Tensor,
    options: dict[str, Any],
    activation: str,
) -> Tensor:
    """Write the gradient of the loss to `out`, and return its metrics."""
    n = len(rows)
    obs, *given = (column.contiguous() for column in (obs, *columns))
    advantages = given[3]
    std = mean = advantages
    if options["normalize"]:
        std, mean = torch.std_mean(advantages.index_select(0, rows))
    clip, value_clip = options["clip"], options["value_clip"]
    n_programs = min(PROGRAMS, -(-n // ROWS))
    parts = obs.new_empty((n_programs, len(out)))
    sums, metrics = obs.new_empty((n_programs, STRIDE.value)), obs.new_empty(SUMS.value + 1)
    weights = float(options["vf_coef"]), float(options["ent_coef"])
    n_stds = 0 if log_std is None else log_std.numel()
    n_actor = n_stds + sum(x.numel() for x in actor)
    layers = [tuple(x.detach().contiguous() for x in network) for network in (actor, critic)]
    launch(
        gradient_kernel,
        (n_programs, 2),
        obs,
        *(parts, sums, rows.contiguous(), obs, *given),
        *(obs if log_std is None else log_std.detach(), std, mean),
        *(clip, clip if value_clip is None else value_clip, *layers),
        *(n, len(out), n_actor, *weights, EPS, LOG_SQRT_2PI),
        ACTOR=widths(actor),
        ACTOR_PADDED=padded(actor),
        CRITIC=widths(critic),
        CRITIC_PADDED=padded(critic),
        GAUSSIAN=log_std is not None,
        NORMALIZES=options["normalize"],
        CLIPS=value_clip is not None,
        KIND=activation,
        PRECISION="tf32",
        ROWS=ROWS,
    )
    launch(
        sum_kernel,
        (-(-len(out) // BLOCK),),
        obs,
        *(parts, sums, out, metrics, n_programs, len(out), n, n_stds, *weights),
        GAUSSIAN=log_std is not None,
        PARTS=32,
        BLOCK=BLOCK,
    )
    return metrics
