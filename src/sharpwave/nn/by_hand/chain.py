"""Forward and backward pass of one network without autograd."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from sharpwave.nn.by_hand.layers import Layer, activation_of, layer_of, linears_of

__all__ = ["Chain", "why_not_chain"]

_NARROW = 32
"""Columns of a product below which the transposed one is several times quicker."""


class _Backward(NamedTuple):
    """What a backward pass reads and writes, of some of the columns; lists go over the layers."""

    outputs: list[Tensor]
    outputs_transposed: list[Tensor]
    grads: list[Tensor]


class Chain:
    """`Linear, activation, Linear, ...` on batches with features along the rows, [features, B].

    Memory is kept for every size of batch that was seen, so a few sizes should do.

    Args:
        net: Its linear layers lie in flat blocks, and `why_not_chain` has found nothing against it.

    Attributes:
        out_features: Size of the output.
    """

    def __init__(self, net: nn.Sequential) -> None:
        linears = linears_of(net)
        self._layers = [layer_of(linear) for linear in linears]
        self.out_features = linears[-1].out_features
        self._n_activated = len(net) - len(linears)
        self._activation = activation_of(net, linears[0].weight.device)
        self._outputs: dict[int, list[Tensor]] = {}
        self._backward: dict[tuple[int, int], _Backward] = {}
        self._input = torch.empty(0)

    def forward(self, x: Tensor) -> Tensor:
        """The output [out, B] for an input [in, B]; it stays valid until the next call."""
        self._input = x
        outputs = self._outputs.get(x.shape[1])
        if outputs is None:
            outputs = [x.new_empty(len(layer.bias), x.shape[1]) for layer in self._layers]
            self._outputs[x.shape[1]] = outputs
        scale = self._activation.scale
        for i, (layer, output) in enumerate(zip(self._layers, outputs, strict=True)):
            if i < self._n_activated:
                torch.addmm(layer.bias, layer.weight, x, beta=scale, alpha=scale, out=output)
                self._activation.forward(output)
            else:
                torch.addmm(layer.bias, layer.weight, x, out=output)
            x = output
        return x

    def backward(self, grad: Tensor, input_grad: Tensor | None = None) -> None:
        """Writes the gradients of the parameters.

        Args:
            grad: [out, b] gradient of the first b columns of the last output; the rest had no part
                in the loss. It is overwritten where an activation is last.
            input_grad: [in, b] to which the gradient of the input is added, where it is wanted.
        """
        buffers = self._at(self._input.shape[1], grad.shape[1])
        for i in range(len(self._layers) - 1, -1, -1):
            layer = self._layers[i]
            if i < self._n_activated:
                self._activation.backward(grad, buffers.outputs[i])
            torch.sum(grad, 1, out=layer.bias_grad)
            if i > 0:
                torch.mm(grad, buffers.outputs_transposed[i - 1], out=layer.weight_grad)
                grad = torch.mm(layer.weight_transposed, grad, out=buffers.grads[i - 1])
            else:
                self._first_gradient(layer, grad)
                if input_grad is not None:
                    input_grad.addmm_(layer.weight_transposed, grad)

    def _first_gradient(self, layer: Layer, grad: Tensor) -> None:
        x = self._input[:, : grad.shape[1]]
        if len(x) < _NARROW:
            layer.weight_grad.copy_(torch.mm(x, grad.t()).t())
        else:
            torch.mm(grad, x.t(), out=layer.weight_grad)

    def _at(self, columns: int, count: int) -> _Backward:
        buffers = self._backward.get((columns, count))
        if buffers is None:
            outputs = [output[:, :count] for output in self._outputs[columns]]
            buffers = _Backward(
                outputs=outputs,
                outputs_transposed=[output.t() for output in outputs],
                grads=[torch.empty_like(output) for output in outputs[:-1]],
            )
            self._backward[columns, count] = buffers
        return buffers


def why_not_chain(net: nn.Module) -> str | None:
    """Why `Chain` cannot stand for a module; None when it can."""
    if not isinstance(net, nn.Sequential):
        return f"is a {type(net).__name__}, not a Sequential"
    linears, activations = list(net)[::2], list(net)[1::2]
    if not linears or any(type(one) is not nn.Linear for one in linears):
        return "is not Linear layers with activations between them"
    if {type(one) for one in activations} not in (set(), {nn.Tanh}, {nn.ReLU}):
        return "has activations other than one of Tanh and ReLU"
    return None
