"""LaProp with adaptive gradient clipping, the optimizer of DreamerV3."""

from __future__ import annotations

import torch
from torch import Tensor

from sharpwave.nn.flat import FlatParameters
from sharpwave.nn.optimizers import FlatOptimizer

__all__ = ["LaProp"]

LEAST_NORM = 1e-3
"""Parameters near 0 may move as if they were that long."""


class LaProp(FlatOptimizer):
    """LaProp (Ziyin et al., 2020): momentum of gradients that are normalized before.

    The gradient g of each tensor θ is clipped to the length agc · max(‖θ‖, 1e-3). Then

        v ← β₂v + (1 − β₂)g²,  m ← β₁m + (1 − β₁) g / (√v̂ + ε),  θ ← θ − lr · min(1, t / warmup) · m̂

    with the bias-corrected v̂ = v / (1 − β₂ᵗ⁺¹) and m̂ = m / (1 − β₁ᵗ⁺¹) and t steps taken before.
    All that changes lies on the device of the parameters: a step can be captured in a graph.

    Args:
        flat: Parameters to optimize.
        lr: Learning rate.
        betas: Decay of the momentum and of the mean square.
        eps: Added to the root.
        agc: Adaptive gradient clipping: maximum norm of the gradient of a tensor, relative to the
            norm of the tensor; None does not clip.
        warmup: Steps over which the rate rises from 0; 0 for none.

    Example:
        >>> layer = torch.nn.Linear(2, 1)
        >>> flat = FlatParameters(layer)
        >>> optimizer = LaProp(flat, lr=4e-5)
        >>> flat.backward(layer(torch.ones(2)).sum())
        >>> optimizer.step()
    """

    def __init__(
        self,
        flat: FlatParameters,
        lr: float,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-20,
        agc: float | None = 0.3,
        warmup: int = 1000,
    ) -> None:
        super().__init__(flat, lr)
        self._betas, self._eps, self._agc, self._warmup = betas, eps, agc, warmup
        sizes = [parameter.numel() for parameter in flat.module.parameters()]
        self._tensors, self._grads = flat.data.split(sizes), flat.grad.split(sizes)
        self._momentum = torch.zeros_like(flat.data)
        self._mean_square = torch.zeros_like(flat.data)
        self._steps = torch.zeros((), device=flat.data.device)

    @torch.no_grad()
    def step(self) -> None:
        """Moves the parameters along their gradient."""
        if self._agc is not None:
            self._clip(self._agc)
        grad, (beta1, beta2) = self._grad, self._betas
        later = self._steps + 1
        self._mean_square.mul_(beta2).addcmul_(grad, grad, value=1.0 - beta2)
        root = (self._mean_square / (1.0 - beta2**later)).sqrt_().add_(self._eps)
        self._momentum.mul_(beta1).addcdiv_(grad, root, value=1.0 - beta1)
        rate = self.lr / (1.0 - beta1**later)
        if self._warmup:
            rate = rate * (self._steps / self._warmup).clamp(max=1.0)
        self._data.sub_(self._momentum * rate)
        self._steps.add_(1)

    def _clip(self, agc: float) -> None:
        """Shortens the gradient of each tensor."""
        norms = torch.stack(torch._foreach_norm(self._tensors)).clamp_(min=LEAST_NORM)
        lengths = torch.stack(torch._foreach_norm(self._grads))
        scales = (agc * norms / lengths.clamp(min=1e-6)).clamp_(max=1.0)
        torch._foreach_mul_(self._grads, scales.unbind())

    def arrays(self) -> dict[str, Tensor]:
        """The whole state by name: the tensors themselves, not copies."""
        return {
            **super().arrays(),
            "momentum": self._momentum,
            "mean_square": self._mean_square,
            "steps": self._steps,
        }
