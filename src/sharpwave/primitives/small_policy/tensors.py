"""Policies of small networks, a whole step of which is one launch on a GPU.

Elsewhere torch computes what `plain` defines.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from sharpwave.primitives.backend import HAS_TRITON, uses_triton
from sharpwave.primitives.small_policy import plain as plain

if HAS_TRITON:
    from sharpwave.primitives.small_policy import triton as jit

__all__ = ["ACTIVATIONS", "WIDEST", "act", "are_small", "value"]

ACTIVATIONS = ("tanh", "relu", "elu")
WIDEST = 128
"""Units of a layer, up to which a network is small."""
MOST_LAYERS = 4


def are_small(layers: Sequence[Tensor]) -> bool:
    """Return whether kernels hold the layers (weight, bias, ...) of a network.

    Example:
        >>> are_small([torch.zeros(64, 4), torch.zeros(64)])
        True
    """
    widths = [width for weight in layers[::2] for width in weight.shape]
    return len(layers) // 2 <= MOST_LAYERS and max(widths) <= WIDEST


def act(
    obs: Tensor,
    actor: Sequence[Tensor],
    critic: Sequence[Tensor],
    noise: Tensor,
    *,
    log_std: Tensor | None = None,
    activation: str = "tanh",
    exact: bool = True,
) -> tuple[Tensor, Tensor, Tensor]:
    """Actions drawn from a policy, their log-probabilities, and values; without gradients.

    Args:
        obs: [N, d] float32.
        actor: Weight [out, in] and bias [out] of each layer, one after the other.
        critic: Those of the network whose output is the value.
        noise: [N, n] standard normal numbers of a Gaussian policy; for a categorical one uniform
            ones in (0, 1), and the action is the one with the smallest -log(u) / p.
        log_std: [n] logarithms of standard deviations of a Gaussian policy; None for a categorical
            one.
        activation: Of the hidden layers, one of `ACTIVATIONS`.
        exact: Round nothing in matrix products; otherwise their inputs to 10 bits, on a GPU.

    Returns:
        [N] int64 or [N, n] float32 actions, [N] log-probabilities, [N] values.

    Example:
        >>> obs, layers = torch.zeros(3, 2), [torch.zeros(1, 2), torch.ones(1)]
        >>> actions, log_probs, values = act(
        ...     obs, layers, layers, torch.zeros(3, 1), log_std=torch.zeros(1)
        ... )
        >>> actions.tolist(), values.tolist()
        ([[1.0], [1.0], [1.0]], [1.0, 1.0, 1.0])
    """
    _check(obs, activation, actor=actor, critic=critic)
    with torch.no_grad():
        if uses_triton(obs):
            return jit.act(obs, actor, critic, noise, log_std, activation, exact)
        return plain.act(obs, actor, critic, noise, log_std, activation)


def value(
    obs: Tensor, critic: Sequence[Tensor], *, activation: str = "tanh", exact: bool = True
) -> Tensor:
    """Values [N] of observations [N, d]; see `act`."""
    _check(obs, activation, critic=critic)
    with torch.no_grad():
        if uses_triton(obs):
            return jit.value(obs, critic, activation, exact)
        return plain.value(obs, critic, activation)


def _check(obs: Tensor, activation: str, **networks: Sequence[Tensor]) -> None:
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation must be one of {ACTIVATIONS}, got {activation!r}")
    for name, layers in networks.items():
        if not are_small(layers):
            shapes = [tuple(weight.shape) for weight in layers[::2]]
            raise ValueError(
                f"{name} must have at most {MOST_LAYERS} layers of {WIDEST} units, got {shapes}"
            )
        if obs.dtype != torch.float32 or obs.shape[1:] != layers[0].shape[1:]:
            raise ValueError(
                f"obs must be float32 of shape (N, {layers[0].shape[1]}), "
                f"got {obs.dtype} of shape {tuple(obs.shape)}"
            )
