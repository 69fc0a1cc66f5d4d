"""The gradient of PPO's loss for small networks in plain torch: the definition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from sharpwave.primitives.ppo_loss import plain as losses
from sharpwave.primitives.small_policy.plain import network


def gradient(
    rows: Tensor,
    obs: Tensor,
    columns: Sequence[Tensor],
    actor: Sequence[Tensor],
    critic: Sequence[Tensor],
    log_std: Tensor | None,
    out: Tensor,
    options: dict[str, Any],
    activation: str,
) -> Tensor:
    """Write the gradient of the loss to `out`, and return its metrics."""
    obs, *chosen = (column.index_select(0, rows) for column in (obs, *columns))
    with torch.enable_grad():
        parameters = [*([] if log_std is None else [log_std]), *actor, *critic]
        leaves = [parameter.detach().requires_grad_() for parameter in parameters]
        stds = None if log_std is None else leaves[0]
        n = len(leaves) - len(critic)
        output = network(obs, leaves[n - len(actor) : n], activation)
        values = network(obs, leaves[n:], activation)[:, 0]
        terms: list[Any] = [output, stds, values, *chosen]
        loss, metrics = losses.ppo_loss(*terms, **options)
        parts = torch.autograd.grad(loss, leaves)
    torch.cat([part.reshape(-1) for part in parts], out=out)
    return metrics
