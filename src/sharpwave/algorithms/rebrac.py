"""ReBRAC (Tarasov et al., 2023, arXiv:2305.09836)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sharpwave.algorithms.td3_bc import TD3BC, TD3BCConfig
from sharpwave.buffers import OfflineDatasetBuffer
from sharpwave.lazy import nn, torch
from sharpwave.train.replay import ReplayBatch
from sharpwave.train.schedules import ScheduleLike


@dataclass(frozen=True, kw_only=True)
class ReBRACConfig(TD3BCConfig):
    """Options of ReBRAC."""

    alpha: float = 1.0
    """How much the critics count in the loss of the actor."""
    actor_bc_coef: float = 0.01
    """How much the distance to the dataset counts in the loss of the actor."""
    critic_bc_coef: float = 0.01
    """How much that of the next action counts in targets."""
    layer_norm: bool = True
    """Normalise the layers of the critics."""
    batch_size: int = 1024
    """Steps of a gradient step."""
    learning_rate: ScheduleLike = 1e-3
    """Step size of the optimisers; a schedule follows the progress of the run."""
    hidden: tuple[int, ...] = (256, 256, 256)
    """Widths of the hidden layers; one number stands for two layers of that width."""

    def check(self) -> None:
        """Check the values."""
        super().check()
        self.require_range("actor_bc_coef", 0)
        self.require_range("critic_bc_coef", 0)


class ReBRAC(TD3BC):
    r"""ReBRAC: TD3+BC that stays near the dataset in its targets too, with normalised critics.

    With ã' = clip(π̄(s') + ε, −1, 1) and the action a' that the dataset took at s',

        y = r + γ (min_i Q̄_i(s', ã') − β_Q ‖ã' − a'‖²)
        L_Q = Σ_i mean((Q_i(s, a) − y)²)
        L_π = β_π mean(‖π(s) − a‖²) − α mean(min_i Q_i(s, π(s))) / mean |min_i Q_i(s, π(s))|

    where the last denominator is not differentiated.

    Example:
        >>> import numpy as np
        >>> obs = np.random.default_rng(0).normal(size=(500, 3)).astype("f")
        >>> done = np.arange(500) % 50 == 49
        >>> data = (obs, obs, np.tanh(obs[:, :1]), obs[:, 0], done)
        >>> agent = ReBRAC(data, hidden=32, batch_size=64)
        >>> sorted(agent.train(20))[:2]
        ['actor_loss', 'critic_loss']
    """

    name = "rebrac"
    Config = ReBRACConfig
    config: ReBRACConfig
    columns = (*TD3BC.columns, "next_actions")

    def prepare(self, dataset: Any) -> Any:
        """The dataset, which must know what was done next."""
        if not isinstance(dataset, OfflineDatasetBuffer):
            raise TypeError(
                f"{self.name} needs a dataset of whole episodes, got {type(dataset).__name__}"
            )
        return dataset

    def make_critics(self) -> nn.Critics:
        """What judges actions."""
        return nn.Critics(
            self.observation_space,
            self.action_dim,
            layer_norm=self.config.layer_norm,
            **self.network_options,
        )

    def targets(self, batch: ReplayBatch) -> torch.Tensor:
        """What the critics should say, [B]."""
        assert batch.next_actions is not None
        with torch.no_grad():
            actions = self.next_actions(batch)
            distances = (actions - batch.next_actions).square().sum(-1)
            next_values = self.target_critics(batch.next_obs, actions).amin(0)
            next_values = next_values - self.config.critic_bc_coef * distances
            return torch.addcmul(batch.rewards, batch.discounts, next_values)

    def actor_loss(self, batch: ReplayBatch) -> torch.Tensor:
        """What the actor's actions lack in value, and how far they are from the dataset's."""
        actions = self.policy(batch.obs)
        values = self.critics(batch.obs, actions).amin(0)
        scale = self.config.alpha / values.detach().abs().mean()
        distances = (actions - batch.actions).square().sum(-1)
        loss: torch.Tensor = self.config.actor_bc_coef * distances.mean() - scale * values.mean()
        return loss
