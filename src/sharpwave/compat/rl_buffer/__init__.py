"""rl-buffer's buffers and tracker under its names.

    from sharpwave.compat.rl_buffer.replay_buffer import ReplayBuffer

Names, arguments, shapes and dtypes are those that its documentation shows. docs/tensors.md lists
what is deliberately different.
"""

from sharpwave.compat.rl_buffer.base_buffer import BaseBuffer
from sharpwave.compat.rl_buffer.replay_buffer import ReplayBatch, ReplayBuffer
from sharpwave.compat.rl_buffer.rollout_buffer import RolloutBatch, RolloutBuffer
from sharpwave.compat.rl_buffer.stats_tracker import StatsTracker

__all__ = [
    "BaseBuffer",
    "ReplayBatch",
    "ReplayBuffer",
    "RolloutBatch",
    "RolloutBuffer",
    "StatsTracker",
]
