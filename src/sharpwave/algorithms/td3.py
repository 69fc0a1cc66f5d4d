"""Twin Delayed Deep Deterministic policy gradient (Fujimoto et al., 2018, arXiv:1802.09477)."""

from __future__ import annotations

import copy
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from sharpwave import _native
from sharpwave.lazy import nn, torch
from sharpwave.learn import Draws, FlatArrays, actor_critic_layouts
from sharpwave.train.native_replay import NativeTD3
from sharpwave.train.noise import OrnsteinUhlenbeck
from sharpwave.train.off_policy import OffPolicy, OffPolicyConfig
from sharpwave.train.replay import ReplayBatch
from sharpwave.train.threads import native_threads
from sharpwave.types import Array

METRICS = ("critic_loss", "actor_loss", "q_value")
"""What a gradient step measures, in order."""


@dataclass(frozen=True, kw_only=True)
class TD3Config(OffPolicyConfig):
    """Options of TD3. All noise is in actions scaled to [-1, 1]."""

    n_critics: int = 2
    """Number of critics; targets are their minimum."""
    tau: float = 0.005
    """Share of the new weights in the target networks at every update of them."""
    policy_delay: int = 2
    """Gradient steps of the critics for one of the actor and of all target networks."""
    target_noise: float = 0.2
    """Deviation of the noise on the target actor's actions."""
    noise_clip: float = 0.5
    """Largest such noise."""
    exploration_noise: float = 0.1
    """Deviation of the noise on the actions that are played."""
    noise_type: Literal["normal", "ou"] = "normal"
    """Independent at every step, or a walk that remembers (Ornstein-Uhlenbeck)."""

    aliases: ClassVar[dict[str, str]] = {
        **OffPolicyConfig.aliases,
        "target_policy_noise": "target_noise",
        "target_noise_clip": "noise_clip",
    }

    def check(self) -> None:
        """Check the values."""
        super().check()
        self.require_positive("n_critics", "policy_delay")
        self.require_range("tau", 0, 1)
        for name in ("target_noise", "noise_clip", "exploration_noise"):
            self.require_range(name, 0)


class TD3(OffPolicy):
    r"""TD3: a deterministic policy that climbs the lesser of two critics.

    With slow copies μ̄ and Q̄ of actor and critics, and ε ~ clip(N(0, σ²), ±c),

        y = r + γ min_i Q̄_i(s', clip(μ̄(s') + ε, ±1))
        L_Q = Σ_i mean((Q_i(s, a) − y)²)
        L_μ = −mean(Q_1(s, μ(s)))

    Actor and slow copies move once in `policy_delay` steps of the critics.

    Args:
        env_id: As for every algorithm, and so on.
        actor: A module `actor(obs) -> actions` [B, d] in [-1, 1] in place of the built one.
        critic: A module `critic(obs, actions) -> values` [B, 1], copied for its twin.

    Example:
        >>> td3 = TD3("Pendulum-v1", learning_starts=100, hidden=(32, 32))
        >>> metrics = td3.train(200)
        >>> td3.predict([1.0, 0.0, 0.0]).shape
        (1,)
    """

    name = "td3"
    Config = TD3Config
    config: TD3Config
    native: NativeTD3 | None
    metrics = METRICS
    TRUTH = (
        *OffPolicy.TRUTH,
        "make_actor",
        "make_critics",
        "targets",
        "critic_gradient",
        "actor_gradient",
        "critic_loss",
        "actor_loss",
    )
    last_actor_loss: Any
    walk: OrnsteinUhlenbeck
    compiled = ("critic_loss", "actor_loss")
    takes = ("actor", "critic")

    def build_networks(self) -> None:
        """Make actor, critics, and a slow copy of each."""
        config = self.config
        self.policy = self.make_actor().to(self.device)
        self.critics = self.make_critics().to(self.device)
        self.target_actor = copy.deepcopy(self.policy).requires_grad_(False)
        self.target_critics = copy.deepcopy(self.critics).requires_grad_(False)
        self.flat_actor = nn.FlatParameters(self.policy, self.device)
        self.flat_critics = nn.FlatParameters(self.critics, self.device)
        self.flat_target_actor = nn.FlatParameters(self.target_actor, self.device)
        self.flat_target_critics = nn.FlatParameters(self.target_critics, self.device)
        self.actor_optimizer = nn.Adam(self.flat_actor, lr=0.0, eps=1e-8)
        self.critic_optimizer = nn.Adam(self.flat_critics, lr=0.0, eps=1e-8)
        self.register("actor", self.policy, self.actor_optimizer)
        self.register("critics", self.critics, self.critic_optimizer)
        self.register("target_actor", self.target_actor)
        self.register("target_critics", self.target_critics)
        self.by_hand: nn.TD3ByHand | None = None
        if not config.compile and nn.TD3ByHand.why_not(self.policy, self.critics) is None:
            self.by_hand = nn.TD3ByHand(
                self.policy, self.critics, self.target_critics, self.target_actor
            )
        self.last_actor_loss = torch.zeros((), device=self.device)
        zeros = torch.zeros(config.n_envs, self.action_dim, device=self.device)
        self.walk = OrnsteinUhlenbeck(zeros, config.exploration_noise)

    def make_module(self, name: str) -> Any:
        """A new torch module like the one of `networks` with this name."""
        return self.make_actor() if name.endswith("actor") else self.make_critics()

    def make_native(self) -> NativeTD3:
        """Make actor, critics and their slow copies, for native code."""
        config = self.config
        self.last_actor_loss = np.zeros((), np.float32)
        zeros = np.zeros((config.n_envs, self.action_dim), np.float32)
        self.walk = OrnsteinUhlenbeck(zeros, config.exploration_noise)
        layouts = actor_critic_layouts(
            self.observation_space,
            self.action_dim,
            hidden=config.hidden,
            activation=config.activation,
            n_critics=config.n_critics,
            outputs_per_action=1,
        )
        actor, critics = (layout.first_parameters(self.weights_generator) for layout in layouts)
        threads = native_threads(config.threads, len(critics.data) * config.batch_size)
        return NativeTD3(self.observation_space, *layouts, actor, critics, threads=threads)

    def make_actor(self) -> Any:
        """What acts."""
        if self.given["actor"] is not None:
            return nn.CustomDeterministicActor(self.given["actor"], self.action_dim)
        return nn.DeterministicActor(
            self.observation_space,
            self.action_dim,
            hidden=self.config.hidden,
            activation=self.config.activation,
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

    def act(
        self,
        policy: Any,
        obs: Any,
        masks: torch.Tensor | None,  # noqa: ARG002 - continuous actions have none
        *,
        explore: bool,  # noqa: ARG002 - the policy has no noise of its own
        generator: torch.Generator,  # noqa: ARG002
    ) -> torch.Tensor:
        """Actions in [-1, 1]: the policy is deterministic."""
        actions: torch.Tensor = policy.mode(obs)
        return actions

    def explore(self, obs: Any, masks: torch.Tensor | None) -> torch.Tensor:
        """Actions in [-1, 1] with noise."""
        actions = super().explore(obs, masks)
        if self.config.noise_type == "ou":
            starts = torch.as_tensor(self.collector.ended, device=self.device)
            drawn = torch.empty_like(actions).normal_(generator=self.explore_generator)
            noise: torch.Tensor = self.walk.move(starts, drawn)
        else:
            noise = torch.empty_like(actions).normal_(
                std=self.config.exploration_noise, generator=self.explore_generator
            )
        return (actions + noise).clamp_(-1.0, 1.0)

    def native_act(
        self,
        policy: FlatArrays,
        inputs: Array,
        masks: Any,  # noqa: ARG002 - continuous actions have none
        draws: Draws | None,  # noqa: ARG002 - the policy has no noise of its own
    ) -> Array:
        """What `act` does, in native code."""
        assert self.native is not None
        return self.native.actor(policy).mode(inputs)

    def native_explore(self, inputs: Array, masks: Any) -> Array:
        """What `explore` does, in native code."""
        assert self.native is not None
        seed, call = self.explore_generator.next_call()
        if self.config.noise_type == "normal":
            actor, deviation = self.native.actor(self.acting_policy), self.config.exploration_noise
            return actor.explore(inputs, deviation, (seed, call))
        actions = self.native_act(self.acting_policy, inputs, masks, None)
        drawn = _native.normals(seed, call, actions.size).reshape(actions.shape)
        noise = self.walk.move(self.collector.ended, drawn)
        noisy: Array = np.clip(actions + noise, -1.0, 1.0)
        return noisy

    def gradient_step(self, batch: ReplayBatch) -> Any:
        """One step of the critics, and of the rest where it is due; its `METRICS`."""
        if self.native is not None:
            return self.native_step(batch)
        config = self.config

        # The critics follow what the target actor would earn from the next state on.
        targets = self.targets(batch)
        critic_loss, batch.td_errors = self.critic_gradient(batch, targets)
        nn.take_step(self.flat_critics, self.critic_optimizer, config.max_grad_norm)

        # The actor follows the first critic, and the slow copies follow both.
        if self.moves_actor:
            self.last_actor_loss.copy_(self.actor_gradient(batch).detach())
            nn.take_step(self.flat_actor, self.actor_optimizer, config.max_grad_norm)
            self.flat_target_actor.data.lerp_(self.flat_actor.data, config.tau)
            self.flat_target_critics.data.lerp_(self.flat_critics.data, config.tau)
        return torch.stack((critic_loss.detach(), self.last_actor_loss, targets.mean()))

    def native_step(self, batch: ReplayBatch, noise: Any = None) -> Array:
        """The same, in native code; `noise` [B, d] takes the place of drawn numbers."""
        assert self.native is not None
        config = self.config
        metrics, batch.td_errors = self.native.learner.step(
            batch,
            draw=self.generator.next_call(),
            noise=noise,
            target_noise=config.target_noise,
            noise_clip=config.noise_clip,
            tau=config.tau,
            moves_actor=self.moves_actor,
            max_grad_norm=config.max_grad_norm,
        )
        if self.moves_actor:
            self.last_actor_loss[()] = metrics[1]
        metrics[1] = self.last_actor_loss
        return metrics

    @property
    def moves_actor(self) -> bool:
        """Whether the next gradient step moves actor and slow copies too."""
        return (self.gradient_steps + 1) % self.config.policy_delay == 0

    def graph_key(self) -> Hashable:
        """Whether the actor moves too."""
        return self.moves_actor

    def targets(self, batch: ReplayBatch) -> torch.Tensor:
        """What the critics should say, [B]."""
        by_hand, next_obs = self.by_hand, batch.next_obs
        with torch.no_grad():
            actions = (by_hand.target_actions if by_hand else self.target_actor)(next_obs)
            if self.config.target_noise > 0:
                noise = torch.empty(actions.shape, device=self.device)
                noise.normal_(std=self.config.target_noise, generator=self.generator)
                noise.clamp_(-self.config.noise_clip, self.config.noise_clip)
                actions = (actions + noise).clamp_(-1.0, 1.0)
            values = (by_hand.target_values if by_hand else self.target_critics)(next_obs, actions)
            targets: torch.Tensor = torch.addcmul(batch.rewards, batch.discounts, values.amin(0))
            return targets

    def critic_gradient(
        self, batch: ReplayBatch, targets: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Fill the gradient of the critics with that of `critic_loss`, and return what it does."""
        if self.by_hand is not None:
            return self.by_hand.critic_gradient(
                batch.obs, batch.actions, targets, batch.weights, 1.0
            )
        loss, errors = self.critic_loss(batch, targets)
        self.flat_critics.backward(loss)
        return loss, errors

    def actor_gradient(self, batch: ReplayBatch) -> torch.Tensor:
        """Fill the gradient of the actor with that of `actor_loss`, and return what it does."""
        if self.by_hand is not None:
            return self.by_hand.actor_gradient(batch.obs)
        loss = self.actor_loss(batch)
        self.flat_actor.backward(loss)
        return loss

    def critic_loss(
        self, batch: ReplayBatch, targets: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The loss of the critics, and the mean size of the errors of each row [B]."""
        errors = self.critics(batch.obs, batch.actions) - targets
        squares = errors.square() if batch.weights is None else batch.weights * errors.square()
        return squares.mean(-1).sum(), errors.detach().abs().mean(0)

    def actor_loss(self, batch: ReplayBatch) -> torch.Tensor:
        """The loss of the actor."""
        values: torch.Tensor = self.critics(batch.obs, self.policy(batch.obs), n=1)[0]
        return -values.mean()

    def extra_state(self) -> dict[str, Any]:
        """Where the noise stands, and the last loss of the actor."""
        return {"walk": self.walk.value, "actor_loss": self.last_actor_loss}

    def load_extra_state(self, state: dict[str, Any]) -> None:
        """Continue from `extra_state`."""
        self.last_actor_loss[()] = float(state["actor_loss"])
        if self._environments_restored:
            as_own = torch.from_numpy if self.native is None else np.asarray
            self.walk.value[:] = as_own(state["walk"])
