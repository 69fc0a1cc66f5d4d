"""World models' losses and optimizer, in plain loops of double precision."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def softmax(logits: Floats) -> Floats:
    shifted = np.exp(logits - logits.max(-1, keepdims=True))
    return np.asarray(shifted / shifted.sum(-1, keepdims=True))


def bins(n: int, limit: float) -> Floats:
    half = [math.copysign(math.expm1(abs(x)), x) for x in np.linspace(-limit, 0.0, n // 2 + 1)]
    return np.array(half[:-1] + [0.0] + [-x for x in half[-2::-1]])


def two_hot_loss(logits: Floats, target: float, places: Floats) -> float:
    target = min(max(target, places[0]), places[-1])
    weights = np.zeros(len(places))
    for i in range(len(places) - 1):
        if places[i] <= target <= places[i + 1]:
            share = (target - places[i]) / (places[i + 1] - places[i])
            weights[:] = 0.0
            weights[i], weights[i + 1] = 1.0 - share, share
    return float(-(weights * np.log(softmax(logits))).sum())


def kl(p: Floats, q: Floats) -> float:
    return float((p * (np.log(p) - np.log(q))).sum())


def lambda_returns(
    rewards: Floats, values: Floats, continues: Floats, last: float, lam: float, cuts: Floats
) -> Floats:
    found, following = [], last
    for t in range(len(rewards) - 2, -1, -1):
        share = 0.0 if cuts[t + 1] else lam
        mixed = (1.0 - share) * values[t + 1] + share * following
        following = rewards[t + 1] + continues[t + 1] * mixed
        found.append(following)
    return np.array(found[::-1])


def laprop(
    tensors: list[Floats],
    grads: list[list[Floats]],
    *,
    lr: float,
    agc: float | None,
    warmup: int,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-20,
) -> list[Floats]:
    """The tensors after one step for each list of gradients."""
    tensors = [x.copy() for x in tensors]
    square: list[Any] = [np.zeros_like(x) for x in tensors]
    momentum: list[Any] = [np.zeros_like(x) for x in tensors]
    for t, step in enumerate(grads):
        for i, grad in enumerate(step):
            g = grad.copy()
            length = math.sqrt((g**2).sum())
            if agc is not None:
                longest = agc * max(math.sqrt((tensors[i] ** 2).sum()), 1e-3)
                g *= min(1.0, longest / max(length, 1e-6))
            square[i] = betas[1] * square[i] + (1 - betas[1]) * g**2
            root = np.sqrt(square[i] / (1 - betas[1] ** (t + 1))) + eps
            momentum[i] = betas[0] * momentum[i] + (1 - betas[0]) * g / root
            rate = lr * (min(1.0, t / warmup) if warmup else 1.0)
            tensors[i] = tensors[i] - rate * momentum[i] / (1 - betas[0] ** (t + 1))
    return tensors
