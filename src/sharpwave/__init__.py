"""An experience engine for reinforcement learning: native replay buffers and primitives."""

from sharpwave.buffers import (
    Batch,
    Field,
    Hindsight,
    Mixture,
    NStep,
    OfflineDatasetBuffer,
    Prioritized,
    PrioritizedReplayBuffer,
    Recent,
    ReplayBuffer,
    Schema,
    Sequence,
    Transition,
    Uniform,
    VectorWriter,
    Where,
    WithoutReplacement,
)
from sharpwave.errors import SharpwaveIOError

__version__ = "0.1.0"

__all__ = [
    "Batch",
    "Field",
    "Hindsight",
    "Mixture",
    "NStep",
    "OfflineDatasetBuffer",
    "Prioritized",
    "PrioritizedReplayBuffer",
    "Recent",
    "ReplayBuffer",
    "Schema",
    "Sequence",
    "SharpwaveIOError",
    "Transition",
    "Uniform",
    "VectorWriter",
    "Where",
    "WithoutReplacement",
    "__version__",
]
