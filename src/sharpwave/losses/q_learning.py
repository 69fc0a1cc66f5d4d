"""Losses of Q-learning: of values, of distributions on fixed atoms, and of quantiles.

They give one number for each row. Rows drawn by priority are weighed before their mean is taken,
which `weighted_mean` does, and the numbers themselves tell how surprising a row was.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import huber_loss

__all__ = [
    "categorical_cross_entropy",
    "huber",
    "project_categorical",
    "quantile_huber",
    "weighted_mean",
]


def weighted_mean(rows: Tensor, weights: Tensor | None = None) -> Tensor:
    """mean(w · x): importance weights scale a row's part of the loss, and the loss with it.

    Args:
        rows: [B] x.
        weights: [B] w, or None for ones.

    Returns:
        [] mean.

    Example:
        >>> weighted_mean(torch.tensor([2.0, 4.0]), torch.tensor([1.0, 0.5])).item()
        2.0
    """
    return rows.mean() if weights is None else (rows * weights).mean()


def huber(errors: Tensor, threshold: float = 1.0) -> Tensor:
    """½δ² where |δ| ≤ κ, κ(|δ| − ½κ) beyond: the gradient of one row is at most κ.

    Args:
        errors: δ of any shape.
        threshold: κ.

    Returns:
        Of the shape of the errors.

    Example:
        >>> huber(torch.tensor([0.5, -3.0])).tolist()
        [0.125, 2.5]
    """
    return huber_loss(errors, torch.zeros_like(errors), reduction="none", delta=threshold)


def project_categorical(probs: Tensor, rewards: Tensor, discounts: Tensor, atoms: Tensor) -> Tensor:
    r"""The distribution of r + γZ on the atoms of Z (Bellemare et al., 2017).

    The probability of an atom goes to the two neighbours of where it lands, by distance:

    $$m_i = \sum_j p_j \left[1 - \frac{|\mathrm{clip}(r + \gamma z_j) - z_i|}{\Delta z}\right]_0^1$$

    Args:
        probs: [B, N] p, the distribution of Z.
        rewards: [B] r.
        discounts: [B] γ, 0 where nothing follows.
        atoms: [N] z, evenly spaced, ascending.

    Returns:
        [B, N] m.

    Example:
        >>> atoms, sure = torch.tensor([0.0, 1.0, 2.0]), torch.tensor([[0.0, 1.0, 0.0]])
        >>> project_categorical(sure, torch.tensor([0.25]), torch.tensor([1.0]), atoms).tolist()
        [[0.0, 0.75, 0.25]]
    """
    landed = torch.addcmul(rewards[:, None], discounts[:, None], atoms)
    landed = torch.minimum(torch.maximum(landed, atoms[0]), atoms[-1])
    distances = (landed[:, None, :] - atoms[:, None]).abs() / (atoms[1] - atoms[0])
    return torch.bmm((1.0 - distances).clamp_(min=0.0), probs.unsqueeze(2)).squeeze(2)


def categorical_cross_entropy(log_probs: Tensor, targets: Tensor) -> Tensor:
    """−Σ_i m_i log p_i, which is the divergence of p from m but for a constant.

    Args:
        log_probs: [B, N] log p.
        targets: [B, N] m.

    Returns:
        [B].

    Example:
        >>> half = torch.tensor([[0.5, 0.5]])
        >>> categorical_cross_entropy(half.log(), half).exp().item()
        2.0
    """
    return -(targets * log_probs).sum(-1)


def quantile_huber(quantiles: Tensor, targets: Tensor, threshold: float = 1.0) -> Tensor:
    r"""The loss of quantile regression, smooth near zero (Dabney et al., 2018).

    $$\sum_i \frac 1 M \sum_j |\tau_i - [u_{ij} < 0]|\, \frac{L_\kappa(u_{ij})}\kappa,
    \qquad u_{ij} = y_j - \theta_i, \quad \tau_i = \frac{2i + 1}{2N}$$

    with the `huber` loss L of threshold κ.

    Args:
        quantiles: [B, N] θ, the i-th for τ_i.
        targets: [B, M] y.
        threshold: κ.

    Returns:
        [B].

    Example:
        >>> quantile_huber(torch.tensor([[0.0, 0.0]]), torch.tensor([[2.0]])).item()
        1.5
    """
    n = quantiles.shape[1]
    tau = (torch.arange(n, device=quantiles.device, dtype=quantiles.dtype) + 0.5) / n
    errors = targets[:, None, :] - quantiles[:, :, None]
    slopes = (tau[:, None] - (errors.detach() < 0).to(errors.dtype)).abs()
    return (slopes * huber(errors, threshold)).mean(2).sum(1) / threshold
