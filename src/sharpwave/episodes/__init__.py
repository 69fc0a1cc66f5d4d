"""Whole episodes on disk."""

from sharpwave.episodes.buffer import EpisodeBuffer
from sharpwave.episodes.spec import EpisodeField, EpisodeSchema
from sharpwave.episodes.table import ABORTED, COMPLETE, EpisodeTable, LostEpisodes

__all__ = [
    "ABORTED",
    "COMPLETE",
    "EpisodeBuffer",
    "EpisodeField",
    "EpisodeSchema",
    "EpisodeTable",
    "LostEpisodes",
]
