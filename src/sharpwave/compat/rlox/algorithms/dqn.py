"""`sharpwave.DQN` with rlox's arguments."""

from __future__ import annotations

from sharpwave.algorithms import dqn
from sharpwave.compat.rlox.algorithms.by_position import ByPosition
from sharpwave.compat.rlox.algorithms.hooks import RloxAgent
from sharpwave.compat.rlox.config import DQNConfig

__all__ = ["DQN", "DQNConfig"]


class DQN(ByPosition, RloxAgent, dqn.DQN):
    """`sharpwave.DQN`, which takes its options by position too.

    Checkpoints of either class load in the other.

    Example:
        >>> dqn = DQN("CartPole-v1", 10_000, 1e-3, n_step=3, prioritized=True, hidden=32)
        >>> dqn.config.buffer_size, dqn.config.loss
        (10000, 'mse')
    """

    Config = DQNConfig
    config: DQNConfig
    order = (
        "env_id buffer_size learning_rate batch_size gamma target_update_freq "
        "exploration_fraction exploration_initial_eps exploration_final_eps "
        "learning_starts double_dqn dueling n_step prioritized alpha beta_start hidden "
        "train_freq gradient_steps max_grad_norm seed callbacks logger compile q_network "
        "buffer collector n_envs"
    )
