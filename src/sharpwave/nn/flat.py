"""All parameters of a module in one block of memory."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sharpwave.layouts.parameters import FlatArrays, aligned_zeros
from sharpwave.primitives.adam.tensors import clip

__all__ = ["FlatParameters"]


class FlatParameters:
    """Moves a module's parameters and gradients into two flat blocks and leaves views behind.

    Parameters lie in the order of `module.parameters()` without gaps; a parameter used twice lies
    there once. The module works as before: forward, backward and `load_state_dict` read and write
    the blocks, so that clipping and an optimizer step touch one tensor instead of many, and native
    code sees the same memory. Flattening a module anew takes its parameters out of the old blocks.

    Args:
        module: Module with float32 parameters; it is moved to `device`.
        device: Device of the blocks.
        memory: Blocks on the CPU to use, whose numbers the module takes over.

    Attributes:
        module: The module.
        data: [n] parameters.
        grad: [n] gradients.
        parameter: `data` as one parameter whose `.grad` is `grad`, for an optimizer.
        reduce: Applied to `grad` once it is computed, in place: the mean over the processes that
            learn together. None for one process.

    Raises:
        TypeError: A parameter is not float32, or not initialized.
        ValueError: There is no parameter, two parameters overlap in memory, or the parameters are
            not those of `memory`.

    Example:
        >>> layer = nn.Linear(2, 1)
        >>> flat = FlatParameters(layer)
        >>> _ = flat.data.copy_(torch.tensor([1.0, 2.0, 3.0]))
        >>> layer.weight.tolist(), layer.bias.tolist()
        ([[1.0, 2.0]], [3.0])
        >>> layer(torch.tensor([4.0, 5.0])).sum().backward()
        >>> flat.grad.tolist()
        [4.0, 5.0, 1.0]
    """

    def __init__(
        self,
        module: nn.Module,
        device: str | torch.device = "cpu",
        *,
        memory: FlatArrays | None = None,
    ) -> None:
        _check(module)
        self.module = module.to(device)
        self._parameters = list(module.parameters())
        size = sum(parameter.numel() for parameter in self._parameters)
        if memory is None:
            self.data = _zeros(size, torch.device(device))
            self.grad = _zeros(size, torch.device(device))
        else:
            _check_same(module, memory)
            self.data, self.grad = torch.from_numpy(memory.data), torch.from_numpy(memory.grad)
        self._grads: list[Tensor] = []
        start = 0
        for parameter in self._parameters:
            part = slice(start, start := start + parameter.numel())
            data = self.data[part].view(parameter.shape)
            if memory is None:
                data.copy_(parameter.data)
            parameter.data = data
            self._grads.append(self.grad[part].view(parameter.shape))
        self._attach_grads()
        self.reduce: Callable[[Tensor], object] | None = None
        self.parameter = nn.Parameter(self.data)
        self.parameter.grad = self.grad

    @property
    def block(self) -> NDArray[np.float32]:
        """The memory of `data` as an array.

        Raises:
            TypeError: The parameters do not lie in CPU memory.
        """
        return self.data.numpy()

    def zero_grad(self) -> None:
        """Sets all gradients to zero, and puts back views that `module.zero_grad()` took away."""
        self._attach_grads()
        self.grad.zero_()

    def backward(self, loss: Tensor) -> None:
        """Sets the gradients to those of a loss; other parameters it depends on get none."""
        self._attach_grads()
        parts = torch.autograd.grad(loss, self._parameters, materialize_grads=True)
        # One copy for all; accumulated in place it would be one addition for each.
        torch.cat([part.reshape(-1) for part in parts], out=self.grad)
        if self.reduce is not None:
            self.reduce(self.grad)

    def set_grad(self, grad: Tensor) -> None:
        """Sets the gradients to those that something else computed, as `backward` does."""
        self.grad.copy_(grad)
        if self.reduce is not None:
            self.reduce(self.grad)

    def clip_grad_norm(self, max_norm: float) -> Tensor:
        """Clips the gradients by their global norm, which is at most `max_norm` then.

        g ← g · min(1, max_norm / (‖g‖ + 1e-6)), without waiting for a device.

        Args:
            max_norm: Maximum norm of the gradient.

        Returns:
            [] norm before scaling.
        """
        return clip(self.grad, max_norm)

    def _attach_grads(self) -> None:
        for parameter, grad in zip(self._parameters, self._grads, strict=True):
            if parameter.grad is not grad:
                parameter.grad = grad


def _check(module: nn.Module) -> None:
    starts: list[tuple[int, int, str]] = []
    for name, parameter in module.named_parameters():
        if nn.parameter.is_lazy(parameter):
            raise TypeError(f"parameter {name} must be initialized: run the module once before")
        if parameter.dtype != torch.float32:
            raise TypeError(f"parameter {name} must be float32, got {parameter.dtype}")
        if parameter.numel():
            start = parameter.data_ptr()
            starts.append((start, start + 4 * parameter.numel(), name))
    if not starts:
        raise ValueError(f"module must have parameters, got {type(module).__name__} with none")
    starts.sort()
    for (_, end, name), (start, _, other) in itertools.pairwise(starts):
        if start < end:
            raise ValueError(f"parameters {name} and {other} must not overlap in memory")


def _check_same(module: nn.Module, memory: FlatArrays) -> None:
    shapes = {name: tuple(parameter.shape) for name, parameter in module.named_parameters()}
    expected = {name: array.shape for name, array in memory.state_dict().items()}
    if list(shapes.items()) != list(expected.items()):
        raise ValueError(f"the module must have the parameters {expected}, got {shapes}")


def _zeros(size: int, device: torch.device) -> Tensor:
    if device.type != "cpu":
        return torch.zeros(size, device=device)
    # numpy owns the memory: native code holds it, and torch aligns to 64 only by chance
    return torch.from_numpy(aligned_zeros(size))
