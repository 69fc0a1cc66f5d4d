"""A run: steps until done or stopped, with callbacks, loggers and a folder beside them."""

from __future__ import annotations

import contextlib
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from sharpwave.lazy import torch
from sharpwave.train.callbacks import Callback, CallbackList
from sharpwave.train.callbacks.base import add_note
from sharpwave.train.convergence import check_convergence
from sharpwave.train.evaluation import EvaluationResult
from sharpwave.train.loggers import LoggerCallback, LoggerList
from sharpwave.train.options import AlgorithmConfig
from sharpwave.train.signals import stop_on_signal
from sharpwave.train.threads import torch_threads

if TYPE_CHECKING:
    from sharpwave.collect import Episodes

Metrics = dict[str, Any]
"""What an update measured: numbers, or tensors, which become numbers only when they are logged."""


class Run(ABC):
    """What trains for a number of steps: of environments, or of the gradient.

    A subclass gives `iterate` and counts `timesteps` there.

    Args:
        config: All options.
        callbacks: Called during every `train`.
        logger: Where metrics go: a logger, or several.

    Attributes:
        timesteps: Steps so far.
        target_timesteps: Where the current run ends.
        updates: Updates so far.
        timings: Seconds by section.
        stop_reason: Why the run was stopped early, or None.
        networks: What learns, by name.
    """

    def __init__(
        self,
        config: AlgorithmConfig,
        callbacks: Callback | Iterable[Callback] | None,
        logger: LoggerCallback | Iterable[LoggerCallback] | None,
    ) -> None:
        self.config = config
        self.callbacks = list(CallbackList(callbacks))
        self.loggers = LoggerList(logger)
        self.timesteps = 0
        self.target_timesteps = 0
        self.updates = 0
        self.timings: dict[str, float] = {"update": 0.0, "callbacks": 0.0}
        self.stop_reason: str | None = None
        self.networks: dict[str, Any] = {}
        self._hooks = CallbackList()
        self._callback_states: dict[str, Any] = {}

    @abstractmethod
    def iterate(self) -> Metrics | None:
        """Learn, once; None if the run was stopped meanwhile."""

    @property
    @abstractmethod
    def env_id(self) -> str | None:
        """Gymnasium id of the environment, if it has one."""

    @property
    @abstractmethod
    def episodes(self) -> Episodes:
        """Returns and lengths of the episodes finished in training."""

    @property
    def rows(self) -> int:
        """About how many rows the networks see at once, which decides on threads."""
        return 256

    def few_threads(self) -> contextlib.AbstractContextManager[None]:
        """Inside, torch has as many threads as help."""
        return torch_threads(self.config.threads, self.networks.values(), self.rows)

    def episode_metrics(self) -> dict[str, float]:
        """What is said of episodes beside the metrics of an update."""
        return {
            "mean_reward": self.episodes.mean_return,
            "mean_length": self.episodes.mean_length,
            "episodes": float(self.episodes.count),
        }

    @property
    def progress_remaining(self) -> float:
        """From 1 at the start of the run to 0 at its end; schedules follow it."""
        if not self.target_timesteps:
            return 1.0
        return max(0.0, 1.0 - self.timesteps / self.target_timesteps)

    def train(
        self,
        total_timesteps: int | None = None,
        *,
        callbacks: Callback | Iterable[Callback] | None = None,
        run_dir: str | os.PathLike[str] | None = None,
    ) -> dict[str, float]:
        """Learn for a number of environment steps, counted over all environments.

        A second call goes on where the first ended, with schedules that span both. After
        `from_checkpoint`, a call without a number finishes the interrupted run.

        Args:
            total_timesteps: Steps to add; what was left of an interrupted run, or
                `config.total_timesteps`, when not given.
            callbacks: Called during this run, after the algorithm's own.
            run_dir: Folder that receives config, metrics, checkpoints and a report. With it,
                SIGTERM and Ctrl-C save a checkpoint and end the run.

        Returns:
            Metrics of the last update, with `mean_reward`, the mean return of the last 100 finished
            episodes.

        Raises:
            EnvironmentFailed: An environment raised.
            FileExistsError: `run_dir` holds another run.
            NonFiniteError: An environment returned NaN or inf, or learning diverged.
            SharpwaveIOError: A checkpoint cannot be written.
            ValueError: `total_timesteps` is not a positive integer.
        """
        self._plan(total_timesteps)
        extra = [] if run_dir is None else [self._recorder(run_dir)]
        self._hooks = CallbackList([*self.callbacks, *CallbackList(callbacks), *extra])
        self._hooks.load_state_dict(self._callback_states)
        self._callback_states = {}
        self.stop_reason = None
        metrics: dict[str, float] = {}
        with contextlib.ExitStack() as stack:
            if run_dir is not None:
                stack.enter_context(stop_on_signal(self.request_stop))
            stack.enter_context(self.few_threads())
            stack.callback(self.loggers.close)
            self.loggers.truncate_after(self.timesteps)
            self.loggers.log_config({**self.config.to_dict(), "env_id": self.env_id})
            try:
                self._hooks.on_training_start(
                    algo=self, step=self.timesteps, total_timesteps=self.target_timesteps
                )
                metrics = self._run()
            except BaseException as error:
                # What ended the run is what the caller must see, whatever else fails after it.
                try:
                    self._hooks.on_training_end(
                        algo=self, step=self.timesteps, metrics=metrics, error=error
                    )
                except Exception as another:
                    add_note(error, f"the end of the run failed too: {another!r}")
                raise
            self._hooks.on_training_end(algo=self, step=self.timesteps, metrics=metrics, error=None)
        return metrics

    def request_stop(self, reason: str) -> None:
        """Ask the run to end at its next update boundary."""
        self.stop_reason = self.stop_reason or reason

    def report_evaluation(self, result: EvaluationResult) -> None:
        """Tell callbacks and loggers of an evaluation."""
        if not self._hooks.on_eval(algo=self, step=self.timesteps, result=result):
            self.request_stop(self._hooks.stop_reason or "on_eval")
        metrics = {
            "eval_mean_return": result.mean,
            "eval_std_return": result.std,
            "eval_mean_length": result.mean_length,
        }
        self.loggers.on_eval(self.timesteps, metrics)

    def _plan(self, total_timesteps: int | None) -> None:
        if total_timesteps is None:
            if self.timesteps >= self.target_timesteps:
                self.target_timesteps = self.timesteps + self.config.total_timesteps
        else:
            checked = self.config.replace(total_timesteps=total_timesteps)
            self.target_timesteps = self.timesteps + checked.total_timesteps

    def _run(self) -> dict[str, float]:
        began, first_step = time.perf_counter(), self.timesteps
        metrics: dict[str, float] = {}
        while self.timesteps < self.target_timesteps and self.stop_reason is None:
            measured = self.iterate()
            if measured is None:
                break
            self.updates += 1
            learning = _numbers(measured)
            check_convergence(learning, self.timesteps)
            seconds = time.perf_counter() - began
            metrics = {
                **learning,
                **self.episode_metrics(),
                "timesteps": float(self.timesteps),
                "updates": float(self.updates),
                "sps": (self.timesteps - first_step) / seconds,
            }
            self.loggers.on_train_step(self.timesteps, metrics)
            self._call_hook("on_train_batch", **metrics)
            self.timings["callbacks"] += time.perf_counter() - began - seconds
        return metrics

    def _call_hook(self, name: str, **kwargs: Any) -> bool:
        """Call a hook of all callbacks; False if one of them stops the run."""
        if not self._hooks.overrides(name):
            return True
        go_on = bool(getattr(self._hooks, name)(algo=self, step=self.timesteps, **kwargs))
        if not go_on:
            self.request_stop(self._hooks.stop_reason or name)
        return go_on

    def _recorder(self, run_dir: str | os.PathLike[str]) -> Callback:
        from sharpwave.train.recorder import RunRecorder

        return RunRecorder(run_dir)


def _numbers(measured: Metrics) -> dict[str, float]:
    """Metrics as numbers; those on a device are fetched at once."""
    tensors = {name: value for name, value in measured.items() if not isinstance(value, float)}
    if tensors:
        fetched = torch.stack([tensor.detach() for tensor in tensors.values()]).tolist()
        measured = {**measured, **dict(zip(tensors, fetched, strict=True))}
    return measured
