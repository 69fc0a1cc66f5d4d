"""Experience from environments: collectors and episode statistics."""

from sharpwave.collect.episodes import EpisodeStats
from sharpwave.collect.finite import NonFiniteError
from sharpwave.collect.native import NativeCollector
from sharpwave.collect.native_rollouts import NativeRollouts
from sharpwave.collect.off_policy import OffPolicyCollector, Transitions
from sharpwave.collect.on_policy import Actor, OnPolicyCollector
from sharpwave.collect.rollout import Rollout

__all__ = [
    "Actor",
    "EpisodeStats",
    "NativeCollector",
    "NativeRollouts",
    "NonFiniteError",
    "OffPolicyCollector",
    "OnPolicyCollector",
    "Rollout",
    "Transitions",
]
