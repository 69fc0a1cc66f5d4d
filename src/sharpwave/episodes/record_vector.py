"""Recording of a vector environment's trajectories as episodes on disk."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv, VectorWrapper

from sharpwave.core.tree import map_leaves
from sharpwave.envs.autoreset import MODES, autoreset_mode, with_final_obs
from sharpwave.episodes.buffer import EpisodeBuffer
from sharpwave.episodes.record import UNLIMITED
from sharpwave.episodes.recording import Recording, as_fields
from sharpwave.formats.stream import FINAL_OBS
from sharpwave.types import Nested

__all__ = ["RecordVectorEpisodes"]


class RecordVectorEpisodes(VectorWrapper):
    """Records every episode of every environment to one folder of `EpisodeBuffer`.

    Episodes have the fields of `RecordEpisodes`, and the meta field env, the number of their
    environment. They are written when they end, in that order; until then they are in memory, so
    that the death of the process loses those that are under way. `reset` and `close` end them as
    truncated. In every autoreset mode of Gymnasium the steps are those of the environments: no
    reset is recorded as one, and final_obs is the true last observation.

    Args:
        env: A vector environment whose spaces `RecordEpisodes` supports.
        folder: Folder of the episodes; one that holds episodes of the same fields is continued.
        max_episodes: Episodes that the folder may hold.
        max_timesteps: Steps that an episode may have.
        **buffer_options: Further ones of `EpisodeBuffer`: circular, overwrite, durability.

    Attributes:
        buffer: The `EpisodeBuffer`.

    Example:
        >>> import gymnasium as gym
        >>> env = RecordVectorEpisodes(gym.make_vec("CartPole-v1", num_envs=2), "recorded")
        >>> obs, infos = env.reset(seed=0)
        >>> for _ in range(100):
        ...     obs, *_ = env.step(env.action_space.sample())
        >>> env.close()
        >>> buffer = EpisodeBuffer.from_folder("recorded")
        >>> set(buffer.episodes().meta["env"].tolist()) == {0, 1}
        True
    """

    resumable = False
    """A recorded episode begins with a reset."""

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        folder: str | os.PathLike[str],
        *,
        max_episodes: int = UNLIMITED,
        max_timesteps: int = UNLIMITED,
        **buffer_options: Any,
    ) -> None:
        super().__init__(env)
        self._mode = autoreset_mode(env)
        if self._mode not in MODES:
            raise ValueError(f"env must have an autoreset mode of {MODES}, got {self._mode!r}")
        recording = Recording(env.single_observation_space, env.single_action_space, {}, ())
        self._recording = recording
        self.buffer = EpisodeBuffer(
            folder,
            max_episodes,
            max_timesteps,
            recording.fields,
            {**recording.meta_fields, "env": "int32"},
            **buffer_options,
        )
        self._steps: list[list[dict[str, Any]]] = [[] for _ in range(env.num_envs)]
        self._meta: list[dict[str, Any]] = [{} for _ in range(env.num_envs)]
        self._obs: list[Nested] = [None] * env.num_envs
        self._under_way = np.zeros(env.num_envs, np.bool_)

    def reset(
        self,
        *,
        seed: Any = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Reset the environments; episodes that were under way end as truncated.

        Args:
            seed: None, one number, or one for each environment, as the environment takes it.
            options: `reset_mask` says which environments are reset.
        """
        some = (options or {}).get("reset_mask")
        rows = range(self.num_envs) if some is None else np.flatnonzero(some).tolist()
        for number in rows:
            self._cut(number)
        obs, infos = self.env.reset(seed=seed, options=options)
        for number in rows:
            self._begin(number, _row(obs, number), _seed(seed, number))
        return obs, infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step the environments and record the steps."""
        obs, rewards, terminated, truncated, infos = self.env.step(actions)
        ended = np.logical_or(terminated, truncated)
        final_obs = obs
        if self._mode == "same_step" and ended.any():
            final_obs = with_final_obs(obs, ended, infos)
        for number in range(self.num_envs):
            if not self._under_way[number]:
                if self._mode == "next_step":  # this step was the reset
                    self._begin(number, _row(obs, number), None)
                continue
            action = _row(actions, number)
            outcome = (rewards[number], terminated[number], truncated[number])
            step = self._recording.step(self._obs[number], action, *outcome, {})
            self._steps[number].append(step)
            self._obs[number] = _row(final_obs, number)
            if ended[number]:
                self._end(number)
                if self._mode == "same_step":
                    self._begin(number, _row(obs, number), None)
        return obs, rewards, terminated, truncated, infos

    def close(self, **options: Any) -> None:
        """Close environments and folder; episodes that were under way end as truncated."""
        try:
            if not self.buffer._is_closed:
                for number in range(self.num_envs):
                    self._cut(number)
        finally:
            self.buffer.close()
            self.env.close(**options)

    def _begin(self, number: int, obs: Nested, seed: int | None) -> None:
        self._obs[number] = obs
        self._meta[number] = {**self._recording.meta(seed, None), "env": number}
        self._under_way[number] = True

    def _cut(self, number: int) -> None:
        if self._under_way[number]:
            if self._steps[number]:
                self._steps[number][-1]["truncated"] = True
            self._end(number)

    def _end(self, number: int) -> None:
        steps, self._steps[number] = self._steps[number], []
        self._under_way[number] = False
        if steps:
            columns = map_leaves(lambda *rows: np.stack(rows), *steps)
            final = {FINAL_OBS: self._obs[number]}
            self.buffer.store_episode(**columns, **self._meta[number], **final)


def _row(values: Nested, number: int) -> Nested:
    return as_fields(map_leaves(lambda leaf: leaf[number], values))


def _seed(seed: Any, number: int) -> int | None:
    if seed is None:
        return None
    mine = seed + number if isinstance(seed, int) else seed[number]
    return None if mine is None else int(mine)
