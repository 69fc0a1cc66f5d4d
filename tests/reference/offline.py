"""Losses of the offline algorithms in plain NumPy, from the papers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sharpwave.types import Array

Layers = Sequence[tuple[Array, Array]]
"""Weights [in, out] and biases [out]."""


def relu_mlp(x: Array, layers: Layers) -> Array:
    """Linear layers with max(0, x) between them."""
    for i, (weight, bias) in enumerate(layers):
        x = x @ weight + bias
        if i < len(layers) - 1:
            x = np.maximum(x, 0.0)
    return x


def q_values(obs: Array, actions: Array, critics: Sequence[Layers]) -> Array:
    """[n, B]."""
    x = np.concatenate((obs, actions), -1)
    return np.stack([relu_mlp(x, layers)[:, 0] for layers in critics])


def squared_errors(values: Array, targets: Array) -> float:
    """Σ_i mean((Q_i - y)²)."""
    return float(sum(np.mean((row - targets) ** 2) for row in values))


def td3_bc_actor(obs: Array, data: Array, actor: Layers, critic: Layers, alpha: float) -> float:
    """-λ mean(Q) + mean((π - a)²)."""
    actions = np.tanh(relu_mlp(obs, actor))
    values = q_values(obs, actions, [critic])[0]
    scale = alpha / np.mean(np.abs(values))
    return float(-scale * values.mean() + np.mean((actions - data) ** 2))


def expectile_loss(differences: Array, expectile: float) -> float:
    """Mean of τ u² where u > 0 and (1 - τ) u² elsewhere."""
    squares = [u * u * (expectile if u > 0 else 1 - expectile) for u in differences]
    return float(np.mean(squares))


def weighted_cloning(
    obs: Array, data: Array, actor: Layers, log_std: Array | None, weights: Array
) -> float:
    """Mean of the weighted negative log-likelihood, or squared distance without a deviation."""
    mean = np.tanh(relu_mlp(obs, actor))
    if log_std is None:
        distances = ((mean - data) ** 2).sum(-1)
    else:
        density = np.exp(-0.5 * ((data - mean) / np.exp(log_std)) ** 2)
        density = density / (np.exp(log_std) * np.sqrt(2 * np.pi))
        distances = -np.log(density).sum(-1)
    return float(np.mean(weights * distances))


def cql_gap(values_of_data: Array, values_of_others: Array, densities: Array | None) -> float:
    """Σ_i mean(log Σ_j exp(Q_i(s, b_j)) / μ_j - Q_i(s, a)); [n, B], [n, k, B], [k, B].

    Without densities the actions of the data are among the others.
    """
    total = 0.0
    for data, others in zip(values_of_data, values_of_others, strict=True):
        for j in range(len(data)):
            if densities is None:
                terms = np.exp([data[j], *others[:, j]])
            else:
                terms = np.exp(others[:, j]) / np.exp(densities[:, j])
            total += (np.log(terms.sum()) - data[j]) / len(data)
    return total


def squashed_log_prob(raw: Array, mean: Array, log_std: Array) -> Array:
    """Log-density of tanh(raw), raw normal, by the change of variables."""
    normal = -0.5 * ((raw - mean) / np.exp(log_std)) ** 2 - log_std - 0.5 * np.log(2 * np.pi)
    total: Array = (normal - np.log(1 - np.tanh(raw) ** 2)).sum(-1)
    return total
