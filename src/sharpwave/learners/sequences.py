"""Batches of sequences: what a world model learns from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["SequenceBatch"]


@dataclass(frozen=True)
class SequenceBatch:
    """Sequences [T, B] of observations, each with what led to it.

    Attributes:
        obs: [T, B, ...], nested as the space.
        prev_actions: [T, B, ...] the action that led to each observation, as the learner has them.
        rewards: [T, B] the reward that arrived with it; 0 where an episode begins.
        is_first: [T, B] bool, where an episode begins.
        is_last: [T, B] bool, where it ends, terminated or not.
        is_terminal: [T, B] bool, where nothing follows.
        deter: [B, ...] what a model remembered before the sequence; None where nothing is kept.
        stoch: [B, latents] its latent classes then.
        indices: [T, B] ids of the steps; None where nobody rewrites them.
    """

    obs: Any
    prev_actions: Any
    rewards: Any
    is_first: Any
    is_last: Any
    is_terminal: Any
    deter: Any = None
    stoch: Any = None
    indices: Any = None
