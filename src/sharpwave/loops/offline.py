"""The loop of learners that learn from a fixed dataset."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from sharpwave.buffers import ReplayBuffer, Transition
from sharpwave.buffers.offline_mixture import rows_of
from sharpwave.config.offline import OfflineConfig
from sharpwave.learners import Metrics
from sharpwave.learners.columns import declared_columns
from sharpwave.learners.replay import ReplayBatch, ReplaySampler
from sharpwave.loops.loop import Loop, Run, means
from sharpwave.loops.offline_data import check_extra, normalizes, reward_form
from sharpwave.pages.units import GRADIENT_STEPS

__all__ = ["OfflineLoop"]


class OfflineLoop(Loop):
    """Learns from batches of a dataset.

    Batches are a function of the seed and of the number of the step, so that a run continues
    exactly after a checkpoint.

    Args:
        learner: The learner.
        config: Options.
        seed: Of the draws.
        dataset: Gives the dataset when it is needed.
        normalizer: Mean and deviation of observations; None to leave them.
        columns: Columns that are read of the dataset, beside the learner's own columns.
    """

    unit = GRADIENT_STEPS
    config: OfflineConfig

    def __init__(
        self,
        learner: Any,
        config: OfflineConfig,
        *,
        seed: int,
        dataset: Callable[[], Any],
        normalizer: Any,
        columns: tuple[str, ...],
    ) -> None:
        super().__init__(learner, config)
        self.normalizer = normalizer
        self._seed = seed
        self._dataset = dataset
        self._extra = declared_columns(learner)
        self._columns = (*columns, *(name for name in self._extra if name not in columns))
        self._sampler: ReplaySampler | None = None

    @property
    def subject(self) -> str:
        """The size of the dataset."""
        return f"{len(self._dataset()):,} steps of data"

    @property
    def rows(self) -> int:
        """Rows of a batch."""
        return self.config.batch_size

    @property
    def gradient_steps(self) -> int:
        """Gradient steps so far."""
        steps: int = self.learner.updates
        return steps

    def check(self) -> None:
        """Raise what is wrong with the dataset before a run folder is made."""
        _ = self.sampler

    @property
    def sampler(self) -> ReplaySampler:
        """The sampler that draws batches of the dataset."""
        if self._sampler is None:
            config, dataset = self.config, self._dataset()
            moments = None
            if self.normalizer is not None and not normalizes(dataset):
                moments = self.normalizer.mean, self.normalizer.std
            check_extra(dataset, self._extra, self.learner)
            rows = rows_of(dataset)
            self._sampler = self.learner.Sampler(
                rows,
                config.batch_size,
                view=Transition(self._columns) if isinstance(rows, ReplayBuffer) else None,
                gamma=config.gamma,
                learner=self.learner,
                obs_moments=moments,
                reward_form=reward_form(dataset, config.reward_scale, config.reward_shift),
                next_seed=self._next_seed,
                columns=self._extra,
            )
        return self._sampler

    def _next_seed(self) -> int:
        """Batches are a function of the seed and of the number of the gradient step."""
        return (self._seed << 32) + self.gradient_steps

    def sample(self) -> ReplayBatch:
        """A batch to learn from, which the next one may overwrite."""
        return self.sampler.sample()

    def report(self, batch: ReplayBatch, metrics: Metrics) -> None:
        """Write the priorities of a batch that was learned from."""
        self.sampler.report(batch, metrics)

    def iterate(self, run: Run) -> Metrics | None:
        """Gradient steps until the next report of metrics."""
        began = time.perf_counter()
        end = min(self.timesteps + self.config.log_interval, run.target_timesteps)
        learner, sampler = self.learner, self.sampler
        measured: list[Metrics] = []
        while self.timesteps < end and run.stop_reason is None:
            self.follow(run.progress_remaining)
            before = learner.updates
            metrics = learner.update(sampler.as_batch(sampler.draw()))
            metrics.pop("td_errors", None)
            learner.updates = max(learner.updates, before + 1)  # that of a user may not count
            self.timesteps += 1
            measured.append(metrics)
            if run.hears("on_step"):
                run.tell("on_step", **{name: float(x) for name, x in metrics.items()})
        self.timings["update"] += time.perf_counter() - began
        return {**means(measured), **learner.metrics()} if measured else None

    def adapted(self, state: dict[str, Any]) -> dict[str, Any]:
        """The state of a learner in an older file, in which every step was one of the gradient."""
        return {"gradient_steps": self.timesteps, **state}

    def load_state_dict(self, state: dict[str, Any], *, in_flight: bool, source: str) -> None:  # noqa: ARG002
        """Begin anew with the dataset."""
        self._sampler = None
