"""Buffers of torch tensors on any device: replay, prioritized replay, rollouts, statistics."""

from sharpwave.buffers.tensors.base import ResetStrategy, TensorBuffer
from sharpwave.buffers.tensors.prioritized import (
    TensorPrioritizedReplayBatch,
    TensorPrioritizedReplayBuffer,
)
from sharpwave.buffers.tensors.replay import TensorReplayBatch, TensorReplayBuffer
from sharpwave.buffers.tensors.rollout import RolloutBatch, RolloutBuffer
from sharpwave.buffers.tensors.shared import SharedReplayBuffer
from sharpwave.buffers.tensors.statistics import Statistics, StatsTracker
from sharpwave.buffers.tensors.windows import TensorArrivalBatch

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
