"""Buffers of torch tensors on any device: replay, prioritized replay, rollouts, statistics.

Belongs here: buffers whose rows are torch tensors. Importing this package imports torch.
"""

from sharpwave.tensors.buffers.base import ResetStrategy, TensorBuffer
from sharpwave.tensors.buffers.prioritized import (
    TensorPrioritizedReplayBatch,
    TensorPrioritizedReplayBuffer,
)
from sharpwave.tensors.buffers.replay import TensorReplayBatch, TensorReplayBuffer
from sharpwave.tensors.buffers.rollout import RolloutBatch, RolloutBuffer
from sharpwave.tensors.buffers.shared import SharedReplayBuffer
from sharpwave.tensors.buffers.statistics import Statistics, StatsTracker
from sharpwave.tensors.buffers.windows import TensorArrivalBatch

__all__ = [
    "ResetStrategy",
    "RolloutBatch",
    "RolloutBuffer",
    "SharedReplayBuffer",
    "Statistics",
    "StatsTracker",
    "TensorArrivalBatch",
    "TensorBuffer",
    "TensorPrioritizedReplayBatch",
    "TensorPrioritizedReplayBuffer",
    "TensorReplayBatch",
    "TensorReplayBuffer",
]
