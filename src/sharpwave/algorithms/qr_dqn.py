"""Quantile Regression DQN (Dabney et al., 2018, arXiv:1710.10044)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from sharpwave.agents import OnlineAgent
from sharpwave.algorithms.dqn import DQN, DQNConfig, DQNLearner
from sharpwave.config.schedules import ScheduleLike
from sharpwave.core.lazy import losses, torch
from sharpwave.learners.replay import ReplayBatch
from sharpwave.loops.off_policy import OffPolicyLoop

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class QRDQNConfig(DQNConfig):
    """Options of QR-DQN."""

    learning_rate: ScheduleLike = 5e-5
    """Learning rate; a schedule follows the progress of the run."""
    adam_eps: float = 0.01 / 32
    """ε of Adam: added to the root of its mean square, for numerical stability."""
    loss: Literal["quantile_huber"] = "quantile_huber"  # type: ignore[assignment]
    """Loss function: quantile regression with the Huber loss."""
    n_quantiles: int = 200
    """Number of quantiles of the distribution of returns."""

    def check(self) -> None:
        """Check the values."""
        super().check()
        self.require_positive("n_quantiles")


class QRDQNLearner(DQNLearner):
    r"""The network and loss of QR-DQN.

    The network gives `n_quantiles` quantiles θ(s, a) of the return of an action, the i-th for the
    level τ_i = (2i + 1) / 2N; the action with the highest mean is the best. With y_j = r + γ θ_j of
    the best next action and u = y_j − θ_i,

        L = mean(w · Σ_i mean_j(|τ_i − [u < 0]| huber(u))).

    Of an action of several choices, θ is the mean of the quantiles of what it chooses. The loss of
    a row is its priority. All options of `DQN` but the loss are there.
    """

    config: QRDQNConfig

    @property
    def n_atoms(self) -> int:
        """Number of quantiles."""
        return self.config.n_quantiles

    def values(self, output: Tensor) -> Tensor:
        """The mean returns [B, n] of quantiles [B, n, n_quantiles]."""
        return output.view(*output.shape[:2], -1).mean(-1)  # one quantile has no axis

    def loss(self, batch: ReplayBatch) -> tuple[Tensor, Tensor, Tensor]:
        """The loss of a batch, the mean returns [B] of its actions and the loss of each row [B]."""
        rewards = batch.rewards
        with torch.no_grad():
            next_quantiles = self.branches.mean_of(*self.next_best(batch)).view(len(rewards), -1)
            targets = rewards[:, None] + batch.discounts[:, None] * next_quantiles
        chosen = self.branches.mean_of(self.policy(batch.obs), batch.actions)
        quantiles = chosen.view(len(rewards), -1)
        rows = losses.quantile_huber(quantiles, targets)
        return losses.weighted_mean(rows, batch.weights), quantiles.detach().mean(-1), rows


class QRDQN(OnlineAgent):
    """QR-DQN: DQN with quantile regression of returns.

    `QRDQNLearner` has the loss.

    Args:
        q_network: A module `q_network(obs) -> quantiles` [B, n, n_quantiles] in place of the built
            one.

    Example:
        >>> qr_dqn = QRDQN("CartPole-v1", n_quantiles=10, learning_starts=100, hidden=(32, 32))
        >>> metrics = qr_dqn.train(200)
        >>> qr_dqn.predict([0.0, 0.1, 0.0, -0.1]) in (0, 1)
        True
    """

    name = "qr_dqn"
    Config = QRDQNConfig
    Learner = QRDQNLearner
    Loop = OffPolicyLoop
    takes = DQN.takes
