"""Viewer of folders of the durable store."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from sharpwave.errors import SharpwaveIOError
from sharpwave.pages.serving import PageServer
from sharpwave.pages.viewer.condition import look
from sharpwave.pages.viewer.page import state, viewer_page
from sharpwave.pages.viewer.sample import sample
from sharpwave.pages.viewer.server import viewer_server
from sharpwave.pages.viewer.source import EpisodeSource, Progress, ReplaySource, Source
from sharpwave.pages.viewer.summary import FolderSummary, summarize
from sharpwave.pages.viewer.survey import BUDGET, Survey
from sharpwave.pages.viewer.watched import Watched
from sharpwave.storage.files import replace_file
from sharpwave.storage.folder import read_header

if TYPE_CHECKING:
    from rich.console import Console


def open_source(path: str | os.PathLike[str]) -> Source:
    """Open a folder of the durable store. Nothing is written to it.

    Raises:
        SharpwaveIOError: It holds no store, or one that cannot be read.
    """
    kind = read_header(path)["kind"]
    if kind == "episodes":
        return EpisodeSource(path)
    if kind == "replay":
        return ReplaySource(path)
    raise SharpwaveIOError(f"{path} holds {kind}, which cannot be looked at")


LIMIT = 24 << 20
"""Bytes of a page that its episodes may take."""


class Viewer:
    """A read-only view of a folder that holds episodes or a replay buffer.

    Args:
        path: The folder.
        full: Read all of every field. Otherwise at most 1 GiB of each is read, evenly spread, and
            all of the rewards.
        verify: Compare the checksums of all files.
        progress: Told what is being read, the bytes done, and the bytes in all (0: unknown).

    Raises:
        SharpwaveIOError: The folder holds no store, or one that cannot be read.

    Attributes:
        summary: Summary of the content.

    Example:
        >>> with sw.EpisodeBuffer("data", 10, 10, {"reward": "float"}) as buffer:
        ...     buffer.store_episode(reward=[1.0, 2.0, 3.0])
        >>> with Viewer("data") as viewer:
        ...     viewer.summary.returns["mean"]
        6.0
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        full: bool = False,
        verify: bool = False,
        progress: Progress | None = None,
    ) -> None:
        self._source = open_source(path)
        try:
            self._survey = Survey(self._source, budget=None if full else BUDGET)
            self._survey.update(progress)
            if verify and progress is not None:
                progress("checksums", 0, 0)
            self._condition = look(self._survey, verify=verify)
        except BaseException:
            self._source.close()
            raise
        self.summary: FolderSummary = summarize(self._survey, self._condition)

    def __len__(self) -> int:
        """Episodes that there are, complete or not."""
        return len(self._survey.episodes)

    def print(self, console: Console | None = None) -> None:
        """Print the summary, on standard output unless told otherwise."""
        from rich.console import Console

        from sharpwave.pages.viewer.terminal import print_summary

        if console is None:
            plain = Console()
            console = plain if plain.is_terminal else Console(width=max(plain.width, 120))
        print_summary(self.summary, console)

    def write_page(
        self,
        path: str | os.PathLike[str],
        *,
        episodes: int = 8,
        limit: int = LIMIT,
        progress: Progress | None = None,
    ) -> int:
        """Write a page of one file that needs nothing else.

        Args:
            path: The file.
            episodes: Number of episodes in the page: the best, the worst, the newest and so on.
            limit: Bytes that these may take; with less room there are fewer images.
            progress: Told how far it is.

        Returns:
            Number of episodes in it.
        """
        carried = sample(self._survey, episodes, limit, progress)
        shown = state(self._survey, self.summary, keep=carried.episodes.keys())
        replace_file(Path(path), viewer_page(shown, carried))
        return len(carried.episodes)

    def server(self, port: int = 0) -> PageServer:
        """A server of the live page, on this machine only. `serve_forever` starts it.

        Args:
            port: Port to listen on; 0 takes a free one.

        Raises:
            OSError: The port is taken.
        """
        return viewer_server(Watched(self._survey, self._condition), port)

    def close(self) -> None:
        """Let the folder go."""
        self._source.close()

    def __enter__(self) -> Viewer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
