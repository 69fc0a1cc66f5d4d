"""Log-probabilities of selected tokens, with gradients, in little memory.

`selected_log_probs` reads logits once and never makes a float32 copy of them. `linear_log_probs`
starts from hidden states and the weights of the language-model head and never holds more than a
slice of the logits, forwards and backwards.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from sharpwave.kernels.backend import HAS_TRITON, uses_triton
from sharpwave.kernels.plain import llm as plain

if HAS_TRITON:
    from sharpwave.kernels.jit import log_probs as jit

__all__ = ["linear_log_probs", "selected_log_probs"]

SLICE = 1 << 25  # logits that linear_log_probs holds at once
FLOATS = (torch.float32, torch.bfloat16, torch.float16)


def selected_log_probs(
    logits: Tensor, tokens: Tensor, *, temperature: float = 1.0, in_place: bool = False
) -> Tensor:
    """Log softmax(logits / temperature) at one token per row.

    Args:
        logits: [..., V]; float32, bfloat16 or float16 on CUDA.
        tokens: [...] int64. Those outside the vocabulary (padding is often -100) give 0 and no
            gradient.
        temperature: Positive.
        in_place: The gradient overwrites the logits, which must not be needed after the backward
            pass; it then needs no memory of its own.

    Returns:
        [...] float32 (float64 for float64 logits).

    Raises:
        ValueError: A shape, dtype or the temperature does not fit.

    Example:
        >>> logits = torch.tensor([[0.0, 0.0], [0.0, 0.0]], requires_grad=True)
        >>> log_probs = selected_log_probs(logits, torch.tensor([1, -100]))
        >>> log_probs.sum().backward()
        >>> log_probs.tolist(), logits.grad.tolist()
        ([-0.6931471824645996, 0.0], [[-0.5, 0.5], [0.0, 0.0]])
    """
    _check_tokens("logits", logits, tokens)
    _check_temperature(temperature)
    rows, flat = logits.reshape(-1, logits.shape[-1]), tokens.reshape(-1)
    if uses_triton(logits) and logits.dtype in FLOATS:
        found = _apply(_Selected, rows, flat, temperature, in_place)
    else:
        found = plain.selected_log_probs(rows, flat, temperature)
    return found.view(tokens.shape)


def linear_log_probs(
    hidden: Tensor,
    weight: Tensor,
    tokens: Tensor,
    *,
    temperature: float = 1.0,
    slice_size: int = SLICE,
) -> Tensor:
    """`selected_log_probs` of the logits hidden @ weightᵀ, which are never all in memory.

    The vocabulary is cut into slices. Each is one matrix product into a buffer that the next one
    overwrites; the backward pass computes it again.

    Args:
        hidden: [..., H].
        weight: [V, H], of hidden's dtype.
        tokens: [...] int64; those outside the vocabulary give 0 and no gradient.
        temperature: Positive.
        slice_size: Number of logits in memory at once.

    Returns:
        [...] float32 (float64 for float64).

    Raises:
        ValueError: A shape, dtype or the temperature does not fit.

    Example:
        >>> hidden, weight = torch.eye(2), torch.zeros(3, 2)
        >>> linear_log_probs(hidden, weight, torch.tensor([0, 2])).tolist()
        [-1.0986123085021973, -1.0986123085021973]
    """
    _check_tokens("hidden", hidden, tokens)
    _check_temperature(temperature)
    if weight.dim() != 2 or weight.shape[1] != hidden.shape[-1] or weight.dtype != hidden.dtype:
        raise ValueError(
            f"weight must be {hidden.dtype} of shape [V, {hidden.shape[-1]}],"
            f" got {weight.dtype} of shape {tuple(weight.shape)}"
        )
    rows, flat = hidden.reshape(-1, hidden.shape[-1]), tokens.reshape(-1)
    if uses_triton(hidden) and hidden.dtype in FLOATS:
        found = _apply(_Linear, rows, weight, flat, temperature, slice_size)
    else:
        found = plain.selected_log_probs(rows @ weight.T, flat, temperature)
    return found.view(tokens.shape)


class _Selected(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, tokens: Tensor, temperature: float, in_place: bool
    ) -> Tensor:
        if logits.stride(1) != 1:
            logits = logits.contiguous()
        tokens = tokens.contiguous()
        log_sums = torch.empty(len(logits), device=logits.device)
        picked = torch.empty_like(log_sums)
        jit.forward(logits, tokens, log_sums, picked, temperature, n_tokens=logits.shape[1])
        ctx.save_for_backward(logits, tokens, log_sums)
        ctx.temperature, ctx.in_place, ctx.spent = temperature, in_place, False
        return picked

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradients: Tensor) -> tuple[Tensor | None, ...]:
        logits, tokens, log_sums = ctx.saved_tensors
        if ctx.spent:
            raise RuntimeError("with in_place=True the backward pass runs only once")
        ctx.spent = ctx.in_place
        out = logits.detach() if ctx.in_place else torch.empty_like(logits)
        gradients = gradients.contiguous()
        n_tokens = logits.shape[1]
        jit.backward(logits, tokens, log_sums, gradients, out, ctx.temperature, n_tokens=n_tokens)
        return out, None, None, None


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, tokens: Tensor, temperature: float, size: int
    ) -> Tensor:
        tokens = tokens.contiguous()
        log_sums = torch.empty(len(hidden), device=hidden.device)
        picked = torch.empty_like(log_sums)
        n_tokens = len(weight)
        for start, logits in _slices(hidden, weight, size):
            jit.forward(
                logits,
                tokens,
                log_sums,
                picked,
                temperature,
                n_tokens=n_tokens,
                start=start,
                merge=start > 0,
                final=start + logits.shape[1] == n_tokens,
            )
        ctx.save_for_backward(hidden, weight, tokens, log_sums)
        ctx.temperature, ctx.size = temperature, size
        return picked

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradients: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, tokens, log_sums = ctx.saved_tensors
        needs_hidden, needs_weight = ctx.needs_input_grad[:2]
        hidden_gradient = torch.zeros(hidden.shape, device=hidden.device) if needs_hidden else None
        weight_gradient = torch.empty_like(weight) if needs_weight else None
        gradients = gradients.contiguous()
        common: Any = {"temperature": ctx.temperature, "n_tokens": len(weight)}
        for start, logits in _slices(hidden, weight, ctx.size):
            jit.backward(logits, tokens, log_sums, gradients, logits, start=start, **common)
            stop = start + logits.shape[1]
            if hidden_gradient is not None:
                _add_product(hidden_gradient, logits, weight[start:stop])
            if weight_gradient is not None:
                torch.mm(logits.T, hidden, out=weight_gradient[start:stop])
        if hidden_gradient is not None:
            hidden_gradient = hidden_gradient.to(hidden.dtype)
        return hidden_gradient, weight_gradient, None, None, None


def _apply(function: Any, *arguments: Any) -> Tensor:
    """Call an autograd function, which torch does not annotate."""
    found: Tensor = function.apply(*arguments)
    return found


def _slices(hidden: Tensor, weight: Tensor, size: int) -> Any:
    """Yield (first column, logits of some columns), in one buffer."""
    n_rows = max(len(hidden), 1)
    width = min(len(weight), max(size // n_rows // 256 * 256, 256))
    buffer = torch.empty(n_rows * width, dtype=hidden.dtype, device=hidden.device)
    for start in range(0, len(weight), width):
        part = weight[start : start + width]
        logits = buffer[: len(hidden) * len(part)].view(len(hidden), len(part))
        torch.mm(hidden, part.T, out=logits)
        yield start, logits


def _add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """Total += left @ right with a float32 total, without rounding the product first on CUDA."""
    if left.dtype == torch.float32:
        torch.addmm(total, left, right, out=total)
    elif left.is_cuda:
        torch.addmm(total, left, right, out_dtype=torch.float32, out=total)
    else:
        total += left.float() @ right.float()


def _check_tokens(name: str, given: Tensor, tokens: Tensor) -> None:
    if given.dim() < 1 or not given.is_floating_point():
        raise ValueError(
            f"{name} must be floating-point with a last axis, got {given.dtype} of shape"
            f" {tuple(given.shape)}"
        )
    if tokens.dtype != torch.int64 or tokens.shape != given.shape[:-1]:
        raise ValueError(
            f"tokens must be int64 of shape {tuple(given.shape[:-1])} like {name},"
            f" got {tokens.dtype} of shape {tuple(tokens.shape)}"
        )
    if tokens.device != given.device:
        raise ValueError(f"tokens must be on {given.device} like {name}, got {tokens.device}")


def _check_temperature(temperature: float) -> None:
    if not temperature > 0:
        raise ValueError(f"temperature must be positive, got {temperature}")
