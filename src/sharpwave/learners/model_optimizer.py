"""AdamW over the parameters of a model, whatever their dtype."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sharpwave.core.lazy import torch
from sharpwave.learners.sharding import assign, local_part, sharded_like, summed_like

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = ["ModelOptimizer"]

NO_DECAY = r"(^|[._])(bias|.*norm.*)([._]|$)"
"""Names of parameters that weight decay would harm."""


class ModelOptimizer:
    """AdamW over the trainable parameters of a module, in one fused step.

    Parameters of less than 32 bits have a float32 master that moments and steps belong to: the
    steps of a small learning rate would be lost in their rounding. Of parameters in shards each
    process moves its part, and has the moments of it.

    Args:
        module: Whose parameters with `requires_grad` learn.
        lr: Learning rate.
        betas: Decay rates of the two moments.
        eps: Added to the root of the second moment.
        weight_decay: Shrinks weights by `lr * weight_decay` a step, those named by `no_decay` not.
        no_decay: A regular expression of names, and all parameters of one dimension.

    Attributes:
        lr: Learning rate; change it with `set_lr`.

    Raises:
        ValueError: Nothing is trainable.

    Example:
        >>> layer = torch.nn.Linear(2, 1)
        >>> optimizer = ModelOptimizer(layer, lr=0.1)
        >>> layer(torch.ones(1, 2)).sum().backward()
        >>> float(optimizer.step(max_grad_norm=1.0)) > 0
        True
    """

    def __init__(
        self,
        module: nn.Module,
        lr: float,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        no_decay: str = NO_DECAY,
    ) -> None:
        named = {name: p for name, p in module.named_parameters() if p.requires_grad}
        if not named:
            raise ValueError("module must have a parameter with requires_grad, got none")
        self._parameters = named
        self._masters = {name: _master(p) for name, p in named.items()}
        decays = [x for x in named if not re.search(no_decay, x, re.I) and named[x].ndim > 1]
        spared = [name for name in named if name not in set(decays)]
        groups = [
            {"params": [self._masters[name] for name in names], "weight_decay": decay}
            for names, decay in ((decays, weight_decay), (spared, 0.0))
            if names
        ]
        # A learning rate that is a tensor does not invalidate a CUDA graph.
        device = next(iter(named.values())).device
        self.lr = torch.tensor(float(lr), device=device if device.type == "cuda" else "cpu")
        self._adam: Any = torch.optim.AdamW(groups, lr=self.lr, betas=betas, eps=eps, fused=True)
        for name, master in self._masters.items():
            self._adam.state[master] = {
                "step": torch.zeros((), device=named[name].device),
                "exp_avg": torch.zeros_like(master),
                "exp_avg_sq": torch.zeros_like(master),
            }

    def set_lr(self, lr: float) -> None:
        """Changes the learning rate."""
        self.lr.fill_(lr)

    def zero_grad(self) -> None:
        """Forgets the gradients."""
        for parameter in self._parameters.values():
            parameter.grad = None

    def step(self, max_grad_norm: float | None = None) -> Tensor:
        """Takes a step along the gradients, clipped to the norm `max_grad_norm` before.

        Returns:
            The norm of the gradients before that. Where it is not finite, nothing moves.
        """
        for name, parameter in self._parameters.items():
            master = self._masters[name]
            if master is not parameter:
                gradient = parameter.grad
                master.grad = None if gradient is None else local_part(gradient).float()
        gradients = [m.grad for m in self._masters.values() if m.grad is not None]
        norms = torch.stack(torch._foreach_norm(gradients))
        norm = summed_like(norms.square().sum(), next(iter(self._parameters.values()))).sqrt()
        limit = float("inf") if max_grad_norm is None else max_grad_norm
        scale = torch.where(norm.isfinite(), (limit / (norm + 1e-6)).clamp(max=1.0), torch.nan)
        self._adam.grad_scale = None
        self._adam.found_inf = (~norm.isfinite()).float()
        torch._foreach_mul_(gradients, torch.nan_to_num(scale))
        self._adam.step()
        with torch.no_grad():
            for name, master in self._masters.items():
                if master is not self._parameters[name]:
                    local_part(self._parameters[name]).copy_(master)
                    master.grad = None
        return norm

    def arrays(self) -> dict[str, Tensor]:
        """The whole state by name: the tensors themselves, not copies."""
        state = {"lr": self.lr}
        for name, master in self._masters.items():
            parameter, adam = self._parameters[name], self._adam.state[master]
            state[f"step.{name}"] = adam["step"]
            for key in ("exp_avg", "exp_avg_sq"):
                state[f"{key}.{name}"] = sharded_like(adam[key], parameter)
            if _has_master(parameter):
                state[f"master.{name}"] = sharded_like(master.detach(), parameter)
        return state

    def load_arrays(self, arrays: Mapping[str, Tensor]) -> None:
        """Copies in a state that `arrays` gave; steps then go on as if never interrupted.

        Raises:
            ValueError: Names or shapes differ from those of `arrays()`. Nothing has changed then.
        """
        own = self.arrays()
        if set(arrays) != set(own):
            different = sorted(set(arrays) ^ set(own))
            raise ValueError(f"arrays must have the names of this optimizer, not {different[:4]}")
        for name, tensor in own.items():
            if arrays[name].shape != tensor.shape:
                raise ValueError(
                    f"{name} must have shape {tuple(tensor.shape)}, got {tuple(arrays[name].shape)}"
                )
        for name, tensor in own.items():
            assign(tensor, arrays[name])


def _has_master(parameter: Tensor) -> bool:
    return parameter.dtype.itemsize < 4


def _master(parameter: Tensor) -> Tensor:
    """Master copy of a parameter for moments and steps: itself, its local shard, or in float32."""
    if _has_master(parameter):
        return local_part(parameter.detach()).float().requires_grad_(True)
    if local_part(parameter) is parameter:
        return parameter
    return local_part(parameter.detach())
