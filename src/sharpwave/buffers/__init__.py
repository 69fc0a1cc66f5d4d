"""Replay buffers, and the parts they are made of.

Belongs here: what stores steps in memory or a folder and draws batches of them, in NumPy.
"""

from sharpwave.buffers.batch import Batch
from sharpwave.buffers.mmap import MmapReplayBuffer
from sharpwave.buffers.offline import OfflineDatasetBuffer
from sharpwave.buffers.offline_mixture import OfflineMixture
from sharpwave.buffers.prioritized import PrioritizedReplayBuffer
from sharpwave.buffers.replay import ReplayBuffer
from sharpwave.buffers.schema import Field, Schema
from sharpwave.buffers.selectors import (
    Fresh,
    Mixture,
    Prioritized,
    Recent,
    Uniform,
    Where,
    WithoutReplacement,
)
from sharpwave.buffers.views import Hindsight, NStep, Sequence, Transition
from sharpwave.buffers.writer import VectorWriter

__all__ = [
    "Batch",
    "Field",
    "Fresh",
    "Hindsight",
    "Mixture",
    "MmapReplayBuffer",
    "NStep",
    "OfflineDatasetBuffer",
    "OfflineMixture",
    "Prioritized",
    "PrioritizedReplayBuffer",
    "Recent",
    "ReplayBuffer",
    "Schema",
    "Sequence",
    "Transition",
    "Uniform",
    "VectorWriter",
    "Where",
    "WithoutReplacement",
]
