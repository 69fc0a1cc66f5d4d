"""`sharpwave.DreamerV3` with rlox's arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from sharpwave.algorithms import dreamer
from sharpwave.compat.rlox.algorithms.by_position import ByPosition
from sharpwave.compat.rlox.algorithms.hooks import RloxAgent
from sharpwave.compat.rlox.config import DreamerV3Config

if TYPE_CHECKING:
    from torch import Tensor

    from sharpwave.learners import Metrics
    from sharpwave.learners.sequences import SequenceBatch
    from sharpwave.nn import Observed

__all__ = ["DreamerV3", "DreamerV3Config"]


class _Learner(dreamer.DreamerV3Learner):
    """The learner of DreamerV3, which also measures the loss of its model as one number."""

    def model_loss(self, batch: SequenceBatch) -> tuple[Tensor, Observed, Metrics]:
        """The loss of the model on sequences, and the states that it went through."""
        loss, observed, measured = super().model_loss(batch)
        return loss, observed, {**measured, "wm_loss": loss.detach()}


class DreamerV3(ByPosition, RloxAgent, dreamer.DreamerV3):
    """`sharpwave.DreamerV3` under rlox's name, with its sizes and defaults.

    `latent_dim`, `obs_dim` and `n_actions` are ignored: the environment has them. `kl_balance` b
    weighs the divergence that trains the prior by b, and the other by 1 - b.

    Example:
        >>> agent = DreamerV3("CartPole-v1", seq_len=8)
        >>> agent.config.sequence_length, agent.config.deter, agent.config.dynamics_coef
        (8, 64, 0.8)
        >>> agent.close()
    """

    Config = DreamerV3Config
    Learner = _Learner
    config: DreamerV3Config
    order: ClassVar[str] = (
        "env_id n_envs seed latent_dim imagination_horizon buffer_size batch_size seq_len "
        "learning_rate gamma obs_dim n_actions deter_dim stoch_dim stoch_classes kl_balance "
        "free_nats"
    )
    shown: ClassVar[dict[str, Any]] = {
        "latent_dim": 64,
        "imagination_horizon": 5,
        "seq_len": 16,
        "obs_dim": 4,
        "n_actions": 2,
        "deter_dim": 64,
        "stoch_dim": 8,
        "stoch_classes": 8,
        "kl_balance": 0.8,
    }
