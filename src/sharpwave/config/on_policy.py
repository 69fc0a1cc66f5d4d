"""Options of algorithms that learn from their own latest rollout."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from sharpwave.config.network import ActivationName, Hidden, NetworkOptions
from sharpwave.config.online import OnlineConfig
from sharpwave.config.schedules import Linear, ScheduleLike, value_at

__all__ = ["ClippedConfig", "OnPolicyConfig", "RolloutConfig"]


@dataclass(frozen=True, kw_only=True)
class RolloutConfig(NetworkOptions, OnlineConfig):
    """Options of every algorithm that learns a policy and its values from rollouts."""

    n_steps: int = 128
    """Steps of each environment in a rollout."""
    learning_rate: ScheduleLike = 2.5e-4
    """Step size of the optimiser; a schedule follows the progress of the run."""
    anneal_lr: bool = False
    """Let a constant learning rate fall linearly to 0 over the run."""
    vf_coef: float = 0.5
    """Weight of the value loss."""
    ent_coef: float = 0.01
    """Weight of the entropy bonus."""
    max_grad_norm: float = 0.5
    """Longest gradient; longer ones are scaled down to it."""
    hidden: Hidden = (64, 64)
    """Widths of the hidden layers; one number stands for two layers. `{"actor": ..., "critic":
    ...}` gives each its own."""
    activation: ActivationName = "tanh"
    """Activation of the hidden layers."""
    ortho_init: bool = True
    """Start from orthogonal weights and zero biases; otherwise from the uniform ones of torch's
    layers."""
    log_std_init: float = 0.0
    """Logarithm of the first standard deviation of continuous actions."""
    squash_actions: bool = False
    """Keep continuous actions in bounds by tanh, scale and bias; otherwise by clipping."""
    use_gsde: bool = False
    """Explore by generalized state-dependent noise."""
    sde_sample_freq: int = -1
    """Steps between new noise of gSDE; -1 draws it once a rollout."""
    recurrent: Literal["lstm", "gru"] | None = None
    """Give the policy a memory."""
    recurrent_size: int = 64
    """Size of that memory."""
    critic_obs: str | None = None
    """Key of a Dict observation that the critic looks at in place of the others, which the actor
    looks at: what only a simulator knows. Playing does without it."""
    feature_norm: bool = False
    """Pass the inputs of the networks through layer normalization."""

    def check(self) -> None:
        """Check the values."""
        super().check()
        self.require_positive("n_steps", "max_grad_norm", "recurrent_size")
        self.require_range("vf_coef", 0)
        self.require_range("learning_rate", 0)
        if self.sde_sample_freq < 1 and self.sde_sample_freq != -1:
            raise ValueError(f"sde_sample_freq must be positive or -1, got {self.sde_sample_freq}")

    @property
    def rate(self) -> ScheduleLike:
        """The learning rate, which falls to 0 where that is asked for."""
        if self.anneal_lr and isinstance(self.learning_rate, int | float):
            return Linear(self.learning_rate, 0.0)
        return self.learning_rate

    @property
    def rows(self) -> int:
        """Rows of an update."""
        return self.n_envs * self.n_steps

    @property
    def minibatch(self) -> int:
        """Rows of a gradient step."""
        return self.rows


@dataclass(frozen=True, kw_only=True)
class OnPolicyConfig(RolloutConfig):
    """Options of every on-policy algorithm."""

    gae_lambda: float = 0.95
    """λ of generalized advantage estimation: 0 trusts the values, 1 the rewards."""

    def check(self) -> None:
        """Check the values."""
        super().check()
        self.require_range("gae_lambda", 0, 1)


@dataclass(frozen=True, kw_only=True)
class ClippedConfig(RolloutConfig):
    """Options of every algorithm with a clipped surrogate objective."""

    n_epochs: int = 4
    """Passes over each rollout."""
    batch_size: int = 256
    """Steps in a minibatch; recurrent policies take whole environments of about that many."""
    clip_eps: ScheduleLike = 0.2
    """How far the ratio of new to old probability may move with gain."""
    clip_vloss: bool = False
    """Clip the change of values by `clip_eps` too."""
    clip_range_vf: ScheduleLike | None = None
    """Clip the change of values by a range of their own, with or without `clip_vloss`."""
    normalize_advantages: bool = True
    """Give the advantages of each minibatch mean 0 and deviation 1."""
    anneal_lr: bool = True
    """Let a constant learning rate fall linearly to 0 over the run."""
    target_kl: float | None = None
    """Skip the rest of an update once the policy has moved by 1.5 times this divergence."""
    compile: bool = False
    """Compile the loss with torch.compile."""

    aliases: ClassVar[dict[str, str]] = {**RolloutConfig.aliases, "clip_range": "clip_eps"}

    def check(self) -> None:
        """Check the values."""
        super().check()
        self.require_positive("n_epochs", "batch_size", "clip_eps", "clip_range_vf", "target_kl")

    @property
    def minibatch(self) -> int:
        """Rows of a gradient step."""
        return min(self.batch_size, self.rows)

    @property
    def clips_values(self) -> bool:
        """Whether the change of values is clipped."""
        return self.clip_vloss or self.clip_range_vf is not None

    def clip_ranges(self, progress_remaining: float) -> tuple[float, float]:
        """How far ratios and values may move, at a point of the run."""
        clip = value_at(self.clip_eps, progress_remaining)
        if self.clip_range_vf is None:
            return clip, clip
        return clip, value_at(self.clip_range_vf, progress_remaining)
