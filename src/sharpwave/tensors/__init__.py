"""Experience as tensors on a device: collectors of steps, batches on their way, and buffers.

Belongs here: what the rooms of arrays have and runs on devices need as tensors. Only
`tensors/buffers` imports torch when it is imported; the rest waits for its first use.
"""

from sharpwave.tensors.collector import TensorCollector
from sharpwave.tensors.episodes import TensorEpisodes
from sharpwave.tensors.graphed import GraphedRollouts
from sharpwave.tensors.intrinsic import IntrinsicSteps
from sharpwave.tensors.steps import HostSteps, TensorSteps
from sharpwave.tensors.transitions import TensorTransitionCollector

__all__ = [
    "GraphedRollouts",
    "HostSteps",
    "IntrinsicSteps",
    "TensorCollector",
    "TensorEpisodes",
    "TensorSteps",
    "TensorTransitionCollector",
]
