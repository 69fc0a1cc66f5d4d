"""Evaluation in the course of a run."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

from sharpwave.runs.callbacks.base import Callback, State, require
from sharpwave.runs.interval import Interval, positive


class EvalCallback(Callback):
    """Evaluates the policy every `eval_freq` steps, and keeps the best one.

    It evaluates at the first update boundary at which at least `eval_freq` steps have passed since
    the last evaluation, and after the last update, on an environment of its own. Every result goes
    to `on_eval` of all callbacks and loggers.

    Args:
        eval_env: Environment to evaluate in: anything that `evaluate` takes. None makes a new one
            of the training environment's id each time; language models complete `eval_prompts`.
        eval_freq: Steps between two evaluations; None leaves it to what a step is: 10,000 of
            environments and gradients, 10 updates of language models.
        n_eval_episodes: Episodes of one evaluation; prompts, for language models.
        best_model_path: The file that the best policy so far is saved to; in a folder,
            `best.safetensors`. None saves nothing.
        deterministic: Take the most likely actions; otherwise sample.
        verbose: 1 prints a line for each evaluation.
        stop_at: The mean return at which training stops. None never stops.

    Attributes:
        history: One `{"step", "mean", "std", "mean_length"}` per evaluation, with `"success_rate"`
            where infos say which episodes reached their goal, and `"mean/NAME"` for each of several
            agents.
        best_mean_return: The best mean return so far; `-inf` before the first.

    Raises:
        TypeError: If a count is not an integer.
        ValueError: If a count is less than 1; when the run starts, if it cannot be evaluated.

    Example:
        >>> _ = sw.PPO("CartPole-v1").train(2_000, callbacks=EvalCallback(stop_at=475))
    """

    def __init__(
        self,
        eval_env: Any = None,
        eval_freq: int | None = None,
        n_eval_episodes: int = 20,
        best_model_path: str | Path | None = None,
        deterministic: bool = True,
        verbose: int = 0,
        *,
        stop_at: float | None = None,
    ) -> None:
        self._interval = Interval(eval_freq, name="eval_freq", reports=10)
        self._n_episodes = positive(n_eval_episodes, name="n_eval_episodes")
        self._env = eval_env
        self._best_path = None if best_model_path is None else Path(best_model_path)
        self._deterministic = deterministic
        self._verbose = verbose
        self._stop_at = stop_at
        self.history: list[dict[str, float]] = []
        self.best_mean_return = -math.inf

    @property
    def best_mean_reward(self) -> float:
        """`best_mean_return`, as rlox and Stable-Baselines3 spell it."""
        return self.best_mean_return

    def on_training_start(self, *, algo: Any, step: int, **_: Any) -> None:
        """Makes sure that there is something to evaluate, and counts from here."""
        require(algo, "evaluate", type(self).__name__)
        self._interval.start(step, algo.log_every)

    def on_train_batch(self, *, algo: Any, step: int, **_: Any) -> bool:
        """Evaluates when it is time; stops the run when `stop_at` is reached."""
        is_last = step >= algo.target_timesteps
        return self.evaluate(algo, step) if self._interval.due(step) or is_last else True

    def due_step(self) -> int:
        """Step at which the next evaluation is due."""
        return self._interval.next

    def evaluate(self, algo: Any, step: int) -> bool:
        """Evaluates now; returns False if `stop_at` is reached."""
        # What writes rather than plays has a word of its own for what is asked here.
        evaluate = getattr(algo, "evaluate_in_run", algo.evaluate)
        result = evaluate(self._n_episodes, env=self._env, deterministic=self._deterministic)
        mean = float(result.mean)
        self.history.append(
            {
                "step": step,
                "mean": mean,
                "std": float(result.std),
                "mean_length": float(result.mean_length),
                **_success(result),
                **_agents(result),
            }
        )
        is_best = mean >= self.best_mean_return  # of equal ones the latest has learned most
        if is_best:
            self.best_mean_return = mean
            if self._best_path is not None:
                self._save_best(algo, self._best_path)
        if self._verbose:
            mark = " (best)" if is_best else ""
            say(f"step {step:,}: evaluated {result}{mark}")
        algo.report_evaluation(result)
        if self._stop_at is None or mean < self._stop_at:
            return True
        self.stop_reason = f"an evaluation returned {mean:g}, which reaches {self._stop_at:g}"
        return False

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

    @staticmethod
    def _save_best(algo: Any, path: Path) -> None:
        if path.is_dir():
            path = path / "best.safetensors"
        algo.save(path)


def _agents(result: Any) -> dict[str, float]:
    means = getattr(result, "agent_means", {})
    return {f"mean/{agent}": mean for agent, mean in means.items()}


def _success(result: Any) -> dict[str, float]:
    rate = getattr(result, "success_rate", None)
    return {} if rate is None else {"success_rate": float(rate)}


def say(line: str) -> None:
    """Writes a line to whatever is standard output now, above a progress bar if there is one."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
