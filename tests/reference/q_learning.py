"""Losses of Q-learning and their gradients by plain loops."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sharpwave.types import Array

Weights = dict[str, Array]


def huber(error: float, threshold: float = 1.0) -> float:
    size = abs(error)
    if size <= threshold:
        return 0.5 * size**2
    return threshold * (size - 0.5 * threshold)


def project_categorical(probs: Array, rewards: Array, discounts: Array, atoms: Array) -> Array:
    """The projection of the atoms, each shared between the two nearest ones."""
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


def outputs(weights: Weights, obs: Array, n_actions: int, n_atoms: int) -> Array:
    """The outputs [B, n, n_atoms] for each action, of a network of these weights by name."""
    if "net.0.weight" in weights:
        return layers(weights, "net", obs).reshape(len(obs), n_actions, n_atoms)
    latent = layers(weights, "trunk", obs, activate_last=True)
    value = layers(weights, "value", latent).reshape(len(obs), 1, n_atoms)
    advantage = layers(weights, "advantage", latent).reshape(len(obs), n_actions, n_atoms)
    dueling = np.empty_like(advantage)
    for row in range(len(obs)):
        for atom in range(n_atoms):
            average = sum(advantage[row, :, atom]) / n_actions
            for action in range(n_actions):
                own = advantage[row, action, atom] - average
                dueling[row, action, atom] = value[row, 0, atom] + own
    return dueling


def layers(weights: Weights, name: str, x: Array, activate_last: bool = False) -> Array:
    numbers = sorted({int(key.split(".")[1]) for key in weights if key.startswith(f"{name}.")})
    for number in numbers:
        x = x @ weights[f"{name}.{number}.weight"].T + weights[f"{name}.{number}.bias"]
        if number != numbers[-1] or activate_last:
            x = np.maximum(x, 0.0)
    return x


def softmax(logits: Array) -> Array:
    shifted = np.exp(logits - logits.max(-1, keepdims=True))
    normalized: Array = shifted / shifted.sum(-1, keepdims=True)
    return normalized


def numerical_gradient(loss: Callable[[Weights], float], weights: Weights) -> Weights:
    """Central differences for every single weight."""
    step = 1e-6
    gradient = {}
    for name, array in weights.items():
        gradient[name] = np.zeros_like(array)
        for place in np.ndindex(array.shape):
            kept = array[place]
            array[place] = kept + step
            above = loss(weights)
            array[place] = kept - step
            below = loss(weights)
            array[place] = kept
            gradient[name][place] = (above - below) / (2 * step)
    return gradient
