"""Losses of actor-critic methods that learn from replay, in float64 NumPy, row by row.

A network is a list of layers (weight [in, out], bias [out]) with ReLUs between them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]
Layers = Sequence[tuple[Vector, Vector]]
BATCH_NORM_EPS = 1e-3


def mlp(layers: Layers, x: Vector) -> Vector:
    """The network's output for one input."""
    for weight, bias in layers[:-1]:
        x = np.maximum(x @ weight + bias, 0.0)
    weight, bias = layers[-1]
    return x @ weight + bias


def batch_normed_mlp(layers: Layers, norms: Layers, inputs: Vector) -> Vector:
    """The outputs for a batch that is normalized by its own statistics before every layer.

    Args:
        layers: The linear layers.
        norms: Scale and shift after each normalization.
        inputs: [B, in].
    """
    x = inputs
    for i, ((weight, bias), (scale, shift)) in enumerate(zip(layers, norms, strict=True)):
        x = (x - x.mean(0)) / np.sqrt(x.var(0) + BATCH_NORM_EPS) * scale + shift
        x = x @ weight + bias
        if i < len(layers) - 1:
            x = np.maximum(x, 0.0)
    return x


def squashed(mean: Vector, log_std: Vector, noise: Vector) -> tuple[Vector, float]:
    """tanh(mean + std noise) and its log-density."""
    raw = mean + np.exp(log_std) * noise
    log_prob = 0.0
    for u, e, s in zip(raw, noise, log_std, strict=True):
        normal = -0.5 * e * e - s - 0.5 * math.log(2 * math.pi)
        # log(1 - tanh(u)^2) = log 4 - 2|u| - 2 log(1 + exp(-2|u|))
        slope = math.log(4) - 2 * abs(u) - 2 * math.log1p(math.exp(-2 * abs(u)))
        log_prob += normal - slope
    return np.tanh(raw), log_prob


def sampled(actor: Layers, obs: Vector, noise: Vector) -> tuple[Vector, float]:
    """The action of a squashed actor with some noise, and its log-density."""
    mean, log_std = np.split(mlp(actor, obs), 2)
    return squashed(mean, np.clip(log_std, -20, 2), noise)


def value(critic: Layers, obs: Vector, action: Vector) -> Vector:
    """A critic's output for one action."""
    return mlp(critic, np.concatenate((obs, action)))


def softmax(logits: Vector, allowed: npt.NDArray[np.bool_]) -> Vector:
    """Probabilities of the allowed options, 0 of the others."""
    weights = np.where(allowed, np.exp(logits - logits[allowed].max()), 0.0)
    probs: Vector = weights / weights.sum()
    return probs


def entropy(probs: Vector) -> float:
    """−Σ p log p."""
    return -float(sum(p * math.log(p) for p in probs.tolist() if p > 0))


def gradient(loss: Callable[[Vector], float], at: Vector, step: float = 1e-6) -> Vector:
    """Central differences of a function of a vector."""
    found = np.empty_like(at)
    for i in range(len(at)):
        up, down = at.copy(), at.copy()
        up[i] += step
        down[i] -= step
        found[i] = (loss(up) - loss(down)) / (2 * step)
    return found
