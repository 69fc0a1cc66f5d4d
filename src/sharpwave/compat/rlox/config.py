"""Configurations, with rlox's defaults where they differ."""

from __future__ import annotations

from dataclasses import dataclass

from sharpwave.algorithms import A2CConfig, ppo, sac, td3

__all__ = ["A2CConfig", "PPOConfig", "SACConfig", "TD3Config"]


@dataclass(frozen=True, kw_only=True)
class PPOConfig(ppo.PPOConfig):
    """Options of PPO, with clipped values."""

    clip_vloss: bool = True
    """Clip the change of values by `clip_eps` too."""


@dataclass(frozen=True, kw_only=True)
class SACConfig(sac.SACConfig):
    """Options of SAC, with one number of hidden units."""

    hidden: tuple[int, ...] = 256  # type: ignore[assignment]
    """Width of the two hidden layers, or the width of each."""


@dataclass(frozen=True, kw_only=True)
class TD3Config(td3.TD3Config):
    """Options of TD3, with one number of hidden units."""

    hidden: tuple[int, ...] = 256  # type: ignore[assignment]
    """Width of the two hidden layers, or the width of each."""
