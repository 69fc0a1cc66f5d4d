"""The interface of loops, which a run goes on around."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from sharpwave.core.lazy import torch
from sharpwave.core.ranks import ALONE, Ranks
from sharpwave.pages.headline import Headline
from sharpwave.pages.units import UPDATES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sharpwave.collect import Episodes, VectorStep
    from sharpwave.learners import Metrics

__all__ = ["LOG_EVERY", "Loop", "Run", "means"]

LOG_EVERY = 1000
"""Steps that pass quickly, as those of environments and gradients do."""


class Run(Protocol):
    """Interface of the run around a loop, as the loop uses it."""

    stop_reason: str | None
    asked_to_stop: str | None
    target_timesteps: int

    @property
    def progress_remaining(self) -> float:
        """From 1 at the start of the run to 0 at its end."""

    def hears(self, hook: str, argument: str | None = None) -> bool:
        """Return whether any callback has a hook, and takes an argument of it."""

    def tell(self, hook: str, **kwargs: Any) -> bool:
        """Call a hook of all callbacks; False if one of them stops the run."""

    def tell_step(self, reward: float, transitions: Callable[[], VectorStep]) -> bool:
        """Call `on_step`; False if a callback stops the run."""

    def rollout_ended(self, episodes: Episodes) -> None:
        """Tell callbacks and loggers that environments were stepped."""

    def samples_written(self, samples: Callable[[], Sequence[dict[str, Any]]]) -> bool:
        """Tell callbacks and loggers what a language model wrote; False if one stops the run."""

    def due_step(self) -> int | None:
        """The next step that a callback wants to hear of; None for none."""


class Loop(ABC):
    """Feeds a learner; no mathematics, no backend.

    Args:
        learner: The learner.
        config: Options.

    Attributes:
        timesteps: Steps so far, in the loop's `unit`.
        timings: Seconds by section.
        keeps_replay: True while a checkpoint is saved that includes the replay buffer.
        ranks: The processes that learn together.
    """

    keeps_replay = False
    keeps_envs: ClassVar[bool] = False
    """True if the state of the loop includes that of the environments."""
    unit: ClassVar[str] = UPDATES
    """Unit that `timesteps` counts, in the plural, such as "environment steps"."""
    summed: ClassVar[frozenset[str]] = frozenset()
    """Measures of progress that add up over the processes that learn together; of others the mean
    is taken, and the largest where their name ends with `_max`."""
    headline: ClassVar[Headline | None] = None
    """The metric that a run is judged by, which reports and progress show first."""
    log_every: ClassVar[int] = LOG_EVERY
    """Steps between two reports of a logger that is not told otherwise; evaluations come after ten
    and checkpoints after 25 times as many."""

    def __init__(self, learner: Any, config: Any) -> None:
        self.learner = learner
        self.ranks: Ranks = getattr(learner, "ranks", ALONE)  # one of a user's may know nothing
        self.config = config
        self.timesteps = 0
        self.timings: dict[str, float] = {"update": 0.0, "callbacks": 0.0}

    @staticmethod
    def why_not_native(config: Any, buffer: Any) -> str | None:  # noqa: ARG004
        """Why native code cannot learn in this loop; None when it can."""
        return None

    @property
    @abstractmethod
    def subject(self) -> str:
        """The environments or the dataset that the loop learns from, in words."""

    @abstractmethod
    def iterate(self, run: Run) -> Metrics | None:
        """Learn until the next report of metrics; None if the run was stopped meanwhile."""

    def follow(self, progress_remaining: float) -> None:
        """Set what follows the progress of a run, from 1 at its start to 0 at its end."""
        self.learner.follow(progress_remaining)

    def progress_metrics(self) -> dict[str, float]:
        """Measures of progress beside the metrics of updates."""
        return {}

    def take_episodes(self) -> tuple[int, list[tuple[float, int]]]:
        """Number of finished episodes, and return and length of those new since the last call.

        The first call gives none of them.
        """
        return 0, []

    @property
    def rows(self) -> int:
        """About how many rows the networks see at once, which decides on threads."""
        return 256

    def few_threads(self) -> contextlib.AbstractContextManager[None]:
        """Inside, the learner has as many threads as help."""
        return self.learner.few_threads(self.rows)  # type: ignore[no-any-return]

    def running(self) -> contextlib.AbstractContextManager[None]:
        """Inside, a run goes on."""
        return contextlib.nullcontext()

    def begin_in(self, folder: Path) -> None:  # noqa: B027 - most need nothing of it
        """Told which folder the run has, before its first step."""

    def restart(self) -> None:
        """Count from 0 again: what comes is a run of its own, with what was learned so far."""
        self.timesteps = 0

    def check(self) -> None:  # noqa: B027
        """Raise what is wrong with the source before a run begins."""

    def keeping_all(self) -> contextlib.AbstractContextManager[None]:
        """Inside, the state holds everything, also what checkpoints leave out."""
        return contextlib.nullcontext()

    def state_dict(self) -> dict[str, Any]:
        """State of the loop, without the learner."""
        return {}

    def adapted(self, state: dict[str, Any]) -> dict[str, Any]:
        """The state of a learner and its loop in an older file, as files have it now."""
        return state

    def load_state_dict(  # noqa: B027
        self, state: dict[str, Any], *, in_flight: bool, source: str
    ) -> None:
        """Continue from `state_dict`.

        Args:
            state: The result of `state_dict`.
            in_flight: True if the environments are in the state of then.
            source: Origin of the state, for messages.
        """

    def close(self) -> None:  # noqa: B027
        """Let go of threads and files."""


def means(measured: Sequence[Metrics]) -> Metrics:
    """The mean of each measurement over some updates, but for `td_errors`."""
    names = [name for name in measured[0] if name != "td_errors"]
    return {name: _mean([metrics[name] for metrics in measured]) for name in names}


def _mean(values: Sequence[object]) -> object:
    if isinstance(values[0], float | int | np.number | np.ndarray):
        return float(np.mean(values))  # type: ignore[arg-type]
    return torch.stack(values).mean()  # type: ignore[arg-type]
