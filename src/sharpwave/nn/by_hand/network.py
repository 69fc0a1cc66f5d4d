"""Forward and backward pass of an actor and a critic without autograd.

Batches lie with features along the rows, [features, B]: each feature of all samples is contiguous,
which suits the narrow matrices at both ends of a small network, where rows of a few numbers make
matrix products and softmax several times slower. The hidden layers of actor and critic run as one
batch of two, [2, features, B], since starting a small operation costs as much as doing it.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from sharpwave.nn.by_hand.layers import (
    Layer,
    activation_of,
    gradient_of,
    is_relu,
    layer_of,
    linears_of,
)

__all__ = ["Networks", "why_not_networks"]


class _Buffers(NamedTuple):
    """Matrices of one batch size; lists go over the hidden layers, pairs over the networks."""

    hidden: list[Tensor]
    hidden_transposed: list[Tensor]
    grads: list[Tensor]
    last: list[Tensor]
    last_transposed: list[Tensor]
    last_grads: list[Tensor]
    outputs: list[Tensor]


class Networks:
    """An actor and a critic of `Linear, activation, ..., Linear` with equal hidden layers.

    Args:
        actor: One network, in the same flat blocks as the other, and `why_not_networks` has
            found nothing against the two.
        critic: The other.
        max_batch: Largest B.
    """

    def __init__(self, actor: nn.Module, critic: nn.Module, max_batch: int) -> None:
        *hidden, heads = zip(linears_of(actor), linears_of(critic), strict=True)
        self._hidden = [_both(*pair) for pair in hidden]
        self._heads = [layer_of(linear) for linear in heads]
        block = heads[0].weight.data
        self._activation = activation_of(actor, block.device)
        self._widths = [linear.out_features for linear, _ in hidden]
        self._output_widths = [linear.out_features for linear in heads]
        sizes = [*(2 * 2 * width for width in self._widths), *self._output_widths]
        self._memory = [block.new_empty(size * max_batch) for size in sizes]
        self._buffers: dict[int, _Buffers] = {}
        self._input = torch.empty(0)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The outputs [n, B] and [1, B] for inputs [in, B]; they stay valid until the next call."""
        self._input = x
        buffers = self._at(x.shape[1])
        scale = self._activation.scale
        x = x.expand(2, *x.shape)
        for layer, output in zip(self._hidden, buffers.hidden, strict=True):
            torch.baddbmm(layer.bias, layer.weight, x, beta=scale, alpha=scale, out=output)
            self._activation.forward(output)
            x = output
        for head, source, output in zip(self._heads, buffers.last, buffers.outputs, strict=True):
            torch.addmm(head.bias, head.weight, source, out=output)
        actor, critic = buffers.outputs
        return actor, critic

    def backward(self, *output_grads: Tensor) -> None:
        """Writes the gradients of the parameters, given those [n, B] and [1, B] of the outputs."""
        buffers = self._at(output_grads[0].shape[1])
        for head, grad, source, out in zip(
            self._heads, output_grads, buffers.last_transposed, buffers.last_grads, strict=True
        ):
            torch.mm(grad, source, out=head.weight_grad)
            torch.sum(grad, 1, out=head.bias_grad)
            torch.mm(head.weight_transposed, grad, out=out)
        for i in range(len(self._hidden) - 1, -1, -1):
            layer, grad = self._hidden[i], buffers.grads[i]
            self._activation.backward(grad, buffers.hidden[i])
            torch.sum(grad, 2, out=layer.bias_grad)
            if i > 0:
                torch.bmm(grad, buffers.hidden_transposed[i - 1], out=layer.weight_grad)
                torch.bmm(layer.weight_transposed, grad, out=buffers.grads[i - 1])
            else:
                source = self._input.t().expand(2, *self._input.t().shape)
                torch.bmm(grad, source, out=layer.weight_grad)

    def _at(self, batch: int) -> _Buffers:
        """Matrices of `batch` columns, in memory that is the same for all sizes."""
        buffers = self._buffers.get(batch)
        if buffers is None:
            pairs = [
                memory[: 4 * width * batch].view(2, 2, width, batch)
                for memory, width in zip(self._memory, self._widths, strict=False)
            ]
            outputs = [
                memory[: width * batch].view(width, batch)
                for memory, width in zip(self._memory[-2:], self._output_widths, strict=True)
            ]
            hidden, grads = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
            buffers = _Buffers(
                hidden=hidden,
                hidden_transposed=[output.transpose(1, 2) for output in hidden],
                grads=grads,
                last=list(hidden[-1]),
                last_transposed=[output.t() for output in hidden[-1]],
                last_grads=list(grads[-1]),
                outputs=outputs,
            )
            self._buffers[batch] = buffers
        return buffers


def why_not_networks(actor: nn.Module, critic: nn.Module) -> str | None:
    """Why `Networks` cannot stand for two modules; None when it can."""
    for name, network in (("actor", actor), ("critic", critic)):
        reason = _why_not(network)
        if reason is not None:
            return f"{name} {reason}"
    if _hidden_layers(actor) != _hidden_layers(critic):
        return "actor and critic differ in their hidden layers"
    return None


def _why_not(network: nn.Module) -> str | None:
    if not isinstance(network, nn.Sequential):
        return f"is a {type(network).__name__}, not a Sequential"
    linears, activations = list(network)[::2], list(network)[1::2]
    if len(linears) != len(activations) + 1 or any(type(one) is not nn.Linear for one in linears):
        return "is not Linear layers with activations between them"
    if not activations:
        return "has no hidden layers"
    if {type(activation) for activation in activations} not in ({nn.Tanh}, {nn.ReLU}):
        return "has activations other than one of Tanh and ReLU"
    if any(linear.bias is None for linear in linears):
        return "has layers without bias"
    if any(not parameter.requires_grad for parameter in network.parameters()):
        return "has frozen parameters"
    return None


def _hidden_layers(network: nn.Module) -> list[object]:
    """What two networks must have in common."""
    linears = linears_of(network)
    sizes = [linear.in_features for linear in linears]
    return [*sizes, *(linear.out_features for linear in linears[:-1]), is_relu(network)]


def _both(actor: nn.Linear, critic: nn.Linear) -> Layer:
    weight = _stack(actor.weight.data, critic.weight.data)
    return Layer(
        weight=weight,
        weight_transposed=weight.transpose(1, 2),
        bias=_stack(actor.bias.data, critic.bias.data).unsqueeze(2),
        weight_grad=_stack(gradient_of(actor.weight), gradient_of(critic.weight)),
        bias_grad=_stack(gradient_of(actor.bias), gradient_of(critic.bias)),
    )


def _stack(one: Tensor, other: Tensor) -> Tensor:
    """Two tensors of a shape in one block of memory as a single one, without copying."""
    start = one.storage_offset()
    distance = other.storage_offset() - start
    return one.as_strided((2, *one.shape), (distance, *one.stride()), start)
