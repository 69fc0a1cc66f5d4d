"""Losses of Q-learning and their gradients by plain loops."""

from __future__ import annotations

import numpy as np

from sharpwave.types import Array


def huber(error: float, threshold: float = 1.0) -> float:
    size = abs(error)
    if size <= threshold:
        return 0.5 * size**2
    return threshold * (size - 0.5 * threshold)


def project_categorical(probs: Array, rewards: Array, discounts: Array, atoms: Array) -> Array:
    """Where the atoms land, each shared between the two nearest ones."""
    projected = np.zeros_like(probs)
    low, high, n = atoms[0], atoms[-1], len(atoms)
    for row, (reward, discount) in enumerate(zip(rewards, discounts, strict=True)):
        for j in range(n):
            landed = min(max(reward + discount * atoms[j], low), high)
            position = (landed - low) / (high - low) * (n - 1)
            below = min(int(np.floor(position)), n - 1)
            above = min(below + 1, n - 1)
            share = position - below
            projected[row, below] += probs[row, j] * (1 - share)
            projected[row, above] += probs[row, j] * share
    return projected


def quantile_huber(quantiles: Array, targets: Array, threshold: float = 1.0) -> Array:
    rows, n = quantiles.shape
    losses = np.zeros(rows)
    for row in range(rows):
        for i in range(n):
            tau = (2 * i + 1) / (2 * n)
            for target in targets[row]:
                error = target - quantiles[row, i]
                slope = 1 - tau if error < 0 else tau
                losses[row] += slope * huber(error, threshold) / threshold / targets.shape[1]
    return losses
