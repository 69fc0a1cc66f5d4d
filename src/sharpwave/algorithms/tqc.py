"""Truncated Quantile Critics (Kuznetsov et al., 2020, arXiv:2005.04269)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from sharpwave.agents import OnlineAgent
from sharpwave.algorithms.sac import SACConfig, SACLearner
from sharpwave.core.lazy import losses, torch
from sharpwave.learners.replay import ReplayBatch
from sharpwave.loops.off_policy import OffPolicyLoop

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class TQCConfig(SACConfig):
    """Options of TQC."""

    n_critics: int = 2
    """Number of critics; the paper has 5."""
    n_quantiles: int = 25
    """Quantiles of the return that each critic estimates."""
    top_quantiles_to_drop: int = 2
    """Number of largest quantiles per critic that targets drop from the pool of all critics."""

    aliases: ClassVar[dict[str, str]] = {
        **SACConfig.aliases,
        "top_quantiles_to_drop_per_net": "top_quantiles_to_drop",
    }

    def check(self) -> None:
        """Check the values."""
        super().check()
        self.require_positive("n_quantiles")
        self.require_range("top_quantiles_to_drop", 0, self.n_quantiles - 1)


class TQCLearner(SACLearner):
    r"""The networks and losses of TQC.

    The quantiles z_1 ≤ z_2 ≤ ... of all target networks at (s', a') are pooled and sorted; all
    but the largest `n_critics · top_quantiles_to_drop` make the targets

        y_j = r + γ (z_j − α log π(a'|s'))

    of a quantile regression of every critic's θ. The actor maximizes the mean of all quantiles:

        L_Q = mean_i,k,j |τ_k − [y_j < θ_ik]| · huber(y_j − θ_ik)
        L_π = mean(α log π(ã|s) − mean_i,k θ_ik(s, ã))
    """

    config: TQCConfig

    def make_critics(self, **options: Any) -> Any:
        """The critics, which estimate quantiles of the return of actions."""
        return super().make_critics(n_outputs=self.config.n_quantiles, **options)

    def targets(self, batch: ReplayBatch, alpha: Tensor) -> Tensor:
        """Targets [B, m] of the critics' quantiles."""
        with torch.no_grad():
            config = self.config
            next_actions, next_log_probs = self.sample(batch.next_obs, batch.next_masks)
            quantiles = self.quantiles(self.target_critics, batch.next_obs, next_actions)
            kept = config.n_critics * (config.n_quantiles - config.top_quantiles_to_drop)
            lowest = quantiles.transpose(0, 1).flatten(1).sort(1).values[:, :kept]
            soft = lowest - (alpha * next_log_probs)[:, None]
            targets: Tensor = torch.addcmul(batch.rewards[:, None], batch.discounts[:, None], soft)
            return targets

    def critic_loss(self, batch: ReplayBatch, targets: Tensor) -> tuple[Tensor, Tensor]:
        """The loss of the critics, and the mean absolute TD error of each row [B]."""
        n_critics, n_quantiles = self.config.n_critics, self.config.n_quantiles
        quantiles = self.quantiles(self.critics, batch.obs, batch.actions)
        every_critic = targets.repeat(n_critics, 1)
        rows = losses.quantile_huber(quantiles.flatten(0, 1), every_critic).view(n_critics, -1)
        errors = quantiles.detach().mean(2) - targets.mean(1)
        loss = losses.weighted_mean(rows.mean(0), batch.weights) / n_quantiles
        return loss, errors.abs().mean(0)

    def actor_loss(
        self,
        batch: ReplayBatch,
        actions: Tensor,
        log_probs: Tensor,
        alpha: Tensor,
    ) -> Tensor:
        """The loss of the actor."""
        values = self.quantiles(self.critics, batch.obs, actions).mean((0, 2))
        return (alpha * log_probs - values).mean()

    def quantiles(self, critics: Any, obs: Any, actions: Tensor) -> Tensor:
        """Quantiles [n_critics, B, n_quantiles] of the return of actions."""
        output: Tensor = critics(obs, actions)
        return output.reshape(self.config.n_critics, len(actions), self.config.n_quantiles)


class TQC(OnlineAgent):
    """TQC: SAC with truncated quantile critics.

    `TQCLearner` has the losses.

    Args:
        actor: As for `SAC`.

    Example:
        >>> tqc = TQC("Pendulum-v1", learning_starts=100, hidden=(32, 32))
        >>> metrics = tqc.train(200)
        >>> tqc.predict([1.0, 0.0, 0.0]).shape
        (1,)
    """

    name = "tqc"
    Config = TQCConfig
    Learner = TQCLearner
    Loop = OffPolicyLoop
    takes = ("actor",)
