"""Losses of Q-learning: of values, of distributions on fixed atoms, and of quantiles.

They give one number for each row. Rows drawn by priority are weighed before their mean is taken,
which `weighted_mean` does, and the numbers themselves tell how surprising a row was.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import huber_loss, pad

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

    The probability of an atom goes to the two neighbors of where it lands, by distance:

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
    last = len(atoms) - 1
    landed = torch.addcmul(rewards[:, None], discounts[:, None], atoms)
    positions = ((landed - atoms[0]) / (atoms[1] - atoms[0])).clamp_(0, last)
    below = positions.floor().clamp_(max=last - 1)
    above_share = probs * (positions - below)
    slots = below.long()
    projected = torch.zeros_like(probs).scatter_add_(1, slots, probs - above_share)
    return projected.scatter_add_(1, slots + 1, above_share)


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
    # Sums over the sorted targets stand for all N M pairs, which would take ten times as long. They
    # are float64: their differences are small.
    n, m = quantiles.shape[1], targets.shape[1]
    points = quantiles.detach()
    ordered = targets.sort(1).values
    bounds = torch.cat((points - threshold, points, points + threshold), 1)
    places = torch.searchsorted(ordered, bounds)
    ordered = ordered.double()
    sums, squares = (pad(x.cumsum(1), (1, 0)) for x in (ordered, ordered.square()))
    parts = (places, sums.gather(1, places), squares.gather(1, places))
    below_bounds = [part.split(n, 1) for part in parts]  # number, sum, sum of squares of targets
    theta = quantiles.double()

    def near(i: int) -> Tensor:
        """Σ ½(y − θ)² of the targets from the i-th bound to the next."""
        count, total, square = (below[i + 1] - below[i] for below in below_bounds)
        halves: Tensor = 0.5 * (square + count * theta.square()) - theta * total
        return halves

    half, (counts, totals, _) = 0.5 * threshold, below_bounds
    far_below = threshold * (counts[0] * (theta - half) - totals[0])
    far_above = threshold * (sums[:, -1:] - totals[2] - (m - counts[2]) * (theta + half))
    tau = (torch.arange(n, device=theta.device) + 0.5) / n
    rows: Tensor = (1.0 - tau) * (far_below + near(0)) + tau * (near(1) + far_above)
    return (rows.sum(1) / (m * threshold)).to(quantiles.dtype)
