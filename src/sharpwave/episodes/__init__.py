"""Whole episodes on disk.

Belongs here: what writes, opens, records and loads folders of whole episodes.
"""

from sharpwave.episodes.buffer import EpisodeBuffer
from sharpwave.episodes.loaders import EpisodeDataset, EpisodeLoader
from sharpwave.episodes.table import ABORTED, COMPLETE, EpisodeTable, LostEpisodes
from sharpwave.episodes.union import EpisodeUnion
from sharpwave.formats.spec import EpisodeField, EpisodeSchema

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
