"""Options of on-policy algorithms, which learn from their own latest rollout."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from sharpwave.config.convert import convert
from sharpwave.config.network import ActivationName, Hidden, NetworkOptions
from sharpwave.config.online import OnlineConfig
from sharpwave.config.schedules import Adaptive, Linear, RateLike, ScheduleLike, value_at

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["ClippedConfig", "OnPolicyConfig", "RolloutConfig"]


def _read_groups(given: Any) -> dict[str, tuple[str, ...]]:
    """Keys by group, for both groups; the critic looks at the policy's where it has none."""
    if not isinstance(given, Mapping):
        raise TypeError(f"obs_groups must be keys by group, got {given!r}")
    named = {"policy" if name == "actor" else name: keys for name, keys in given.items()}
    if not {"policy"} <= named.keys() <= {"policy", "critic"}:
        raise ValueError(f"obs_groups must name policy and critic, got {list(given)}")
    groups: dict[str, tuple[str, ...]] = {}
    for name, keys in named.items():
        groups[name] = convert(keys, tuple[str, ...])
        if not groups[name] or len(set(groups[name])) < len(groups[name]):
            raise ValueError(f"obs_groups[{name!r}] must be different keys, got {keys!r}")
    return {"policy": groups["policy"], "critic": groups.get("critic", groups["policy"])}


def _log_of_std(std: float) -> float:
    if not std > 0:
        raise ValueError(f"init_noise_std must be greater than 0, got {std}")
    return math.log(std)


@dataclass(frozen=True, kw_only=True)
class RolloutConfig(NetworkOptions, OnlineConfig):
    """Options of every algorithm that learns a policy and its values from rollouts."""

    n_steps: int = 128
    """Number of steps of each environment in a rollout."""
    learning_rate: ScheduleLike = 2.5e-4
    """Learning rate of the optimizer; may be a schedule over the run."""
    anneal_lr: bool = False
    """Anneal a constant learning rate linearly to 0 over the run."""
    vf_coef: float = 0.5
    """Coefficient of the value loss."""
    ent_coef: float = 0.01
    """Entropy coefficient: factor of the entropy bonus in the loss."""
    max_grad_norm: float = 0.5
    """Maximum norm of the gradient; larger gradients are scaled down."""
    hidden: Hidden = (64, 64)
    """Widths of the hidden layers; one number stands for two layers. `{"actor": ..., "critic":
    ...}` gives each its own."""
    activation: ActivationName = "tanh"
    """Activation of the hidden layers."""
    ortho_init: bool = True
    """Orthogonal initialization with zero biases; otherwise the uniform default of torch's
    layers."""
    log_std_init: float = 0.0
    """Initial logarithm of the standard deviation of continuous actions; `init_noise_std` says the
    deviation itself."""
    noise_std_type: Literal["log", "scalar"] = "log"
    """Parameter of the standard deviation of continuous actions: its logarithm, or itself."""
    clip_actions: float | None = None
    """Clip continuous actions to ±this, within their bounds, before the environment takes them."""
    squash_actions: bool = False
    """Squash continuous actions into their bounds by tanh, action scale and bias; otherwise clip
    them."""
    use_gsde: bool = False
    """Generalized state-dependent exploration (gSDE) of continuous actions."""
    sde_sample_freq: int = -1
    """Number of steps after which gSDE resamples its noise; -1 does so once a rollout."""
    recurrent: Literal["lstm", "gru"] | None = None
    """Recurrent layer of the policy, which gives it a memory; None for none."""
    recurrent_size: int = 64
    """Size of the recurrent state."""
    critic_obs: str | None = None
    """Asymmetric actor-critic: key of a Dict observation that only the critic sees (privileged
    information), while the actor sees the others. Playing does without it."""
    obs_groups: dict[str, Any] | None = None
    """Keys of a Dict observation that the actor and the critic look at, side by side in this order:
    `{"policy": ["policy"], "critic": ["policy", "state"]}`. Playing does without the others."""
    normalize_obs: bool | Literal["policy"] = False  # type: ignore[assignment]
    """Normalize observations by their running mean and standard deviation, beside the environment,
    or inside the "policy": by statistics of each network's input, on its device, which change after
    an update. Of environments that step tensors they are the policy's in any case."""
    feature_norm: bool = False
    """Layer normalization of the inputs of the networks."""

    aliases: ClassVar[dict[str, str]] = {
        **OnlineConfig.aliases,
        "use_sde": "use_gsde",
        "num_steps_per_env": "n_steps",
        "entropy_coef": "ent_coef",
    }
    converted: ClassVar[dict[str, tuple[str, Callable[[float], float]]]] = {
        "init_noise_std": ("log_std_init", _log_of_std),
        "value_loss_coef": ("vf_coef", lambda coef: 2.0 * coef),  # of the loss without its half
    }

    def __post_init__(self) -> None:
        if self.obs_groups is not None:
            object.__setattr__(self, "obs_groups", _read_groups(self.obs_groups))
        super().__post_init__()

    def check(self) -> None:
        """Check the values."""
        super().check()
        self.require_positive("n_steps", "max_grad_norm", "recurrent_size", "clip_actions")
        self.require_range("vf_coef", 0)
        self.require_range("learning_rate", 0)
        if self.sde_sample_freq < 1 and self.sde_sample_freq != -1:
            raise ValueError(f"sde_sample_freq must be positive or -1, got {self.sde_sample_freq}")
        if self.obs_groups is not None and self.critic_obs is not None:
            raise ValueError(
                "critic_obs must be None where obs_groups says what the critic looks at, "
                f"got {self.critic_obs!r}"
            )
        if self.noise_std_type == "scalar" and self.use_gsde:
            raise ValueError("noise_std_type must be 'log' where use_gsde is True, got 'scalar'")
        if self.clip_actions is not None and self.squash_actions:
            raise ValueError(
                "clip_actions must be None where squash_actions is True, which keeps the bounds, "
                f"got {self.clip_actions}"
            )

    def groups_of(self, keys: Iterable[str]) -> dict[str, tuple[str, ...]] | None:
        """The keys of a Dict observation by who looks at them; None where both look at all."""
        if self.critic_obs is None:
            return self.obs_groups
        rest = tuple(key for key in keys if key != self.critic_obs)
        return {"policy": rest, "critic": (self.critic_obs,)}

    @property
    def rate(self) -> RateLike:
        """The learning rate, annealed to 0 where that is asked for."""
        if self.anneal_lr and isinstance(self.learning_rate, int | float):
            return Linear(self.learning_rate, 0.0)
        return self.learning_rate

    @property
    def rows(self) -> int:
        """Number of steps of an update."""
        return self.n_envs * self.n_steps

    @property
    def minibatch(self) -> int:
        """Number of steps of a gradient step."""
        return self.rows


@dataclass(frozen=True, kw_only=True)
class OnPolicyConfig(RolloutConfig):
    """Options of every on-policy algorithm."""

    gae_lambda: float = 0.95
    """λ of generalized advantage estimation (GAE): 0 trusts the values, 1 the rewards."""

    aliases: ClassVar[dict[str, str]] = {**RolloutConfig.aliases, "lam": "gae_lambda"}

    def check(self) -> None:
        """Check the values."""
        super().check()
        self.require_range("gae_lambda", 0, 1)


@dataclass(frozen=True, kw_only=True)
class ClippedConfig(RolloutConfig):
    """Options of every algorithm with a clipped surrogate objective."""

    n_epochs: int = 4
    """Number of epochs: passes over each rollout."""
    batch_size: int = 256
    """Minibatch size in steps; recurrent policies take whole environments of about that many."""
    n_minibatches: int | None = None
    """Number of minibatches of an epoch, in place of `batch_size`."""
    learning_rate: RateLike = 2.5e-4  # type: ignore[assignment]
    """Learning rate of the optimizer; may be a schedule over the run. "adaptive" starts at 1e-3,
    "adaptive(3e-4)" elsewhere, and follows `desired_kl`: a gradient step before which the KL
    divergence from the old policy is beyond twice that divides it by 1.5, one below half of it
    multiplies it by as much, between 1e-5 and 1e-2."""
    desired_kl: float = 0.01
    """KL divergence of a gradient step at which an adaptive learning rate aims."""
    clip_eps: ScheduleLike = 0.2
    """Clipping range ε of the probability ratio: it is clipped to [1 - ε, 1 + ε]."""
    clip_vloss: bool = False
    """Clip the value loss too: changes of values beyond `clip_eps`."""
    clip_range_vf: ScheduleLike | None = None
    """Clipping range of the value function; None uses `clip_eps` where `clip_vloss` is set. A
    number clips values even without `clip_vloss`."""
    normalize_advantages: bool = True
    """Normalize advantages in each minibatch to mean 0 and standard deviation 1."""
    anneal_lr: bool = True
    """Anneal a constant learning rate linearly to 0 over the run."""
    target_kl: float | None = None
    """Early stopping: skip the rest of an update once the KL divergence from the old policy exceeds
    1.5 times this."""
    compile: bool = False
    """Compile the loss with `torch.compile`."""
    matmul: Literal["tf32", "bf16", "fp32"] | None = None
    """Precision of matrix products on CUDA: "tf32" rounds their inputs to 10 bits, "bf16" computes
    the networks in bfloat16 (weights, sums and losses stay in float32), "fp32" rounds nothing. None
    is "tf32" on CUDA and "fp32" elsewhere."""

    aliases: ClassVar[dict[str, str]] = {
        **RolloutConfig.aliases,
        "clip_range": "clip_eps",
        "clip_param": "clip_eps",
        "num_learning_epochs": "n_epochs",
        "num_mini_batches": "n_minibatches",
        "use_clipped_value_loss": "clip_vloss",
        "normalize_advantage": "normalize_advantages",
    }

    def check(self) -> None:
        """Check the values."""
        super().check()
        self.require_positive("n_epochs", "batch_size", "clip_eps", "clip_range_vf", "target_kl")
        self.require_positive("n_minibatches", "desired_kl")
        self._check_minibatches()
        if self.adapts_rate:
            self.require_range("learning_rate", *Adaptive.bounds)
        usual = self._default("desired_kl")
        if self.desired_kl != usual and not self.adapts_rate:
            raise ValueError(
                f"desired_kl must be {usual} unless learning_rate is 'adaptive', got "
                f"{self.desired_kl} with learning_rate={self.learning_rate}"
            )

    def _check_minibatches(self) -> None:
        usual = self._default("batch_size")
        if self.n_minibatches is not None and self.batch_size != usual:
            raise ValueError(
                f"batch_size must be {usual}, its default, where n_minibatches is given, got "
                f"{self.batch_size} and n_minibatches={self.n_minibatches}"
            )

    def _default(self, name: str) -> Any:
        return type(self).__dataclass_fields__[name].default

    def share(self, learners: int) -> Self:
        """The options of each of some processes that learn together."""
        if self.n_minibatches is None or "batch_size" not in self.divided:
            return super().share(learners)
        given = {"batch_size": self.batch_size, "n_minibatches": self.n_minibatches}
        # Each divides its own rows into as many, whatever the size would be.
        one = self.replace(n_minibatches=None, batch_size=learners)
        return one.share(learners).replace(**given)

    @property
    def minibatch(self) -> int:
        """Number of steps of a gradient step."""
        return min(self.minibatch_of(self.rows), self.rows)

    def minibatch_of(self, rows: int) -> int:
        """Number of steps of a gradient step, of an update on so many."""
        return self.batch_size if self.n_minibatches is None else -(-rows // self.n_minibatches)

    @property
    def adapts_rate(self) -> bool:
        """True if the learning rate follows the KL divergence."""
        return isinstance(self.learning_rate, Adaptive)

    @property
    def clips_values(self) -> bool:
        """True if the change of values is clipped."""
        return self.clip_vloss or self.clip_range_vf is not None

    def clip_ranges(self, progress_remaining: float) -> tuple[float, float]:
        """Clipping ranges of probability ratios and values, at a point of the run."""
        clip = value_at(self.clip_eps, progress_remaining)
        if self.clip_range_vf is None:
            return clip, clip
        return clip, value_at(self.clip_range_vf, progress_remaining)
