"""Soft Actor-Critic for discrete actions (Christodoulou, 2019, arXiv:1910.07207)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gymnasium import spaces

from sharpwave.agents import OnlineAgent
from sharpwave.algorithms.sac import SACConfig, SACLearner
from sharpwave.core.lazy import nn, torch
from sharpwave.learners import Acted
from sharpwave.learners.replay import ReplayBatch
from sharpwave.loops.off_policy import OffPolicyLoop

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class DiscreteSACConfig(SACConfig):
    """Options of discrete SAC."""

    target_entropy: float | None = None
    """Target entropy of a learned coefficient; `target_entropy_scale` log n when None."""
    target_entropy_scale: float = 0.89
    """Target entropy as a fraction of the maximum entropy, log n of the n allowed actions."""

    def check(self) -> None:
        """Check the values."""
        super().check()
        self.require_range("target_entropy_scale", 0, 1)
        if self.use_gsde:
            raise ValueError("use_gsde must be False: discrete actions are explored by drawing")


class DiscreteSACLearner(SACLearner):
    r"""The networks and losses of SAC for discrete actions.

    Expectations over actions are exact sums; only the actions that are played are sampled:

        V̄(s') = Σ_a π(a|s') (min_i Q̄_i(s', a) − α log π(a|s')),   y = r + γ V̄(s')
        L_Q = ½ Σ_i mean((Q_i(s, a) − y)²)
        L_π = mean Σ_a π(a|s) (α log π(a|s) − min_i Q_i(s, a))
        L_α = log α · mean(H(π(·|s)) − H̄)

    Forbidden actions have probability 0.
    """

    config: DiscreteSACConfig

    @property
    def n_actions(self) -> int:
        """Number of actions.

        Raises:
            TypeError: The action space is not `Discrete` with two actions or more.
        """
        if not isinstance(self.action_space, spaces.Discrete) or self.action_space.n < 2:
            raise TypeError(
                f"{type(self).__name__} needs a Discrete action space of two actions or more, "
                f"got {self.action_space}"
            )
        return int(self.action_space.n)

    def make_actor(self, **options: Any) -> Any:
        """The policy."""
        options = {**self.network_options("actor"), **options}
        return nn.CategoricalActor(self.observation_space, self.n_actions, **options)

    def make_critics(self, **options: Any) -> Any:
        """The critics: Q-values of all actions of an observation at once."""
        options = {**self.network_options("critic"), "n_critics": self.config.n_critics, **options}
        return nn.Critics(self.observation_space, 0, n_outputs=self.n_actions, **options)

    def act(self, obs: Any, *, explore: bool, masks: Any = None, **_: Any) -> Acted:
        """Actions [N]: samples of the policy, or its mode."""
        if explore:
            return Acted(self.policy.explore(obs, masks, self.explore_generator))
        return Acted(self.policy.mode(obs, masks))

    def sample(self, obs: Any, masks: Tensor | None) -> tuple[Tensor, Tensor]:
        """Probabilities of all actions [B, n], and their logarithms."""
        log_probs: Tensor = self.policy(obs, masks)
        return log_probs.exp(), log_probs

    def entropies(self, actions: Tensor, log_probs: Tensor) -> Tensor:
        """The policy's entropy at each row [B], without gradient."""
        return -(actions * log_probs).detach().sum(-1)

    def target_entropy(self, masks: Tensor | None) -> Any:
        """Target entropy of a learned coefficient; for each row [B] where actions are masked."""
        config = self.config
        if config.target_entropy is not None:
            return config.target_entropy
        if masks is None:
            return config.target_entropy_scale * math.log(self.n_actions)
        return config.target_entropy_scale * masks.sum(-1).clamp(min=1).log()

    def targets(self, batch: ReplayBatch, alpha: Tensor) -> Tensor:
        """Targets [B] of the critics for the actions that were taken."""
        with torch.no_grad():
            probs, log_probs = self.sample(batch.next_obs, batch.next_masks)
            next_values = self.target_critics(batch.next_obs).amin(0)
            soft_values = (probs * (next_values - alpha * log_probs)).sum(-1)
            targets: Tensor = torch.addcmul(batch.rewards, batch.discounts, soft_values)
            return targets

    def critic_loss(self, batch: ReplayBatch, targets: Tensor) -> tuple[Tensor, Tensor]:
        """The loss of the critics, and the mean absolute TD error of each row [B]."""
        values = self.critics(batch.obs)
        taken = batch.actions.view(1, -1, 1).expand(len(values), -1, 1)
        errors = values.gather(-1, taken).squeeze(-1) - targets
        squares = errors.square() if batch.weights is None else batch.weights * errors.square()
        return 0.5 * squares.mean(-1).sum(), errors.detach().abs().mean(0)

    def actor_loss(
        self,
        batch: ReplayBatch,
        actions: Tensor,
        log_probs: Tensor,
        alpha: Tensor,
    ) -> Tensor:
        """The loss of the actor; the critics are not differentiated by anything here."""
        with torch.no_grad():
            values = self.critics(batch.obs).amin(0)
        regrets: Tensor = (actions * (alpha * log_probs - values)).sum(-1)
        return regrets.mean()


class DiscreteSAC(OnlineAgent):
    """SAC for discrete actions.

    `DiscreteSACLearner` has the losses.

    Example:
        >>> sac = DiscreteSAC("CartPole-v1", learning_starts=100, hidden=(32, 32))
        >>> metrics = sac.train(200)
        >>> sac.predict([0.0, 0.1, 0.0, -0.1]) in (0, 1)
        True
    """

    name = "discrete_sac"
    Config = DiscreteSACConfig
    Learner = DiscreteSACLearner
    Loop = OffPolicyLoop
