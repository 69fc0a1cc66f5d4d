"""The folder at a path, opened for looking at whatever it holds."""

from __future__ import annotations

import os

from sharpwave.errors import SharpwaveIOError
from sharpwave.pages.viewer.source import Source
from sharpwave.storage.folder import read_header


def open_source(path: str | os.PathLike[str]) -> Source:
    """Open a folder of the durable store. Nothing is written to it.

    Raises:
        SharpwaveIOError: It holds no store, or one that cannot be read.
    """
    kind = read_header(path)["kind"]
    if kind == "episodes":
        from sharpwave.pages.viewer.episode_source import EpisodeSource

        return EpisodeSource(path)
    if kind == "replay":
        from sharpwave.pages.viewer.replay_source import ReplaySource

        return ReplaySource(path)
    raise SharpwaveIOError(f"{path} holds {kind}, which cannot be looked at")
