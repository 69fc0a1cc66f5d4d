"""The gradient of PPO's loss for small networks, from the rows of a rollout.

On a GPU one Triton kernel takes blocks of rows through the networks, the loss and back, inputs of
matrix products rounded to 10 bits, and a second one adds up. Elsewhere torch computes what `plain`
defines.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from sharpwave.primitives.backend import HAS_TRITON, uses_triton
from sharpwave.primitives.small_policy.tensors import ACTIVATIONS
from sharpwave.primitives.small_ppo import plain as plain

if HAS_TRITON:
    from sharpwave.primitives.small_ppo import triton as jit

__all__ = ["WIDEST", "are_held", "gradient"]

WIDEST = 64
"""Units of a layer, up to which a kernel holds what it sums up over rows."""
LAYERS = 3


def are_held(layers: Sequence[Tensor]) -> bool:
    """Return whether a kernel holds the gradient of a network of layers (weight, bias, ...).

    Example:
        >>> sizes = (64, 4), (64,), (64, 64), (64,), (2, 64), (2,)
        >>> are_held([torch.zeros(size) for size in sizes])
        True
    """
    widths = [width for weight in layers[::2] for width in weight.shape]
    return len(layers) == 2 * LAYERS and max(widths) <= WIDEST


def gradient(
    rows: Tensor,
    obs: Tensor,
    actions: Tensor,
    *,
    old_log_probs: Tensor,
    old_values: Tensor,
    advantages: Tensor,
    returns: Tensor,
    actor: Sequence[Tensor],
    critic: Sequence[Tensor],
    out: Tensor,
    clip: Tensor,
    value_clip: Tensor | None = None,
    log_std: Tensor | None = None,
    vf_coef: float = 0.5,
    ent_coef: float = 0.0,
    normalize: bool = True,
    activation: str = "tanh",
) -> Tensor:
    """Write the gradient of a minibatch, as `ppo_loss` has the loss of its networks' outputs.

    Args:
        rows: [B] int64, the rows of the columns that are the minibatch.
        obs: [R, d] float32 observations, and so for the other columns.
        actions: [R] integers, or [R, n] numbers.
        old_log_probs: [R].
        old_values: [R].
        advantages: [R].
        returns: [R].
        actor: Weight and bias of each of three layers.
        critic: Those of the network whose output is the value.
        out: Place of the gradients by log_std, actor and critic, one after the other.
        clip: [] clip range of the ratio.
        value_clip: [] clip range of values; None does not clip them.
        log_std: [n] of a Gaussian policy; None for a categorical one.
        vf_coef: Coefficient of the value loss.
        ent_coef: Entropy coefficient.
        normalize: Give advantages of the minibatch mean 0 and standard deviation 1.
        activation: Of the hidden layers, "tanh", "relu" or "elu".

    Returns:
        [6] what `METRICS` of `ppo_loss` names.

    Raises:
        ValueError: The networks are not of this form, or the place is of another size.
    """
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation must be one of {ACTIVATIONS}, got {activation!r}")
    for name, layers in (("actor", actor), ("critic", critic)):
        if not are_held(layers):
            shapes = [tuple(weight.shape) for weight in layers[::2]]
            raise ValueError(
                f"{name} must have {LAYERS} layers of at most {WIDEST} units, got {shapes}"
            )
    size = sum(x.numel() for x in (*actor, *critic)) + (0 if log_std is None else log_std.numel())
    if out.shape != (size,):
        raise ValueError(f"out must have shape ({size},), got {tuple(out.shape)}")
    columns = actions, old_log_probs, old_values, advantages, returns
    options: dict[str, Any] = {
        "clip": clip,
        "value_clip": value_clip,
        "vf_coef": vf_coef,
        "ent_coef": ent_coef,
        "normalize": normalize and len(rows) > 1,
    }
    given = rows, obs, columns, actor, critic, log_std, out, options, activation
    with torch.no_grad():
        return jit.gradient(*given) if uses_triton(obs) else plain.gradient(*given)
