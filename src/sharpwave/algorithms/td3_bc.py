"""TD3+BC (Fujimoto and Gu, 2021, arXiv:2106.06860)."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np

from sharpwave.lazy import nn, torch
from sharpwave.learn import Draws, FlatArrays, actor_critic_layouts
from sharpwave.train.native_replay import NativeTD3
from sharpwave.train.offline import OfflineAlgorithm, OfflineConfig
from sharpwave.train.replay import ReplayBatch
from sharpwave.train.threads import native_threads
from sharpwave.types import Array

METRICS = ("critic_loss", "actor_loss", "q_value")
"""What a gradient step measures, in order."""


@dataclass(frozen=True, kw_only=True)
class TD3BCConfig(OfflineConfig):
    """Options of TD3+BC."""

    alpha: float = 2.5
    """How much the critics count against cloning the dataset."""
    tau: float = 0.005
    """Share of the new weights in the target networks at every update of them."""
    policy_delay: int = 2
    """Steps of the critics for one of the actor and of the targets."""
    target_noise: float = 0.2
    """Deviation of the noise on the actions of targets, in units of half the action range."""
    noise_clip: float = 0.5
    """Largest such noise."""

    def check(self) -> None:
        """Check the values."""
        super().check()
        self.require_positive("alpha", "policy_delay")
        self.require_range("tau", 0, 1)
        self.require_range("target_noise", 0)
        self.require_range("noise_clip", 0)


class TD3BC(OfflineAlgorithm):
    r"""TD3+BC: TD3 whose actor also clones the dataset.

    With slow copies π̄ and Q̄, and noise ε clipped to ±c,

        y = r + γ min_i Q̄_i(s', clip(π̄(s') + ε, −1, 1))
        L_Q = Σ_i mean((Q_i(s, a) − y)²)
        L_π = −λ mean(Q_1(s, π(s))) + mean((π(s) − a)²),   λ = α / mean |Q_1(s, π(s))|

    where λ is not differentiated. The actor and all slow copies move every `policy_delay` steps.

    Example:
        >>> import numpy as np
        >>> obs = np.random.default_rng(0).normal(size=(500, 3)).astype("f")
        >>> done = np.arange(500) % 50 == 49
        >>> agent = TD3BC((obs, obs, np.tanh(obs[:, :1]), obs[:, 0], done), hidden=32)
        >>> sorted(agent.train(20))[:2]
        ['actor_loss', 'critic_loss']
        >>> agent.predict(obs[0]).shape
        (1,)
    """

    name = "td3_bc"
    Config = TD3BCConfig
    config: TD3BCConfig
    native: NativeTD3 | None
    metrics = METRICS
    compiled = ("critic_loss", "actor_loss")
    TRUTH = (
        *OfflineAlgorithm.TRUTH,
        "make_actor",
        "make_critics",
        "targets",
        "next_actions",
        "critic_loss",
        "actor_loss",
    )
    last_actor_loss: Any

    def build_networks(self) -> None:
        """Make actor, critics and their slow copies."""
        self.policy = self.make_actor()
        self.critics = self.make_critics()
        self.target_policy = deepcopy(self.policy).requires_grad_(False)
        self.target_critics = deepcopy(self.critics).requires_grad_(False)

        self.flat_actor = nn.FlatParameters(self.policy, self.device)
        self.flat_critics = nn.FlatParameters(self.critics, self.device)
        self.flat_target_actor = nn.FlatParameters(self.target_policy, self.device)
        self.flat_target_critics = nn.FlatParameters(self.target_critics, self.device)
        self.actor_optimizer = nn.Adam(self.flat_actor, lr=0.0, eps=1e-8)
        self.critic_optimizer = nn.Adam(self.flat_critics, lr=0.0, eps=1e-8)
        self.register("actor", self.policy, self.actor_optimizer)
        self.register("critics", self.critics, self.critic_optimizer)
        self.register("target_actor", self.target_policy)
        self.register("target_critics", self.target_critics)
        self.last_actor_loss = torch.zeros((), device=self.device)

    def make_actor(self) -> nn.DeterministicActor:
        """What acts."""
        options = self.network_options
        return nn.DeterministicActor(self.observation_space, self.action_dim, **options)

    def make_module(self, name: str) -> Any:
        """A new torch module like the one of `networks` with this name."""
        return self.make_actor() if name.endswith("actor") else self.make_critics()

    def make_native(self) -> NativeTD3:
        """Make actor, critics and their slow copies, for native code."""
        config = self.config
        self.last_actor_loss = np.zeros((), np.float32)
        layouts = actor_critic_layouts(
            self.observation_space,
            self.action_dim,
            hidden=config.hidden,
            activation=config.activation,
            n_critics=2,
            outputs_per_action=1,
        )
        actor, critics = (layout.first_parameters(self.weights_generator) for layout in layouts)
        threads = native_threads(config.threads, len(critics.data) * config.batch_size)
        return NativeTD3(self.observation_space, *layouts, actor, critics, threads=threads)

    def make_critics(self) -> nn.Critics:
        """What judges actions."""
        return nn.Critics(self.observation_space, self.action_dim, **self.network_options)

    def act(
        self,
        policy: Any,
        obs: Any,
        masks: torch.Tensor | None,  # noqa: ARG002 - continuous actions have none
        *,
        explore: bool,  # noqa: ARG002 - the policy knows one action only
        generator: torch.Generator,  # noqa: ARG002
    ) -> torch.Tensor:
        """Actions in [-1, 1]."""
        actions: torch.Tensor = policy.mode(obs)
        return actions

    def native_act(
        self,
        policy: FlatArrays,
        inputs: Array,
        masks: Any,  # noqa: ARG002 - continuous actions have none
        draws: Draws | None,  # noqa: ARG002 - the policy knows one action only
    ) -> Array:
        """The same, in native code."""
        assert self.native is not None
        return self.native.actor(policy).mode(inputs)

    @property
    def moves_actor(self) -> bool:
        """Whether the next step is one of actor and targets too."""
        return (self.timesteps + 1) % self.config.policy_delay == 0

    def graph_key(self) -> bool:
        """Whether the actor moves too."""
        return self.moves_actor

    def gradient_step(self, batch: ReplayBatch) -> Any:
        """One step of the critics, and now and then one of actor and targets; its `METRICS`."""
        if self.native is not None:
            return self.native_step(batch)
        targets = self.targets(batch)
        critic_loss = self.critic_loss(batch, targets)
        nn.descend(critic_loss, self.flat_critics, self.critic_optimizer)

        if self.moves_actor:
            actor_loss = self.actor_loss(batch)
            nn.descend(actor_loss, self.flat_actor, self.actor_optimizer)
            self.last_actor_loss.copy_(actor_loss.detach())
            self.flat_target_actor.data.lerp_(self.flat_actor.data, self.config.tau)
            self.flat_target_critics.data.lerp_(self.flat_critics.data, self.config.tau)
        return torch.stack((critic_loss.detach(), self.last_actor_loss, targets.mean()))

    def native_step(self, batch: ReplayBatch, noise: Any = None) -> Array:
        """The same, in native code; `noise` [B, d] takes the place of drawn numbers."""
        assert self.native is not None
        config = self.config
        metrics, _ = self.native.learner.step(
            batch,
            draw=self.generator.next_call(),
            noise=noise,
            target_noise=config.target_noise,
            noise_clip=config.noise_clip,
            tau=config.tau,
            moves_actor=self.moves_actor,
            bc_weight=config.alpha,
        )
        if self.moves_actor:
            self.last_actor_loss[()] = metrics[1]
        metrics[1] = self.last_actor_loss
        return metrics

    def extra_state(self) -> dict[str, Any]:
        """The last loss of the actor."""
        return {"actor_loss": self.last_actor_loss}

    def load_extra_state(self, state: dict[str, Any]) -> None:
        """Continue from `extra_state`."""
        self.last_actor_loss[()] = float(state["actor_loss"])

    def targets(self, batch: ReplayBatch) -> torch.Tensor:
        """What the critics should say, [B]."""
        with torch.no_grad():
            next_actions = self.next_actions(batch)
            next_values = self.target_critics(batch.next_obs, next_actions).amin(0)
            return torch.addcmul(batch.rewards, batch.discounts, next_values)

    def next_actions(self, batch: ReplayBatch) -> torch.Tensor:
        """What the slow policy would do next, with noise, [B, d]."""
        config = self.config
        noise = torch.empty_like(batch.actions).normal_(generator=self.generator)
        noise.mul_(config.target_noise).clamp_(-config.noise_clip, config.noise_clip)
        actions: torch.Tensor = self.target_policy(batch.next_obs).add_(noise).clamp_(-1.0, 1.0)
        return actions

    def critic_loss(self, batch: ReplayBatch, targets: torch.Tensor) -> torch.Tensor:
        """How far the critics are from their targets."""
        errors = self.critics(batch.obs, batch.actions) - targets
        loss: torch.Tensor = errors.square().mean(-1).sum()
        return loss

    def actor_loss(self, batch: ReplayBatch) -> torch.Tensor:
        """What the actor's actions lack in value, and how far they are from the dataset's."""
        actions = self.policy(batch.obs)
        values = self.critics(batch.obs, actions, n=1)[0]
        scale = self.config.alpha / values.detach().abs().mean()
        cloning = torch.nn.functional.mse_loss(actions, batch.actions)
        loss: torch.Tensor = cloning - scale * values.mean()
        return loss
