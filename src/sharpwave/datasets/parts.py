"""Parts of a dataset: the steps or episodes that one policy contributes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sharpwave.datasets.action_noise import Noise

__all__ = ["Part"]


@dataclass(frozen=True)
class Part:
    """A number of steps or episodes of one policy.

    Raises:
        TypeError, ValueError: Neither `n_steps` nor `n_episodes` is given, or both, or one of them
            is no count.

    Example:
        >>> Part("expert", n_episodes=40, noise=1.0)
        Part(policy='expert', n_steps=None, n_episodes=40, noise=1.0, deterministic=True)
    """

    policy: Any = "random"
    """"random"; "expert", the scripted one; an algorithm; or a function from observations [N, ...]
    to actions [N, ...] as the environment takes them."""
    n_steps: int | None = None
    """Steps, exactly: the episode that they cut is truncated there. Either this or `n_episodes`."""
    n_episodes: int | None = None
    """Whole episodes."""
    noise: float | Noise | None = None
    """A `GaussianNoise` or an `EpsilonNoise` on the actions; a number stands for the first in a Box
    of actions, for the second elsewhere."""
    deterministic: bool = True
    """An algorithm plays the mode of its policy, not samples of it."""

    def __post_init__(self) -> None:
        if (self.n_steps is None) == (self.n_episodes is None):
            raise TypeError("either n_steps or n_episodes must be given")
        name = "n_episodes" if self.n_steps is None else "n_steps"
        value = self.count
        if isinstance(value, bool) or not isinstance(value, int | np.integer):
            raise TypeError(f"{name} must be an integer, got {value!r}")
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")

    @property
    def count(self) -> int:
        """The number of steps or episodes, whichever is given."""
        given = self.n_episodes if self.n_steps is None else self.n_steps
        assert given is not None
        return given

    def to_json(self) -> dict[str, Any]:
        """The part in words and numbers."""
        found = {
            "policy": self.policy_name,
            "n_steps": self.n_steps,
            "n_episodes": self.n_episodes,
            "noise": self.noise if isinstance(self.noise, int | float) else str(self.noise),
            "deterministic": self.deterministic,
        }
        left_out = {"noise"} if self.noise is None else set()
        if not hasattr(self.policy, "player"):
            left_out.add("deterministic")
        return {
            name: value
            for name, value in found.items()
            if value is not None and name not in left_out
        }

    @property
    def policy_name(self) -> str:
        """The policy in a word."""
        if isinstance(self.policy, str):
            return self.policy
        name = getattr(self.policy, "name", None) or getattr(self.policy, "__name__", None)
        return str(name or type(self.policy).__name__)
