"""Steps of policies of small networks in plain torch: the definitions."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import elu, linear

from sharpwave.primitives.ppo_loss.plain import LOG_SQRT_2PI


def network(x: Tensor, layers: Sequence[Tensor], activation: str) -> Tensor:
    """Output [N, out] of linear layers with an activation after every one but the last."""
    *body, weight, bias = layers
    for one, shift in zip(body[::2], body[1::2], strict=True):
        x = linear(x, one, shift)
        x = {"tanh": torch.tanh, "relu": torch.relu, "elu": elu}[activation](x)
    return linear(x, weight, bias)


def act(
    obs: Tensor,
    actor: Sequence[Tensor],
    critic: Sequence[Tensor],
    noise: Tensor,
    log_std: Tensor | None,
    activation: str,
) -> tuple[Tensor, Tensor, Tensor]:
    """Actions, their log-probabilities, and values."""
    output = network(obs, actor, activation)
    values = value(obs, critic, activation)
    if log_std is None:
        log_probs = output.log_softmax(-1)
        actions = (log_probs.exp() / noise.log()).argmin(-1)
        return actions, log_probs.gather(-1, actions[:, None])[:, 0], values
    actions = torch.addcmul(output, noise, log_std.exp())
    scaled = (actions - output) * (-log_std).exp()
    constant = output.shape[1] * LOG_SQRT_2PI
    return actions, -0.5 * scaled.square().sum(-1) - (log_std.sum() + constant), values


def value(obs: Tensor, critic: Sequence[Tensor], activation: str) -> Tensor:
    """Values [N] of observations."""
    return network(obs, critic, activation)[:, 0]
