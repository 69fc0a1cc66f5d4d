"""Implicit Q-Learning (Kostrikov et al., 2021, arXiv:2110.06169)."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from sharpwave.agents import OfflineAgent
from sharpwave.config.offline import OfflineConfig
from sharpwave.config.schedules import ScheduleLike
from sharpwave.core.lazy import nn, torch
from sharpwave.learners import Acted, Metrics
from sharpwave.learners.replay import ReplayBatch
from sharpwave.learners.torch_learner import TorchLearner

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class IQLConfig(OfflineConfig):
    """Options of IQL."""

    expectile: float = 0.7
    """Expectile of the value regression: 0.5 is the mean over the actions of the dataset, near 1
    their best."""
    temperature: float = 3.0
    """Inverse temperature β of advantage-weighted regression: larger clones better actions more."""
    weight_clip: float = 100.0
    """Maximum weight exp(βA) of an action."""
    actor: Literal["gaussian", "deterministic"] = "gaussian"
    """Gaussian policy with a learned standard deviation, cloned by likelihood; or deterministic
    policy, cloned by squared error."""
    cosine_schedule: bool = True
    """Anneal the learning rate of the actor to 0 over the run, by a cosine schedule."""
    critic_learning_rate: ScheduleLike | None = None
    """Learning rate of critics and value function; `learning_rate` when None."""
    tau: float = 0.005
    """Polyak coefficient: share of the new weights in each update of the target critics."""

    def check(self) -> None:
        """Check the values."""
        super().check()
        self.require_range("expectile", 0, 1)
        self.require_range("temperature", 0)
        self.require_positive("weight_clip")
        self.require_range("critic_learning_rate", 0)
        self.require_range("tau", 0, 1)


class IQLLearner(TorchLearner):
    r"""The networks and losses of IQL.

    With the target networks Q̄ of the critics, A = min_i Q̄_i(s, a) − V(s) and the expectile τ,

        L_V = mean(|τ − 1(A < 0)| A²)
        L_Q = ½ Σ_i mean((Q_i(s, a) − r − γ V(s'))²)
        L_π = −mean(min(exp(β A), c) log π(a|s))

    V(s') and A are those from before the step of V. No action outside of the dataset is ever asked
    for its value.
    """

    config: IQLConfig
    losses = ("value_loss", "q_loss", "actor_loss")

    def build(self) -> None:
        """Make actor, critics, their target networks and the value function."""
        obs, size = self.observation_space, self.action_dim
        kind: Any = nn.GaussianActor if self.config.actor == "gaussian" else nn.DeterministicActor
        actor = kind(obs, size, **self.network_options("actor"))
        critics = nn.Critics(obs, size, **self.network_options("critic"))
        value = nn.ValueFunction(obs, **self.network_options("critic"))
        self.critics = self.add("critics", critics, self.make_optimizer)
        self.value = self.add("value", value, self.make_optimizer)
        self.policy = self.add("actor", actor, self.make_optimizer)
        self.target_critics = self.add_copy("target_critics", self.critics)

    def follow(self, progress_remaining: float) -> None:
        """Set the learning rates."""
        if not self.config.cosine_schedule:
            super().follow(progress_remaining)
            return
        self._followed = None  # that of the actor changes by itself
        super().follow(progress_remaining)
        share = 0.5 * (1.0 - math.cos(math.pi * progress_remaining))
        self.optimizers["actor"].lr.mul_(share)

    def act(self, obs: Any, *, explore: bool, **_: Any) -> Acted:
        """Actions in [-1, 1]: samples of the policy, or its mean."""
        if explore and self.config.actor == "gaussian":
            return Acted(self.policy.explore(obs, self.explore_generator))
        return Acted(self.policy.mode(obs))

    def update_kind(self) -> Hashable:
        """All updates are alike."""
        return "step"

    def update(self, batch: ReplayBatch) -> Metrics:
        """One step of value function, critics and actor, in this order."""
        with torch.no_grad():
            values_of_data = self.target_critics(batch.obs, batch.actions).amin(0)
            targets = torch.addcmul(batch.rewards, batch.discounts, self.value(batch.next_obs))

        value_loss, advantages = self.value_loss(batch, values_of_data)
        self.descend("value", value_loss)

        q_loss = self.q_loss(batch, targets)
        self.descend("critics", q_loss)
        self.follow_slowly("target_critics", "critics", self.config.tau)

        actor_loss = self.actor_loss(batch, advantages)
        self.descend("actor", actor_loss)
        self.updates += 1
        return {
            "value_loss": value_loss.detach(),
            "q_loss": q_loss.detach(),
            "actor_loss": actor_loss.detach(),
            "advantage": advantages.mean(),
            "q_value": targets.mean(),
        }

    def value_loss(self, batch: ReplayBatch, values_of_data: Tensor) -> tuple[Tensor, Tensor]:
        """The expectile loss of the value function, and the advantages [B] of the data."""
        advantages = values_of_data - self.value(batch.obs)
        below = (advantages.detach() < 0).float()
        weights = (self.config.expectile - below).abs_()
        return (weights * advantages.square()).mean(), advantages.detach()

    def q_loss(self, batch: ReplayBatch, targets: Tensor) -> Tensor:
        """The squared TD loss of the critics."""
        errors = self.critics(batch.obs, batch.actions) - targets
        loss: Tensor = 0.5 * errors.square().mean(-1).sum()
        return loss

    def actor_loss(self, batch: ReplayBatch, advantages: Tensor) -> Tensor:
        """The loss of advantage-weighted regression of the actor."""
        config = self.config
        weights = (config.temperature * advantages).exp_().clamp_(max=config.weight_clip)
        if config.actor == "gaussian":
            distances = -self.policy.log_prob(batch.obs, batch.actions)
        else:
            distances = (self.policy(batch.obs) - batch.actions).square().sum(-1)
        loss: Tensor = (weights * distances).mean()
        return loss


class IQL(OfflineAgent):
    """IQL: expectile regression of values, and advantage-weighted cloning, offline.

    `IQLLearner` has the losses.

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
    Learner = IQLLearner
