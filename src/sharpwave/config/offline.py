"""Options of offline algorithms, which learn from a fixed dataset."""

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
    """Random seed of weights, batches and noise; when None, every run draws one of its own and
    keeps it in its configuration."""
    total_timesteps: int = 100_000
    """Number of gradient steps of `train()` when it is given none."""
    batch_size: int = 256
    """Batch size: number of steps of a gradient step."""
    learning_rate: ScheduleLike = 3e-4
    """Learning rate of the optimizers; may be a schedule over the run."""
    hidden: Hidden = (256, 256)
    """Widths of the hidden layers; one number stands for two layers. `{"actor": ..., "critic":
    ...}` gives each its own."""
    activation: ActivationName = "relu"
    """Activation of the hidden layers."""
    normalize_obs: bool | None = None
    """Normalize observations by their mean and standard deviation in the dataset. None does so
    where it can: for vectors of a dataset of this library."""
    reward_scale: float | Literal["returns"] = 1.0
    """Factor of rewards; "returns" scales them so that the returns of the dataset span 1000."""
    reward_shift: float = 0.0
    """Number added to rewards after `reward_scale`."""
    act_low: float | tuple[float, ...] | None = None
    """Lower bound of actions, of all dimensions or of each; by default that of the environment, or
    the lowest of the dataset."""
    act_high: float | tuple[float, ...] | None = None
    """Upper bound of actions likewise. With one bound alone the other is its negative."""
    log_interval: int = 100
    """Number of gradient steps between two reports of metrics."""
    compile: bool = False
    """Compile the losses with `torch.compile`."""
    cuda_graph: bool = False
    """Replay gradient steps as CUDA graphs, on a CUDA device."""

    aliases: ClassVar[dict[str, str]] = {"n_gradient_steps": "total_timesteps"}

    def check(self) -> None:
        """Check the values."""
        super().check()
        self.require_positive("batch_size", "log_interval")
        self.require_range("learning_rate", 0)
