"""Activations of linear layers and their gradients in Triton.

Biases are added, and their gradients summed, on the way. The sums are those of a fixed number of
parts, added up in a fixed order: the same numbers every time.

Products are cuBLAS's, followed by a pass over their result; or, in tf32 and bfloat16 where `TILES`
says so, of a kernel that does the same to each tile before it is written. Gradients of weights may
likewise be ours: parts of the rows, added up.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from sharpwave.primitives.launching import launch
from sharpwave.primitives.mlp import plain as plain
from sharpwave.primitives.mlp.plain import Activation

PROGRAMS = 264
"""Programs that share out a gradient of a weight: two for each unit of a Hopper GPU."""
TILE = 2048
WIDTH = 128
MOST_PARTS, LEAST_ROWS = 512, 64
"""Programs that share out the rows of a gradient which is summed over them, and rows of each."""


class Tiles(NamedTuple):
    """The cut of a product: rows and columns of a tile, depth of a step, warps, steps ahead."""

    rows: int
    columns: int
    depth: int
    warps: int
    stages: int


TILES: dict[str, Tiles | None] = {"forward": None, "backward": None, "weight": None}
"""Tiles of our own products: with what follows, and of gradients of weights; None is cuBLAS."""
TRANSPOSES = True
"""Weights of float32 are transposed before products with gradients, as Hopper's units want them."""
KINDS = {
    "none": 0,
    "tanh": 1,
    "relu": 2,
    "elu": 3,
    "leaky_relu": 4,
    "silu": 5,
    "gelu": 6,
    "selu": 7,
}
TANH, RELU, ELU, LEAKY, SILU, GELU, SELU = (tl.constexpr(kind) for kind in range(1, 8))
SELU_SCALE, SELU_SLOPE = (tl.constexpr(x) for x in (plain.SELU_SCALE, plain.SELU_SLOPE))


@triton.jit
def activated(x, slope, KIND: tl.constexpr):
    """The activation of float32 numbers; NaN stays NaN."""
    if KIND == TANH:
        return 2 * tl.sigmoid(2 * x) - 1
    elif KIND == RELU:
        return tl.where(x < 0, 0.0, x)
    elif KIND == ELU:
        return tl.where(x > 0, x, slope * (tl.exp(x) - 1))
    elif KIND == SELU:
        return SELU_SCALE * tl.where(x > 0, x, SELU_SLOPE * (tl.exp(x) - 1))
    elif KIND == LEAKY:
        return tl.where(x > 0, x, slope * x)
    elif KIND == SILU:
        return x * tl.sigmoid(x)
    elif KIND == GELU:
        return 0.5 * x * (1 + tl.erf(x * 0.7071067811865476))
    else:
        return x


@triton.jit
def derivative(kept, slope, KIND: tl.constexpr):
    """The derivative from the output or, of silu and gelu, the input."""
    if KIND == TANH:
        return 1 - kept * kept
    elif KIND == RELU:
        return tl.where(kept > 0, 1.0, 0.0)
    elif KIND == ELU:
        return tl.where(kept > 0, 1.0, kept + slope)
    elif KIND == SELU:
        return tl.where(kept > 0, SELU_SCALE, kept + SELU_SCALE * SELU_SLOPE)
    elif KIND == LEAKY:
        return tl.where(kept > 0, 1.0, slope)
    elif KIND == SILU:
        share = tl.sigmoid(kept)
        return share * (1 + kept * (1 - share))
    else:
        density = tl.exp(-0.5 * kept * kept) * 0.3989422804014327
        return 0.5 * (1 + tl.erf(kept * 0.7071067811865476)) + kept * density


@triton.jit
def activate_kernel(
    z, bias, out, n_rows, size, slope,
    KIND: tl.constexpr, KEEPS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """The activation of a tile of z + bias; z + bias takes the place of z where it is kept."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = (row < n_rows) & (column < size)[None, :]
    at = row * size + column[None, :]
    shift = tl.load(bias + column, mask=column < size, other=0).to(tl.float32)
    x = tl.load(z + at, mask=inside, other=0).to(tl.float32) + shift[None, :]
    if KEEPS:
        tl.store(z + at, x.to(z.dtype.element_ty), mask=inside)
    tl.store(out + at, activated(x, slope, KIND).to(out.dtype.element_ty), mask=inside)


@triton.jit
def backward_kernel(
    gradient, kept, parts, n_rows, size, width, span, slope,
    KIND: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """The gradient before an activation, in its place, of some rows, and the sums over these."""
    part = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    end = tl.minimum((part + 1) * span, n_rows)
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    for begin in range(part * span, end, ROWS):
        row = begin + tl.arange(0, ROWS)[:, None]
        inside = (row < end) & (column < size)[None, :]
        at = row * size + column[None, :]
        g = tl.load(gradient + at, mask=inside, other=0).to(tl.float32)
        if KIND != 0:
            state = tl.load(kept + at, mask=inside, other=0).to(tl.float32)
            g = g * derivative(state, slope, KIND)
            tl.store(gradient + at, g.to(gradient.dtype.element_ty), mask=inside)
        total += tl.where(inside, g, 0.0)
    tl.store(parts + part * width + column, tl.sum(total, 0), mask=column < size)


@triton.jit
def sum_kernel(parts, out, n_parts, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """The sums of some columns of parts."""
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    for begin in range(0, n_parts, ROWS):
        part = begin + tl.arange(0, ROWS)[:, None]
        inside = (part < n_parts) & (column < width)[None, :]
        total += tl.load(parts + part * width + column[None, :], mask=inside, other=0)
    tl.store(out + column, tl.sum(total, 0), mask=column < width)


@triton.jit
def product_kernel(
    x, weight, bias, kept, out, parts, n_rows, size, depth, weight_row, weight_column, width, slope,
    KIND: tl.constexpr, BACKWARD: tl.constexpr, KEEPS: tl.constexpr, EVEN: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """A tile of the product of x [M, k] and the transpose of a weight [n, k], and what follows.

    Forwards that is the activation, whose input goes to `kept` if it is kept. Backwards it is the
    derivative, from what was kept, and the sums over the rows of the tile.
    """
    part = tl.program_id(1).to(tl.int64)
    row = part * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    step = tl.arange(0, DEPTH)
    left = x + tl.minimum(row, n_rows - 1)[:, None] * depth + step[None, :]
    right = weight + column[None, :] * weight_row + step[:, None] * weight_column
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    for k in range(0, depth, DEPTH):
        if EVEN:
            a, b = tl.load(left), tl.load(right)
        else:
            a = tl.load(left, mask=(step < depth - k)[None, :], other=0)
            b = tl.load(right, mask=(step < depth - k)[:, None] & (column < size)[None, :], other=0)
        total = tl.dot(a, b, total, input_precision="tf32")
        left += DEPTH
        right += DEPTH * weight_column
    inside = (row < n_rows)[:, None] & (column < size)[None, :]
    at = row[:, None] * size + column[None, :]
    if BACKWARD:
        state = tl.load(kept + at, mask=inside, other=0).to(tl.float32)
        total = tl.where(inside, total * derivative(state, slope, KIND), 0.0)
        tl.store(parts + part * width + column, tl.sum(total, 0), mask=column < size)
        result = total
    else:
        shift = tl.load(bias + column, mask=column < size, other=0).to(tl.float32)
        total += shift[None, :]
        if KEEPS:
            tl.store(kept + at, total.to(kept.dtype.element_ty), mask=inside)
        result = activated(total, slope, KIND)
    tl.store(out + at, result.to(out.dtype.element_ty), mask=inside)


@triton.jit
def weight_kernel(
    gradient, x, parts, n_rows, size, depth, span,
    EVEN: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """A tile of the product of the transpose of a gradient [M, n] and x [M, k], of some rows."""
    across = tl.cdiv(depth, COLUMNS)
    row = (tl.program_id(0) // across) * ROWS + tl.arange(0, ROWS)
    column = (tl.program_id(0) % across) * COLUMNS + tl.arange(0, COLUMNS)
    part = tl.program_id(1).to(tl.int64)
    begin, end = part * span, tl.minimum((part + 1) * span, n_rows)
    step = tl.arange(0, DEPTH)
    left = gradient + row[:, None] + (begin + step)[None, :] * size
    right = x + (begin + step)[:, None] * depth + column[None, :]
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    for m in range(begin, end, DEPTH):
        if EVEN:
            a, b = tl.load(left), tl.load(right)
        else:
            a = tl.load(left, mask=(row < size)[:, None] & (step < end - m)[None, :], other=0)
            b = tl.load(right, mask=(step < end - m)[:, None] & (column < depth)[None, :], other=0)
        total = tl.dot(a, b, total, input_precision="tf32")
        left += DEPTH * size
        right += DEPTH * depth
    at = (part * size + row[:, None]) * depth + column[None, :]
    tl.store(parts + at, total, mask=(row < size)[:, None] & (column < depth)[None, :])


def n_parts(n_rows: int) -> int:
    """Number of parts in which the rows of a gradient are summed."""
    tiles = TILES["backward"]
    if tiles is not None:
        return -(-n_rows // tiles.rows)
    return max(1, min(-(-n_rows // LEAST_ROWS), MOST_PARTS))


def forward(
    x: Tensor, weight: Tensor, bias: Tensor, activation: Activation
) -> tuple[Tensor, Tensor]:
    """The activation [M, n] of x [M, k] times a weight [n, k] plus a bias, and what is kept."""
    tiles = _tiles("forward", x)
    if tiles is None:
        return activate(torch.mm(x, weight.t()), bias, activation)
    out = torch.empty((len(x), len(weight)), dtype=x.dtype, device=x.device)
    kept = torch.empty_like(out) if activation.keeps_input else out
    _product(tiles, x.contiguous(), weight, bias, kept, out, out, activation, backward=False)
    return out, kept


def backward(
    grad: Tensor,
    weight: Tensor,
    beside: Tensor | None,
    kept: Tensor,
    activation: Activation,
    parts: Tensor,
) -> Tensor:
    """The gradient before an activation, from that of the product with a weight [n, k] after it.

    Args:
        grad: [M, n], contiguous.
        weight: Of the layer after the activation.
        beside: [M, k] a gradient after the activation that is added, None for none.
        kept: [M, k] by `forward`.
        activation: The activation.
        parts: [P, k], columns of a block; they become parts of the sums over rows.
    """
    tiles = _tiles("backward", grad)
    if tiles is None or beside is not None or len(parts) != triton.cdiv(len(grad), tiles.rows):
        g = torch.mm(grad, weight)
        if beside is not None:
            g.add_(beside)
        _pass(g, kept, KINDS[activation.name], float(activation.slope), parts)
        return g
    turned = weight.t()
    if TRANSPOSES and weight.dtype == torch.float32:
        turned = turned.contiguous()
    out = torch.empty_like(kept)
    _product(tiles, grad, turned, grad, kept, out, parts, activation, backward=True)
    return out


def of_weight(grad: Tensor, x: Tensor, dtype: torch.dtype) -> Tensor:
    """The gradient of a weight [n, k], from that after its product with x [M, k]."""
    tiles = _tiles("weight", grad)
    if tiles is None or grad.shape[1] < 16:
        return plain.of_weight(grad, x, dtype)
    (n_rows, size), depth = grad.shape, x.shape[1]
    rows, columns = (
        min(most, max(64, triton.next_power_of_2(n)))
        for most, n in ((tiles.rows, size), (tiles.columns, depth))
    )
    n_tiles = triton.cdiv(size, rows) * triton.cdiv(depth, columns)
    n_parts = max(1, min(PROGRAMS // n_tiles, triton.cdiv(n_rows, 16 * tiles.depth)))
    span = triton.cdiv(triton.cdiv(n_rows, n_parts), tiles.depth) * tiles.depth
    n_parts = triton.cdiv(n_rows, span)
    parts = torch.empty((n_parts, size * depth), dtype=torch.float32, device=x.device)
    launch(
        weight_kernel,
        (n_tiles, n_parts),
        x,
        grad,
        x.contiguous(),
        parts,
        n_rows,
        size,
        depth,
        span,
        EVEN=not (n_rows % tiles.depth or size % rows or depth % columns),
        ROWS=rows,
        COLUMNS=columns,
        DEPTH=tiles.depth,
        num_warps=tiles.warps,
        num_stages=tiles.stages,
    )
    return sum_parts(parts).view(size, depth)


def _tiles(direction: str, x: Tensor) -> Tiles | None:
    """Tiles of a product with what follows, None where cuBLAS computes."""
    rounds = x.dtype == torch.float32 and not torch.backends.cuda.matmul.allow_tf32
    return None if rounds else TILES[direction]


def _product(
    tiles: Tiles,
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    kept: Tensor,
    out: Tensor,
    parts: Tensor,
    activation: Activation,
    *,
    backward: bool,
) -> None:
    (n_rows, depth), size = x.shape, len(weight)
    columns = min(tiles.columns, max(16, triton.next_power_of_2(size)))
    step = min(tiles.depth, max(16, triton.next_power_of_2(depth)))
    step = step if depth % step == 0 or depth % 16 else 16
    launch(
        product_kernel,
        (triton.cdiv(size, columns), triton.cdiv(n_rows, tiles.rows)),
        x,
        x,
        weight,
        bias,
        kept,
        out,
        parts,
        n_rows,
        size,
        depth,
        weight.stride(0),
        weight.stride(1),
        parts.stride(0),
        float(activation.slope),
        KIND=KINDS[activation.name],
        BACKWARD=backward,
        KEEPS=activation.keeps_input,
        EVEN=not (depth % step or size % columns),
        ROWS=tiles.rows,
        COLUMNS=columns,
        DEPTH=step,
        num_warps=tiles.warps,
        num_stages=tiles.stages,
    )


def activate(z: Tensor, bias: Tensor, activation: Activation) -> tuple[Tensor, Tensor]:
    """Launch `activate_kernel` over a contiguous [M, n]."""
    n_rows, size = z.shape
    keeps = activation.keeps_input
    out = torch.empty_like(z) if keeps else z
    columns = min(WIDTH, triton.next_power_of_2(size))
    rows = TILE // columns
    launch(
        activate_kernel,
        (triton.cdiv(n_rows, rows), triton.cdiv(size, columns)),
        z,
        z,
        bias,
        out,
        n_rows,
        size,
        float(activation.slope),
        KIND=KINDS[activation.name],
        KEEPS=keeps,
        ROWS=rows,
        COLUMNS=columns,
    )
    return out, z if keeps else out


def column_sums(grad: Tensor, parts: Tensor) -> None:
    """Launch `backward_kernel` for the sums of a contiguous [M, n] alone."""
    _pass(grad, grad, KINDS["none"], 0.0, parts)


def _pass(grad: Tensor, kept: Tensor, kind: int, slope: float, parts: Tensor) -> None:
    (n_rows, size), n = grad.shape, len(parts)
    span = triton.cdiv(n_rows, n)
    columns = min(WIDTH, triton.next_power_of_2(size))
    launch(
        backward_kernel,
        (n, triton.cdiv(size, columns)),
        grad,
        grad,
        kept,
        parts,
        n_rows,
        size,
        parts.stride(0),
        span,
        slope,
        KIND=kind,
        ROWS=min(TILE // columns, triton.next_power_of_2(span)),
        COLUMNS=columns,
    )


def sum_parts(parts: Tensor) -> Tensor:
    """Launch `sum_kernel` over a contiguous [P, n]."""
    count, width = parts.shape
    out = torch.empty(width, dtype=parts.dtype, device=parts.device)
    columns = 16 if width < TILE else 128
    launch(
        sum_kernel,
        (triton.cdiv(width, columns),),
        parts,
        parts,
        out,
        count,
        width,
        ROWS=min(TILE // columns, triton.next_power_of_2(count)),
        COLUMNS=columns,
    )
    return out
