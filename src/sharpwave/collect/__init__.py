"""Experience from environments: collectors and episode statistics."""

from sharpwave.collect.episodes import EpisodeStats
from sharpwave.collect.on_policy import Actor, NonFiniteError, OnPolicyCollector
from sharpwave.collect.rollout import Rollout

__all__ = ["Actor", "EpisodeStats", "NonFiniteError", "OnPolicyCollector", "Rollout"]
