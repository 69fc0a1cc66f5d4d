"""Whole episodes on disk."""

from sharpwave.episodes.buffer import EpisodeBuffer
from sharpwave.episodes.loaders import EpisodeDataset, EpisodeLoader
from sharpwave.episodes.spec import EpisodeField, EpisodeSchema
from sharpwave.episodes.table import ABORTED, COMPLETE, EpisodeTable, LostEpisodes
from sharpwave.episodes.union import EpisodeUnion

__all__ = [
    "ABORTED",
    "COMPLETE",
    "EpisodeBuffer",
    "EpisodeDataset",
    "EpisodeField",
    "EpisodeLoader",
    "EpisodeSchema",
    "EpisodeTable",
    "EpisodeUnion",
    "LostEpisodes",
]
