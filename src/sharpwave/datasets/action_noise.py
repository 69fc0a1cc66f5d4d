"""Noise on the actions of a policy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from sharpwave.types import Array

__all__ = ["EpsilonNoise", "GaussianNoise", "Noise", "as_noise"]


class Noise(Protocol):
    """Changes actions before the environment takes them."""

    def apply(
        self, actions: Array, generator: np.random.Generator, random: Callable[[], Array]
    ) -> Array:
        """Changed actions.

        Args:
            actions: [N, ...], as the environment takes them; not to be written to.
            generator: Random generator.
            random: Gives actions [N, ...] drawn from the action space.
        """


@dataclass(frozen=True)
class GaussianNoise:
    """Gaussian noise: adds N(0, std²) to each dimension of a Box action, clipped to its bounds.

    Attributes:
        std: In the units of the action.
    """

    std: float

    def __post_init__(self) -> None:
        if not (np.isfinite(self.std) and self.std >= 0):
            raise ValueError(f"std must be a number of at least 0, got {self.std}")

    def apply(
        self,
        actions: Array,
        generator: np.random.Generator,
        random: Callable[[], Array],  # noqa: ARG002 - the interface of all noise
    ) -> Array:
        """The actions with noise added."""
        noisy: Array = actions + self.std * generator.standard_normal(actions.shape)
        return noisy.astype(actions.dtype)


@dataclass(frozen=True)
class EpsilonNoise:
    """Epsilon-greedy noise: with probability epsilon, a random action of the space instead.

    Attributes:
        epsilon: From 0 to 1.
    """

    epsilon: float

    def __post_init__(self) -> None:
        if not 0 <= self.epsilon <= 1:
            raise ValueError(f"epsilon must be between 0 and 1, got {self.epsilon}")

    def apply(
        self, actions: Array, generator: np.random.Generator, random: Callable[[], Array]
    ) -> Array:
        """The actions with some of them replaced."""
        changed = generator.random(len(actions)) < self.epsilon
        mask = changed.reshape(-1, *[1] * (actions.ndim - 1))
        return np.where(mask, random(), actions)


def as_noise(noise: float | Noise | None, action_space: Any) -> Noise | None:
    """The noise that was asked for, which may be a number: see `Part`.

    Raises:
        TypeError: It is neither a number nor noise.
        ValueError: It has an impossible value, or does not go with the action space.
    """
    from gymnasium.spaces import Box

    is_box = isinstance(action_space, Box)
    if isinstance(noise, int | float) and not isinstance(noise, bool):
        return GaussianNoise(noise) if is_box else EpsilonNoise(noise)
    if noise is None:
        return None
    if isinstance(noise, bool) or not hasattr(noise, "apply"):
        raise TypeError(f"noise must be a number or a Noise, got {noise!r}")
    if isinstance(noise, GaussianNoise) and not is_box:
        raise ValueError(f"noise must be an EpsilonNoise for {action_space}, got {noise}")
    return noise
