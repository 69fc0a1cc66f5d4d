"""rl-buffer's buffers and tracker under its names.

    from sharpwave.compat.rl_buffer.replay_buffer import ReplayBuffer

Names, arguments, shapes and dtypes are those that its documentation shows. docs/tensors.md lists
what is deliberately different.
"""

from sharpwave.compat.rl_buffer.base_buffer import BaseBuffer, ResetStrategy
from sharpwave.compat.rl_buffer.prioritized_replay_buffer import (
    PrioritizedReplayBatch,
    PrioritizedReplayBuffer,
)
from sharpwave.compat.rl_buffer.replay_buffer import ReplayBatch, ReplayBuffer
from sharpwave.compat.rl_buffer.rollout_buffer import RolloutBatch, RolloutBuffer
from sharpwave.compat.rl_buffer.shared_replay_buffer import SharedReplayBuffer
from sharpwave.compat.rl_buffer.stats_tracker import StatsTracker

__all__ = [
    "BaseBuffer",
    "PrioritizedReplayBatch",
    "PrioritizedReplayBuffer",
    "ReplayBatch",
    "ReplayBuffer",
    "ResetStrategy",
    "RolloutBatch",
    "RolloutBuffer",
    "SharedReplayBuffer",
    "StatsTracker",
]
