"""Configurations, with rlox's defaults where they differ."""

from __future__ import annotations

from dataclasses import dataclass

from sharpwave.algorithms import A2CConfig, ppo

__all__ = ["A2CConfig", "PPOConfig"]


@dataclass(frozen=True, kw_only=True)
class PPOConfig(ppo.PPOConfig):
    """Options of PPO, with clipped values."""

    clip_vloss: bool = True
    """Clip the change of values by `clip_eps` too."""
