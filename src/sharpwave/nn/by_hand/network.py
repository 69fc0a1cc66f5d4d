"""Forward and backward pass of a multi-layer perceptron without autograd.

Batches lie with features along the rows, [features, B]: each feature of all samples is contiguous,
which suits the narrow matrices at both ends of a small network, where rows of a few numbers make
matrix products and softmax several times slower.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

__all__ = ["Network", "why_not_network"]


class _Activation(Protocol):
    """An activation in place; `scale` is what its input has to be multiplied by before."""

    scale: float

    def forward(self, x: Tensor) -> None: ...

    def backward(self, grad: Tensor, output: Tensor) -> None: ...


class _Tanh:
    scale = 1.0

    def forward(self, x: Tensor) -> None:
        x.tanh_()

    def backward(self, grad: Tensor, output: Tensor) -> None:
        torch.ops.aten.tanh_backward.grad_input(grad, output, grad_input=grad)


class _CPUTanh(_Tanh):
    """tanh(x) = 2 sigmoid(2x) - 1, within 2e-7 of it: torch's tanh takes 3 times as long."""

    scale = 2.0

    def __init__(self) -> None:
        self._minus_one = torch.tensor(-1.0)

    def forward(self, x: Tensor) -> None:
        torch.add(self._minus_one, x.sigmoid_(), alpha=2.0, out=x)


class _ReLU:
    scale = 1.0

    def forward(self, x: Tensor) -> None:
        x.relu_()

    def backward(self, grad: Tensor, output: Tensor) -> None:
        torch.ops.aten.threshold_backward.grad_input(grad, output, 0.0, grad_input=grad)


class _Layer(NamedTuple):
    weight: Tensor
    weight_transposed: Tensor
    bias: Tensor
    weight_grad: Tensor
    bias_grad: Tensor


class _Buffers(NamedTuple):
    outputs: list[Tensor]
    transposed: list[Tensor]
    grads: list[Tensor]


class Network:
    """A network of `Linear, activation, ..., Linear` whose parameters lie in flat blocks.

    Args:
        layers: The network; `why_not_network` has found nothing against it.
        max_batch: Largest B.
    """

    def __init__(self, layers: nn.Sequential, max_batch: int) -> None:
        linears = [layer for layer in layers if isinstance(layer, nn.Linear)]
        self._layers = [_layer(linear) for linear in linears]
        device = linears[0].weight.device
        self._activation = _activation(layers, device)
        self._sizes = [linear.out_features for linear in linears]
        self._output_memory = [torch.empty(n * max_batch, device=device) for n in self._sizes]
        self._grad_memory = [torch.empty(n * max_batch, device=device) for n in self._sizes[:-1]]
        self._buffers: dict[int, _Buffers] = {}
        self._input = torch.empty(0)

    def forward(self, x: Tensor) -> Tensor:
        """The output [out, B] for inputs [in, B]; it stays valid until the next call."""
        self._input = x
        outputs = self._at(x.shape[1]).outputs
        scale = self._activation.scale
        for layer, output in zip(self._layers[:-1], outputs, strict=False):
            torch.addmm(layer.bias, layer.weight, x, beta=scale, alpha=scale, out=output)
            self._activation.forward(output)
            x = output
        head = self._layers[-1]
        return torch.addmm(head.bias, head.weight, x, out=outputs[-1])

    def backward(self, grad: Tensor) -> None:
        """Writes the gradients of the parameters, given that [out, B] of the last output."""
        buffers = self._at(grad.shape[1])
        for i in range(len(self._layers) - 1, 0, -1):
            layer = self._layers[i]
            torch.mm(grad, buffers.transposed[i - 1], out=layer.weight_grad)
            torch.sum(grad, 1, out=layer.bias_grad)
            grad = torch.mm(layer.weight_transposed, grad, out=buffers.grads[i - 1])
            self._activation.backward(grad, buffers.outputs[i - 1])
        torch.mm(grad, self._input.t(), out=self._layers[0].weight_grad)
        torch.sum(grad, 1, out=self._layers[0].bias_grad)

    def _at(self, batch: int) -> _Buffers:
        """Matrices of `batch` columns in the memory, which is the same for all sizes."""
        buffers = self._buffers.get(batch)
        if buffers is None:
            outputs = _views(self._output_memory, self._sizes, batch)
            grads = _views(self._grad_memory, self._sizes[:-1], batch)
            buffers = _Buffers(outputs, [output.t() for output in outputs], grads)
            self._buffers[batch] = buffers
        return buffers


def why_not_network(name: str, layers: nn.Module) -> str | None:
    """Why `Network` cannot stand for a module; None when it can."""
    if not isinstance(layers, nn.Sequential):
        return f"{name} is a {type(layers).__name__}, not a Sequential"
    modules = list(layers)
    if len(modules) % 2 == 0 or any(type(linear) is not nn.Linear for linear in modules[::2]):
        return f"{name} is not Linear layers with activations between them"
    kinds = {type(activation) for activation in modules[1::2]}
    if len(kinds) > 1 or not kinds <= {nn.Tanh, nn.ReLU}:
        return f"{name} has activations other than one of Tanh and ReLU"
    if any(linear.bias is None for linear in modules[::2]):
        return f"{name} has layers without bias"
    if any(not parameter.requires_grad for parameter in layers.parameters()):
        return f"{name} has frozen parameters"
    sizes = [(linear.in_features, linear.out_features) for linear in modules[::2]]
    if any(out != following for (_, out), (following, _) in pairwise(sizes)):
        return f"{name} has layers that do not fit together"
    return None


def _activation(layers: nn.Sequential, device: torch.device) -> _Activation:
    if any(isinstance(layer, nn.ReLU) for layer in layers):
        return _ReLU()
    return _CPUTanh() if device.type == "cpu" else _Tanh()


def _views(blocks: list[Tensor], sizes: list[int], batch: int) -> list[Tensor]:
    return [
        block[: size * batch].view(size, batch) for block, size in zip(blocks, sizes, strict=True)
    ]


def _layer(linear: nn.Linear) -> _Layer:
    weight, bias = linear.weight, linear.bias
    assert weight.grad is not None
    assert bias.grad is not None
    return _Layer(weight.data, weight.data.t(), bias.data[:, None], weight.grad, bias.grad)
