"""Soft Actor-Critic (Haarnoja et al., 2018, arXiv:1812.05905)."""

from __future__ import annotations

import copy
import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, ClassVar

from sharpwave.lazy import nn, torch
from sharpwave.learn import Draws, FlatArrays, actor_critic_layouts
from sharpwave.train.native_replay import NativeSAC
from sharpwave.train.off_policy import OffPolicy, OffPolicyConfig
from sharpwave.train.replay import ReplayBatch
from sharpwave.train.threads import native_threads
from sharpwave.types import Array

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
    ent_coef: float | str = "auto"
    """Weight of the entropy; "auto" learns it from 1 on, "auto_0.1" from 0.1 on."""
    auto_entropy: bool = True
    """Learn a weight that is "auto"; otherwise it stays 0.2, and "auto_0.1" stays 0.1."""
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
        self.require_positive("n_critics", "target_update_interval")
        self.require_range("tau", 0, 1)
        if self.sde_sample_freq < 1 and self.sde_sample_freq != -1:
            raise ValueError(f"sde_sample_freq must be positive or -1, got {self.sde_sample_freq}")
        if not self.first_alpha >= 0 or (self.learns_alpha and self.first_alpha == 0):
            raise ValueError(f"ent_coef must not be negative, nor learned from 0: {self.ent_coef}")

    @property
    def learns_alpha(self) -> bool:
        """Whether the weight of the entropy is learned."""
        return self.auto_entropy and str(self.ent_coef).startswith("auto")

    @property
    def first_alpha(self) -> float:
        """The first weight of the entropy."""
        if self.ent_coef == "auto":
            return 1.0 if self.auto_entropy else 0.2
        try:
            return float(str(self.ent_coef).removeprefix("auto_"))
        except ValueError:
            message = f'ent_coef must be a number, "auto" or "auto_0.1", got {self.ent_coef!r}'
            raise ValueError(message) from None


class SAC(OffPolicy):
    r"""SAC: off-policy learning of a policy that earns reward and stays random.

    With a' ~ π(·|s'), targets Q̄ that follow slowly, and the weight α of entropy,

        y = r + γ (min_i Q̄_i(s', a') − α log π(a'|s'))
        L_Q = ½ Σ_i mean((Q_i(s, a) − y)²)
        L_π = mean(α log π(ã|s) − min_i Q_i(s, ã)),   ã ~ π(·|s)
        L_α = −log α · mean(log π(ã|s) + H̄)

    Args:
        env_id: As for every algorithm, and so on.
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
    config: SACConfig
    native: NativeSAC | None
    metrics = METRICS
    compiled: ClassVar[tuple[str, ...]] = ("critic_loss", "actor_loss")
    takes: ClassVar[tuple[str, ...]] = ("actor", "critic")
    TRUTH = (
        *OffPolicy.TRUTH,
        "make_actor",
        "make_critics",
        "make_optimizer",
        "sample",
        "entropies",
        "wanted_entropy",
        "alpha",
        "step_alpha",
        "targets",
        "critic_gradient",
        "actor_gradient",
        "critic_loss",
        "actor_loss",
    )

    def build(self) -> None:
        """Make networks and collector."""
        self.explored = 0
        super().build()

    def build_networks(self) -> None:
        """Make actor, critics, their slow copy and the weight of entropy."""
        config = self.config
        self.policy = self.make_actor().to(self.device)
        self.critics = self.make_critics().to(self.device)
        self.target_critics = copy.deepcopy(self.critics).requires_grad_(False)
        self.temperature = nn.Scalar(math.log(max(config.first_alpha, 1e-12))).to(self.device)
        self.fixed_alpha = torch.tensor(config.first_alpha, device=self.device)

        self.flat_actor = nn.FlatParameters(self.policy, self.device)
        self.flat_critics = nn.FlatParameters(self.critics, self.device)
        self.flat_targets = nn.FlatParameters(self.target_critics, self.device)
        self.flat_alpha = nn.FlatParameters(self.temperature, self.device)
        self.actor_optimizer = self.make_optimizer(self.flat_actor)
        self.critic_optimizer = self.make_optimizer(self.flat_critics)
        self.alpha_optimizer = self.make_optimizer(self.flat_alpha)
        self.register("actor", self.policy, self.actor_optimizer)
        self.register("critics", self.critics, self.critic_optimizer)
        self.register("target_critics", self.target_critics)
        self.register("temperature", self.temperature, self.alpha_optimizer)
        self.by_hand = self.make_by_hand()

    def make_actor(self) -> Any:
        """What acts."""
        if self.given["actor"] is not None:
            if self.config.use_gsde:
                raise ValueError("use_gsde must be False: an actor of your own explores by itself")
            return nn.CustomSquashedActor(self.given["actor"], self.action_dim)
        return nn.SquashedActor(
            self.observation_space,
            self.action_dim,
            hidden=self.config.hidden,
            activation=self.config.activation,
            gsde=self.config.use_gsde,
            log_std_init=self.config.log_std_init,
            generator=self.weights_generator,
        )

    def make_critics(self) -> Any:
        """What judges actions."""
        config, generator = self.config, self.weights_generator
        if self.given["critic"] is not None:
            return nn.CustomCritics(self.given["critic"], config.n_critics, generator)
        return nn.Critics(
            self.observation_space,
            self.action_dim,
            n_critics=config.n_critics,
            hidden=config.hidden,
            activation=config.activation,
            generator=generator,
        )

    def make_optimizer(self, flat: nn.FlatParameters) -> nn.FlatOptimizer:
        """Adam with torch's constants."""
        return nn.Adam(flat, lr=0.0, eps=1e-8)

    def make_by_hand(self) -> nn.SACByHand | None:
        """What takes the gradients of known networks; None leaves them to autograd."""
        if self.config.compile or nn.SACByHand.why_not(self.policy, self.critics) is not None:
            return None
        return nn.SACByHand(self.policy, self.critics, self.target_critics)

    def make_module(self, name: str) -> Any:
        """A new torch module like the one of `networks` with this name."""
        if name == "temperature":
            return nn.Scalar(0.0)
        return self.make_actor() if name == "actor" else self.make_critics()

    def why_not_native(self) -> str | None:
        """Why native code cannot do what the algorithm does; None when it can."""
        return "use_gsde is on" if self.config.use_gsde else super().why_not_native()

    def make_native(self) -> NativeSAC:
        """Make actor, critics, their slow copy and the weight of entropy, for native code."""
        config = self.config
        layouts = actor_critic_layouts(
            self.observation_space,
            self.action_dim,
            hidden=config.hidden,
            activation=config.activation,
            n_critics=config.n_critics,
            outputs_per_action=2,
        )
        actor, critics = (layout.first_parameters(self.weights_generator) for layout in layouts)
        return NativeSAC(
            self.observation_space,
            *layouts,
            actor,
            critics,
            log_alpha=math.log(max(config.first_alpha, 1e-12)),
            threads=native_threads(config.threads, len(critics.data) * config.batch_size),
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

    def native_act(
        self,
        policy: FlatArrays,
        inputs: Array,
        masks: Any,  # noqa: ARG002 - continuous actions have none
        draws: Draws | None,
    ) -> Array:
        """The same, in native code."""
        assert self.native is not None
        actor = self.native.actor(policy)
        return actor.mode(inputs) if draws is None else actor.explore(inputs, draws.next_call())

    def explore(self, obs: Any, masks: torch.Tensor | None) -> torch.Tensor:
        """Actions in [-1, 1] drawn from the policy; gSDE keeps its noise for some steps."""
        config = self.config
        if not config.use_gsde:
            return super().explore(obs, masks)
        every = config.train_freq if config.sde_sample_freq == -1 else config.sde_sample_freq
        if self.explored % every == 0:
            self.acting_policy.reset_noise(config.n_envs, self.explore_generator)
        self.explored += 1
        actions: torch.Tensor = self.acting_policy.explore_smoothly(obs)
        return actions

    def gradient_step(self, batch: ReplayBatch) -> Any:
        """One step of the weight of entropy, of the critics and of the actor; its `METRICS`."""
        if self.native is not None:
            return self.native_step(batch)
        max_norm = self.config.max_grad_norm
        if self.by_hand is not None:
            actions, log_probs = self.by_hand.sample(batch.obs, batch.next_obs, self.generator)
        else:
            actions, log_probs = self.sample(batch.obs, batch.masks)
        entropies = self.entropies(actions, log_probs)
        alpha = self.alpha()
        alpha_loss = self.step_alpha(entropies - self.wanted_entropy(batch.masks))

        # The critics follow what the policy would earn from the next state on.
        targets = self.targets(batch, alpha)
        critic_loss, batch.td_errors = self.critic_gradient(batch, targets)
        nn.take_step(self.flat_critics, self.critic_optimizer, max_norm)

        # The actor follows the critics.
        actor_loss = self.actor_gradient(batch, actions, log_probs, alpha)
        nn.take_step(self.flat_actor, self.actor_optimizer, max_norm)

        if self.moves_targets:
            self.flat_targets.data.lerp_(self.flat_critics.data, self.config.tau)
        with torch.no_grad():
            entropy, q_value = entropies.mean(), targets.mean()
            return torch.stack((critic_loss, actor_loss, alpha, alpha_loss, entropy, q_value))

    def native_step(self, batch: ReplayBatch, noise: Any = None) -> Array:
        """The same, in native code; `noise` [2, B, d] takes the place of drawn numbers."""
        assert self.native is not None
        config = self.config
        metrics, batch.td_errors = self.native.learner.step(
            batch,
            draw=self.generator.next_call(),
            noise=noise,
            alpha=None if config.learns_alpha else config.first_alpha,
            wanted_entropy=self.wanted_entropy(None),
            max_grad_norm=config.max_grad_norm,
            tau=config.tau if self.moves_targets else 0.0,
        )
        return metrics

    @property
    def moves_targets(self) -> bool:
        """Whether the slow critics move in the next gradient step."""
        return (self.gradient_steps + 1) % self.config.target_update_interval == 0

    def graph_key(self) -> Hashable:
        """Whether the slow critics move."""
        return self.moves_targets

    def sample(
        self,
        obs: Any,
        masks: torch.Tensor | None,  # noqa: ARG002
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """What the policy does: actions [B, d] that gradients flow through, log-probabilities."""
        sampled: tuple[torch.Tensor, torch.Tensor] = self.policy.sample(obs, self.generator)
        return sampled

    def entropies(self, actions: torch.Tensor, log_probs: torch.Tensor) -> torch.Tensor:  # noqa: ARG002
        """An estimate of the policy's entropy at each row [B], not differentiated."""
        return -log_probs.detach()

    def wanted_entropy(self, masks: torch.Tensor | None) -> Any:  # noqa: ARG002
        """The entropy that a learned weight aims at."""
        wanted = self.config.target_entropy
        return -float(self.action_dim) if wanted is None else wanted

    def alpha(self) -> torch.Tensor:
        """The weight of the entropy, not differentiated."""
        learned: torch.Tensor = self.temperature.value.detach()
        return learned.exp() if self.config.learns_alpha else self.fixed_alpha

    def step_alpha(self, surplus: torch.Tensor) -> torch.Tensor:
        """Let entropy weigh less where there is more than wanted, and more where less; L_α."""
        if not self.config.learns_alpha:
            return torch.zeros_like(self.fixed_alpha)
        slope = surplus.mean()
        loss: torch.Tensor = self.temperature.value.detach() * slope
        self.flat_alpha.grad.copy_(slope)
        self.alpha_optimizer.step()
        return loss

    def targets(self, batch: ReplayBatch, alpha: torch.Tensor) -> torch.Tensor:
        """What the critics should say, [B]."""
        if self.by_hand is not None:
            return self.by_hand.soft_targets(batch.rewards, batch.discounts, alpha)
        with torch.no_grad():
            next_actions, next_log_probs = self.sample(batch.next_obs, batch.next_masks)
            next_values = self.target_critics(batch.next_obs, next_actions).amin(0)
            soft_values = next_values - alpha * next_log_probs
            targets: torch.Tensor = torch.addcmul(batch.rewards, batch.discounts, soft_values)
            return targets

    def critic_gradient(
        self, batch: ReplayBatch, targets: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Fill the gradient of the critics with that of `critic_loss`, and return what it does."""
        if self.by_hand is not None:
            return self.by_hand.critic_gradient(
                batch.obs, batch.actions, targets, batch.weights, 0.5
            )
        loss, errors = self.critic_loss(batch, targets)
        self.flat_critics.backward(loss)
        return loss, errors

    def actor_gradient(
        self,
        batch: ReplayBatch,
        actions: torch.Tensor,
        log_probs: torch.Tensor,
        alpha: torch.Tensor,
    ) -> torch.Tensor:
        """Fill the gradient of the actor with that of `actor_loss`, and return what it does."""
        if self.by_hand is not None:
            return self.by_hand.actor_gradient(alpha)
        loss = self.actor_loss(batch, actions, log_probs, alpha)
        self.flat_actor.backward(loss)
        return loss

    def critic_loss(
        self, batch: ReplayBatch, targets: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The loss of the critics, and the mean size of the errors of each row [B]."""
        errors = self.critics(batch.obs, batch.actions) - targets
        squares = errors.square() if batch.weights is None else batch.weights * errors.square()
        return 0.5 * squares.mean(-1).sum(), errors.detach().abs().mean(0)

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

    def extra_state(self) -> dict[str, Any]:
        """Where the noise of gSDE stands."""
        noise = self.acting_policy.noise.matrices if self.config.use_gsde else None
        return {"explored": self.explored, "noise": noise}

    def load_extra_state(self, state: dict[str, Any]) -> None:
        """Continue from `extra_state`; in new episodes, with new noise."""
        if state["noise"] is not None and self.config.use_gsde and self._environments_restored:
            self.acting_policy.noise.matrices = torch.from_numpy(state["noise"]).to(self.device)
            self.explored = int(state["explored"])
