"""`learn`: a run of the agent, with SB3's callbacks and logger beside it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sharpwave.compat.sb3.callbacks import TheirCallbacks
from sharpwave.compat.sb3.logs import TheirLogs
from sharpwave.core.optional import is_installed
from sharpwave.runs.callbacks import Callback, ProgressCallback
from sharpwave.runs.loggers import ConsoleLogger, LoggerList, TensorBoardLogger

__all__ = ["Learning"]


class Learning:
    """Runs of a model.

    Args:
        model: The model.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._logger: Any = None
        self._is_own_logger = True
        self._logs: TheirLogs | None = None

    @property
    def logger(self) -> Any:
        """SB3's logger.

        Raises:
            AttributeError: There is none before `learn`, or without Stable-Baselines3.
        """
        if self._logger is None:
            if not is_installed("stable_baselines3"):
                raise AttributeError("logger is SB3's, which is not installed: use callbacks=")
            self._make_logger(type(self._model).__name__, is_new=True)
        return self._logger

    def set_logger(self, logger: Any) -> None:
        """Log by this logger of SB3's from now on."""
        self._logger, self._is_own_logger = logger, False

    def _make_logger(self, name: str, *, is_new: bool) -> None:
        from stable_baselines3.common.utils import configure_logger

        model = self._model
        self._logger = configure_logger(model.verbose, model.tensorboard_log, name, is_new)

    def dump(self, iteration: int) -> None:
        """Write what is to be logged now."""
        logs = TheirLogs(self._model, self.logger, 1) if self._logs is None else self._logs
        logs.dump(iteration)

    def episode_infos(self, returns: Iterable[float], lengths: Iterable[int]) -> Any:
        """Episodes as SB3's Monitor tells of them."""
        from collections import deque

        pairs = zip(returns, lengths, strict=True)
        return deque({"r": r, "l": length, "t": float("nan")} for r, length in pairs)

    def learn(
        self,
        total_timesteps: int,
        callback: Any,
        *,
        log_interval: int,
        tb_log_name: str,
        reset_num_timesteps: bool,
        progress_bar: bool,
    ) -> None:
        """Run the agent; the arguments are those of `Algorithm.learn`."""
        model = self._model
        agent, env = model.agent, model._env
        if env is None:
            raise ValueError("env must be set before learn(): use set_env")
        if reset_num_timesteps or env.take_disturbed():
            self._begin_anew(reset_num_timesteps)
        env.pull_statistics()
        ours, theirs = split_callbacks(callback)
        hooks: list[Callback] = [ProgressCallback(force=True)] if progress_bar else []
        hooks += ours
        is_logging = bool(model.verbose or model.tensorboard_log or not self._is_own_logger)
        if is_installed("stable_baselines3") and (is_logging or theirs is not None):
            if self._is_own_logger:
                self._make_logger(tb_log_name, is_new=reset_num_timesteps)
            self._logs = TheirLogs(model, self._logger, log_interval)
            hooks.append(self._logs)
        elif is_logging:
            agent.run.loggers = LoggerList(self._our_loggers())
        if theirs is not None:
            facts = {
                "total_timesteps": total_timesteps
                + (0 if reset_num_timesteps else model.num_timesteps),
                "log_interval": log_interval,
                "tb_log_name": tb_log_name,
                "reset_num_timesteps": reset_num_timesteps,
                "progress_bar": progress_bar,
            }
            hooks.insert(0, TheirCallbacks(model, theirs, facts))
        try:
            agent.train(total_timesteps, callbacks=hooks)
        finally:
            env.push_statistics()

    def _begin_anew(self, is_new_run: bool) -> None:
        """New episodes; with `is_new_run`, counts and schedules from their start."""
        model = self._model
        if model.num_timesteps == 0 and model.agent.updates == 0:
            return
        if is_new_run:
            model.restart()
            episodes = model.agent.episodes
            for window in (episodes.returns, episodes.lengths, episodes.successes):
                window.clear()
        else:
            timesteps = model.agent.loop.timesteps
            model.agent.loop.collector.restart()
            model.agent.loop.collector.timesteps = timesteps

    def _our_loggers(self) -> list[Any]:
        """Loggers of this library, where SB3 is not installed."""
        model = self._model
        loggers: list[Any] = [ConsoleLogger()] if model.verbose else []
        if model.tensorboard_log:
            loggers.append(TensorBoardLogger(model.tensorboard_log))
        return loggers


def split_callbacks(callback: Any) -> tuple[list[Callback], Any]:
    """Callbacks of this library, and one of SB3's that stands for the others; None without any."""
    if callback is None:
        return [], None
    given = list(callback) if isinstance(callback, list | tuple) else [callback]
    ours = [one for one in given if isinstance(one, Callback)]
    theirs = [one for one in given if not isinstance(one, Callback)]
    if not theirs:
        return ours, None
    from stable_baselines3.common.callbacks import BaseCallback, CallbackList, ConvertCallback

    made = [one if isinstance(one, BaseCallback) else ConvertCallback(one) for one in theirs]
    return ours, made[0] if len(made) == 1 else CallbackList(made)
