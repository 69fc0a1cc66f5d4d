"""Rewards before normalization."""

from __future__ import annotations

from sharpwave.envs import Step
from sharpwave.types import Array


def raw_rewards(step: Step) -> Array:
    """Rewards as the environment gave them, before any normalization."""
    rewards: Array = step.infos.get("raw_rewards", step.rewards)
    return rewards
