"""Recording of an environment's trajectories as episodes on disk."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from typing import Any, SupportsFloat

import gymnasium as gym

from sharpwave.episodes.buffer import EpisodeBuffer
from sharpwave.episodes.recording import Recording, as_fields
from sharpwave.formats.stream import FINAL_OBS
from sharpwave.types import Nested

__all__ = ["RecordEpisodes"]

UNLIMITED = 2**40
"""More episodes, or steps of an episode, than anybody records."""


class RecordEpisodes(gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs):
    """Records every episode of an environment to a folder of `EpisodeBuffer`.

    A step has the fields obs, action, reward (float64), terminated and truncated; obs and action
    are nested as Dict and Tuple spaces are (`obs.camera`, `obs.0`). An episode has the meta fields
    final_obs, the observation after its last step, and seed, what `reset` was given (-1 for none).

    An episode that `reset` or `close` cuts is complete: its last step is marked as truncated, which
    it was, if not by the environment. For that a step is written when the next one is there. An
    episode that an exception of the environment or the death of the process cuts is aborted, with
    the steps that were written.

    A folder that holds episodes of the same fields is continued.

    Args:
        env: An environment whose spaces are Box, Discrete, MultiDiscrete, MultiBinary, or Dict and
            Tuple of them.
        folder: Folder of the episodes.
        infos: Entries of `info` to record with each step as fields `info.NAME`, with their types:
            `{"x_position": "float64"}`. Every step must have them.
        options: Entries of the `options` of `reset` to record as meta fields `options.NAME`
            (float64, NaN where they are not given). They must be numbers.
        max_episodes: Episodes that the folder may hold.
        max_timesteps: Steps that an episode may have.
        **buffer_options: Further ones of `EpisodeBuffer`: circular, overwrite, durability.

    Attributes:
        buffer: The `EpisodeBuffer`.

    Raises:
        TypeError: A space has no numbers of a fixed shape.

    Example:
        >>> import gymnasium as gym
        >>> env = RecordEpisodes(gym.make("CartPole-v1"), "recorded")
        >>> for seed in range(3):
        ...     obs, info = env.reset(seed=seed)
        ...     ended = False
        ...     while not ended:
        ...         obs, reward, terminated, truncated, info = env.step(env.action_space.sample())
        ...         ended = terminated or truncated
        >>> env.close()
        >>> episodes = EpisodeBuffer.from_folder("recorded").episodes()
        >>> episodes.meta["seed"]
        array([0, 1, 2])
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        folder: str | os.PathLike[str],
        *,
        infos: Mapping[str, Any] | None = None,
        options: Sequence[str] = (),
        max_episodes: int = UNLIMITED,
        max_timesteps: int = UNLIMITED,
        **buffer_options: Any,
    ) -> None:
        gym.utils.RecordConstructorArgs.__init__(
            self,
            folder=os.fspath(folder),
            infos=infos,
            options=options,
            max_episodes=max_episodes,
            max_timesteps=max_timesteps,
            **buffer_options,
        )
        super().__init__(env)
        self._recording = Recording(env.observation_space, env.action_space, infos or {}, options)
        self.buffer = EpisodeBuffer(
            folder,
            max_episodes,
            max_timesteps,
            self._recording.fields,
            self._recording.meta_fields,
            **buffer_options,
        )
        self._open: contextlib.ExitStack | None = None
        self._final: dict[str, Any] = {}
        self._obs: Nested = None
        self._last_step: dict[str, Any] | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset the environment; an episode that was under way ends as truncated."""
        self._cut()
        obs, info = self.env.reset(seed=seed, options=options)
        self._obs = as_fields(obs)
        self._open = contextlib.ExitStack()
        meta = self._recording.meta(seed, options)
        self._final = self._open.enter_context(self.buffer.one_episode(**meta))
        return obs, info

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Step the environment and record the step.

        Raises:
            ResetNeeded: No episode is under way.
        """
        if self._open is None:
            raise gym.error.ResetNeeded("reset must be called before the step of an episode")
        with self._aborted_by_errors():
            obs, reward, terminated, truncated, info = self.env.step(action)
            self._write()
            self._last_step = self._recording.step(
                self._obs, action, reward, terminated, truncated, info
            )
            self._obs = as_fields(obs)
            if terminated or truncated:
                self._end()
        return obs, reward, terminated, truncated, info

    def close(self) -> None:
        """Close environment and folder; an episode that was under way ends as truncated."""
        try:
            self._cut()
        finally:
            self.buffer.close()
            self.env.close()

    def _cut(self) -> None:
        if self._open is not None:
            with self._aborted_by_errors():
                if self._last_step is not None:
                    self._last_step["truncated"] = True
                self._end()

    def _end(self) -> None:
        self._write()
        self._final[FINAL_OBS] = self._obs
        episode, self._open = self._open, None
        if episode is not None:
            episode.close()

    def _write(self) -> None:
        if self._last_step is not None:
            step, self._last_step = self._last_step, None
            self.buffer.store(**step)

    @contextlib.contextmanager
    def _aborted_by_errors(self) -> Any:
        """An exception inside this block aborts the episode, with the steps that there are."""
        try:
            yield
        except BaseException as error:
            episode, self._open = self._open, None
            if episode is not None:
                with contextlib.suppress(Exception):
                    self._write()
                with contextlib.suppress(type(error)):
                    episode.__exit__(type(error), error, error.__traceback__)
            raise
