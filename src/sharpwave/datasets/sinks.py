"""Sinks of a dataset's episodes: arrays in memory, or a folder."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any, Protocol, TypeAlias

import numpy as np

from sharpwave.core.tree import map_leaves
from sharpwave.datasets.episode_queue import CollectedEpisode
from sharpwave.episodes.buffer import EpisodeBuffer
from sharpwave.episodes.record import UNLIMITED
from sharpwave.episodes.recording import Recording, as_fields
from sharpwave.formats.stream import FINAL_OBS
from sharpwave.types import Nested

Arrays: TypeAlias = dict[str, Nested]
"""The arguments of `OfflineDatasetBuffer`: obs, next_obs, actions, rewards, terminated, truncated,
[n, ...] each, episode after episode."""


class Sink(Protocol):
    """Takes episodes."""

    def opened(self, env: Any) -> contextlib.AbstractContextManager[None]:
        """Episodes of this vector environment are taken inside the block."""

    def add(self, episode: CollectedEpisode) -> None:
        """Take an episode."""


class EpisodeArrays:
    """Joins episodes to arrays."""

    def __init__(self) -> None:
        self._episodes: list[Arrays] = []

    def opened(self, env: Any) -> contextlib.AbstractContextManager[None]:  # noqa: ARG002
        """Episodes of this vector environment are taken inside the block."""
        return contextlib.nullcontext()

    def add(self, episode: CollectedEpisode) -> None:
        """Take an episode."""
        next_obs = map_leaves(
            lambda leaf, final: np.concatenate([leaf[1:], final[None]]),
            episode.obs,
            episode.final_obs,
        )
        self._episodes.append(
            {
                "obs": episode.obs,
                "next_obs": next_obs,
                "actions": episode.actions,
                "rewards": episode.rewards,
                "terminated": episode.terminated,
                "truncated": episode.truncated,
            }
        )

    def result(self) -> Arrays:
        """All steps, episode after episode."""
        joined: Arrays = map_leaves(lambda *parts: np.concatenate(parts), *self._episodes)
        return joined


class EpisodeFolder:
    """Writes episodes to a folder, with the fields of `RecordEpisodes`.

    Args:
        folder: Where; one that holds episodes of the same fields is continued.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = folder

    @contextlib.contextmanager
    def opened(self, env: Any) -> Iterator[None]:
        """Episodes of this vector environment are taken inside the block."""
        recording = Recording(env.single_observation_space, env.single_action_space, {}, ())
        fields, meta_fields = recording.fields, recording.meta_fields
        with EpisodeBuffer(self._folder, UNLIMITED, UNLIMITED, fields, meta_fields) as buffer:
            self._recording, self._buffer = recording, buffer
            yield

    def add(self, episode: CollectedEpisode) -> None:
        """Write an episode."""
        self._buffer.store_episode(
            obs=as_fields(episode.obs),
            action=as_fields(episode.actions),
            reward=episode.rewards,
            terminated=episode.terminated,
            truncated=episode.truncated,
            **{FINAL_OBS: as_fields(episode.final_obs)},
            **self._recording.meta(episode.seed, None),
        )

    def result(self) -> EpisodeBuffer:
        """The folder, opened for reading."""
        return EpisodeBuffer.from_folder(self._folder)
