"""Base of the on-policy loops, which learn from their latest rollout alone."""

from __future__ import annotations

import time
from abc import abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any

from sharpwave.collect import episode_metrics
from sharpwave.learners import Metrics
from sharpwave.loops.environments import EnvironmentLoop
from sharpwave.loops.loop import Run
from sharpwave.storage.files import count_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from sharpwave.collect import VectorStep

__all__ = ["RolloutLoop"]


class RolloutLoop(EnvironmentLoop):
    """Collects a rollout with the current policy, learns from it, and throws it away.

    A subclass makes the `collector` and gives `collect`. The arguments are those of
    `EnvironmentLoop`.
    """

    def __init__(self, learner: Any, config: Any, env: Any, subject: str) -> None:
        super().__init__(learner, config, env, subject)
        self._elsewhere = 0  # steps of other processes

    def progress_metrics(self) -> dict[str, float]:
        """Returns and lengths of the last episodes."""
        return episode_metrics(self.episodes)

    def iterate(self, run: Run) -> Metrics | None:
        """One rollout, one update."""
        self.follow(run.progress_remaining)
        on_step = partial(self._on_step, run) if run.hears("on_step") else None
        batch = self.collect(on_step)
        if batch is None:
            return None
        self._meet()
        run.rollout_ended(self.episodes)
        began = time.perf_counter()
        metrics = self.learner.update(batch)
        self.timings["update"] += time.perf_counter() - began
        return {**metrics, **self.learner.metrics()}

    @abstractmethod
    def collect(self, on_step: Any = None) -> Any:
        """One rollout, as the learner takes it, or None if it was given up.

        Args:
            on_step: Called after every step; False gives up the rollout.
        """

    def _meet(self) -> None:
        """Share what the processes have learned of their environments."""
        self._share_episodes()

    def _count(self, before: int, *, is_whole: bool) -> bool:
        """Count what all processes have collected.

        Args:
            before: Steps that this one had collected before.
            is_whole: True if this one has not given up.

        Returns:
            Whether none has given up.
        """
        own = self.collector.timesteps - before
        steps, n_whole = self.ranks.sums(own, is_whole)
        self._elsewhere += int(steps) - own
        self.timesteps = self.collector.timesteps + self._elsewhere
        self.timings.update(self.collector.timings)
        return n_whole == self.ranks.size

    def _on_step(self, run: Run, reward: float, transitions: Callable[[], VectorStep]) -> bool:
        self.timesteps = self.collector.timesteps + self._elsewhere
        return run.tell_step(reward, transitions)

    def restart(self) -> None:
        """Count from 0 again, in new episodes."""
        super().restart()
        self._elsewhere = 0

    def close(self) -> None:
        """End the thread that collects, where there is one."""
        self.collector.close()

    def state_dict(self) -> dict[str, Any]:
        """State of the collection of rollouts."""
        return {"collector": self.collector.state_dict(), "elsewhere": self._elsewhere}

    def load_state_dict(self, state: dict[str, Any], *, in_flight: bool, source: str) -> None:  # noqa: ARG002
        """Continue from `state_dict`."""
        saved = state["collector"]
        # What another kind of collector wrote does not say where its episodes stand.
        in_flight = in_flight and saved.keys() == self.collector.state_dict().keys()
        self.collector.load_state_dict(saved, in_flight=in_flight)
        self._elsewhere = count_of(state, "elsewhere") if "elsewhere" in state else 0
        collected = self.collector.timesteps + self._elsewhere
        if self.timesteps > collected:  # it would fall back, and never end
            raise ValueError(
                f"timesteps must not exceed the {collected} steps that were collected, "
                f"got {self.timesteps}"
            )
        if in_flight:
            self._load_memory(state)

    def _load_memory(self, state: dict[str, Any]) -> None:
        """Take up what policies remembered at the observations that are acted on next."""
