"""Soft Actor-Critic for discrete actions (Christodoulou, 2019, arXiv:1910.07207)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from gymnasium import spaces

from sharpwave.algorithms.sac import SAC, SACConfig
from sharpwave.lazy import nn, torch
from sharpwave.train.replay import ReplayBatch


@dataclass(frozen=True, kw_only=True)
class DiscreteSACConfig(SACConfig):
    """Options of discrete SAC."""

    target_entropy: float | None = None
    """Entropy that a learned weight aims at; `target_entropy_scale` log n when None."""
    target_entropy_scale: float = 0.89
    """Share of the largest possible entropy, that of the n actions that are allowed."""

    def check(self) -> None:
        """Check the values."""
        super().check()
        self.require_range("target_entropy_scale", 0, 1)
        if self.use_gsde:
            raise ValueError("use_gsde must be False: discrete actions are explored by drawing")


class DiscreteSAC(SAC):
    r"""SAC where the policy gives the probability of every action.

    Expectations over actions are sums, and nothing is drawn but what is played:

        V̄(s') = Σ_a π(a|s') (min_i Q̄_i(s', a) − α log π(a|s')),   y = r + γ V̄(s')
        L_Q = ½ Σ_i mean((Q_i(s, a) − y)²)
        L_π = mean Σ_a π(a|s) (α log π(a|s) − min_i Q_i(s, a))
        L_α = log α · mean(H(π(·|s)) − H̄)

    Forbidden actions have probability 0.

    Example:
        >>> sac = DiscreteSAC("CartPole-v1", learning_starts=100, hidden=(32, 32))
        >>> metrics = sac.train(200)
        >>> sac.predict([0.0, 0.1, 0.0, -0.1]) in (0, 1)
        True
    """

    name = "discrete_sac"
    Config = DiscreteSACConfig
    config: DiscreteSACConfig
    takes = ()

    @property
    def n_actions(self) -> int:
        """Number of actions.

        Raises:
            TypeError: They are not a choice of one of several.
        """
        if not isinstance(self.action_space, spaces.Discrete) or self.action_space.n < 2:
            raise TypeError(
                f"{self.name} needs a Discrete action space of two actions or more, "
                f"got {self.action_space}"
            )
        return int(self.action_space.n)

    def make_actor(self) -> Any:
        """What acts."""
        return nn.CategoricalActor(
            self.observation_space,
            self.n_actions,
            hidden=self.config.hidden,
            activation=self.config.activation,
            generator=self.weights_generator,
        )

    def make_by_hand(self) -> None:
        """Its gradients are left to autograd."""

    def make_critics(self) -> Any:
        """What judges all actions of an observation at once."""
        config = self.config
        return nn.Critics(
            self.observation_space,
            0,
            n_critics=config.n_critics,
            hidden=config.hidden,
            activation=config.activation,
            n_outputs=self.n_actions,
            generator=self.weights_generator,
        )

    def act(
        self,
        policy: Any,
        obs: Any,
        masks: torch.Tensor | None,
        *,
        explore: bool,
        generator: torch.Generator,
    ) -> torch.Tensor:
        """Actions [N]: drawn by their probability, or the most likely ones."""
        actions: torch.Tensor = (
            policy.explore(obs, masks, generator) if explore else policy.mode(obs, masks)
        )
        return actions

    def sample(self, obs: Any, masks: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Probabilities of all actions [B, n], and their logarithms."""
        log_probs: torch.Tensor = self.policy(obs, masks)
        return log_probs.exp(), log_probs

    def entropies(self, actions: torch.Tensor, log_probs: torch.Tensor) -> torch.Tensor:
        """The policy's entropy at each row [B], not differentiated."""
        return -(actions * log_probs).detach().sum(-1)

    def wanted_entropy(self, masks: torch.Tensor | None) -> Any:
        """The entropy that a learned weight aims at; at each row [B] where actions are masked."""
        config = self.config
        if config.target_entropy is not None:
            return config.target_entropy
        if masks is None:
            return config.target_entropy_scale * math.log(self.n_actions)
        return config.target_entropy_scale * masks.sum(-1).clamp(min=1).log()

    def targets(self, batch: ReplayBatch, alpha: torch.Tensor) -> torch.Tensor:
        """What the critics should say of the actions that were taken, [B]."""
        with torch.no_grad():
            probs, log_probs = self.sample(batch.next_obs, batch.next_masks)
            next_values = self.target_critics(batch.next_obs).amin(0)
            soft_values = (probs * (next_values - alpha * log_probs)).sum(-1)
            targets: torch.Tensor = torch.addcmul(batch.rewards, batch.discounts, soft_values)
            return targets

    def critic_loss(
        self, batch: ReplayBatch, targets: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The loss of the critics, and the mean size of the errors of each row [B]."""
        values = self.critics(batch.obs)
        taken = batch.actions.view(1, -1, 1).expand(len(values), -1, 1)
        errors = values.gather(-1, taken).squeeze(-1) - targets
        squares = errors.square() if batch.weights is None else batch.weights * errors.square()
        return 0.5 * squares.mean(-1).sum(), errors.detach().abs().mean(0)

    def actor_loss(
        self,
        batch: ReplayBatch,
        actions: torch.Tensor,
        log_probs: torch.Tensor,
        alpha: torch.Tensor,
    ) -> torch.Tensor:
        """The loss of the actor; the critics are not differentiated by anything here."""
        with torch.no_grad():
            values = self.critics(batch.obs).amin(0)
        regrets: torch.Tensor = (actions * (alpha * log_probs - values)).sum(-1)
        return regrets.mean()
