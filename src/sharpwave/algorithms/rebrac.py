"""ReBRAC (Tarasov et al., 2023, arXiv:2305.09836)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sharpwave.agents import OfflineAgent
from sharpwave.algorithms.td3 import TD3Learner
from sharpwave.algorithms.td3_bc import TD3BCConfig
from sharpwave.buffers import OfflineDatasetBuffer
from sharpwave.config.network import Hidden
from sharpwave.config.schedules import ScheduleLike
from sharpwave.core.lazy import torch
from sharpwave.learners.replay import ReplayBatch

if TYPE_CHECKING:
    from torch import Tensor

ACTOR_HEAD, CRITIC_HEAD = 1e-3, 3e-3
"""Bounds of the uniform initial weights of the last layers."""


@dataclass(frozen=True, kw_only=True)
class ReBRACConfig(TD3BCConfig):
    """Options of ReBRAC."""

    alpha: float = 1.0
    """Weight of the normalized Q-values in the loss of the actor."""
    actor_bc_coef: float = 0.01
    """Weight of the behavior cloning penalty in the loss of the actor."""
    critic_bc_coef: float = 0.01
    """Weight of the behavior cloning penalty of the next action in the targets of the critics."""
    layer_norm: bool = True
    """Apply layer normalization in the critics, after the activations."""
    normalize_obs: bool | None = False
    """Normalize observations by the mean and standard deviation of the dataset; None does so where
    it can."""
    batch_size: int = 1024
    """Batch size: transitions of a gradient step."""
    learning_rate: ScheduleLike = 1e-3
    """Learning rate; a schedule follows the progress of the run."""
    hidden: Hidden = (256, 256, 256)
    """Widths of the hidden layers; one number stands for two layers of that width."""

    def check(self) -> None:
        """Check the values."""
        super().check()
        self.require_range("actor_bc_coef", 0)
        self.require_range("critic_bc_coef", 0)


class ReBRACLearner(TD3Learner):
    r"""The networks and losses of ReBRAC.

    With ã' = clip(π̄(s') + ε, −1, 1) and the action a' that the dataset took at s',

        y = r + γ (min_i Q̄_i(s', ã') − β_Q ‖ã' − a'‖²)
        L_Q = Σ_i mean((Q_i(s, a) − y)²)
        L_π = β_π mean(‖π(s) − a‖²) − α mean(min_i Q_i(s, π(s))) / mean |min_i Q_i(s, π(s))|

    where the last denominator is not differentiated. Networks are those of the authors' code: ReLU,
    then normalization in the critics; first biases of 0.1; last layers uniform in ±0.001 (actor)
    and ±0.003 (critics).
    """

    def make_actor(self) -> Any:
        """The policy."""
        actor = super().make_actor()
        self._start(actor.net[::2], ACTOR_HEAD)
        return actor

    def make_critics(self, **options: Any) -> Any:
        """The critics, which estimate Q-values."""
        critics = super().make_critics(layer_norm=self.config.layer_norm, **options)
        self._start(critics.net.layers, CRITIC_HEAD)
        return critics

    def _start(self, layers: Any, bound: float) -> None:
        """Initialize biases and the last layer as the reference code does."""
        *hidden, head = layers
        with torch.no_grad():
            for layer in hidden:
                layer.bias.fill_(0.1)
            for parameter in (head.weight, head.bias):
                drawn = self.weights_generator.uniform(-bound, bound, tuple(parameter.shape))
                parameter.copy_(torch.from_numpy(drawn))

    def targets(self, batch: ReplayBatch) -> Tensor:
        """Targets [B] of the critics."""
        assert batch.next_actions is not None
        with torch.no_grad():
            actions = self.next_actions(batch)
            distances = (actions - batch.next_actions).square().sum(-1)
            next_values = self.target_critics(batch.next_obs, actions).amin(0)
            next_values = next_values - self.config.critic_bc_coef * distances
            targets: Tensor = torch.addcmul(batch.rewards, batch.discounts, next_values)
            return targets

    def actor_loss(self, batch: ReplayBatch) -> Tensor:
        """The loss of the actor: normalized Q-values and the behavior cloning penalty."""
        actions = self.policy(batch.obs)
        values = self.critics(batch.obs, actions).amin(0)
        scale = self.config.alpha / values.detach().abs().mean()
        distances = (actions - batch.actions).square().sum(-1)
        loss: Tensor = self.config.actor_bc_coef * distances.mean() - scale * values.mean()
        return loss


class ReBRAC(OfflineAgent):
    """ReBRAC: TD3+BC with penalties of actor and critic, and layer normalization, offline.

    `ReBRACLearner` has the losses.

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
    Learner = ReBRACLearner
    columns = (*OfflineAgent.columns, "next_actions")

    def prepare(self, dataset: Any) -> Any:
        """The dataset, which must have next actions."""
        if not isinstance(dataset, OfflineDatasetBuffer):
            raise TypeError(
                f"{self.name} needs a dataset of whole episodes, got {type(dataset).__name__}"
            )
        return dataset
