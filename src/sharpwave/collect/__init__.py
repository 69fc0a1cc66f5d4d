"""Experience from environments: collectors and episode statistics.

Belongs here: what steps environments with a policy and knows how episodes end; arrays only.
"""

from sharpwave.collect.episodes import Episodes, EpisodeStats, episode_metrics
from sharpwave.collect.native import NativeCollector
from sharpwave.collect.native_rollouts import NativeRollouts
from sharpwave.collect.off_policy import OffPolicyCollector, Transitions
from sharpwave.collect.on_policy import Actor, OnPolicyCollector
from sharpwave.collect.rollout import Rollout
from sharpwave.collect.unrolls import UnrollCollector
from sharpwave.collect.vector_step import VectorStep
from sharpwave.errors import NonFiniteError

__all__ = [
    "Actor",
    "EpisodeStats",
    "Episodes",
    "NativeCollector",
    "NativeRollouts",
    "NonFiniteError",
    "OffPolicyCollector",
    "OnPolicyCollector",
    "Rollout",
    "Transitions",
    "UnrollCollector",
    "VectorStep",
    "episode_metrics",
]
