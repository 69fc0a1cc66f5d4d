"""A run: steps of a loop until done or stopped, with callbacks, loggers and a folder beside it."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from sharpwave.errors import NonFiniteError
from sharpwave.loops.loop import Loop
from sharpwave.runs.callbacks import Callback, CallbackList
from sharpwave.runs.callbacks.base import add_note
from sharpwave.runs.loggers import LoggerCallback, LoggerList
from sharpwave.runs.recorded import Recorded, fetched, joined
from sharpwave.runs.signals import stop_on_signal
from sharpwave.storage.files import count_of

if TYPE_CHECKING:
    from sharpwave.collect import Episodes, VectorStep
    from sharpwave.runs.evaluation import EvaluationResult

__all__ = ["Run"]

SHARED_HOOKS = ("on_rollout_end", "on_train_batch")
"""Hooks for which the other processes wait, where several learn together."""


class Run:
    """Goes on around the loop of an agent, whatever that learns from.

    Args:
        agent: The agent that callbacks get; it has a `loop` and a `config`.
        callbacks: Called during every `train`.
        logger: A logger of the metrics, or several.

    Attributes:
        target_timesteps: Step at which the current run ends.
        updates: Updates so far.
        stop_reason: Why the run was stopped early, or None.
        asked_to_stop: The same as soon as this process was asked to; several stop once they agree.
        run_dir: Folder of the last `train` that was given one.
    """

    def __init__(
        self,
        agent: Any,
        callbacks: Callback | Iterable[Callback] | None,
        logger: LoggerCallback | Iterable[LoggerCallback] | None,
    ) -> None:
        self._agent = agent
        self.callbacks = list(CallbackList(callbacks))
        self.loggers = LoggerList(logger)
        self.target_timesteps = 0
        self.updates = 0
        self.stop_reason: str | None = None
        self.asked_to_stop: str | None = None
        self.run_dir: Path | None = None
        self._hooks = CallbackList()
        self._callback_states: dict[str, Any] = {}
        self._recorded = Recorded()
        self._run_dirs: dict[Path, Path] = {}
        self._is_heard = dict.fromkeys(SHARED_HOOKS, True)

    @property
    def loop(self) -> Loop:
        """The loop of collection and updates that the run drives."""
        loop: Loop = self._agent.loop
        return loop

    @property
    def timesteps(self) -> int:
        """Steps so far."""
        return self.loop.timesteps

    @property
    def progress_remaining(self) -> float:
        """From 1 at the start of the run to 0 at its end; schedules follow it."""
        if not self.target_timesteps:
            return 1.0
        return max(0.0, 1.0 - self.timesteps / self.target_timesteps)

    def progress_metrics(self) -> dict[str, float]:
        """Measures of progress beside the metrics of updates."""
        return self.loop.progress_metrics()

    def train(
        self,
        total_timesteps: int | None,
        callbacks: Callback | Iterable[Callback] | None,
        run_dir: str | os.PathLike[str] | None,
        resume: bool,
    ) -> dict[str, float]:
        """Go on for a number of steps; the arguments are those of `Agent.train`."""
        if resume:
            self._take_up(run_dir)
            total_timesteps = self._left(total_timesteps)
            if total_timesteps == 0:
                return {}
        self._plan(total_timesteps)
        ranks = self.loop.ranks
        if not ranks.leads:  # the first process tells and writes
            self.callbacks, callbacks, self.loggers = [], None, LoggerList(None)
        extra = []
        if run_dir is not None:
            with ranks.leading():
                extra = [self._recorder(run_dir, resume)] if ranks.leads else []
            self.run_dir = ranks.first(self.run_dir)
            assert self.run_dir is not None
            self.loop.begin_in(self.run_dir)
        self._hooks = CallbackList([*self.callbacks, *CallbackList(callbacks), *extra])
        self._hooks.load_state_dict(self._callback_states)
        self._callback_states = {}
        self.stop_reason = self.asked_to_stop = None
        self._is_heard = {
            hook: ranks.first(self._hooks.overrides(hook) or bool(self.loggers))
            for hook in SHARED_HOOKS
        }
        metrics: dict[str, float] = {}
        rest: dict[str, float] = {}
        with contextlib.ExitStack() as stack:
            if run_dir is not None:
                stack.enter_context(stop_on_signal(self.request_stop))
            stack.enter_context(self.loop.few_threads())
            stack.enter_context(self.loop.running())
            stack.callback(self.loggers.close)
            with ranks.leading():
                self.loggers.on_training_start(self._agent)
                self.loggers.truncate_after(self.timesteps)
                self.loggers.log_config({**self._agent.config.to_dict(), **self._agent.facts()})
            try:
                with ranks.leading():
                    self._hooks.on_training_start(
                        algo=self._agent, step=self.timesteps, total_timesteps=self.target_timesteps
                    )
                metrics = self._run()
                rest = self._take_recorded({})
                if rest:
                    metrics = {**metrics, **rest}
                    self.loggers.on_train_step(self.timesteps, metrics)
            except BaseException as error:
                # What ended the run is what the caller must see, whatever else fails after it.
                try:
                    self._end(metrics, rest, error)
                except Exception as another:
                    add_note(error, f"the end of the run failed too: {another!r}")
                raise
            with ranks.leading():
                self._end(metrics, rest, None)
        return metrics

    def _end(
        self, metrics: dict[str, float], recorded: dict[str, float], error: BaseException | None
    ) -> None:
        self._hooks.on_training_end(
            algo=self._agent, step=self.timesteps, metrics=metrics, recorded=recorded, error=error
        )

    def restart(self) -> None:
        """Count from 0 again: what comes is a run of its own, with what was learned so far.

        New episodes begin, and schedules run from their start.
        """
        self.target_timesteps = 0
        self.loop.restart()

    def request_stop(self, reason: str) -> None:
        """Ask the run to end at its next update boundary."""
        self.asked_to_stop = self.asked_to_stop or reason
        if self.loop.ranks.size == 1:
            self.stop_reason = self.asked_to_stop

    def record(self, name: str, value: Any) -> None:
        """Log a number of one's own with the next report of metrics.

        It goes wherever the metrics go: to the loggers, to `on_train_batch`, to the run folder and
        its report. Of what is recorded by one name between two reports the mean is logged. What is
        left at the end of a run is logged then.

        Args:
            name: One that the run does not log itself: letters, digits, and `_./-`.
            value: A number, or an array or tensor of one element. A tensor is not waited for until
                it is logged.

        Raises:
            TypeError: `name` is not a string, or `value` not a number.
            ValueError: The name is not allowed, or the value has several elements.

        Example:
            >>> class Speed(sw.Callback):
            ...     def on_step(self, algo, transitions):
            ...         algo.record("speed", abs(transitions.obs[:, 1]).mean())
            >>> metrics = sw.PPO("CartPole-v1").train(2_000, callbacks=Speed())
            >>> metrics["speed"] > 0
            True
        """
        self._recorded.add(name, value)

    def _take_recorded(self, metrics: dict[str, float]) -> dict[str, float]:
        """Means of the values recorded since the last report; their names must be free."""
        recorded = self._recorded.take()
        taken = recorded.keys() & metrics.keys()
        if taken:
            name = min(taken)
            kind = type(self._agent).__name__
            raise ValueError(f"name must be one of your own, got {name!r}, which {kind} logs")
        return fetched(recorded)

    def report_evaluation(self, result: EvaluationResult, step: int | None = None) -> None:
        """Tell callbacks and loggers of an evaluation, of now or of an earlier step."""
        step = self.timesteps if step is None else step
        if not self._hooks.on_eval(algo=self._agent, step=step, result=result):
            self.request_stop(self._hooks.stop_reason or "on_eval")
        metrics = {
            "eval_mean_return": result.mean,
            "eval_std_return": result.std,
            "eval_mean_length": result.mean_length,
        }
        success_rate = getattr(result, "success_rate", None)  # an own `evaluate` may not say
        if success_rate is not None:
            metrics["eval_success_rate"] = success_rate
        for agent, mean in getattr(result, "agent_means", {}).items():
            metrics[f"eval_mean_return/{agent}"] = mean
        self.loggers.on_eval(step, metrics)

    def _plan(self, total_timesteps: int | None) -> None:
        if total_timesteps is None:
            if self.timesteps >= self.target_timesteps:
                self.target_timesteps = self.timesteps + self._agent.config.total_timesteps
        else:
            checked = self._agent.config.replace(total_timesteps=total_timesteps)
            self.target_timesteps = self.timesteps + checked.total_timesteps

    def _run(self) -> dict[str, float]:
        began, first_step, ranks = time.perf_counter(), self.timesteps, self.loop.ranks
        metrics: dict[str, float] = {}
        while self.timesteps < self.target_timesteps and self.stop_reason is None:
            measured = self.loop.iterate(self)
            if measured is None:
                break
            self.updates += 1
            learning, progress = fetched(measured), self.progress_metrics()
            stop_reason = self.asked_to_stop
            if not ranks.is_alone:
                learning, progress, stop_reason = self._over_ranks(learning, progress)
            check_convergence(learning, self.timesteps)
            seconds = time.perf_counter() - began
            metrics = {
                **learning,
                **progress,
                "timesteps": float(self.timesteps),
                "updates": float(self.updates),
                "sps": (self.timesteps - first_step) / seconds,
            }
            metrics |= self._take_recorded(metrics)
            if self._is_heard["on_train_batch"]:
                with ranks.leading():
                    self.loggers.on_train_step(self.timesteps, metrics)
                    self.tell("on_train_batch", **metrics)
                stop_reason = ranks.first(stop_reason or self.asked_to_stop)
            if not ranks.is_alone:
                self.stop_reason = stop_reason
            self.loop.timings["callbacks"] += time.perf_counter() - began - seconds
        return metrics

    def _over_ranks(
        self, learning: dict[str, float], progress: dict[str, float]
    ) -> tuple[dict[str, float], dict[str, float], str | None]:
        """Metrics of all processes that learn together, and why one of them wants to stop."""
        every = self.loop.ranks.gather((learning, progress, self.asked_to_stop))
        reason = next((reason for *_, reason in every if reason is not None), None)
        measured, progressed = ([one[i] for one in every] for i in range(2))
        return (
            {name: fmean(one[name] for one in measured) for name in learning},
            joined(progressed, self.loop.summed),
            reason,
        )

    # What loops ask

    def hears(self, hook: str, argument: str | None = None) -> bool:
        """Return whether any callback has a hook, and takes an argument of it."""
        if argument is not None:
            return self._hooks.wants(hook, argument)
        return self._hooks.overrides(hook)

    def tell(self, hook: str, **kwargs: Any) -> bool:
        """Call a hook of all callbacks; False if one of them stops the run."""
        if not self._hooks.overrides(hook):
            return True
        told = getattr(self._hooks, hook)(algo=self._agent, step=self.timesteps, **kwargs)
        if not told:
            self.request_stop(self._hooks.stop_reason or hook)
        return bool(told)

    def tell_step(self, reward: float, transitions: Callable[[], VectorStep]) -> bool:
        """Call `on_step`; what makes the whole step is asked only where a callback takes it."""
        whole = {"transitions": transitions()} if self.hears("on_step", "transitions") else {}
        with self.loop.ranks.apart():
            return self.tell("on_step", reward=reward, **whole)

    def rollout_ended(self, episodes: Episodes) -> None:
        """Tell callbacks and loggers that environments were stepped."""
        if not self._is_heard["on_rollout_end"]:
            return  # the means of episodes take longer than the rest of a small iteration
        metrics = self.rollout_metrics(episodes)
        with self.loop.ranks.leading():
            self.tell("on_rollout_end", mean_return=metrics["mean_return"], update=self.updates)
            self.loggers.on_rollout_end(self.timesteps, metrics)

    def rollout_metrics(self, episodes: Episodes) -> dict[str, float]:
        """Means of the last episodes, for those who listen to the ends of rollouts."""
        return {"mean_return": episodes.mean_return, "mean_length": episodes.mean_length}

    def samples_written(self, samples: Callable[[], Sequence[dict[str, Any]]]) -> bool:
        """Tell callbacks and loggers what a language model wrote, which is asked where one listens.

        False if a callback stops the run.
        """
        with self.loop.ranks.leading():
            if not (self.hears("on_samples") or self.loggers.reads_samples):
                return True
            rows = samples()
            self.loggers.on_samples(self.timesteps, rows)
            return self.tell("on_samples", rows=rows)

    def due_step(self) -> int | None:
        """The next step that a callback wants to hear of; None for none."""
        step: int | None = self._hooks.due_step()
        return step

    # A folder

    def _recorder(self, run_dir: str | os.PathLike[str], resume: bool) -> Callback:
        from sharpwave.runs.recorder import RunRecorder

        # A second call means the folder that the first one got.
        asked = Path(run_dir).absolute()
        recorder = RunRecorder(self._run_dirs.get(asked, run_dir), resume=resume)
        recorder.prepare(self._agent)
        self.run_dir = self._run_dirs[asked] = recorder.folder.path
        return recorder

    def _take_up(self, run_dir: str | os.PathLike[str] | None) -> None:
        """Become what the run in a folder was, unless this is that run already."""
        from sharpwave.storage.run_folder import RunFolder

        if run_dir is None:
            raise ValueError("resume needs run_dir, the folder of the run to go on with")
        latest = RunFolder(run_dir).latest_checkpoint
        if self.timesteps == 0 and latest.is_file():
            self._agent.load_checkpoint(latest)

    def _left(self, total_timesteps: int | None) -> int | None:
        """Steps to add until the whole run has `total_timesteps`; 0 where it has."""
        if total_timesteps is None:
            return 0 if 0 < self.target_timesteps <= self.timesteps else None
        checked = self._agent.config.replace(total_timesteps=total_timesteps)
        end: int = checked.total_timesteps
        return max(0, end - self.timesteps)

    # Checkpoints

    def state_dict(self) -> dict[str, Any]:
        """State of the run: its counters, timings and callbacks."""
        return {
            "timesteps": self.timesteps,
            "target_timesteps": self.target_timesteps,
            "updates": self.updates,
            "timings": dict(self.loop.timings),
            "callbacks": {**self._callback_states, **self._hooks.state_dict()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        self.loop.timesteps = count_of(state, "timesteps")
        self.target_timesteps = count_of(state, "target_timesteps")
        self.updates = count_of(state, "updates")
        self.loop.timings.update({name: float(x) for name, x in state["timings"].items()})
        self._callback_states = state["callbacks"]


def check_convergence(metrics: dict[str, float], step: int) -> None:
    """Stop learning that went wrong before it spoils what was saved.

    Raises:
        NonFiniteError: A loss or the norm of a gradient is not finite.
    """
    for name, value in metrics.items():
        if name.endswith(("loss", "grad_norm")) and not math.isfinite(value):
            raise NonFiniteError(
                f"{name} must be finite, got {value} in the update at step {step}: "
                "learning diverged"
            )
