"""Parts of a transformer that torch does in many passes over memory, each in one.

`gated` and `rotated` have gradients and keep nothing that can be computed again. `normed`, and what
goes backwards, are for layers whose gradients are written by hand. `store`, `attend` and `sample`
are one step of decoding: a token in each slot of a cache, whatever its length.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from sharpwave.primitives.backend import HAS_TRITON, uses_triton
from sharpwave.primitives.transformer import plain as plain

if HAS_TRITON:
    from sharpwave.primitives.transformer import triton as jit

__all__ = [
    "attend",
    "gated",
    "gated_backward",
    "normed",
    "normed_backward",
    "rotated",
    "rotated_back",
    "sample",
    "store",
]

FLOATS = (torch.float32, torch.bfloat16, torch.float16)


def gated(gate: Tensor, up: Tensor) -> Tensor:
    """silu(gate) * up, elementwise, of tensors of one shape and dtype.

    Example:
        >>> gated(torch.zeros(2), torch.ones(2)).tolist()
        [0.0, 0.0]
    """
    if not uses_triton(gate) or gate.dtype not in FLOATS:
        return plain.gated(gate, up)
    return _applied(_Gated, jit.gated, gate.contiguous(), up.contiguous())


def gated_backward(gate: Tensor, up: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of `gated` by both, from that of its result."""
    module: Any = jit if uses_triton(gate) and gate.dtype in FLOATS else plain
    found: tuple[Tensor, Tensor] = module.gated_backward(gate, up, gradient)
    return found


def normed(x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Rows over the roots of their mean squares, times a weight; without gradients of its own.

    Args:
        x: [N, H], contiguous.
        weight: [H].
        eps: Added to the mean squares.

    Returns:
        [N, H], and one over the roots [N], which `normed_backward` takes.

    Example:
        >>> normed(torch.tensor([[3.0, -3.0]]), torch.ones(2), 0.0)[0].tolist()
        [[1.0, -1.0]]
    """
    module: Any = jit if _fits_rows(x) else plain
    found: tuple[Tensor, Tensor] = module.normed(x, weight, eps)
    return found


def normed_backward(
    gradient: Tensor, x: Tensor, weight: Tensor, scale: Tensor, add: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients of `normed` by x, to which `add` [N, H] is added, and by the weight."""
    module: Any = jit if _fits_rows(x) else plain
    found: tuple[Tensor, Tensor] = module.normed_backward(gradient, x, weight, scale, add)
    return found


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Heads turned by the angles of their positions, both halves of a head by the same angles.

    Args:
        x: [N, H, D].
        cos: [N, D], without gradient.
        sin: [N, D], without gradient.

    Example:
        >>> x = torch.tensor([[[1.0, 0.0]]])
        >>> rotated(x, torch.zeros(1, 2), torch.ones(1, 2)).tolist()
        [[[0.0, 1.0]]]
    """
    if not _fits(x):
        return plain.rotated(x, cos, sin)
    return _applied(_Rotated, jit.rotated, x.contiguous(), cos.contiguous(), sin.contiguous())


def rotated_back(gradient: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """The gradient of `rotated` by its heads: turned back."""
    if not _fits(gradient):
        return plain.rotated(gradient, cos, sin, -1.0)
    return jit.rotated(gradient.contiguous(), cos.contiguous(), sin.contiguous(), -1.0)


def store(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cos: Tensor,
    sin: Tensor,
    write: Tensor,
    keys: Tensor,
    values: Tensor,
) -> Tensor:
    """Write the key, turned, and the value of one token in each slot; returns its query, turned.

    Args:
        q: [S, H, D].
        k: [S, K, D], where H is a multiple of K.
        v: [S, K, D].
        cos: [S, D].
        sin: [S, D].
        write: [S] int64 where to.
        keys: [S, K, C, D], contiguous.
        values: [S, K, C, D], contiguous.
    """
    module: Any = jit if _fits(q) else plain
    arguments = (x.contiguous() for x in (q, k, v, cos, sin, write))
    turned: Tensor = module.store(*arguments, keys, values)
    return turned


def attend(q: Tensor, keys: Tensor, values: Tensor, lengths: Tensor, scale: float) -> Tensor:
    """Attention [S, H, D] of one query in each slot to its first keys; zeros where it has none.

    Args:
        q: [S, H, D].
        keys: [S, K, C, D], contiguous, where H is a multiple of K.
        values: [S, K, C, D], contiguous.
        lengths: [S] int64, at most C; keys beyond are not read on a device.
        scale: Factor of the attention scores.

    Example:
        >>> keys = values = torch.arange(4.0).reshape(1, 1, 2, 2)
        >>> attend(torch.ones(1, 1, 2), keys, values, torch.tensor([1]), 1.0).tolist()
        [[[0.0, 1.0]]]
    """
    module: Any = jit if _fits(q) and q.shape[2] >= 16 else plain
    found: Tensor = module.attend(q, keys, values, lengths, scale)
    return found


def sample(logits: Tensor, numbers: Tensor, temperature: float = 1.0) -> tuple[Tensor, Tensor]:
    """The tokens at which cumulated probabilities pass the numbers, and log-probabilities of them.

    Args:
        logits: [S, V], whose last axis is contiguous.
        numbers: [S] float64, uniform in [0, 1).
        temperature: Positive; logits are divided by it.

    Returns:
        Tokens [S] and their log-probabilities [S], float32 (float64 for float64).

    Example:
        >>> logits, numbers = torch.zeros(2, 4), torch.tensor([0.1, 0.9], dtype=torch.float64)
        >>> sample(logits, numbers)[0].tolist()
        [0, 3]
    """
    if uses_triton(logits) and logits.dtype in FLOATS:
        return jit.sample(logits, numbers, temperature)
    return plain.sample(logits, numbers, temperature)


class _Gated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor) -> Tensor:
        ctx.save_for_backward(gate, up)
        return jit.gated(gate, up)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        gate, up = ctx.saved_tensors
        return jit.gated_backward(gate, up, gradient.contiguous())


class _Rotated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return jit.rotated(x, cos, sin, 1.0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        return jit.rotated(gradient.contiguous(), cos, sin, -1.0), None, None


def _applied(function: Any, kernel: Any, *arguments: Tensor) -> Tensor:
    """A function with a gradient, or its kernel alone where nobody asks for one."""
    found: Tensor = (function.apply if torch.is_grad_enabled() else kernel)(*arguments)
    return found


def _fits_rows(x: Tensor) -> bool:
    return uses_triton(x) and x.dtype in FLOATS


def _fits(x: Tensor) -> bool:
    """Return whether kernels take heads of this length: blocks are powers of 2."""
    width = x.shape[-1]
    return uses_triton(x) and x.dtype in FLOATS and width > 1 and width & (width - 1) == 0
