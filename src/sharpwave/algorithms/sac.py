"""Soft Actor-Critic (Haarnoja et al., 2018, arXiv:1812.05905)."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from sharpwave.agents import OnlineAgent
from sharpwave.config.off_policy import OffPolicyConfig
from sharpwave.config.schedules import ScheduleLike
from sharpwave.core.lazy import nn, torch
from sharpwave.learners import Acted, Metrics
from sharpwave.learners.native import NativeSACLearner
from sharpwave.learners.replay import ReplayBatch
from sharpwave.learners.torch_learner import TorchLearner
from sharpwave.loops.off_policy import OffPolicyLoop

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class SACConfig(OffPolicyConfig):
    """Options of SAC."""

    n_critics: int = 2
    """Number of critics; targets are their minimum."""
    critic_learning_rate: ScheduleLike | None = None
    """Learning rate of the critics; `learning_rate` when None."""
    alpha_learning_rate: ScheduleLike | None = None
    """Learning rate of the entropy coefficient; `learning_rate` when None."""
    tau: float = 0.005
    """Polyak coefficient: share of the new weights in each update of the target networks."""
    target_update_interval: int = 1
    """Gradient steps between two updates of the target networks."""
    ent_coef: float | str = "auto"
    """Entropy coefficient (temperature α); "auto" learns it from 1 on, "auto_0.1" from 0.1 on."""
    auto_entropy: bool = True
    """Learn an "auto" coefficient; otherwise "auto" stays 0.2, and "auto_0.1" stays 0.1."""
    target_entropy: float | Literal["auto"] | None = None
    """Target entropy of a learned coefficient; minus the number of action dimensions when None or
    "auto"."""
    use_gsde: bool = False
    """Explore by generalized state-dependent exploration (gSDE)."""
    sde_sample_freq: int = -1
    """Steps between new samples of the noise of gSDE; -1 samples once per update."""
    log_std_init: float = -3.0
    """Initial log standard deviation of gSDE."""

    aliases: ClassVar[dict[str, str]] = {**OffPolicyConfig.aliases, "use_sde": "use_gsde"}

    def __post_init__(self) -> None:
        if self.target_entropy == "auto":
            object.__setattr__(self, "target_entropy", None)
        super().__post_init__()

    def check(self) -> None:
        """Check the values."""
        super().check()
        self.require_positive("n_critics", "target_update_interval")
        self.require_range("critic_learning_rate", 0)
        self.require_range("alpha_learning_rate", 0)
        self.require_range("tau", 0, 1)
        if self.sde_sample_freq < 1 and self.sde_sample_freq != -1:
            raise ValueError(f"sde_sample_freq must be positive or -1, got {self.sde_sample_freq}")
        if not self.first_alpha >= 0 or (self.learns_alpha and self.first_alpha == 0):
            raise ValueError(f"ent_coef must not be negative, nor learned from 0: {self.ent_coef}")

    @property
    def learns_alpha(self) -> bool:
        """True if the entropy coefficient is learned."""
        return self.auto_entropy and str(self.ent_coef).startswith("auto")

    @property
    def first_alpha(self) -> float:
        """Initial entropy coefficient."""
        if self.ent_coef == "auto":
            return 1.0 if self.auto_entropy else 0.2
        try:
            return float(str(self.ent_coef).removeprefix("auto_"))
        except ValueError:
            message = f'ent_coef must be a number, "auto" or "auto_0.1", got {self.ent_coef!r}'
            raise ValueError(message) from None


class SACLearner(TorchLearner):
    r"""The networks and losses of SAC.

    With a' ~ π(·|s'), target networks Q̄, and the entropy coefficient α,

        y = r + γ (min_i Q̄_i(s', a') − α log π(a'|s'))
        L_Q = ½ Σ_i mean((Q_i(s, a) − y)²)
        L_π = mean(α log π(ã|s) − min_i Q_i(s, ã)),   ã ~ π(·|s)
        L_α = −log α · mean(log π(ã|s) + H̄)
    """

    config: Any  # a SACConfig, or one with the same options
    losses = ("critic_loss", "actor_loss")
    compiled_too: ClassVar[tuple[str, ...]] = ("sample", "targets")

    def build(self) -> None:
        """Make actor, critics, their target networks and the entropy coefficient."""
        alpha = self.config.first_alpha
        self.policy = self.add("actor", self.make_actor(), self.make_optimizer)
        self.critics = self.add("critics", self.make_critics(), self.make_optimizer)
        self.target_critics = self.add_copy("target_critics", self.critics)
        first = nn.Scalar(math.log(max(alpha, 1e-12)))
        self.temperature = self.add("temperature", first, self.make_optimizer)
        self.fixed_alpha = torch.tensor(alpha, device=self.device)

    def make_actor(self, **options: Any) -> Any:
        """The policy."""
        config = self.config
        if "actor" in self.given:
            if config.use_gsde:
                raise ValueError("use_gsde must be False: an actor of your own explores by itself")
            return nn.CustomSquashedActor(self.given["actor"], self.action_dim)
        noise = {"gsde": config.use_gsde, "log_std_init": config.log_std_init}
        options = {**self.network_options("actor"), **noise, **options}
        return nn.SquashedActor(self.observation_space, self.action_dim, **options)

    def act(self, obs: Any, *, explore: bool, state: Any = None, **_: Any) -> Acted:
        """Actions in [-1, 1]: samples of the policy, or its mode."""
        if not explore:
            return Acted(self.policy.mode(obs), state=state)
        if state is None:
            return Acted(self.policy.explore(obs, self.explore_generator))
        return Acted(state.explore(self.policy, obs, self.explore_generator), state=state)

    def initial_state(self, n_envs: int) -> nn.SmoothNoise | None:
        """The noise of gSDE, which is kept for some steps."""
        config = self.config
        if not config.use_gsde:
            return None
        every = config.train_freq if config.sde_sample_freq == -1 else config.sde_sample_freq
        return nn.SmoothNoise(n_envs, every)

    # Learning

    def update(self, batch: ReplayBatch) -> Metrics:
        """One gradient step of the entropy coefficient, of the critics and of the actor."""
        actions, log_probs = self.sample(batch.obs, batch.masks)
        entropies = self.entropies(actions, log_probs)
        alpha = self.alpha()
        alpha_loss = self.step_alpha(entropies - self.target_entropy(batch.masks))

        # The critics follow what the policy would earn from the next state on.
        targets = self.targets(batch, alpha)
        critic_loss, td_errors = self.critic_loss(batch, targets)
        self.descend("critics", critic_loss)

        # The actor follows the critics.
        actor_loss = self.actor_loss(batch, actions, log_probs, alpha)
        self.descend("actor", actor_loss)

        if self.moves_targets:
            self.follow_slowly("target_critics", "critics", self.config.tau)
        self.updates += 1
        return {
            "critic_loss": critic_loss.detach(),
            "actor_loss": actor_loss.detach(),
            "alpha": alpha,
            "alpha_loss": alpha_loss,
            "entropy": entropies.mean(),
            "q_value": targets.mean(),
            "td_errors": td_errors,
        }

    @property
    def moves_targets(self) -> bool:
        """True if the next update moves the target critics."""
        return bool((self.updates + 1) % self.config.target_update_interval == 0)

    def update_kind(self) -> Hashable:
        """Kind of the next update: whether it moves the target critics."""
        return self.moves_targets

    def sample(self, obs: Any, masks: Any) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        """Actions [B, d] of the policy, which gradients flow through, and log-probabilities."""
        sampled: tuple[Tensor, Tensor] = self.policy.sample(obs, self.generator)
        return sampled

    def entropies(self, actions: Tensor, log_probs: Tensor) -> Tensor:  # noqa: ARG002
        """An estimate of the policy's entropy at each row [B], without gradient."""
        return -log_probs.detach()

    def target_entropy(self, masks: Tensor | None) -> Any:  # noqa: ARG002
        """Target entropy of a learned coefficient."""
        wanted = self.config.target_entropy
        return -float(self.action_dim) if wanted is None else wanted

    def alpha(self) -> Tensor:
        """The entropy coefficient, without gradient."""
        learned: Tensor = self.temperature.value.detach()
        return learned.exp() if self.config.learns_alpha else self.fixed_alpha

    def step_alpha(self, surplus: Tensor) -> Tensor:
        """One gradient step of the entropy coefficient, down if entropy is above target; L_α."""
        if not self.config.learns_alpha:
            return torch.zeros_like(self.fixed_alpha)
        slope = surplus.mean()
        loss: Tensor = self.temperature.value.detach() * slope
        self.flats["temperature"].set_grad(slope)
        self.optimizers["temperature"].step()
        return loss

    def targets(self, batch: ReplayBatch, alpha: Tensor) -> Tensor:
        """Targets [B] of the critics."""
        with torch.no_grad():
            next_actions, next_log_probs = self.sample(batch.next_obs, batch.next_masks)
            next_values = self.target_critics(batch.next_obs, next_actions).amin(0)
            soft_values = next_values - alpha * next_log_probs
            targets: Tensor = torch.addcmul(batch.rewards, batch.discounts, soft_values)
            return targets

    def critic_loss(self, batch: ReplayBatch, targets: Tensor) -> tuple[Tensor, Tensor]:
        """The loss of the critics, and the mean absolute TD error of each row [B]."""
        errors = self.critics(batch.obs, batch.actions) - targets
        squares = errors.square() if batch.weights is None else batch.weights * errors.square()
        return 0.5 * squares.mean(-1).sum(), errors.detach().abs().mean(0)

    def actor_loss(
        self,
        batch: ReplayBatch,
        actions: Tensor,
        log_probs: Tensor,
        alpha: Tensor,
    ) -> Tensor:
        """The loss of the actor."""
        values: Tensor = self.critics(batch.obs, actions).amin(0)
        return (alpha * log_probs - values).mean()


class SAC(OnlineAgent):
    """SAC: off-policy actor-critic of maximum entropy, with a learned temperature.

    Args:
        actor: A module with `sample(obs) -> (actions, log_probs)` and `deterministic(obs)`, actions
            [B, d] in [-1, 1], in place of the built one.
        critic: A module `critic(obs, actions) -> values` [B, 1], copied for its twin.

    Example:
        >>> sac = SAC("Pendulum-v1", learning_starts=100, hidden=(32, 32))
        >>> metrics = sac.train(200)
        >>> sac.predict([1.0, 0.0, 0.0]).shape
        (1,)
    """

    name = "sac"
    Config = SACConfig
    Learner = SACLearner
    Native = NativeSACLearner
    Loop = OffPolicyLoop
    takes = ("actor", "critic")
    learns_together = True
