"""Forward and backward pass of several networks at once, without autograd."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from sharpwave.nn.by_hand.layers import activation_of, gradient_of
from sharpwave.nn.stacked import StackedMLP

__all__ = ["StackedChain", "why_not_stack"]


class _Memory(NamedTuple):
    """What a pass of some networks over some rows reads and writes; lists go over the layers."""

    weights: list[Tensor]
    weights_transposed: list[Tensor]
    biases: list[Tensor]
    hidden: list[Tensor]
    grads: list[Tensor]
    output: Tensor
    heads: list[tuple[Tensor, Tensor, Tensor, Tensor]]
    """Of each network: what its last layer is given, its weight, its bias, and its output."""


class StackedChain:
    """The n networks of a `StackedMLP` with one output each, on rows [B, in].

    Memory is kept for every number of rows that was seen, so a few should do.

    Args:
        net: Its layers lie in flat blocks, and `why_not_stack` has found nothing against it.
    """

    def __init__(self, net: StackedMLP) -> None:
        layers: list[Any] = list(net.layers)
        self._weights = [layer.weight.data for layer in layers]
        self._biases = [layer.bias.data for layer in layers]
        self._grads = [(gradient_of(layer.weight), gradient_of(layer.bias)) for layer in layers]
        self._head_grads = self._grads[-1][0].mT, self._grads[-1][1][:, 0, 0]
        self._activation = activation_of(net, self._weights[0].device)
        self._memories: dict[tuple[int, int], _Memory] = {}
        self._x = torch.empty(0)
        self._memory = self._at(1, net.n)

    def forward(self, x: Tensor, n: int | None = None) -> Tensor:
        """Outputs [n, B] of the first n networks; they stay valid until the next call.

        Args:
            x: [B, in]; it must not change before the backward pass.
            n: Number of networks; all when not given.
        """
        memory = self._at(len(x), n or len(self._weights[0]))
        self._memory = memory
        self._x = h = x.expand(len(memory.output), *x.shape)
        activation, scale = self._activation, self._activation.scale
        for weight, bias, out in zip(memory.weights, memory.biases, memory.hidden, strict=False):
            h = torch.baddbmm(bias, h, weight, beta=scale, alpha=scale, out=out)
            activation.forward(h)
        for rows, weight, bias, out in memory.heads:
            torch.addmv(bias, rows, weight, out=out)
        return memory.output

    def backward(self, grad: Tensor) -> None:
        """Writes the gradients of the parameters.

        Args:
            grad: [n, B] gradient of the last outputs, of all networks.
        """
        weight_grad, bias_grad = self._head_grads
        torch.bmm(grad[:, None], self._memory.hidden[-1], out=weight_grad)
        torch.sum(grad, 1, out=bias_grad)
        for k, g in self._down(grad):
            weight_grad, bias_grad = self._grads[k]
            torch.sum(g, 1, keepdim=True, out=bias_grad)
            h = self._memory.hidden[k - 1] if k else self._x
            torch.bmm(h.mT, g, out=weight_grad)

    def input_gradient(self, grad: Tensor) -> Tensor:
        """The gradient [B, in] of the input; that of the parameters is not touched.

        Args:
            grad: [n, B] gradient of the last outputs.
        """
        *_, (_, g) = self._down(grad)
        # The input is narrow, and a narrow product is quicker the other way round.
        return torch.bmm(self._memory.weights[0], g.mT).sum(0).t()

    def _down(self, grad: Tensor) -> Iterator[tuple[int, Tensor]]:
        """Gradients [n, B, width] before the activations, from the last layer to the first."""
        memory = self._memory
        last = len(memory.hidden) - 1
        for k in range(last, -1, -1):
            g = memory.grads[k]
            if k == last:
                torch.mul(grad[:, :, None], memory.weights_transposed[-1], out=g)
            else:
                torch.bmm(memory.grads[k + 1], memory.weights_transposed[k + 1], out=g)
            self._activation.backward(g, memory.hidden[k])
            yield k, g

    def _at(self, rows: int, n: int) -> _Memory:
        memory = self._memories.get((rows, n))
        if memory is None:
            weights = [weight[:n] for weight in self._weights]
            biases = [bias[:n] for bias in self._biases]
            hidden = [weight.new_empty(n, rows, weight.shape[2]) for weight in weights[:-1]]
            output = weights[0].new_empty(n, rows)
            heads = [
                (hidden[-1][i], weights[-1][i, :, 0], biases[-1][i, 0], output[i]) for i in range(n)
            ]
            memory = _Memory(
                weights,
                [weight.mT for weight in weights],
                biases,
                hidden,
                [torch.empty_like(h) for h in hidden],
                output,
                heads,
            )
            self._memories[rows, n] = memory
        return memory


def why_not_stack(net: nn.Module) -> str | None:
    """Why `StackedChain` cannot stand for a module; None when it can."""
    if type(net) is not StackedMLP:
        return f"is a {type(net).__name__}, not a StackedMLP"
    if len(net.norms) or len(net.batch_norms):
        return "normalises"
    if type(net.activation) not in (nn.ReLU, nn.Tanh):
        return f"has {type(net.activation).__name__} as activation"
    layers: list[Any] = list(net.layers)
    if len(layers) < 2 or layers[-1].weight.shape[2] != 1:
        return "has no hidden layer, or several outputs"
    return None
