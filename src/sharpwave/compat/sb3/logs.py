"""Metrics of a run under the names that SB3 logs them by."""

from __future__ import annotations

import math
import time
from typing import Any

from sharpwave.runs.callbacks import Callback

__all__ = ["TheirLogs"]

NAMES = {
    "policy_loss": ("train/policy_gradient_loss", 1.0),
    "value_loss": ("train/value_loss", 2.0),  # without the half of the squares
    "entropy": ("train/entropy_loss", -1.0),
    "approx_kl": ("train/approx_kl", 1.0),
    "clip_fraction": ("train/clip_fraction", 1.0),
    "explained_variance": ("train/explained_variance", 1.0),
    "loss": ("train/loss", 1.0),
    "actor_loss": ("train/actor_loss", 1.0),
    "critic_loss": ("train/critic_loss", 1.0),
    "alpha": ("train/ent_coef", 1.0),
    "alpha_loss": ("train/ent_coef_loss", 1.0),
    "learning_rate": ("train/learning_rate", 1.0),
    "epsilon": ("rollout/exploration_rate", 1.0),
}
"""SB3's name and its factor for each metric."""


class TheirLogs(Callback):
    """Records the metrics of a run in a logger of SB3's.

    Args:
        model: The model.
        logger: The logger.
        log_interval: Updates, or episodes of algorithms with replay, between two logs.
    """

    def __init__(self, model: Any, logger: Any, log_interval: int) -> None:
        self._model, self._logger = model, logger
        self._interval = max(1, log_interval)
        self._learns_by_rounds = hasattr(model.agent.config, "train_freq")
        self._iteration = 0
        self._logged_episodes = model.agent.episodes.count
        self._began = time.perf_counter()
        self._from_step = model.num_timesteps

    def on_rollout_end(self, **_: Any) -> None:
        """Write a log where one is due."""
        self._iteration += 1
        if self._learns_by_rounds:
            episodes = self._model.agent.episodes.count
            if episodes - self._logged_episodes < self._interval:
                return
            self._logged_episodes = episodes
        elif self._iteration % self._interval:
            return
        self.dump(0 if self._learns_by_rounds else self._iteration)

    def on_train_batch(self, **metrics: Any) -> None:
        """Record what an update measured."""
        for name, value in metrics.items():
            if name in NAMES and not (name == "entropy" and "critic_loss" in metrics):
                theirs, factor = NAMES[name]
                self._logger.record(theirs, factor * value)
        updates = self._model.agent.learner.updates
        epochs = getattr(self._model.agent.config, "n_epochs", 1)
        self._logger.record("train/n_updates", updates * epochs, exclude="tensorboard")

    def dump(self, iteration: int) -> None:
        """Write what was recorded, with the progress of the run."""
        model, logger = self._model, self._logger
        episodes, seconds = model.agent.episodes, time.perf_counter() - self._began
        if iteration:
            logger.record("time/iterations", iteration, exclude="tensorboard")
        if self._learns_by_rounds:
            logger.record("time/episodes", episodes.count, exclude="tensorboard")
        if not math.isnan(episodes.mean_return):
            logger.record("rollout/ep_rew_mean", episodes.mean_return)
            logger.record("rollout/ep_len_mean", episodes.mean_length)
        if episodes.success_rate is not None:
            logger.record("rollout/success_rate", episodes.success_rate)
        steps = model.num_timesteps - self._from_step
        logger.record("time/fps", int(steps / max(seconds, 1e-9)))
        logger.record("time/time_elapsed", int(seconds), exclude="tensorboard")
        logger.record("time/total_timesteps", model.num_timesteps, exclude="tensorboard")
        logger.dump(step=model.num_timesteps)
