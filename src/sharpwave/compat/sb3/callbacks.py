"""Callbacks of SB3 beside a run of this library."""

from __future__ import annotations

from typing import Any

import numpy as np

from sharpwave.collect import VectorStep
from sharpwave.compat.sb3.refusals import PAGE
from sharpwave.compat.sb3.vec_env import EpisodeInfos, each_info
from sharpwave.runs.callbacks import Callback

__all__ = ["TheirCallbacks"]


class Locals(dict[str, Any]):
    """The `self.locals` of a callback."""

    def __missing__(self, name: str) -> Any:
        raise KeyError(f"locals have no {name!r} here, only {sorted(self)}: see {PAGE}")


class TheirCallbacks(Callback):
    """Calls a callback of SB3's at the moments and with the counts that SB3 has.

    Args:
        model: The model, `self.model` of the callback.
        callback: The callback.
        facts: Local variables of `learn`.
    """

    def __init__(self, model: Any, callback: Any, facts: dict[str, Any]) -> None:
        self._model, self._callback = model, callback
        self._learns_by_rounds = hasattr(model.agent.config, "train_freq")
        self._facts = facts
        self._step = self._round = self._ended = 0
        self._episodes = EpisodeInfos(model.n_envs)

    def on_training_start(self, **_: Any) -> None:
        """Give the callback its model, and begin."""
        model, callback = self._model, self._callback
        callback.init_callback(model)
        begun = Locals(self._facts, self=model, callback=callback, env=model.get_env())
        callback.on_training_start(begun, {})
        self._begin_rollout()

    def on_step(self, *, transitions: VectorStep, **_: Any) -> bool:
        """Tell of a step: `infos`, `rewards`, `dones`, `new_obs`, `actions`."""
        told = self._told(transitions)
        dones = told["dones"]
        self._round += 1
        self._ended += int(np.count_nonzero(dones))
        self._callback.update_locals(told)
        if not self._callback.on_step():
            return False
        self._step += 1
        if self._learns_by_rounds and self._is_update_due():
            self._end_rollout()
            if not self._is_over:  # gradient steps follow, of which a callback does not hear
                self._begin_rollout()
        return True

    def on_rollout_end(self, **_: Any) -> None:
        """Tell that a rollout is full."""
        if not self._learns_by_rounds:
            self._end_rollout()

    def on_train_batch(self, **_: Any) -> None:
        """Begin another rollout, unless the run is over."""
        if not (self._learns_by_rounds or self._is_over):
            self._begin_rollout()

    def on_training_end(self, *, error: BaseException | None, **_: Any) -> None:
        """Tell that learning has ended, unless something went wrong."""
        if error is None:
            self._callback.on_training_end()

    @property
    def _is_over(self) -> bool:
        return bool(self._model.num_timesteps >= self._facts["total_timesteps"])

    def _begin_rollout(self) -> None:
        self._step = self._round = self._ended = 0
        self._callback.on_rollout_start()

    def _end_rollout(self) -> None:
        self._callback.update_locals(self._facts)
        self._callback.on_rollout_end()

    def _is_update_due(self) -> bool:
        config = self._model.agent.config
        if config.train_episodes is not None:
            return self._ended >= int(config.train_episodes)
        return self._round >= int(config.train_freq)

    def _told(self, step: VectorStep) -> dict[str, Any]:
        """The local variables of SB3's loop after a step."""
        last = self._model._env.last
        if last is None:
            infos = each_info(step.infos, self._model.n_envs)
            rewards, dones = step.rewards, step.terminated | step.truncated
            self._episodes.add(infos, rewards, step.terminated, step.truncated, step.next_obs)
            told = {"new_obs": step.next_obs, "rewards": rewards, "dones": dones, "infos": infos}
        else:
            told = {
                "new_obs": last.obs,
                "rewards": last.rewards,
                "dones": last.dones,
                "infos": last.infos,
            }
            self._model._env.push_statistics()
        actions = {"actions": step.actions, "clipped_actions": step.actions}
        counts = {"n_steps": self._step, "num_collected_steps": self._round + 1}
        return {**told, **actions, **counts}
