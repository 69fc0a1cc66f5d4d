"""TD3+BC (Fujimoto and Gu, 2021, arXiv:2106.06860)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from sharpwave.agents import OfflineAgent
from sharpwave.algorithms.td3 import TD3Learner
from sharpwave.config.offline import OfflineConfig
from sharpwave.config.schedules import ScheduleLike
from sharpwave.core.lazy import torch
from sharpwave.learners.native import NativeTD3BCLearner
from sharpwave.learners.replay import ReplayBatch

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class TD3BCConfig(OfflineConfig):
    """Options of TD3+BC."""

    n_critics: ClassVar[int] = 2
    exploration_noise: ClassVar[float] = 0.1
    noise_type: ClassVar[str] = "normal"

    alpha: float = 2.5
    """Weight α of the normalized Q-values against behavior cloning in the loss of the actor."""
    critic_learning_rate: ScheduleLike | None = None
    """Learning rate of the critics; `learning_rate` when None."""
    tau: float = 0.005
    """Polyak coefficient: share of the new weights in each update of the target networks."""
    policy_delay: int = 2
    """Gradient steps of the critics for each one of the actor and all target networks."""
    target_noise: float = 0.2
    """Standard deviation of the noise on the target actor's actions, in units of half the action
    range (target smoothing)."""
    noise_clip: float = 0.5
    """Bound that the noise on the target actor's actions is clipped to."""

    def check(self) -> None:
        """Check the values."""
        super().check()
        self.require_positive("alpha", "policy_delay")
        self.require_range("tau", 0, 1)
        self.require_range("critic_learning_rate", 0)
        self.require_range("target_noise", 0)
        self.require_range("noise_clip", 0)


class TD3BCLearner(TD3Learner):
    r"""TD3's networks, with a loss of the actor that clones the dataset.

    With target networks π̄ and Q̄, and noise ε clipped to ±c,

        y = r + γ min_i Q̄_i(s', clip(π̄(s') + ε, −1, 1))
        L_Q = Σ_i mean((Q_i(s, a) − y)²)
        L_π = −λ mean(Q_1(s, π(s))) + mean((π(s) − a)²),   λ = α / mean |Q_1(s, π(s))|

    where λ is not differentiated. Actor and target networks move every `policy_delay` steps.
    """

    def actor_loss(self, batch: ReplayBatch) -> Tensor:
        """The loss of the actor: normalized Q-values and the behavior cloning term."""
        actions = self.policy(batch.obs)
        values = self.critics(batch.obs, actions, n=1)[0]
        scale = self.config.alpha / values.detach().abs().mean()
        cloning = torch.nn.functional.mse_loss(actions, batch.actions)
        loss: Tensor = cloning - scale * values.mean()
        return loss


class TD3BC(OfflineAgent):
    """TD3+BC: TD3 with a behavior-cloning term, offline.

    `TD3BCLearner` has the losses.

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
    Learner = TD3BCLearner
    Native = NativeTD3BCLearner
