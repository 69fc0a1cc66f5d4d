"""Options of algorithms that learn in an environment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from sharpwave.config.options import AlgorithmConfig

__all__ = ["OnlineConfig"]


@dataclass(frozen=True, kw_only=True)
class OnlineConfig(AlgorithmConfig):
    """Options of every algorithm that acts in an environment."""

    n_envs: int = 8
    """Number of environments."""
    total_timesteps: int = 100_000
    """Environment steps of `train()` when it is given none."""
    normalize_obs: bool = False
    """Scale observations by their running mean and deviation."""
    normalize_rewards: bool = False
    """Scale rewards by the running deviation of the discounted return."""
    env_mode: Literal["auto", "native", "sync", "async"] = "auto"
    """Environments in this process or in processes of their own."""

    aliases: ClassVar[dict[str, str]] = {"normalize_reward": "normalize_rewards"}

    def check(self) -> None:
        """Check the values."""
        super().check()
        self.require_positive("n_envs")
