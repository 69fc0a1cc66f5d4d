"""Conservative Q-Learning (Kumar et al., 2020, arXiv:2006.04779)."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from sharpwave.agents import OfflineAgent
from sharpwave.algorithms.sac import SACLearner
from sharpwave.config.offline import OfflineConfig
from sharpwave.config.schedules import ScheduleLike
from sharpwave.core.lazy import nn, torch
from sharpwave.learners import Metrics
from sharpwave.learners.replay import ReplayBatch

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class CQLConfig(OfflineConfig):
    """Options of CQL."""

    n_critics: ClassVar[int] = 2
    use_gsde: ClassVar[bool] = False
    log_std_init: ClassVar[float] = -3.0

    cql_alpha: float = 5.0
    """Weight of the conservative penalty, which lowers Q-values of out-of-distribution actions."""
    n_random_actions: int = 10
    """Sampled actions of each kind for the penalty in each state: uniform ones, the policy's, and
    the policy's in the next state."""
    importance_sampling: bool = True
    """Subtract the log-density of the sampled actions in the penalty (importance sampling)."""
    next_actions: bool = True
    """Sample the policy's actions in the next state too for the penalty."""
    auto_alpha: bool = False
    """Learn `cql_alpha` as a Lagrange multiplier, so that the gap becomes `cql_target_value`."""
    cql_target_value: float = -1.0
    """Target value of the gap for a learned `cql_alpha`, which rises, up to a million times, while
    the gap is wider."""
    max_target_backup: bool = False
    """Use the maximum over `n_random_actions` actions of the policy in targets, not one sample."""
    backup_entropy: bool = False
    """Add the entropy term to the targets of the critics."""
    auto_entropy: bool = True
    """Learn the entropy coefficient (temperature); otherwise it is 1."""
    target_entropy: float | None = None
    """Target entropy of a learned coefficient; minus the number of action dimensions when None."""
    policy_learning_rate: float | None = None
    """Learning rate of the actor and of the entropy coefficient; `learning_rate` when None."""
    critic_hidden: tuple[int, ...] | None = None
    """Widths of the hidden layers of the critics, where `hidden` does not name them; `hidden` when
    None."""
    critic_learning_rate: ScheduleLike | None = None
    """Learning rate of the critics; `learning_rate` when None."""
    alpha_learning_rate: ScheduleLike | None = None
    """Learning rate of the entropy coefficient; `policy_learning_rate` when None."""
    orthogonal_init: bool = False
    """Initialize weights orthogonally."""
    tau: float = 0.005
    """Polyak coefficient: share of the new weights in each update of the target critics."""

    def hidden_of(self, network: str) -> tuple[int, ...]:
        """Widths of the hidden layers of the `actor` or the `critic`."""
        if network == "critic" and self.critic_hidden and not isinstance(self.hidden, dict):
            return self.critic_hidden
        return super().hidden_of(network)

    def check(self) -> None:
        """Check the values."""
        super().check()
        self.require_range("cql_alpha", 0)
        self.require_positive("n_random_actions", "critic_hidden")
        self.require_range("policy_learning_rate", 0)
        self.require_range("critic_learning_rate", 0)
        self.require_range("alpha_learning_rate", 0)
        self.require_range("tau", 0, 1)


class CQLLearner(SACLearner):
    r"""SAC's networks, with a conservative penalty on Q-values of out-of-distribution actions.

    With ã ~ π(·|s), a' ~ π(·|s'), target networks Q̄ and the sampled actions b_j, each drawn with
    density μ_j,

        y = r + γ min_i Q̄_i(s', a')
        gap_i = log Σ_j exp(Q_i(s, b_j) − log μ_j) − Q_i(s, a)
        L_Q = Σ_i mean((Q_i(s, a) − y)²) + α_cql Σ_i mean(gap_i)
        L_π = mean(α log π(ã|s) − min_i Q_i(s, ã))

    With `auto_alpha`, α_cql is multiplied by α' and the gap counts from `cql_target_value` on; α'
    rises while the gap is wider than that.
    """

    config: CQLConfig
    losses, compiled_too = ("critic_losses", "actor_loss"), ()

    def build(self) -> None:
        """Make actor, critics, their target networks and the learned coefficients."""
        actor, critics = self.make_actor(), self.make_critics()
        if self.config.orthogonal_init:
            nn.initialize(actor, self.weights_generator, head_gain=1e-2)
            critics.net.orthogonal_(self.weights_generator, head_gain=1e-2)
        self.critics = self.add("critics", critics, self.make_optimizer)
        self.policy = self.add("actor", actor, self.make_optimizer)
        self.target_critics = self.add_copy("target_critics", self.critics)
        self.temperature = self.add("temperature", nn.Scalar(0.0), self.make_optimizer)
        self.multiplier = self.add("multiplier", nn.Scalar(0.0), self.make_optimizer)
        self._cql_alpha = torch.tensor(self.config.cql_alpha, device=self.device)

    def rates(self) -> dict[str, ScheduleLike]:
        """The learning rate of each optimizer."""
        rates, of_policy = super().rates(), self.config.policy_learning_rate
        if of_policy is not None:
            rates["actor"] = of_policy
            if self.config.alpha_learning_rate is None:
                rates["temperature"] = of_policy
        return rates

    def few_threads(self, rows: int) -> Any:
        """Context with as many threads as pay off on so many rows; critics see more of them."""
        kinds = 3 if self.config.next_actions else 2
        return super().few_threads(rows * (kinds * self.config.n_random_actions + 1))

    def update_kind(self) -> Hashable:
        """All updates are alike."""
        return "step"

    def update(self, batch: ReplayBatch) -> Metrics:
        """One gradient step of actor, critics and coefficients, all from their present values."""
        config = self.config
        here = self.policy(batch.obs)
        with torch.no_grad():
            there = self.policy(batch.next_obs)
        alpha = self.temperature.value.detach().exp()
        actions, log_probs = self.policy.draw(here, self.generator)
        targets = self.targets(batch, there, alpha)
        others, densities = self.other_actions(here, there)

        # The actor maximizes the Q-values, and its entropy.
        actor_loss = self.actor_loss(batch, actions, log_probs, alpha)
        self.descend("actor", actor_loss)
        if config.auto_entropy:
            surplus = log_probs.detach().mean() + self.target_entropy(None)
            self.flats["temperature"].grad.copy_(-surplus)
            self.optimizers["temperature"].step()

        # The critics regress on their targets, with the conservative penalty.
        td_loss, gap = self.critic_losses(batch, targets, others, densities)
        strength = self.strength()
        if config.auto_alpha:
            gap = gap - self.critics.net.n * config.cql_target_value
        cql_loss = strength * gap
        self.descend("critics", td_loss + cql_loss)
        self.follow_slowly("target_critics", "critics", config.tau)
        if config.auto_alpha:
            self.flats["multiplier"].grad.copy_(-0.5 * cql_loss.detach())  # by its logarithm
            self.optimizers["multiplier"].step()
        self.updates += 1
        return {
            "critic_loss": (td_loss + cql_loss).detach(),
            "cql_loss": cql_loss.detach(),
            "actor_loss": actor_loss.detach(),
            "alpha": alpha,
            "cql_alpha": strength,
            "entropy": -log_probs.detach().mean(),
            "q_value": targets.mean(),
        }

    def strength(self) -> Tensor:
        """Coefficient of the gap, without gradient."""
        if not self.config.auto_alpha:
            return self._cql_alpha
        learned: Tensor = self.multiplier.value.detach().exp().clamp(max=1e6)
        return self._cql_alpha * learned

    def targets(  # type: ignore[override]
        self, batch: ReplayBatch, there: Any, alpha: Tensor
    ) -> Tensor:
        """Targets of the critics [B], by the policy `there` at the next observations."""
        with torch.no_grad():
            n = self.config.n_random_actions if self.config.max_target_backup else 1
            actions, log_probs = self.policy.draw(there, self.generator, n)
            values = self.target_critics.of_many(batch.next_obs, actions).amin(0)
            best, chosen = values.max(0)
            if self.config.backup_entropy:
                best = best - alpha * log_probs.gather(0, chosen[None])[0]
            targets: Tensor = torch.addcmul(batch.rewards, batch.discounts, best)
            return targets

    def other_actions(self, here: Any, there: Any) -> tuple[Tensor, Tensor]:
        """Sampled actions [k, B, d] for the penalty, and their log-densities [k, B].

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
        targets: Tensor,
        others: Tensor,
        densities: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """The TD loss of the critics, and the conservative gap, both summed over critics.

        All actions of all critics go through in one batch.
        """
        actions = torch.cat((batch.actions[None], others))
        values = self.critics.of_many(batch.obs, actions)
        of_data, of_others = values[:, 0], values[:, 1:]
        if self.config.importance_sampling:
            total = (of_others - densities).logsumexp(1)
        else:
            total = values.logsumexp(1)
        td_loss: Tensor = (of_data - targets).square().mean(-1).sum()
        gap: Tensor = (total - of_data).mean(-1).sum()
        return td_loss, gap


class CQL(OfflineAgent):
    """CQL: SAC with conservative critics, offline.

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
    Learner = CQLLearner
