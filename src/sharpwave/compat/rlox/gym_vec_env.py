"""Gymnasium environments behind the step and reset of rlox's vector environments."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorEnv

from sharpwave.collect import EpisodeStats
from sharpwave.core.tree import map_leaves
from sharpwave.envs import Stepper, make_vec_env
from sharpwave.types import Array, Nested

__all__ = ["GymVecEnv", "SteppedTogether"]


class SteppedTogether:
    """A vector environment with `reset_all` and `step_all`.

    Args:
        vector: A Gymnasium vector environment that begins the next episode in the step that ends
            one, or is reset from outside.
        episodes: Counts its episodes; None counts none.
        seed: Of the first reset that is given none.

    Raises:
        ValueError: The environments are reset in the step after the end.
    """

    def __init__(
        self, vector: VectorEnv[Any, Any, Any], episodes: EpisodeStats | None, seed: int | None
    ) -> None:
        self.vector = vector
        self.episodes = episodes
        self.seed = seed
        self._stepper = Stepper(vector)
        self._has_begun = False
        if self._stepper.mode == "next_step":
            raise ValueError("env must not reset in the step after an end: that step is no step")

    def reset_all(self, seed: int | None = None) -> Nested:
        """Start new episodes everywhere; with a seed, environment i gets seed + i.

        Returns:
            Observations [N, ...].
        """
        obs, _ = self._stepper.reset(seed=self.seed if seed is None else seed)
        self._has_begun = True
        self.seed = None  # the next reset goes on with the environments' own generators
        if self.episodes is not None:
            self.episodes.restart()
        return map_leaves(_single, obs)

    def step_all(self, actions: Any) -> dict[str, Any]:
        """Step all environments; those whose episode ends begin the next one.

        Where `reset_all` was not called before, it is first.

        Args:
            actions: [N, *shape of one action], or as many numbers in another shape.

        Returns:
            obs [N, ...], of the next episode where one ended; rewards [N] float64; terminated and
            truncated [N] uint8; terminal_obs, a list with the last observation of each episode that
            ended and None elsewhere.

        Raises:
            ValueError: The actions do not fit.
        """
        self._begin()
        step = self._stepper.step(self._shaped(actions))
        ended = step.terminated | step.truncated
        if self.episodes is not None:
            self.episodes.update(step.raw_rewards, ended)
        last = map_leaves(_single, step.next_obs)
        return {
            "obs": map_leaves(_single, step.obs),
            "rewards": np.asarray(step.rewards, np.float64),
            "terminated": step.terminated.astype(np.uint8),
            "truncated": step.truncated.astype(np.uint8),
            "terminal_obs": [
                map_leaves(lambda leaf, i=i: leaf[i].copy(), last) if ended[i] else None
                for i in range(self.num_envs())
            ],
        }

    def _begin(self) -> None:
        """As in rlox, environments that nobody has reset begin by themselves."""
        if not self._has_begun:
            self.reset_all()

    def num_envs(self) -> int:
        """Number of environments."""
        return int(self.vector.num_envs)

    @property
    def env_id(self) -> str | None:
        """Gymnasium id, where there is one."""
        return None if self.vector.spec is None else self.vector.spec.id

    @property
    def action_space(self) -> gym.Space[Any]:
        """Of one environment."""
        return self.vector.single_action_space

    @property
    def observation_space(self) -> gym.Space[Any]:
        """Of one environment."""
        return self.vector.single_observation_space

    @property
    def episode_rewards(self) -> list[float]:
        """Return of every finished episode, in the order they ended."""
        return [] if self.episodes is None else list(self.episodes.returns)

    @property
    def episode_lengths(self) -> list[int]:
        """Length of every finished episode, in the order they ended."""
        return [] if self.episodes is None else list(self.episodes.lengths)

    def close(self) -> None:
        """Close the environments."""
        self.vector.close()

    def _shaped(self, actions: Any) -> Array:
        given: Array = np.asarray(actions)
        space = self.vector.action_space
        if given.size != np.prod(space.shape or ()):
            raise ValueError(f"actions must have shape {space.shape}, got {given.shape}")
        with np.errstate(invalid="ignore"):
            shaped = given.astype(space.dtype).reshape(space.shape)
        if shaped.dtype.kind != "f" and not np.array_equal(shaped.ravel(), given.ravel()):
            raise ValueError(f"actions must be integers, got {given}")
        return shaped


class GymVecEnv(SteppedTogether):
    """`n_envs` Gymnasium environments that are stepped together.

    Args:
        env_id: A Gymnasium id, or a function that makes an environment.
        n_envs: Number of environments.
        seed: Of the first `reset_all`: environment i gets seed + i.
        record_episode_stats: Fill `episode_rewards` and `episode_lengths`.

    Example:
        >>> env = GymVecEnv("CartPole-v1", n_envs=2)
        >>> obs = env.reset_all(seed=0)
        >>> step = env.step_all([0, 1])
        >>> step["obs"].shape, step["terminated"], env.num_envs()
        ((2, 4), array([0, 0], dtype=uint8), 2)
    """

    def __init__(
        self, env_id: Any, n_envs: int, seed: int = 0, record_episode_stats: bool = True
    ) -> None:
        vector = make_vec_env(env_id, n_envs, mode="sync")
        episodes = EpisodeStats(n_envs, window=None) if record_episode_stats else None
        super().__init__(vector, episodes, seed)


def _single(leaf: Any) -> Array:
    """Real numbers in float32, anything else as it is."""
    array: Array = np.asarray(leaf)
    return array.astype(np.float32, copy=False) if array.dtype.kind == "f" else array
