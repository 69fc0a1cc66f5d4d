"""A folder that is looked at by several threads while a writer may append to it."""

from __future__ import annotations

import threading
from typing import Any

from sharpwave.pages.viewer.condition import Condition, look
from sharpwave.pages.viewer.detail import detail, frame
from sharpwave.pages.viewer.page import state
from sharpwave.pages.viewer.summary import FolderSummary, summarize
from sharpwave.pages.viewer.survey import Survey


class Watched:
    """The newest state of a folder, one question at a time.

    Args:
        survey: The folder's content as far as it was read.
        condition: What is known of the files; damage that was found stays said.
    """

    def __init__(self, survey: Survey, condition: Condition) -> None:
        self._lock = threading.Lock()
        self._survey = survey
        self._condition = condition

    def state(self, since: int = -1) -> dict[str, Any]:
        """State of the page, with the episodes from id `since` on."""
        with self._lock:
            return state(self._survey, self._refreshed(), since)

    def detail(self, episode: int) -> dict[str, Any]:
        """Everything of one episode but for its images; see `detail`."""
        with self._lock:
            return detail(self._survey, episode)

    def frame(self, episode: int, field: str, step: int) -> bytes:
        """An image as PNG; see `frame`."""
        with self._lock:
            return frame(self._survey, episode, field, step)

    def _refreshed(self) -> FolderSummary:
        self._survey.update()
        self._condition = look(self._survey, before=self._condition)
        return summarize(self._survey, self._condition)
