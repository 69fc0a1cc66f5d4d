"""Log-probabilities of selected tokens and entropies, with gradients, in little memory.

`selected_log_probs` reads logits once and never makes a float32 copy of them. `linear_log_probs`
starts from hidden states and the weights of the language-model head and never holds more than a
slice of the logits, forwards and backwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, TypeAlias, overload

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from sharpwave.primitives.backend import HAS_TRITON, uses_triton
from sharpwave.primitives.log_probs import plain as plain

if HAS_TRITON:
    from sharpwave.primitives.log_probs import triton as jit

__all__ = ["linear_log_probs", "selected_log_probs"]

SLICE, CPU_SLICE = 1 << 25, 1 << 22  # logits that linear_log_probs holds at once
FLOATS = (torch.float32, torch.bfloat16, torch.float16)
Found: TypeAlias = Tensor | tuple[Tensor, Tensor]


@overload
def selected_log_probs(
    logits: Tensor,
    tokens: Tensor,
    *,
    temperature: float = ...,
    in_place: bool = ...,
    entropy: Literal[False] = ...,
) -> Tensor: ...
@overload
def selected_log_probs(
    logits: Tensor,
    tokens: Tensor,
    *,
    temperature: float = ...,
    in_place: bool = ...,
    entropy: Literal[True],
) -> tuple[Tensor, Tensor]: ...
def selected_log_probs(
    logits: Tensor,
    tokens: Tensor,
    *,
    temperature: float = 1.0,
    in_place: bool = False,
    entropy: bool = False,
) -> Found:
    """Log softmax(logits / temperature) at one token per row.

    Args:
        logits: [..., V].
        tokens: [...] int64. Those outside the vocabulary (padding is often -100) give 0 and no
            gradient.
        temperature: Positive.
        in_place: The gradient overwrites the logits, which must not be needed after the backward
            pass; it then needs no memory of its own.
        entropy: Also return the entropy -Σ p log p of p = softmax(logits / temperature), from the
            same pass over the logits; 0 and no gradient for tokens outside the vocabulary.

    Returns:
        [...] float32 (float64 for float64 logits), and with `entropy` a pair of these.

    Raises:
        ValueError: A shape, dtype or the temperature does not fit.

    Example:
        >>> logits = torch.tensor([[0.0, 0.0], [0.0, 0.0]], requires_grad=True)
        >>> log_probs = selected_log_probs(logits, torch.tensor([1, -100]))
        >>> log_probs.sum().backward()
        >>> log_probs.tolist(), logits.grad.tolist()
        ([-0.6931471824645996, 0.0], [[-0.5, 0.5], [0.0, 0.0]])
        >>> _, entropies = selected_log_probs(logits, torch.tensor([1, -100]), entropy=True)
        >>> entropies.tolist()
        [0.6931471824645996, 0.0]
    """
    _check_tokens("logits", logits, tokens)
    _check_temperature(temperature)
    _check_vocabulary("logits", logits, logits.shape[-1])
    rows, flat = logits.reshape(-1, logits.shape[-1]), tokens.reshape(-1)
    return _apply(_Selected, tokens.shape, rows, flat, temperature, in_place, entropy)


@overload
def linear_log_probs(
    hidden: Tensor,
    weight: Tensor,
    tokens: Tensor,
    *,
    temperature: float = ...,
    slice_size: int | None = ...,
    entropy: Literal[False] = ...,
) -> Tensor: ...
@overload
def linear_log_probs(
    hidden: Tensor,
    weight: Tensor,
    tokens: Tensor,
    *,
    temperature: float = ...,
    slice_size: int | None = ...,
    entropy: Literal[True],
) -> tuple[Tensor, Tensor]: ...
def linear_log_probs(
    hidden: Tensor,
    weight: Tensor,
    tokens: Tensor,
    *,
    temperature: float = 1.0,
    slice_size: int | None = None,
    entropy: bool = False,
) -> Found:
    """`selected_log_probs` of the logits hidden @ weightᵀ, which are never all in memory.

    The vocabulary is cut into slices. Each is one matrix product into a buffer that the next one
    overwrites; the backward pass computes it again.

    Args:
        hidden: [..., H].
        weight: [V, H], of hidden's dtype.
        tokens: [...] int64; those outside the vocabulary give 0 and no gradient.
        temperature: Positive.
        slice_size: Number of logits in memory at once; by default 32 million on a GPU and 4 million
            on a CPU.
        entropy: Also return the entropies, which cost no further matrix product.

    Returns:
        [...] float32 (float64 for float64), and with `entropy` a pair of these.

    Raises:
        ValueError: A shape, dtype or the temperature does not fit.

    Example:
        >>> hidden, weight = torch.eye(2), torch.zeros(3, 2)
        >>> linear_log_probs(hidden, weight, torch.tensor([0, 2])).tolist()
        [-1.0986123085021973, -1.0986123085021973]
        >>> _, entropies = linear_log_probs(hidden, weight, torch.tensor([0, 2]), entropy=True)
        >>> entropies.tolist()
        [1.0986123085021973, 1.0986123085021973]
    """
    _check_tokens("hidden", hidden, tokens)
    _check_temperature(temperature)
    if weight.dim() != 2 or weight.shape[1] != hidden.shape[-1] or weight.dtype != hidden.dtype:
        raise ValueError(
            f"weight must be {hidden.dtype} of shape [V, {hidden.shape[-1]}],"
            f" got {weight.dtype} of shape {tuple(weight.shape)}"
        )
    _check_vocabulary("weight", weight, len(weight))
    rows, flat = hidden.reshape(-1, hidden.shape[-1]), tokens.reshape(-1)
    if slice_size is None:
        slice_size = CPU_SLICE if hidden.device.type == "cpu" else SLICE
    return _apply(_Linear, tokens.shape, rows, weight, flat, temperature, slice_size, entropy)


class _Selected(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, tokens: Tensor, temperature: float, in_place: bool, entropy: bool
    ) -> Found:
        if logits.stride(1) != 1 or logits.stride(0) < logits.shape[1]:  # expanded rows overlap
            logits = logits.contiguous()
        tokens = tokens.contiguous()
        log_sums, picked, entropies = _results(logits, entropy)
        n_tokens = logits.shape[1]
        _kernels(logits).forward(
            logits, tokens, log_sums, picked, entropies, temperature, n_tokens=n_tokens
        )
        ctx.save_for_backward(logits, tokens, log_sums, entropies)
        ctx.temperature, ctx.in_place, ctx.spent = temperature, in_place, False
        return picked if entropies is None else (picked, entropies)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.spent:
            raise RuntimeError("with in_place=True the backward pass runs only once")
        logits, tokens, log_sums, entropies = ctx.saved_tensors
        ctx.spent = ctx.in_place
        out = logits.detach() if ctx.in_place else torch.empty_like(logits)
        _kernels(logits).backward(
            logits,
            tokens,
            log_sums,
            entropies,
            *_pair(gradients),
            out,
            ctx.temperature,
            n_tokens=logits.shape[1],
        )
        return out, None, None, None, None


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        tokens: Tensor,
        temperature: float,
        size: int,
        entropy: bool,
    ) -> Found:
        tokens = tokens.contiguous()
        log_sums, picked, entropies = _results(hidden, entropy)
        n_tokens = len(weight)
        dtype = _logits_dtype(hidden)
        for start, _, logits in _slices(hidden.to(dtype), weight, size):
            _kernels(logits).forward(
                logits,
                tokens,
                log_sums,
                picked,
                entropies,
                temperature,
                n_tokens=n_tokens,
                start=start,
                merge=start > 0,
                final=start + logits.shape[1] == n_tokens,
            )
        ctx.save_for_backward(hidden, weight, tokens, log_sums, entropies)
        ctx.temperature, ctx.size = temperature, size
        return picked if entropies is None else (picked, entropies)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, tokens, log_sums, entropies = ctx.saved_tensors
        needs_hidden, needs_weight = ctx.needs_input_grad[:2]
        hidden_gradient = torch.zeros_like(hidden, dtype=_wide(hidden)) if needs_hidden else None
        weight_gradient = torch.empty_like(weight) if needs_weight else None
        both = _pair(gradients)
        common: Any = {"temperature": ctx.temperature, "n_tokens": len(weight)}
        rows = hidden.to(_logits_dtype(hidden))
        for start, part, logits in _slices(rows, weight, ctx.size):
            _kernels(logits).backward(
                logits, tokens, log_sums, entropies, *both, logits, start=start, **common
            )
            if hidden_gradient is not None:
                _add_product(hidden_gradient, logits, part)
            if weight_gradient is not None:
                _write_product(weight_gradient[start : start + len(part)], logits.T, rows)
        if hidden_gradient is not None:
            hidden_gradient = hidden_gradient.to(hidden.dtype)
        return hidden_gradient, weight_gradient, None, None, None, None


def _apply(function: Any, shape: torch.Size, *arguments: Any) -> Found:
    """Call an autograd function and give its results this shape."""
    found = function.apply(*arguments)
    return found.view(shape) if isinstance(found, Tensor) else tuple(x.view(shape) for x in found)


def _kernels(logits: Tensor) -> Any:
    """The module whose `forward` and `backward` take these logits."""
    return jit if uses_triton(logits) and logits.dtype in FLOATS else plain


def _wide(tensor: Tensor) -> torch.dtype:
    """Dtype of sums."""
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32


def _logits_dtype(hidden: Tensor) -> torch.dtype:
    """Products of 16-bit floats are fast on a GPU; a CPU multiplies them as float32."""
    return hidden.dtype if hidden.is_cuda or uses_triton(hidden) else _wide(hidden)


def _results(rows: Tensor, entropy: bool) -> tuple[Tensor, Tensor, Tensor | None]:
    """Room for log-sums, log-probabilities and entropies, a number per row."""
    log_sums = torch.empty(len(rows), dtype=_wide(rows), device=rows.device)
    return log_sums, torch.empty_like(log_sums), torch.empty_like(log_sums) if entropy else None


def _pair(gradients: tuple[Tensor, ...]) -> tuple[Tensor, Tensor | None]:
    """The gradients of log-probabilities and of entropies."""
    first, *rest = (gradient.contiguous() for gradient in gradients)
    return first, rest[0] if rest else None


def _slices(hidden: Tensor, weight: Tensor, size: int) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Yield (first column, some rows of weight, their logits), the latter in one buffer."""
    n_rows = max(len(hidden), 1)
    width = min(len(weight), max(size // n_rows // 256 * 256, 256))
    buffer = torch.empty(n_rows * width, dtype=hidden.dtype, device=hidden.device)
    for start in range(0, len(weight), width):
        part = weight[start : start + width].to(hidden.dtype)
        logits = buffer[: len(hidden) * len(part)].view(len(hidden), len(part))
        torch.mm(hidden, part.T, out=logits)
        yield start, part, logits


def _write_product(out: Tensor, left: Tensor, right: Tensor) -> None:
    if out.dtype == left.dtype:
        torch.mm(left, right, out=out)
    else:
        out.copy_(left @ right)


def _add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """Total += left @ right with a wide total, without rounding the product first on CUDA."""
    if left.dtype == total.dtype:
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


def _check_vocabulary(name: str, given: Tensor, n_tokens: int) -> None:
    if n_tokens < 1:
        raise ValueError(f"{name} must have a token at least, got shape {tuple(given.shape)}")
