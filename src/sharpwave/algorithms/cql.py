"""Conservative Q-Learning (Kumar et al., 2020, arXiv:2006.04779)."""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from sharpwave.lazy import nn, torch
from sharpwave.train.offline import OfflineAlgorithm, OfflineConfig
from sharpwave.train.replay import ReplayBatch

METRICS = ("critic_loss", "cql_loss", "actor_loss", "alpha", "cql_alpha", "entropy", "q_value")
"""What a gradient step measures, in order."""


@dataclass(frozen=True, kw_only=True)
class CQLConfig(OfflineConfig):
    """Options of CQL."""

    cql_alpha: float = 5.0
    """How much values of actions that are not in the dataset are pushed down."""
    n_random_actions: int = 10
    """Such actions of each kind and state: random ones, the policy's, and those it would take in
    the next state."""
    importance_sampling: bool = True
    """Correct for how likely these actions were drawn."""
    next_actions: bool = True
    """Whether the actions of the next state are among them."""
    auto_alpha: bool = False
    """Learn `cql_alpha`, so that the gap of values becomes `cql_target_value`."""
    cql_target_value: float = -1.0
    """The gap that a learned `cql_alpha` aims at. It rises, up to a million times, while the gap is
    wider."""
    max_target_backup: bool = False
    """Take the best of `n_random_actions` actions of the policy in targets, not one of them."""
    backup_entropy: bool = False
    """Count entropy in targets."""
    auto_entropy: bool = True
    """Learn the weight of entropy; otherwise it is 1."""
    target_entropy: float | None = None
    """Entropy that a learned weight aims at; minus the number of action dimensions when None."""
    policy_learning_rate: float | None = None
    """Step size of the actor and of the weight of entropy; `learning_rate` when None."""
    critic_hidden: tuple[int, ...] | None = None
    """Widths of the hidden layers of the critics; `hidden` when None."""
    orthogonal_init: bool = False
    """Start from orthogonal weights."""
    tau: float = 0.005
    """Share of the new weights in the target critics at every step."""

    def check(self) -> None:
        """Check the values."""
        super().check()
        self.require_range("cql_alpha", 0)
        self.require_positive("n_random_actions", "critic_hidden")
        self.require_range("policy_learning_rate", 0)
        self.require_range("tau", 0, 1)


class CQL(OfflineAlgorithm):
    r"""CQL: SAC on a dataset, with critics that think little of what the dataset does not show.

    With ã ~ π(·|s), a' ~ π(·|s'), slow copies Q̄ and the actions b_j of other origin, each drawn
    with density μ_j,

        y = r + γ min_i Q̄_i(s', a')
        gap_i = log Σ_j exp(Q_i(s, b_j) − log μ_j) − Q_i(s, a)
        L_Q = Σ_i mean((Q_i(s, a) − y)²) + α_cql Σ_i mean(gap_i)
        L_π = mean(α log π(ã|s) − min_i Q_i(s, ã))

    With `auto_alpha`, α_cql is multiplied by α' and the gap counts from `cql_target_value` on; α'
    rises while the gap is wider than that.

    Example:
        >>> import numpy as np
        >>> obs = np.random.default_rng(0).normal(size=(500, 3)).astype("f")
        >>> done = np.arange(500) % 50 == 49
        >>> data = (obs, obs, np.tanh(obs[:, :1]), obs[:, 0], done)
        >>> agent = CQL(data, hidden=32, n_random_actions=4)
        >>> sorted(agent.train(20))[:2]
        ['actor_loss', 'alpha']
        >>> agent.predict(obs[0]).shape
        (1,)
    """

    name = "cql"
    Config = CQLConfig
    config: CQLConfig
    metrics = METRICS
    compiled = ("critic_losses", "actor_loss")

    def build_networks(self) -> None:
        """Make actor, critics, their slow copy and what is learned of weights."""
        config = self.config
        options = self.network_options
        self.policy = nn.SquashedActor(self.observation_space, self.action_dim, **options)
        options["hidden"] = config.critic_hidden or config.hidden
        self.critics = nn.Critics(self.observation_space, self.action_dim, **options)
        if config.orthogonal_init:
            nn.initialise(self.policy, self.weights_generator, head_gain=1e-2)
            self.critics.net.orthogonal_(self.weights_generator, head_gain=1e-2)
        self.target_critics = deepcopy(self.critics).requires_grad_(False)
        self.temperature = nn.Scalar(0.0)
        self.multiplier = nn.Scalar(0.0)
        wanted = config.target_entropy
        self.target_entropy = -float(self.action_dim) if wanted is None else wanted
        self._cql_alpha = torch.tensor(config.cql_alpha, device=self.device)

        self.flat_actor = nn.FlatParameters(self.policy, self.device)
        self.flat_critics = nn.FlatParameters(self.critics, self.device)
        self.flat_targets = nn.FlatParameters(self.target_critics, self.device)
        self.flat_alpha = nn.FlatParameters(self.temperature, self.device)
        self.flat_multiplier = nn.FlatParameters(self.multiplier, self.device)
        self.critic_optimizer = nn.Adam(self.flat_critics, lr=0.0, eps=1e-8)
        self.actor_optimizer = nn.Adam(self.flat_actor, lr=0.0, eps=1e-8)
        self.alpha_optimizer = nn.Adam(self.flat_alpha, lr=0.0, eps=1e-8)
        self.multiplier_optimizer = nn.Adam(self.flat_multiplier, lr=0.0, eps=1e-8)
        self.register("critics", self.critics, self.critic_optimizer)
        self.register("actor", self.policy, self.actor_optimizer)
        self.register("target_critics", self.target_critics)
        self.register("temperature", self.temperature, self.alpha_optimizer)
        self.register("multiplier", self.multiplier, self.multiplier_optimizer)

    @property
    def rows(self) -> int:
        """Rows that the critics see at once."""
        kinds = 3 if self.config.next_actions else 2
        return self.config.batch_size * (kinds * self.config.n_random_actions + 1)

    def follow_schedules(self, progress_remaining: float) -> None:
        """Set the learning rates."""
        super().follow_schedules(progress_remaining)
        if self.config.policy_learning_rate is not None:
            self.actor_optimizer.set_lr(self.config.policy_learning_rate)
            self.alpha_optimizer.set_lr(self.config.policy_learning_rate)

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

    def graph_key(self) -> str:
        """All steps are alike."""
        return "step"

    def gradient_step(self, batch: ReplayBatch) -> torch.Tensor:
        """One step of actor, critics and weights, all from where they stand now; its `METRICS`."""
        config = self.config
        here = self.policy(batch.obs)
        with torch.no_grad():
            there = self.policy(batch.next_obs)
        alpha = self.temperature.value.detach().exp()
        actions, log_probs = self.policy.draw(here, self.generator)
        targets = self.targets(batch, there, alpha)
        others, densities = self.other_actions(here, there)

        # The actor seeks what the critics value, and to stay as random as wanted.
        actor_loss = self.actor_loss(batch, actions, log_probs, alpha)
        nn.descend(actor_loss, self.flat_actor, self.actor_optimizer)
        if config.auto_entropy:
            surplus = log_probs.detach().mean() + self.target_entropy
            self.flat_alpha.grad.copy_(-surplus)
            self.alpha_optimizer.step()

        # The critics seek their targets, and to value other actions less than those of the dataset.
        td_loss, gap = self.critic_losses(batch, targets, others, densities)
        strength = self.strength()
        if config.auto_alpha:
            gap = gap - self.critics.net.n * config.cql_target_value
        cql_loss = strength * gap
        nn.descend(td_loss + cql_loss, self.flat_critics, self.critic_optimizer)
        self.flat_targets.data.lerp_(self.flat_critics.data, config.tau)
        if config.auto_alpha:
            self.flat_multiplier.grad.copy_(-0.5 * cql_loss.detach())  # by its logarithm
            self.multiplier_optimizer.step()
        with torch.no_grad():
            entropy, value = -log_probs.mean(), targets.mean()
            losses = td_loss + cql_loss, cql_loss, actor_loss
            return torch.stack((*losses, alpha, strength, entropy, value))

    def strength(self) -> torch.Tensor:
        """How much the gap counts, not differentiated."""
        if not self.config.auto_alpha:
            return self._cql_alpha
        return self._cql_alpha * self.multiplier.value.detach().exp().clamp(max=1e6)

    def targets(self, batch: ReplayBatch, there: Any, alpha: torch.Tensor) -> torch.Tensor:
        """What the critics should say, [B], of the policy `there` at the next observations."""
        with torch.no_grad():
            n = self.config.n_random_actions if self.config.max_target_backup else 1
            actions, log_probs = self.policy.draw(there, self.generator, n)
            values = self._values(self.target_critics, batch.next_obs, actions).amin(0)
            best, chosen = values.max(0)
            if self.config.backup_entropy:
                best = best - alpha * log_probs.gather(0, chosen[None])[0]
            return torch.addcmul(batch.rewards, batch.discounts, best)

    def other_actions(self, here: Any, there: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Actions [k, B, d] that the dataset may not know, and logarithms [k, B] of their density.

        Args:
            here: The policy at the observations.
            there: The policy at the next observations.
        """
        with torch.no_grad():
            n = self.config.n_random_actions
            policies = (here, there) if self.config.next_actions else (here,)
            drawn = [self.policy.draw(policy, self.generator, n) for policy in policies]
            uniform = torch.empty_like(drawn[0][0]).uniform_(-1.0, 1.0, generator=self.generator)
            density = torch.full_like(drawn[0][1], -math.log(2.0) * self.action_dim)
            actions = torch.cat([uniform, *(actions for actions, _ in drawn)])
            return actions, torch.cat([density, *(log_probs for _, log_probs in drawn)])

    def critic_losses(
        self,
        batch: ReplayBatch,
        targets: torch.Tensor,
        others: torch.Tensor,
        densities: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """How far the critics are from their targets, and the gap, both summed over critics.

        All actions of all critics go through in one batch.
        """
        actions = torch.cat((batch.actions[None], others))
        values = self._values(self.critics, batch.obs, actions)
        of_data, of_others = values[:, 0], values[:, 1:]
        if self.config.importance_sampling:
            total = (of_others - densities).logsumexp(1)
        else:
            total = values.logsumexp(1)
        td_loss: torch.Tensor = (of_data - targets).square().mean(-1).sum()
        gap: torch.Tensor = (total - of_data).mean(-1).sum()
        return td_loss, gap

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

    @staticmethod
    def _values(critics: Any, obs: Any, actions: torch.Tensor) -> torch.Tensor:
        """Values [n, k, B] of actions [k, B, d] at observations [B, ...]."""
        k, size, _ = actions.shape
        features = critics.features(obs).expand(k, size, -1).reshape(k * size, -1)
        values: torch.Tensor = critics.of_features(features, actions.reshape(k * size, -1))
        return values.view(-1, k, size)
