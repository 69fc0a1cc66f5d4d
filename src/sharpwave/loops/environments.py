"""Base of the loops that step environments."""

from __future__ import annotations

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

    def _share_episodes(self) -> None:
        """Let `episodes` be those of all processes that learn together."""
        if not self.ranks.is_alone:
            every = self.ranks.gather(self.collector.episodes.state_dict())
            self._all_episodes = EpisodeStats.joined(every)
