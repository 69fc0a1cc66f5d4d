"""Policies of torch for learners elsewhere, which name an algorithm and its options."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sharpwave.algorithms.registry import algorithm_class
from sharpwave.learners.actor import FollowerRecipe, FollowingActor
from sharpwave.learners.columns import declared_columns
from sharpwave.loops.actor_learner import ActorLearnerLoop

__all__ = ["NamedFollower", "follower_of"]

LIBRARY = __name__.partition(".")[0]
MOST_WEIGHTS = 2**28
"""Maximum number of weights in a message."""


@dataclass(frozen=True)
class NamedFollower:
    """Makes followers of a learner of this library; torch is imported where one is made.

    Attributes:
        algorithm: Its name.
        config: Its options.
        size: How many weights it has where it learns.
    """

    algorithm: str
    config: Any
    size: int

    def __call__(self, env: Any, seed: int) -> FollowingActor:
        """A follower in some environments.

        Raises:
            ValueError: It has another number of weights here.
        """
        kind: Any = algorithm_class(self.algorithm)
        spaces = env.single_observation_space, env.single_action_space
        learner = kind.Learner(self.config, *spaces, device="cpu")
        found = learner.weights().size
        if found != self.size:
            raise ValueError(
                f"{self.algorithm} must have {self.size} weights as the learner's has, got {found}"
            )
        return FollowerRecipe(learner, declared_columns(learner))(env, seed)

    def n_weights(self, env: Any) -> int:  # noqa: ARG002
        """Size of its weights."""
        return self.size

    def to_json(self) -> dict[str, Any]:
        """The description as JSON values."""
        config = self.config.to_dict()
        return {"algorithm": self.algorithm, "config": config, "n_weights": self.size}


def follower_of(saved: Mapping[str, Any]) -> NamedFollower:
    """The factory of the followers that a remote learner describes.

    Args:
        saved: The result of `FollowerRecipe.to_json` there; it is not trusted but validated.

    Raises:
        ImportError: torch is not installed.
        TypeError: An option is unknown or of another type.
        ValueError: It is no algorithm of this library with actors, or an option cannot be.
    """
    kind: Any = algorithm_class(str(saved["algorithm"]))
    is_ours = kind.__module__.partition(".")[0] == LIBRARY
    if not is_ours or getattr(kind, "Loop", None) is not ActorLearnerLoop:
        raise ValueError(f"algorithm must be one with actors, got {saved['algorithm']!r}")
    size = saved["n_weights"]
    if type(size) is not int or not 0 < size < MOST_WEIGHTS:
        raise ValueError(f"n_weights must be from 1 to {MOST_WEIGHTS}, got {size!r}")
    config = kind.Config.from_dict(saved["config"])
    if importlib.util.find_spec("torch") is None:
        raise ImportError(f"torch must be installed to act for {kind.name} with these networks")
    return NamedFollower(kind.name, config, size)
