"""Multi-layer perceptrons (MLP), their activations, and initialization of weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from sharpwave.layouts.init import fan_in_uniform, orthogonal
from sharpwave.nn.batch_renorm import BatchRenorm
from sharpwave.nn.fused import can_fuse, fused_mlp
from sharpwave.primitives.backend import uses_triton
from sharpwave.primitives.mlp import tensors as perceptrons

__all__ = [
    "ACTIVATIONS",
    "MLP",
    "check_sizes",
    "initialize",
    "initialize_uniform",
    "is_quick_tanh",
    "make_mlp",
    "quick_tanh_",
]


MANY = 1 << 16
"""Numbers from which on it is worth more than what autograd adds to it."""


def is_quick_tanh(layer: nn.Module, x: Tensor) -> bool:
    """Return whether `quick_tanh_` can take the place of a layer that is given x."""
    is_plain = type(layer) is nn.Tanh and not (layer._forward_hooks or layer._forward_pre_hooks)
    is_large = x.numel() >= MANY and x.is_cpu and x.dtype == torch.float32
    return is_plain and is_large and not torch.compiler.is_compiling()


def quick_tanh_(x: Tensor) -> Tensor:
    """The hyperbolic tangent in the place of x, which no other gradient may need.

    tanh x = 2σ(2x) − 1, up to 2e-7. torch computes σ ten times as fast as tanh.

    Example:
        >>> quick_tanh_(torch.tensor([0.0, 0.5, -100.0])).tolist()
        [0.0, 0.462..., -1.0]
    """
    needs_grad = torch.is_grad_enabled() and x.requires_grad
    return _Tanh.apply(x) if needs_grad else _tanh_(x)  # type: ignore[no-untyped-call]


def _tanh_(x: Tensor) -> Tensor:
    return x.mul_(2.0).sigmoid_().mul_(2.0).sub_(1.0)


class _Tanh(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.mark_dirty(x)
        y = _tanh_(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        return torch.ops.aten.tanh_backward(grads[0], y)  # type: ignore[no-any-return]


ACTIVATIONS: dict[str, type[nn.Module]] = {
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "leaky_relu": nn.LeakyReLU,
    "selu": nn.SELU,
    "silu": nn.SiLU,
}
"""Activations by the name a configuration gives them."""

_FEW = 32
"""Rows below which `lean` is quicker where nothing is differentiated."""

_MANY_ON_GPU = 1024
"""Rows from which on a GPU is busy enough that passes over memory count more than launches."""


class MLP(nn.Sequential):
    """Multi-layer perceptron: a plain `nn.Sequential` with a quicker way through."""

    def with_latent(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The output and what the last layer was given: ([..., out], [..., hidden[-1]])."""
        activation = self._activation_on_gpu(x)
        if activation is not None:
            return self._as_one(x, activation)
        *body, head = self
        for layer in body:
            x = quick_tanh_(x) if is_quick_tanh(layer, x) else layer(x)
        return head(x), x

    def fused(self, x: Tensor) -> Tensor:
        """The same numbers, in the quickest way for learning: [B, in] to [B, out]."""
        activation = self._activation_on_gpu(x) if torch.is_grad_enabled() else None
        if activation is not None:
            return self._as_one(x, activation)[0]
        layers: list[Any] = list(self._modules.values())
        few = not torch.is_grad_enabled() and len(x) < _FEW
        if few or len(layers) == 1 or x.ndim != 2 or not can_fuse(x, layers[1]):
            return self.lean(x)
        weights = [layer.weight for layer in layers[::2]]
        return fused_mlp(x, weights, [layer.bias for layer in layers[::2]], layers[1], 1)[0]

    def lean(self, x: Tensor) -> Tensor:
        """The same numbers as calling the module, without hooks and their overhead.

        For small batches most of the time of a module call is spent around the operation: this
        halves it. Meant for acting, where nothing is differentiated.
        """
        return self.lean_with_latent(x)[0]

    def lean_with_latent(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """`with_latent`, in the way of `lean`."""
        latent = x
        for layer in self._modules.values():
            latent = x
            if type(layer) is nn.Linear:
                parameters = layer._parameters
                x = linear(x, parameters["weight"], parameters["bias"])  # type: ignore[arg-type]
            else:
                x = layer.forward(x)
        return x, latent

    def _as_one(self, x: Tensor, activation: perceptrons.Activation) -> tuple[Tensor, Tensor]:
        """`with_latent` as one operation of autograd."""
        linears: list[Any] = list(self._modules.values())[::2]
        weights, biases = [one.weight for one in linears], [one.bias for one in linears]
        found = perceptrons.mlp(x.reshape(-1, x.shape[-1]), weights, biases, activation)
        output, latent = (one.view(*x.shape[:-1], -1) for one in found)
        return output, latent

    def _activation_on_gpu(self, x: Tensor) -> perceptrons.Activation | None:
        """The activation between the layers if a GPU can take them as one operation."""
        if not uses_triton(x) or torch.compiler.is_compiling() or len(self._modules) < 3:
            return None
        layers: list[Any] = list(self._modules.values())
        many = x.numel() >= _MANY_ON_GPU * x.shape[-1]
        if not many or not _has_dtype(x) or any(map(_is_hooked, layers)):
            return None
        activation = perceptrons.activation_of(layers[1])
        linears, between = layers[::2], layers[1::2]
        alike = all(perceptrons.activation_of(layer) == activation for layer in between)
        return activation if alike and all(map(_is_plain_linear, linears)) else None


def _has_dtype(x: Tensor) -> bool:
    """Return whether one operation computes as layers do with this input."""
    kind = x.device.type
    if torch.is_autocast_enabled(kind):
        return torch.get_autocast_dtype(kind) == torch.bfloat16 and x.is_floating_point()
    return x.dtype == torch.float32


def _is_hooked(layer: nn.Module) -> bool:
    hooks = layer._forward_hooks or layer._forward_pre_hooks
    return bool(hooks or layer._backward_hooks or layer._backward_pre_hooks)


def _is_plain_linear(layer: nn.Module) -> bool:
    if type(layer) is not nn.Linear or layer.bias is None:
        return False
    return layer.weight.dtype == layer.bias.dtype == torch.float32


def make_mlp(
    in_features: int,
    hidden: Sequence[int],
    out_features: int,
    activation: str,
    generator: np.random.Generator,
    head_gain: float | None = 1.0,
    *,
    batch_norm: bool = False,
) -> MLP:
    """`Linear, activation, ..., Linear`.

    Args:
        in_features: Size of the input.
        hidden: Sizes of the hidden layers.
        out_features: Size of the output.
        activation: A name in `ACTIVATIONS`, applied after every layer but the last.
        generator: Source of the weights.
        head_gain: Gain of the last layer, the hidden ones have sqrt(2), all orthogonal; None is the
            uniform start of torch's layers instead, as usual in off-policy learning.
        batch_norm: Batch renormalization before every linear layer.

    Raises:
        ValueError: The activation is unknown or a size is not positive.

    Example:
        >>> net = make_mlp(4, (64, 64), 2, "tanh", np.random.default_rng(0), head_gain=0.01)
        >>> net(torch.zeros(3, 4)).shape
        torch.Size([3, 2])
    """
    check_sizes(in_features, hidden, activation)
    sizes = [in_features, *hidden]
    layers: list[nn.Module] = []
    for size, next_size in pairwise([*sizes, out_features]):
        if batch_norm:
            layers.append(BatchRenorm(size))
        layers += [nn.Linear(size, next_size), ACTIVATIONS[activation]()]
    net = MLP(*layers[:-1])
    if head_gain is None:
        initialize_uniform(net, generator)
    else:
        initialize(net, generator, head_gain=head_gain)
    return net


def check_sizes(in_features: int, hidden: Sequence[int], activation: str) -> None:
    """Check what a network is to be made of.

    Raises:
        ValueError: The activation is unknown or a size is not positive.
    """
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation must be one of {sorted(ACTIVATIONS)}, got {activation!r}")
    if any(size <= 0 for size in (in_features, *hidden)):
        raise ValueError(f"hidden must hold positive sizes, got {tuple(hidden)}")


def initialize_uniform(module: nn.Module, generator: np.random.Generator) -> None:
    """Gives every layer inside the start of torch's own, from a NumPy generator.

    Weights and biases are uniform in ±1 / sqrt(n), of the n inputs of an output; of recurrent
    layers n is the size of the state.

    Args:
        module: Changed in place; its device does not matter.
        generator: Source of the weights.
    """
    for layer in module.modules():
        if isinstance(layer, (nn.Linear, nn.Conv2d)):
            fan_in = layer.weight[0].numel()
        elif isinstance(layer, nn.RNNBase):
            fan_in = layer.hidden_size
        else:
            continue
        for parameter in layer.parameters(recurse=False):
            with torch.no_grad():
                values = fan_in_uniform(generator, tuple(parameter.shape), fan_in)
                parameter.copy_(torch.from_numpy(values))


def initialize(
    module: nn.Module,
    generator: np.random.Generator,
    gain: float = math.sqrt(2),
    head_gain: float | None = None,
) -> None:
    """Gives every layer inside orthogonal weights and zero biases, in the order of the modules.

    Linear layers and convolutions have `gain`, the last of them `head_gain` where it is given.
    The two weights of a recurrent layer are orthogonal as whole matrices (the gates stacked), with
    gain 1.

    Args:
        module: Changed in place; its device does not matter.
        generator: Source of the weights.
        gain: Gain of linear layers and convolutions.
        head_gain: Gain of the last linear layer.
    """
    weighted = [m for m in module.modules() if isinstance(m, (nn.Linear, nn.Conv2d))]
    last = weighted[-1] if weighted and head_gain is not None else None
    for layer in module.modules():
        if isinstance(layer, (nn.Linear, nn.Conv2d)):
            layer_gain = head_gain if layer is last and head_gain is not None else gain
        elif isinstance(layer, nn.RNNBase):
            layer_gain = 1.0
        else:
            continue
        for parameter in layer.parameters(recurse=False):
            with torch.no_grad():
                if parameter.ndim < 2:
                    parameter.zero_()
                else:
                    weight = orthogonal(generator, tuple(parameter.shape), layer_gain)
                    parameter.copy_(torch.from_numpy(weight))
