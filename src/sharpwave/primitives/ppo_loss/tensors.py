"""PPO's loss of a minibatch with its gradient, as one operation.

On a GPU one Triton kernel reads every row once and writes its gradient, and a second one adds up;
elsewhere torch computes what `plain` defines.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from sharpwave.primitives.backend import HAS_TRITON, uses_triton
from sharpwave.primitives.ppo_loss import plain as plain

if HAS_TRITON:
    from sharpwave.primitives.ppo_loss import triton as jit

__all__ = ["METRICS", "WIDEST", "ppo_loss"]

METRICS = ("policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction", "loss")
"""The measures of a minibatch, in their order."""

WIDEST = 64
"""Logits or means of a row, up to which a kernel holds whole rows."""


def ppo_loss(
    output: Tensor,
    values: Tensor,
    actions: Tensor,
    *,
    old_log_probs: Tensor,
    old_values: Tensor,
    advantages: Tensor,
    returns: Tensor,
    clip: Tensor,
    value_clip: Tensor | None = None,
    log_std: Tensor | None = None,
    vf_coef: float = 0.5,
    ent_coef: float = 0.0,
    normalize: bool = True,
) -> tuple[Tensor, Tensor]:
    r"""The clipped surrogate loss of PPO, its value loss and its entropy bonus.

    With r = exp(log π(a) − log π_old(a)) and, if they are clipped, values
    V' = V_old + clip(V − V_old, −c, c):

        L = mean(max(−A r, −A clip(r, 1 − ε, 1 + ε))) + c_v ½ mean(max((V − R)², (V' − R)²))
            − c_H mean(H)

    Args:
        output: [B, n] logits of a categorical policy, or means of a diagonal Gaussian one.
        values: [B] V.
        actions: [B] integers, or [B, n] numbers.
        old_log_probs: [B] log π_old(a).
        old_values: [B] V_old.
        advantages: [B] A.
        returns: [B] R.
        clip: [] ε, on the device of the rest.
        value_clip: [] c; None does not clip values.
        log_std: [n] logarithms of standard deviations of a Gaussian policy; None for a categorical
            one.
        vf_coef: c_v.
        ent_coef: c_H.
        normalize: Give advantages mean 0 and standard deviation 1, as `losses.normalize` does.

    Returns:
        [] the loss, with gradients by output, values and log_std; and [6] what `METRICS` names,
        without gradients.

    Raises:
        ValueError: A row of output is wider than `WIDEST`.

    Example:
        >>> zero, one = torch.zeros(2), torch.ones(2)
        >>> logits = torch.zeros(2, 2, requires_grad=True)
        >>> loss, metrics = ppo_loss(
        ...     logits, zero, torch.tensor([0, 1]), old_log_probs=zero - 2.0, old_values=zero,
        ...     advantages=one, returns=zero, clip=torch.tensor(0.2), normalize=False
        ... )
        >>> round(loss.item(), 4), metrics[4].item()
        (-1.2, 1.0)
    """
    if output.shape[1] > WIDEST:
        raise ValueError(f"output must have at most {WIDEST} columns, got {output.shape[1]}")
    normalize = normalize and len(values) > 1
    columns = actions, old_log_probs, old_values, advantages, returns, clip, value_clip
    options = vf_coef, ent_coef, normalize
    if not uses_triton(output):
        return plain.ppo_loss(output, log_std, values, *columns, *options)
    found: tuple[Tensor, Tensor] = _PPOLoss.apply(output, log_std, values, columns, options)  # type: ignore[no-untyped-call]
    return found


class _PPOLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, output: Tensor, log_std: Tensor | None, values: Tensor, columns: Any, options: Any
    ) -> tuple[Tensor, Tensor]:
        loss, metrics, grads = jit.ppo_loss(output, log_std, values, *columns, *options)
        ctx.grads = grads
        ctx.mark_non_differentiable(metrics)
        return loss, metrics

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        of_output, of_log_std, of_values = ctx.grads
        ctx.grads = None
        present = [one for one in (of_output, of_log_std, of_values) if one is not None]
        torch._foreach_mul_(present, grad)
        return of_output, of_log_std, of_values, None, None
