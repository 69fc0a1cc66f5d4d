"""Learners with tiny networks, a batch that no environment had a part in, and their weights."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces

from sharpwave.learners.replay import ReplayBatch
from tests.reference.actor_critic import Layers, Vector

ROWS, OBS, ACTIONS, CHOICES = 6, 3, 2, 4
HIDDEN = (5, 4)


class Spaces(gym.Env[Any, Any]):
    """Says what observations and actions are, and is never stepped."""

    observation_space = spaces.Box(-np.inf, np.inf, (OBS,), np.float32)

    def __init__(self, discrete: bool) -> None:
        low, high = np.array([0.0, -5.0], np.float32), np.array([1.0, 5.0], np.float32)
        self.action_space = spaces.Discrete(CHOICES) if discrete else spaces.Box(low, high)


def make(cls: Any, **options: Any) -> Any:
    """The learner of an algorithm, whose rates are 0: gradients are those of its weights."""
    discrete = cls.__name__ == "DiscreteSAC"
    options = {"hidden": HIDDEN, "seed": 3, "backend": "torch", **options}
    learner = cls(partial(Spaces, discrete=discrete), **options).learner
    for optimizer in learner.optimizers.values():
        optimizer.set_lr(0.0)
    learner._followed = None  # so that `follow` sets them again
    if cls.__name__ != "CrossQ":  # whose normalizations are to begin with scales of 1
        learner.flats["critics"].data.mul_(2.5)  # so few layers would say next to nothing
    return learner


def batch(*, discrete: bool = False, weighted: bool = False, masked: bool = False) -> ReplayBatch:
    """Six steps, of which the second terminated."""
    rng = np.random.default_rng(7)

    def tensor(array: Any) -> torch.Tensor:
        return torch.from_numpy(np.asarray(array, np.float32))

    discounts = np.full(ROWS, 0.9)
    discounts[1] = 0.0
    masks = rng.random((2, ROWS, CHOICES)) < 0.6
    masks[:, :, 2] = True
    actions: torch.Tensor = tensor(rng.uniform(-1, 1, (ROWS, ACTIONS)))
    if discrete:
        actions = torch.full((ROWS,), 2) if masked else torch.from_numpy(rng.integers(4, size=ROWS))
    return ReplayBatch(
        obs=tensor(rng.normal(size=(ROWS, OBS))),
        actions=actions,
        rewards=tensor(3 * rng.normal(size=ROWS)),
        next_obs=tensor(rng.normal(size=(ROWS, OBS))),
        discounts=tensor(discounts),
        weights=tensor(rng.uniform(0.2, 1.0, ROWS)) if weighted else None,
        masks=torch.from_numpy(masks[0]) if masked else None,
        next_masks=torch.from_numpy(masks[1]) if masked else None,
    )


def rows(tensor: torch.Tensor) -> Any:
    """The same numbers in float64."""
    array = tensor.detach().numpy()
    return array.astype(np.float64) if array.dtype.kind == "f" else array


def noises(learner: Any, count: int) -> Iterator[Vector]:
    """The normal numbers [B, d] that the next draws of the learner's generator will be."""
    twin = torch.Generator()
    twin.set_state(learner.generator.get_state())
    for _ in range(count):
        yield rows(torch.empty(ROWS, ACTIONS).normal_(generator=twin))


def actor_layers(flat: Vector, sizes: Sequence[int]) -> Layers:
    """The layers of an actor from its flat parameters, whose weights are [out, in]."""
    layers, start = [], 0
    for size, next_size in itertools.pairwise(sizes):
        middle, end = start + size * next_size, start + (size + 1) * next_size
        layers.append((flat[start:middle].reshape(next_size, size).T, flat[middle:end]))
        start = end
    assert start == len(flat)
    return layers


def critic_layers(flat: Vector, n: int, sizes: Sequence[int]) -> list[Layers]:
    """The layers of n stacked critics from their flat parameters."""
    stacked, start = [], 0
    for size, next_size in itertools.pairwise(sizes):
        middle, end = start + n * size * next_size, start + n * (size + 1) * next_size
        weights = flat[start:middle].reshape(n, size, next_size)
        stacked.append((weights, flat[middle:end].reshape(n, next_size)))
        start = end
    assert start == len(flat)
    return [[(weight[i], bias[i]) for weight, bias in stacked] for i in range(n)]
