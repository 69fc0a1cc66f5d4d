"""Optimizers of one flat block of parameters.

`torch.optim` spends several times longer on bookkeeping than on ten thousand parameters; these do
the arithmetic alone. Their learning rate is a tensor on the parameters' device, so that a schedule
neither waits for the device nor invalidates a CUDA graph.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from sharpwave.nn.flat import FlatParameters
from sharpwave.primitives.adam import tensors as adam

__all__ = ["Adam", "FlatOptimizer", "LaProp", "RMSprop", "descend"]


class FlatOptimizer(ABC):
    """Base of the optimizers of flat parameters.

    Args:
        flat: Parameters to optimize.
        lr: Learning rate.

    Attributes:
        lr: [] learning rate; change it with `set_lr`.
    """

    def __init__(self, flat: FlatParameters, lr: float) -> None:
        self._data = flat.data
        self._grad = flat.grad
        self.lr = torch.tensor(lr, dtype=torch.float32, device=flat.data.device)

    def set_lr(self, lr: float) -> None:
        """Changes the learning rate.

        Args:
            lr: New learning rate.
        """
        self.lr.fill_(lr)

    def adapt_lr(self, kl: Tensor, desired_kl: float, bounds: tuple[float, float]) -> None:
        """Changes the learning rate by how far the policy has moved, without a wait.

            lr ← lr / 1.5 where kl > 2 desired_kl,  1.5 lr where 0 < kl < ½ desired_kl

        and within bounds. It stays as it is for NaN, and where the policy has not moved yet.

        Args:
            kl: [] KL divergence of the policy from the old one.
            desired_kl: The divergence to aim at.
            bounds: Least and greatest learning rate.
        """
        too_far, too_near = kl > 2.0 * desired_kl, (kl > 0.0) & (kl < 0.5 * desired_kl)
        rate = torch.where(too_far, self.lr / 1.5, self.lr)
        self.lr.copy_(torch.where(too_near, self.lr * 1.5, rate).clamp_(*bounds))

    @abstractmethod
    def step(self) -> None:
        """Moves the parameters along their gradient."""

    def clip_and_step(self, max_grad_norm: float) -> Tensor:
        """Clips the gradient to a maximum norm, then moves the parameters along it.

        Args:
            max_grad_norm: Maximum norm of the gradient; larger gradients are scaled down.

        Returns:
            [] norm before clipping.
        """
        norm = adam.clip(self._grad, max_grad_norm)
        self.step()
        return norm

    def arrays(self) -> dict[str, Tensor]:
        """The whole state by name: the tensors themselves, not copies."""
        return {"lr": self.lr}

    def load_arrays(self, arrays: Mapping[str, Tensor]) -> None:
        """Copies in a state that `arrays` gave; steps then go on as if never interrupted.

        Args:
            arrays: The state by name.

        Raises:
            ValueError: Names or shapes differ from those of `arrays()`. Nothing has changed then.
        """
        own = self.arrays()
        if set(arrays) != set(own):
            raise ValueError(f"arrays must have the names {sorted(own)}, got {sorted(arrays)}")
        for name, tensor in own.items():
            if arrays[name].shape != tensor.shape:
                raise ValueError(
                    f"{name} must have shape {tuple(tensor.shape)}, got {tuple(arrays[name].shape)}"
                )
        for name, tensor in own.items():
            tensor.copy_(arrays[name])


def descend(
    loss: Tensor,
    flat: FlatParameters,
    optimizer: FlatOptimizer,
    max_grad_norm: float | None = None,
) -> None:
    """One step of an optimizer down a loss.

    Other parameters that the loss depends on get no gradient, and cost no time for one.

    Args:
        loss: [] to differentiate.
        flat: Parameters to differentiate by.
        optimizer: Optimizer of `flat`.
        max_grad_norm: Maximum norm of the gradient; larger gradients are scaled down.
    """
    flat.backward(loss)
    if max_grad_norm is None:
        optimizer.step()
    else:
        optimizer.clip_and_step(max_grad_norm)


class Adam(FlatOptimizer):
    """Adam (Kingma and Ba, 2015), one fused kernel a step.

    m ← β₁m + (1 − β₁)g, v ← β₂v + (1 − β₂)g², θ ← θ − lr · m̂ / (√v̂ + ε) with the bias-corrected
    m̂ = m / (1 − β₁ᵗ) and v̂ = v / (1 − β₂ᵗ).

    Args:
        flat: Parameters to optimize.
        lr: Learning rate.
        betas: Decay of the two moments.
        eps: Added to the root; 1e-5 as usual in on-policy learning, not torch's 1e-8.

    Example:
        >>> layer = torch.nn.Linear(2, 1)
        >>> flat = FlatParameters(layer)
        >>> optimizer = Adam(flat, lr=1e-3)
        >>> layer(torch.ones(2)).sum().backward()
        >>> optimizer.step()
    """

    def __init__(
        self,
        flat: FlatParameters,
        lr: float,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-5,
    ) -> None:
        super().__init__(flat, lr)
        self._betas = betas
        self._eps = eps
        self._exp_avg = torch.zeros_like(flat.data)
        self._exp_avg_sq = torch.zeros_like(flat.data)
        self._steps = torch.zeros((), device=flat.data.device)
        moments = self._exp_avg, self._exp_avg_sq
        self._block = adam.Block(self._data, self._grad, *moments, self._steps, self.lr)

    def arrays(self) -> dict[str, Tensor]:
        """The whole state by name: the tensors themselves, not copies."""
        return {
            **super().arrays(),
            "exp_avg": self._exp_avg,
            "exp_avg_sq": self._exp_avg_sq,
            "steps": self._steps,
        }

    def step(self, skip: Tensor | None = None) -> None:
        """Moves the parameters along their gradient.

        Args:
            skip: [] float32 on the parameters' device; where it is 1, nothing changes, neither
                parameters nor moments nor the count of steps, and nobody waits for the device to
                know. Otherwise it must be 0.
        """
        adam.step(self._block, betas=self._betas, eps=self._eps, skip=skip)

    def clip_and_step(self, max_grad_norm: float, skip: Tensor | None = None) -> Tensor:
        """Clips the gradient on the way: the same as one after the other, in fewer kernels.

        Args:
            max_grad_norm: Maximum norm of the gradient.
            skip: As `step` takes it; the gradient is clipped nevertheless.
        """
        if type(self).step is not Adam.step:  # a subclass steps in its own way
            return super().clip_and_step(max_grad_norm)
        options: Any = {"betas": self._betas, "eps": self._eps, "skip": skip}
        return adam.clip_and_step(self._block, max_grad_norm, **options)


class RMSprop(FlatOptimizer):
    """RMSprop (Hinton, 2012) with ε outside the root.

    v ← αv + (1 − α)g², θ ← θ − lr · g / (√v + ε).

    Args:
        flat: Parameters to optimize.
        lr: Learning rate.
        alpha: Decay of the mean square.
        eps: Added to the root.

    Example:
        >>> layer = torch.nn.Linear(2, 1)
        >>> flat = FlatParameters(layer)
        >>> optimizer = RMSprop(flat, lr=7e-4)
        >>> layer(torch.ones(2)).sum().backward()
        >>> optimizer.step()
    """

    def __init__(
        self, flat: FlatParameters, lr: float, *, alpha: float = 0.99, eps: float = 1e-5
    ) -> None:
        super().__init__(flat, lr)
        self._alpha = alpha
        self._eps = eps
        self._square_avg = torch.zeros_like(flat.data)
        self._change = torch.empty_like(flat.data)

    def arrays(self) -> dict[str, Tensor]:
        """The whole state by name: the tensors themselves, not copies."""
        return {**super().arrays(), "square_avg": self._square_avg}

    def step(self) -> None:
        """Moves the parameters along their gradient."""
        self._square_avg.mul_(self._alpha).addcmul_(self._grad, self._grad, value=1 - self._alpha)
        torch.sqrt(self._square_avg, out=self._change).add_(self._eps)
        torch.div(self._grad, self._change, out=self._change)
        self._data.sub_(self._change.mul_(self.lr))


LEAST_NORM = 1e-3
"""Norm of parameters near 0 for the clipping of LaProp, so that they can move."""


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
