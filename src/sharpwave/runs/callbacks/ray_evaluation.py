"""Evaluation beside a run, in processes of Ray."""

from __future__ import annotations

import contextlib
import math
from typing import Any

from sharpwave.runs.callbacks.base import Callback, State, require
from sharpwave.runs.interval import Interval, positive

__all__ = ["RayEvalCallback"]


class RayEvalCallback(Callback):
    """Evaluates the policy every `eval_freq` steps in processes of Ray, and training goes on.

    An evaluation begins at the first update boundary at which at least `eval_freq` steps have
    passed since the last one and a process is free, and after the last update, when all are waited
    for. Every result goes to `on_eval` of all callbacks and loggers once it is there, with the
    steps at which its weights were taken.

    Args:
        eval_freq: Steps between two evaluations.
        n_eval_episodes: Episodes of one evaluation.
        n_workers: Processes, and so the evaluations that go on at a time.
        eval_env: Environment to play in: an id, or a factory; None for that of training.
        deterministic: Take the most likely actions; otherwise sample.
        cluster: The address of a Ray cluster, or "auto"; None starts a Ray on this machine, which
            ends with the run.
        stop_at: The mean return at which training stops. None never stops.

    Attributes:
        history: One `{"step", "mean", "std", "mean_length"}` per evaluation.
        best_mean_return: The best mean return so far; `-inf` before the first.

    Raises:
        TypeError: If a count is not an integer.
        ValueError: If a count is less than 1.
    """

    def __init__(
        self,
        eval_freq: int | None = None,
        n_eval_episodes: int = 20,
        n_workers: int = 1,
        eval_env: Any = None,
        deterministic: bool = True,
        *,
        cluster: str | None = None,
        stop_at: float | None = None,
    ) -> None:
        self._interval = Interval(eval_freq, name="eval_freq", reports=10)
        self._n_episodes = positive(n_eval_episodes, name="n_eval_episodes")
        self._n_workers = positive(n_workers, name="n_workers")
        self._env, self._deterministic = eval_env, deterministic
        self._cluster, self._stop_at = cluster, stop_at
        self._evaluator: Any = None
        self.history: list[dict[str, float]] = []
        self.best_mean_return = -math.inf

    @property
    def best_mean_reward(self) -> float:
        """`best_mean_return`, as rlox and Stable-Baselines3 spell it."""
        return self.best_mean_return

    def on_training_start(self, *, algo: Any, step: int, **_: Any) -> None:
        """Starts the processes, and counts from here."""
        from sharpwave.runs.ray_evaluation import RayEvaluator

        require(algo, "evaluate", type(self).__name__)
        self._interval.start(step, algo.log_every)
        self._evaluator = RayEvaluator(algo, self._n_workers, env=self._env, cluster=self._cluster)

    def on_train_batch(self, *, algo: Any, step: int, **_: Any) -> bool:
        """Tells what has ended, and evaluates when it is time; stops where `stop_at` is reached."""
        is_last = step >= algo.target_timesteps
        goes_on = self._tell(algo, timeout=None if is_last else 0.0)
        if is_last or (step >= self._interval.next and self._evaluator.is_free):
            self._interval.due(step)
            self._evaluator.submit(self._n_episodes, deterministic=self._deterministic)
        return goes_on and (not is_last or self._tell(algo, timeout=None))

    def on_training_end(self, **_: Any) -> None:
        """Ends the processes."""
        if self._evaluator is not None:
            self._evaluator.close()
            self._evaluator = None

    def state_dict(self) -> State:
        """The last evaluation, the best return (by its old key) and the history."""
        best = self.best_mean_return
        return {
            "last": self._interval.last,
            "best_mean_reward": best if math.isfinite(best) else None,
            "history": list(self.history),
        }

    def load_state_dict(self, state: State) -> None:
        """Takes up what `state_dict` gave."""
        best = state["best_mean_reward"]
        self._interval.last = state["last"]
        self.best_mean_return = -math.inf if best is None else best
        self.history = list(state["history"])

    def _tell(self, algo: Any, timeout: float | None) -> bool:
        try:
            finished = self._evaluator.finished(timeout)
        except Exception:
            with contextlib.suppress(Exception):  # the first error is raised
                self._take(algo, self._evaluator.finished())
            raise
        self._take(algo, finished)
        return self._stop_at is None or self.best_mean_return < self._stop_at

    def _take(self, algo: Any, finished: list[tuple[int, Any]]) -> None:
        for step, result in finished:
            numbers = {"mean": result.mean, "std": result.std, "mean_length": result.mean_length}
            self.history.append({"step": step, **numbers})
            self.best_mean_return = max(self.best_mean_return, result.mean)
            algo.report_evaluation(result, step=step)
            if self._stop_at is not None and result.mean >= self._stop_at:
                self.stop_reason = (
                    f"an evaluation returned {result.mean:g}, which reaches {self._stop_at:g}"
                )
