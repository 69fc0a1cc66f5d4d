"""Soft Actor-Critic (Haarnoja et al., 2018, arXiv:1812.05905)."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Any, Literal

from sharpwave.lazy import nn, torch
from sharpwave.train.off_policy import OffPolicy, OffPolicyConfig
from sharpwave.train.replay import ReplayBatch

METRICS = ("critic_loss", "actor_loss", "alpha", "alpha_loss", "entropy", "q_value")
"""What a gradient step measures, in order."""


@dataclass(frozen=True, kw_only=True)
class SACConfig(OffPolicyConfig):
    """Options of SAC."""

    n_critics: int = 2
    """Number of critics; targets are their minimum."""
    tau: float = 0.005
    """Share of the new weights in the target networks at every update of them."""
    target_update_interval: int = 1
    """Gradient steps between two updates of the target networks."""
    ent_coef: float | Literal["auto"] = "auto"
    """Weight of the entropy; "auto" learns it."""
    ent_coef_init: float = 1.0
    """What a learned weight starts from."""
    target_entropy: float | None = None
    """Entropy that a learned weight aims at; minus the number of action dimensions when None."""
    use_gsde: bool = False
    """Explore by generalized state-dependent noise."""
    sde_sample_freq: int = -1
    """Steps between new noise of gSDE; -1 draws it once an update."""
    log_std_init: float = -3.0
    """Logarithm of the first deviation of gSDE."""

    def check(self) -> None:
        """Check the values."""
        super().check()
        self.require_positive("n_critics", "target_update_interval", "ent_coef_init")
        self.require_range("tau", 0, 1)
        if self.ent_coef != "auto":
            self.require_range("ent_coef", 0)


class SAC(OffPolicy):
    r"""SAC: off-policy learning of a policy that earns reward and stays random.

    With a' ~ π(·|s'), targets Q̄ that follow slowly, and the weight α of entropy,

        y = r + γ (min_i Q̄_i(s', a') − α log π(a'|s'))
        L_Q = ½ Σ_i mean((Q_i(s, a) − y)²)
        L_π = mean(α log π(ã|s) − min_i Q_i(s, ã)),   ã ~ π(·|s)
        L_α = −log α · mean(log π(ã|s) + H̄)

    Example:
        >>> sac = SAC("Pendulum-v1", learning_starts=100, hidden=(32, 32))
        >>> metrics = sac.train(200)
        >>> sac.predict([1.0, 0.0, 0.0]).shape
        (1,)
    """

    name = "sac"
    Config = SACConfig
    config: SACConfig
    metrics = METRICS

    def build_networks(self) -> None:
        """Make actor, critics, their slow copy and the weight of entropy."""
        config = self.config
        if self.action_scale is None:
            raise TypeError(f"{self.name} needs a Box action space, got {self.action_space}")
        dim = len(self.action_scale.middle)
        self.policy = nn.SquashedActor(
            self.observation_space,
            dim,
            hidden=config.hidden,
            activation=config.activation,
            gsde=config.use_gsde,
            log_std_init=config.log_std_init,
            generator=self.weights_generator,
        ).to(self.device)
        self.critics = self.make_critics(dim).to(self.device)
        self.target_critics = copy.deepcopy(self.critics).requires_grad_(False)
        self.temperature = nn.Scalar(math.log(config.ent_coef_init)).to(self.device)
        self.learns_alpha = config.ent_coef == "auto"
        self.target_entropy = (
            -float(dim) if config.target_entropy is None else config.target_entropy
        )

        self.flat_actor = nn.FlatParameters(self.policy, self.device)
        self.flat_critics = nn.FlatParameters(self.critics, self.device)
        self.flat_targets = nn.FlatParameters(self.target_critics, self.device)
        flat_alpha = nn.FlatParameters(self.temperature, self.device)
        self.actor_optimizer = nn.Adam(self.flat_actor, lr=0.0, eps=1e-8)
        self.critic_optimizer = nn.Adam(self.flat_critics, lr=0.0, eps=1e-8)
        self.alpha_optimizer = nn.Adam(flat_alpha, lr=0.0, eps=1e-8)
        self.flat_alpha = flat_alpha
        self.register("actor", self.policy, self.actor_optimizer)
        self.register("critics", self.critics, self.critic_optimizer)
        self.register("target_critics", self.target_critics)
        self.register("temperature", self.temperature, self.alpha_optimizer)
        if config.compile:
            self.critic_loss = torch.compile(self.critic_loss)  # type: ignore[method-assign]
            self.actor_loss = torch.compile(self.actor_loss)  # type: ignore[method-assign]

    def make_critics(self, action_dim: int) -> Any:
        """What judges actions."""
        config = self.config
        return nn.Critics(
            self.observation_space,
            action_dim,
            n_critics=config.n_critics,
            hidden=config.hidden,
            activation=config.activation,
            generator=self.weights_generator,
        )

    def act(
        self,
        policy: Any,
        obs: Any,
        masks: torch.Tensor | None,  # noqa: ARG002 - continuous actions have none
        *,
        explore: bool,
        generator: torch.Generator,
    ) -> torch.Tensor:
        """Actions in [-1, 1]: drawn from the policy, or its mode."""
        actions: torch.Tensor = policy.explore(obs, generator) if explore else policy.mode(obs)
        return actions

    def alpha(self) -> torch.Tensor:
        """The weight of entropy, not differentiated."""
        if self.learns_alpha:
            return self.temperature.value.detach().exp()
        return torch.full((), float(self.config.ent_coef), device=self.device)

    def gradient_step(self, batch: ReplayBatch) -> torch.Tensor:
        """One step of the weight of entropy, of the critics and of the actor; its `METRICS`."""
        actions, log_probs = self.policy.sample(batch.obs, self.generator)

        # Less entropy than wanted makes it weigh more.
        alpha = self.alpha()
        surplus = log_probs.detach().mean() + self.target_entropy
        alpha_loss = -self.temperature.value.detach() * surplus
        if self.learns_alpha:
            self.flat_alpha.grad.copy_(-surplus)
            self.alpha_optimizer.step()

        # The critics follow what the policy would earn from the next state on.
        self.flat_critics.zero_grad()
        critic_loss, errors = self.critic_loss(batch, self.targets(batch, alpha))
        critic_loss.backward()
        self._clip(self.flat_critics)
        self.critic_optimizer.step()
        batch.td_errors = errors

        # The actor follows the critics, whose own gradient nobody needs here.
        self.flat_actor.zero_grad()
        actor_loss = self.actor_loss(batch, actions, log_probs, alpha)
        actor_loss.backward(inputs=list(self.policy.parameters()))
        self._clip(self.flat_actor)
        self.actor_optimizer.step()

        if (self.gradient_steps + 1) % self.config.target_update_interval == 0:
            self.flat_targets.data.lerp_(self.flat_critics.data, self.config.tau)
        with torch.no_grad():
            entropy, q_value = -log_probs.mean(), self._mean_target
            return torch.stack((critic_loss, actor_loss, alpha, alpha_loss, entropy, q_value))

    def targets(self, batch: ReplayBatch, alpha: torch.Tensor) -> torch.Tensor:
        """What the critics should say, [B]."""
        with torch.no_grad():
            next_actions, next_log_probs = self.policy.sample(batch.next_obs, self.generator)
            next_values = self.target_critics(batch.next_obs, next_actions).amin(0)
            soft_values = next_values - alpha * next_log_probs
            targets: torch.Tensor = batch.rewards + batch.discounts * soft_values
            self._mean_target = targets.mean()
            return targets

    def critic_loss(
        self, batch: ReplayBatch, targets: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The loss of the critics, and the mean error of each row [B]."""
        errors = self.critics(batch.obs, batch.actions) - targets
        squares = errors.square() if batch.weights is None else batch.weights * errors.square()
        return 0.5 * squares.mean(-1).sum(), errors.detach().mean(0)

    def actor_loss(
        self,
        batch: ReplayBatch,
        actions: torch.Tensor,
        log_probs: torch.Tensor,
        alpha: torch.Tensor,
    ) -> torch.Tensor:
        """The loss of the actor."""
        values: torch.Tensor = self.critics(batch.obs, actions).amin(0)
        return (alpha * log_probs - values).mean()

    def _clip(self, flat: nn.FlatParameters) -> None:
        if self.config.max_grad_norm is not None:
            flat.clip_grad_norm(self.config.max_grad_norm)
