"""Implicit Q-Learning (Kostrikov et al., 2021, arXiv:2110.06169)."""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Literal

from sharpwave.lazy import nn, torch
from sharpwave.train.offline import OfflineAlgorithm, OfflineConfig
from sharpwave.train.replay import ReplayBatch

METRICS = ("value_loss", "q_loss", "actor_loss", "advantage", "q_value")
"""What a gradient step measures, in order."""


@dataclass(frozen=True, kw_only=True)
class IQLConfig(OfflineConfig):
    """Options of IQL."""

    expectile: float = 0.7
    """What values aim at: 0.5 is the mean over the actions of the dataset, near 1 their best."""
    temperature: float = 3.0
    """How much more the better actions of the dataset are cloned."""
    weight_clip: float = 100.0
    """Largest weight of an action."""
    actor: Literal["gaussian", "deterministic"] = "gaussian"
    """Clone by likelihood, with a learned deviation, or by squared error."""
    cosine_schedule: bool = True
    """Let the learning rate of the actor fall to 0 over the run, along half a cosine."""
    tau: float = 0.005
    """Share of the new weights in the target critics at every step."""

    def check(self) -> None:
        """Check the values."""
        super().check()
        self.require_range("expectile", 0, 1)
        self.require_range("temperature", 0)
        self.require_positive("weight_clip")
        self.require_range("tau", 0, 1)


class IQL(OfflineAlgorithm):
    r"""IQL: learns what the better actions of the dataset are worth, and clones those.

    With the slow copy Q̄ of the critics, A = min_i Q̄_i(s, a) − V(s) and the expectile τ,

        L_V = mean(|τ − 1(A < 0)| A²)
        L_Q = ½ Σ_i mean((Q_i(s, a) − r − γ V(s'))²)
        L_π = −mean(min(exp(β A), c) log π(a|s))

    V(s') and A are those from before the step of V. No action outside of the dataset is ever asked
    for its value.

    Example:
        >>> import numpy as np
        >>> obs = np.random.default_rng(0).normal(size=(500, 3)).astype("f")
        >>> done = np.arange(500) % 50 == 49
        >>> agent = IQL((obs, obs, np.tanh(obs[:, :1]), obs[:, 0], done), hidden=32)
        >>> sorted(agent.train(20))[:2]
        ['actor_loss', 'advantage']
        >>> agent.predict(obs[0]).shape
        (1,)
    """

    name = "iql"
    Config = IQLConfig
    config: IQLConfig
    metrics = METRICS
    compiled = ("value_loss", "q_loss", "actor_loss")

    def build_networks(self) -> None:
        """Make actor, critics, their slow copy and the value function."""
        options = self.network_options
        gaussian = self.config.actor == "gaussian"
        make: Any = nn.GaussianActor if gaussian else nn.DeterministicActor
        self.policy = make(self.observation_space, self.action_dim, **options)
        self.critics = nn.Critics(self.observation_space, self.action_dim, **options)
        self.value = nn.ValueFunction(self.observation_space, **options)
        self.target_critics = deepcopy(self.critics).requires_grad_(False)

        self.flat_actor = nn.FlatParameters(self.policy, self.device)
        self.flat_critics = nn.FlatParameters(self.critics, self.device)
        self.flat_value = nn.FlatParameters(self.value, self.device)
        self.flat_targets = nn.FlatParameters(self.target_critics, self.device)
        self.actor_optimizer = nn.Adam(self.flat_actor, lr=0.0, eps=1e-8)
        self.critic_optimizer = nn.Adam(self.flat_critics, lr=0.0, eps=1e-8)
        self.value_optimizer = nn.Adam(self.flat_value, lr=0.0, eps=1e-8)
        self.register("critics", self.critics, self.critic_optimizer)
        self.register("value", self.value, self.value_optimizer)
        self.register("actor", self.policy, self.actor_optimizer)
        self.register("target_critics", self.target_critics)

    @property
    def has_schedules(self) -> bool:
        """Whether learning rates change from step to step."""
        return super().has_schedules or self.config.cosine_schedule

    def follow_schedules(self, progress_remaining: float) -> None:
        """Set the learning rates."""
        super().follow_schedules(progress_remaining)
        if self.config.cosine_schedule:
            share = 0.5 * (1.0 - math.cos(math.pi * progress_remaining))
            self.actor_optimizer.lr.mul_(share)

    def act(
        self,
        policy: Any,
        obs: Any,
        masks: torch.Tensor | None,  # noqa: ARG002 - continuous actions have none
        *,
        explore: bool,
        generator: torch.Generator,
    ) -> torch.Tensor:
        """Actions in [-1, 1]: drawn from the policy, or its mean."""
        if explore and self.config.actor == "gaussian":
            actions: torch.Tensor = policy.explore(obs, generator)
        else:
            actions = policy.mode(obs)
        return actions

    def graph_key(self) -> str:
        """All steps are alike."""
        return "step"

    def gradient_step(self, batch: ReplayBatch) -> torch.Tensor:
        """One step of value function, critics and actor, in this order; its `METRICS`."""
        with torch.no_grad():
            values_of_data = self.target_critics(batch.obs, batch.actions).amin(0)
            targets = torch.addcmul(batch.rewards, batch.discounts, self.value(batch.next_obs))

        value_loss, advantages = self.value_loss(batch, values_of_data)
        nn.descend(value_loss, self.flat_value, self.value_optimizer)

        q_loss = self.q_loss(batch, targets)
        nn.descend(q_loss, self.flat_critics, self.critic_optimizer)
        self.flat_targets.data.lerp_(self.flat_critics.data, self.config.tau)

        actor_loss = self.actor_loss(batch, advantages)
        nn.descend(actor_loss, self.flat_actor, self.actor_optimizer)
        with torch.no_grad():
            means = advantages.mean(), targets.mean()
            return torch.stack((value_loss, q_loss, actor_loss, *means))

    def value_loss(
        self, batch: ReplayBatch, values_of_data: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The asymmetric loss of the value function, and the advantages [B] of the data."""
        advantages = values_of_data - self.value(batch.obs)
        below = (advantages.detach() < 0).float()
        weights = (self.config.expectile - below).abs_()
        return (weights * advantages.square()).mean(), advantages.detach()

    def q_loss(self, batch: ReplayBatch, targets: torch.Tensor) -> torch.Tensor:
        """How far the critics are from their targets."""
        errors = self.critics(batch.obs, batch.actions) - targets
        loss: torch.Tensor = 0.5 * errors.square().mean(-1).sum()
        return loss

    def actor_loss(self, batch: ReplayBatch, advantages: torch.Tensor) -> torch.Tensor:
        """How far the policy is from the better actions of the dataset."""
        config = self.config
        weights = (config.temperature * advantages).exp_().clamp_(max=config.weight_clip)
        if config.actor == "gaussian":
            distances = -self.policy.log_prob(batch.obs, batch.actions)
        else:
            distances = (self.policy(batch.obs) - batch.actions).square().sum(-1)
        loss: torch.Tensor = (weights * distances).mean()
        return loss
