"""memmap-replay-buffer's buffer and datasets under its names.

    from sharpwave.compat.memmap_replay_buffer import ReplayBuffer

Names, arguments, keys, shapes and dtypes are those that a program relies on.
docs/compat-memmap-replay-buffer.md lists what is deliberately different.
"""

from sharpwave.compat.memmap_replay_buffer.datasets import (
    ReplayDataset,
    ReplayDatasetNStep,
    ReplayDatasetTimestep,
    ReplayDatasetTimeWindow,
    ReplayDatasetTrajectory,
)
from sharpwave.compat.memmap_replay_buffer.replay_buffer import ReplayBuffer
from sharpwave.episodes import EpisodeUnion as ConcatReplayBuffer

__all__ = [
    "ConcatReplayBuffer",
    "ReplayBuffer",
    "ReplayDataset",
    "ReplayDatasetNStep",
    "ReplayDatasetTimeWindow",
    "ReplayDatasetTimestep",
    "ReplayDatasetTrajectory",
]
