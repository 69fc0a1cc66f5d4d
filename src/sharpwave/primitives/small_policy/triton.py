"""Steps of policies of small networks, in Triton: a program has rows and all weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from sharpwave.primitives.launching import launch
from sharpwave.primitives.ppo_loss.plain import LOG_SQRT_2PI

WIDE = 64
"""Units of a layer, beyond which a program takes more rows."""
NARROWEST = 16
"""Rows and columns of the smallest matrix product."""


@triton.jit
def activate(x, KIND: tl.constexpr):
    """Activation of hidden units; NaN stays NaN."""
    if KIND == "tanh":
        return 2 * tl.sigmoid(2 * x) - 1
    elif KIND == "relu":
        return tl.where(x < 0, 0.0, x)
    else:
        return tl.where(x > 0, x, tl.exp(tl.where(x > 0, 0.0, x)) - 1)


@triton.jit
def load_matrix(at, n_rows, n_columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """[ROWS, COLUMNS] of a matrix in memory, zeros beyond its end."""
    row, column = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    inside = (row < n_rows)[:, None] & (column < n_columns)[None, :]
    return tl.load(at + row[:, None] * n_columns + column[None, :], mask=inside, other=0)


@triton.jit
def linear(x, weight, bias, n_in, n_out, OUT: tl.constexpr, PRECISION: tl.constexpr):
    """[R, OUT] of rows [R, in], of a layer with a weight [n_out, n_in] in memory."""
    matrix = load_matrix(weight, n_out, n_in, OUT, x.shape[1])
    column = tl.arange(0, OUT)
    shift = tl.load(bias + column, mask=column < n_out, other=0)
    return tl.dot(x, tl.trans(matrix), input_precision=PRECISION) + shift[None, :]


@triton.jit
def network(
    obs, row, n_rows, layers, WIDTHS: tl.constexpr, PADDED: tl.constexpr,
    KIND: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Output of a network for some rows of observations."""
    column = tl.arange(0, PADDED[0])
    inside = (row < n_rows)[:, None] & (column < WIDTHS[0])[None, :]
    x = tl.load(obs + row[:, None] * WIDTHS[0] + column[None, :], mask=inside, other=0)
    for i in tl.static_range(len(WIDTHS) - 2):
        x = activate(
            linear(
                x, layers[2 * i], layers[2 * i + 1], WIDTHS[i], WIDTHS[i + 1], PADDED[i + 1],
                PRECISION,
            ),
            KIND,
        )  # fmt: skip
    last: tl.constexpr = len(WIDTHS) - 2
    return linear(
        x, layers[2 * last], layers[2 * last + 1], WIDTHS[last], WIDTHS[last + 1],
        PADDED[last + 1], PRECISION,
    )  # fmt: skip


@triton.jit
def store_values(
    values, obs, row, n_rows, layers, WIDTHS: tl.constexpr, PADDED: tl.constexpr,
    KIND: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The first column of a network's output."""
    output = network(obs, row, n_rows, layers, WIDTHS, PADDED, KIND, PRECISION)
    column = tl.arange(0, output.shape[1])[None, :]
    first = tl.sum(tl.where(column == 0, output, 0), 1)
    tl.store(values + row, first, mask=row < n_rows)


@triton.jit(do_not_specialize=["n_rows"])
def value_kernel(
    values, obs, critic, n_rows,
    CRITIC: tl.constexpr, CRITIC_PADDED: tl.constexpr,
    KIND: tl.constexpr, PRECISION: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Values of some rows."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    store_values(values, obs, row, n_rows, critic, CRITIC, CRITIC_PADDED, KIND, PRECISION)


@triton.jit(do_not_specialize=["n_rows"])
def act_kernel(
    actions, log_probs, values, obs, noise, log_std, actor, critic, n_rows, constant,
    ACTOR: tl.constexpr, ACTOR_PADDED: tl.constexpr,
    CRITIC: tl.constexpr, CRITIC_PADDED: tl.constexpr, GAUSSIAN: tl.constexpr,
    KIND: tl.constexpr, PRECISION: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Values of some rows in one program, actions in another."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    if tl.program_id(1) == 1:
        store_values(values, obs, row, n_rows, critic, CRITIC, CRITIC_PADDED, KIND, PRECISION)
    else:
        output = network(obs, row, n_rows, actor, ACTOR, ACTOR_PADDED, KIND, PRECISION)
        size: tl.constexpr = ACTOR[len(ACTOR) - 1]
        column = tl.arange(0, output.shape[1])
        inside, is_action = row < n_rows, (column < size)[None, :]
        at, here = row[:, None] * size + column[None, :], inside[:, None] & is_action
        if GAUSSIAN:
            log_stds = tl.load(log_std + column, mask=column < size, other=0)
            drawn = output + tl.load(noise + at, mask=here, other=0) * tl.exp(log_stds)[None, :]
            scaled = tl.where(is_action, (drawn - output) * tl.exp(-log_stds)[None, :], 0)
            log_prob = -0.5 * tl.sum(scaled * scaled, 1) - (tl.sum(log_stds, 0) + constant)
            tl.store(actions + at, drawn, mask=here)
        else:
            x = tl.where(is_action, output, float("-inf"))
            x = x - tl.max(x, 1)[:, None]
            x = x - tl.log(tl.sum(tl.exp(x), 1))[:, None]
            # The smallest exponential variable, by its inverse: 0 where p is 0, and never chosen.
            uniform = tl.load(noise + at, mask=here, other=0.5)
            score = tl.where(is_action, tl.exp(x) / tl.log(uniform), float("inf"))
            chosen = tl.argmin(score, 1)
            picked = column[None, :] == chosen[:, None]
            log_prob = tl.sum(tl.where(picked, x, 0), 1)
            tl.store(actions + row, chosen.to(tl.int64), mask=inside)
        tl.store(log_probs + row, log_prob, mask=inside)


def widths(layers: Sequence[Tensor]) -> tuple[int, ...]:
    """Widths of a network, from its input to its output."""
    return (layers[0].shape[1], *(weight.shape[0] for weight in layers[::2]))


def padded(layers: Sequence[Tensor]) -> tuple[int, ...]:
    """Widths that matrix products take."""
    return tuple(max(NARROWEST, triton.next_power_of_2(width)) for width in widths(layers))


def _options(activation: str, exact: bool, *networks: Sequence[Tensor]) -> dict[str, Any]:
    """Constants of the kernels for some networks."""
    is_wide = max(width for layers in networks for width in widths(layers)) > WIDE
    # Wide weights stay in shared memory only for products of 64 rows.
    shape = {"ROWS": 64, "num_warps": 8} if is_wide else {"ROWS": 32, "num_warps": 4}
    return {"KIND": activation, "PRECISION": "ieee" if exact else "tf32", **shape}


def _plain(layers: Sequence[Tensor]) -> tuple[Tensor, ...]:
    return tuple(layer.detach().contiguous() for layer in layers)


def act(
    obs: Tensor,
    actor: Sequence[Tensor],
    critic: Sequence[Tensor],
    noise: Tensor,
    log_std: Tensor | None,
    activation: str,
    exact: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Actions, their log-probabilities, and values."""
    noise, (n, size) = noise.contiguous(), noise.shape
    actions = (
        torch.empty_like(noise) if log_std is not None else noise.new_empty(n, dtype=torch.int64)
    )
    log_probs, values = noise.new_empty(n), noise.new_empty(n)
    stds = noise if log_std is None else log_std.detach()
    options = _options(activation, exact, actor, critic)
    launch(
        act_kernel,
        (-(-n // options["ROWS"]), 2),
        noise,
        *(actions, log_probs, values, obs.contiguous(), noise, stds),
        *(_plain(actor), _plain(critic), n, size * LOG_SQRT_2PI),
        ACTOR=widths(actor),
        ACTOR_PADDED=padded(actor),
        CRITIC=widths(critic),
        CRITIC_PADDED=padded(critic),
        GAUSSIAN=log_std is not None,
        **options,
    )
    return actions, log_probs, values


def value(obs: Tensor, critic: Sequence[Tensor], activation: str, exact: bool) -> Tensor:
    """Values [N] of observations."""
    n = len(obs)
    values = obs.new_empty(n)
    options = _options(activation, exact, critic)
    launch(
        value_kernel,
        (-(-n // options["ROWS"]),),
        obs,
        *(values, obs.contiguous(), _plain(critic), n),
        CRITIC=widths(critic),
        CRITIC_PADDED=padded(critic),
        **options,
    )
    return values
