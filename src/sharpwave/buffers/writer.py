"""Steps of vector environments into a buffer, whatever their autoreset mode."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from sharpwave.buffers.replay import ReplayBuffer
from sharpwave.core.tree import map_leaves
from sharpwave.envs.autoreset import MODES, autoreset_mode, with_final_obs
from sharpwave.types import Nested


class VectorWriter:
    """Pushes the steps of a Gymnasium vector environment, one row per environment.

    It knows what vector environments do at the end of an episode:

    - next_step: the step after the end is a reset that ignores its action. It is not a step and is
      not stored.
    - same_step: the observation returned with the end is already the next episode's first; the true
      last one is in `infos["final_obs"]` and takes its place.
    - disabled: the caller resets.

    Args:
        buffer: A buffer with as many `n_envs` as the environment.
        env: The vector environment, whose `metadata["autoreset_mode"]` is read; or give `mode`.
        mode: "next_step", "same_step" or "disabled".

    Example:
        >>> import gymnasium as gym
        >>> env = gym.make_vec("CartPole-v1", num_envs=2)
        >>> buffer = ReplayBuffer.for_env(env, capacity=1000)
        >>> writer = VectorWriter(buffer, env)
        >>> obs, _ = env.reset(seed=0)
        >>> actions = env.action_space.sample()
        >>> next_obs, *outcome, infos = env.step(actions)
        >>> writer.push(obs, actions, *outcome, next_obs, infos)
        >>> len(buffer)
        2
    """

    def __init__(self, buffer: ReplayBuffer, env: Any = None, *, mode: str | None = None) -> None:
        if buffer.n_envs is None:
            raise ValueError("buffer must keep the steps of each environment in order: pass n_envs")
        self.mode = mode if mode is not None else autoreset_mode(env)
        if self.mode not in MODES:
            raise ValueError(f"mode must be one of {MODES}, got {self.mode!r}")
        self._buffer = buffer
        self._ended = np.zeros(buffer.n_envs, np.bool_)

    def push(
        self,
        obs: Nested,
        actions: Nested,
        rewards: npt.ArrayLike,
        terminated: npt.ArrayLike,
        truncated: npt.ArrayLike,
        next_obs: Nested,
        infos: dict[str, Any] | None = None,
        **extra: Nested,
    ) -> None:
        """Push one step of every environment.

        Args:
            obs: Observations before the actions, [N, ...].
            actions: [N, ...].
            rewards: [N].
            terminated: [N].
            truncated: [N].
            next_obs: Observations that the environment returned.
            infos: Infos that the environment returned; needed where episodes end in mode same_step.
            **extra: Further fields, [N, ...].
        """
        ended = np.logical_or(terminated, truncated)
        if ended.shape != self._ended.shape:
            raise ValueError(f"terminated must have shape {self._ended.shape}, got {ended.shape}")
        if self.mode == "same_step" and ended.any():
            next_obs = with_final_obs(next_obs, ended, infos)
        step = {
            "obs": obs,
            "actions": actions,
            "rewards": rewards,
            "terminated": terminated,
            "truncated": truncated,
            "next_obs": next_obs,
            **extra,
        }
        if self.mode == "next_step" and self._ended.any():
            rows = np.flatnonzero(~self._ended)
            if len(rows) > 0:
                taken = map_leaves(lambda values: np.asarray(values)[rows], step)
                self._buffer.push_batch(**taken, streams=rows)
        else:
            self._buffer.push_batch(**step)
        self._ended = ended

    def reset(self) -> None:
        """Say that the environments were reset outside of `step`."""
        self._ended[:] = False
