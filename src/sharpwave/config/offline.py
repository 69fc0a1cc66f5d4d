"""Options of algorithms that learn from a fixed dataset."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from sharpwave.config.network import ActivationName, Hidden, NetworkOptions
from sharpwave.config.options import AlgorithmConfig
from sharpwave.config.schedules import ScheduleLike

__all__ = ["OfflineConfig"]


@dataclass(frozen=True, kw_only=True)
class OfflineConfig(NetworkOptions, AlgorithmConfig):
    """Options of every offline algorithm."""

    seed: int | None = None
    """Seed of weights, draws and noise; every run draws one of its own when None, and keeps it in
    its configuration."""
    total_timesteps: int = 100_000
    """Gradient steps of `train()` when it is given none."""
    batch_size: int = 256
    """Steps of a gradient step."""
    learning_rate: ScheduleLike = 3e-4
    """Step size of the optimisers; a schedule follows the progress of the run."""
    hidden: Hidden = (256, 256)
    """Widths of the hidden layers; one number stands for two layers. `{"actor": ..., "critic":
    ...}` gives each its own."""
    activation: ActivationName = "relu"
    """Activation of the hidden layers."""
    normalize_obs: bool | None = None
    """Scale observations by their mean and deviation in the dataset. None does so where it can:
    where they are vectors, of a dataset of this library."""
    reward_scale: float | Literal["returns"] = 1.0
    """What rewards are multiplied by; "returns" lets the returns of the dataset span 1000."""
    reward_shift: float = 0.0
    """What is added to rewards then."""
    act_low: float | tuple[float, ...] | None = None
    """Lowest action, of all dimensions or of each; that of the environment when none is given, or
    of the dataset."""
    act_high: float | tuple[float, ...] | None = None
    """Highest action likewise. With one bound alone the other is its negative."""
    log_interval: int = 100
    """Gradient steps between two reports of metrics."""
    compile: bool = False
    """Compile the losses with torch.compile."""
    cuda_graph: bool = False
    """Replay gradient steps as CUDA graphs, on a CUDA device."""

    aliases: ClassVar[dict[str, str]] = {"n_gradient_steps": "total_timesteps"}

    def check(self) -> None:
        """Check the values."""
        super().check()
        self.require_positive("batch_size", "log_interval")
        self.require_range("learning_rate", 0)
