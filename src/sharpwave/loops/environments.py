"""Base of the loops that step environments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sharpwave.collect import Episodes, EpisodeStats
from sharpwave.loops.loop import Loop
from sharpwave.pages.headline import RETURN
from sharpwave.pages.units import ENVIRONMENT_STEPS

__all__ = ["EnvironmentLoop"]


class EnvironmentLoop(Loop):
    """A loop whose learner acts in environments; a subclass makes the `collector`.

    Args:
        learner: The learner, which acts too.
        config: Options.
        env: A vector environment.
        subject: The environments, in words.

    Attributes:
        collector: The collector that steps them.
    """

    unit = ENVIRONMENT_STEPS
    headline = RETURN
    collector: Any

    def __init__(self, learner: Any, config: Any, env: Any, subject: str) -> None:
        super().__init__(learner, config)
        self.env = env
        self._subject = subject
        self._all_episodes: Episodes | None = None
        self._of_all: list[tuple[float, int]] | None = None  # where somebody takes them

    @property
    def subject(self) -> str:
        """Number and id of the environments, in words."""
        return self._subject

    @property
    def episodes(self) -> Episodes:
        """Returns and lengths of the episodes finished in training, by all processes."""
        episodes: Episodes = self._all_episodes or self.collector.episodes
        return episodes

    def restart(self) -> None:
        """Count from 0 again, in new episodes."""
        super().restart()
        self.collector.restart()

    def begin_in(self, folder: Path) -> None:
        """Told which folder the run has: from now on episodes are kept until they are taken."""
        super().begin_in(folder)
        self.collector.episodes.take_new()

    def take_episodes(self) -> tuple[int, list[tuple[float, int]]]:
        """Number of finished episodes, and return and length of those new since the last call."""
        if self.ranks.size == 1:
            return self.collector.episodes.count, self.collector.episodes.take_new()
        new, self._of_all = self._of_all or [], []
        return self.episodes.count, new

    def _share_episodes(self) -> None:
        """Let `episodes` be those of all processes that learn together."""
        if not self.ranks.is_alone:
            mine = self.collector.episodes
            every = self.ranks.gather((mine.state_dict(), mine.take_new()))
            self._all_episodes = EpisodeStats.joined([state for state, _ in every])
            if self._of_all is not None:
                self._of_all += [one for _, new in every for one in new]
