"""Datasets and loaders of episodes: whole ones, steps, n-step transitions and windows."""

from sharpwave.episodes.loaders.dataset import EpisodeDataset
from sharpwave.episodes.loaders.loader import EpisodeLoader
from sharpwave.episodes.loaders.methods import LoadsEpisodes

__all__ = ["EpisodeDataset", "EpisodeLoader", "LoadsEpisodes"]
