"""Observations and rewards of vector environments on a common scale."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector import VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space

from sharpwave.core.finite import all_finite
from sharpwave.core.tree import leaves, map_leaves
from sharpwave.envs.autoreset import autoreset_mode, with_final_obs
from sharpwave.envs.spaces import leaf_spaces
from sharpwave.primitives import RunningStats
from sharpwave.types import Array, Nested

__all__ = ["VecNormalize"]

if TYPE_CHECKING:
    Wrapper = VectorWrapper[Any, Any, Any, Any, Any]
else:  # Gymnasium 1.1 has it without parameters
    Wrapper = VectorWrapper


class VecNormalize(Wrapper):
    """Normalizes observations by running statistics and scales rewards by those of the return.

    - Observations: (x - mean) / sqrt(var + epsilon), each dimension with its own statistics, held
      within ±clip_obs, in float32. In nested observations only Box leaves of floats are touched.
    - Rewards: r / sqrt(var(G) + epsilon), held within ±clip_reward, where G = gamma · G + r is the
      discounted return so far of each episode in flight. Their mean stays.

    Every observation the environments showed counts once, the last of an episode and the first of
    the next included, so the statistics do not depend on the autoreset mode. The step of a
    next_step environment that is only a reset does not touch those of the return. What is not
    finite passes through, and its rows are not counted.

    `infos["raw_rewards"]` has the rewards as they were.

    Args:
        env: A vector environment of any autoreset mode.
        norm_obs: Normalize observations.
        norm_reward: Scale rewards.
        gamma: Discount of the return.
        clip_obs: Bound of the observations.
        clip_reward: Bound of the rewards.
        epsilon: Added to the variances.

    Attributes:
        training: False freezes the statistics, as for evaluation.

    Example:
        >>> env = VecNormalize(gym.make_vec("Pendulum-v1", num_envs=4))
        >>> obs, infos = env.reset(seed=0)
        >>> obs, rewards, *_, infos = env.step(env.action_space.sample())
        >>> infos["raw_rewards"].shape, env.get_obs_rms().count
        ((4,), 8)
        >>> env.training = False
    """

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        norm_obs: bool = True,
        norm_reward: bool = True,
        gamma: float = 0.99,
        clip_obs: float = 10.0,
        clip_reward: float = 10.0,
        epsilon: float = 1e-8,
    ) -> None:
        super().__init__(env)
        if not 0 <= gamma <= 1:
            raise ValueError(f"gamma must be within [0, 1], got {gamma}")
        for name, value in (("clip_obs", clip_obs), ("clip_reward", clip_reward)):
            if not value > 0:
                raise ValueError(f"{name} must be positive, got {value}")
        if not epsilon > 0:
            raise ValueError(f"epsilon must be positive, got {epsilon}")
        self.training = True
        self.norm_obs = norm_obs
        self.norm_reward = norm_reward
        self.gamma = gamma
        self.clip_obs = clip_obs
        self.clip_reward = clip_reward
        self.epsilon = epsilon
        self._mode = autoreset_mode(env)
        self._obs_stats: Nested = map_leaves(_statistics, leaf_spaces(env.single_observation_space))
        self._return_stats = RunningStats(())
        self._returns = np.zeros(env.num_envs, np.float64)
        self._ended = np.zeros(env.num_envs, np.bool_)
        self._counted = np.zeros(env.num_envs, np.bool_)  # the first observation of the episode
        self._merged: list[RunningStats] = []  # as they were when processes had the same
        if norm_obs:
            single = _normalized_space(env.single_observation_space, clip_obs)
            self.single_observation_space = single
            self.observation_space = batch_space(single, env.num_envs)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Nested, dict[str, Any]]:
        """Reset all environments, or those in `options["reset_mask"]`."""
        rows = np.array((options or {}).get("reset_mask", np.ones(self.num_envs, np.bool_)))
        obs, infos = self.env.reset(seed=seed, options=options)
        self._returns[rows] = 0
        self._ended[rows] = False
        self._count_obs(_rows(obs, rows))
        return self._normalized(obs), infos

    def step(self, actions: Any) -> tuple[Nested, Array, Array, Array, dict[str, Any]]:
        """Step all environments."""
        obs, raw_rewards, terminated, truncated, infos = self.env.step(actions)
        raw_rewards = np.asarray(raw_rewards)
        ended = np.logical_or(terminated, truncated)
        infos = {"raw_rewards": raw_rewards, **infos}  # those of a wrapper below are rawer
        self._count_obs(obs)
        if self.norm_obs and self._mode == "same_step" and ended.any():
            infos["final_obs"] = self._normalized_final(with_final_obs(obs, ended, infos), ended)
        rewards = self._scaled(raw_rewards)
        self._returns[ended] = 0
        self._ended = ended
        return self._normalized(obs), rewards, terminated, truncated, infos

    def normalize_obs(self, obs: Nested) -> Nested:
        """Normalize observations of one environment or of many, [..., *shape of one].

        The statistics stay as they are.
        """
        return self._normalized(obs)

    @property
    def reward_std(self) -> float:
        """Standard deviation that rewards are divided by."""
        return math.sqrt(float(self._return_stats.var) + self.epsilon)

    def count_step(
        self,
        obs: Nested,
        rewards: Array,
        ended: Array,
        next_obs: Nested,
        rows: npt.NDArray[np.intp] | None = None,
    ) -> None:
        """Count a step of environments that were not stepped through this wrapper.

        This is for learners that store raw steps and normalize them when they are drawn, so that
        old steps agree with new statistics. What is counted is the same as by `step`.

        Args:
            obs: Observations that the actions were chosen for, [M, ...].
            rewards: [M].
            ended: [M], True where the step was an episode's last.
            next_obs: Observations after the step, [M, ...], the true last observation at an end.
            rows: The environments that stepped, [M]; None for all.
        """
        if not self.training:
            return
        some = slice(None) if rows is None else rows
        is_first = ~self._counted[some]
        if is_first.any():
            self._count_obs(_rows(obs, is_first))
        self._count_obs(next_obs)
        returns = self.gamma * self._returns[some] + rewards
        _count(self._return_stats, returns)
        self._returns[some] = np.where(ended, 0.0, returns)
        self._counted[some] = ~ended

    def merge_over(self, gather: Callable[[Any], list[Any]]) -> None:
        """Let what other processes have counted since the last call count here too.

        Args:
            gather: From what this process gives to what all of them do, in their order. The result
                is the same in all.
        """
        own = [stats for _, stats in self._named_stats()]
        merged = self._merged or [RunningStats(stats.shape) for stats in own]
        news = [stats.since(before) for stats, before in zip(own, merged, strict=True)]
        every = gather((merged, news))
        for i, stats in enumerate(own):
            total = copy.copy(every[0][0][i])  # that of the first, should it differ
            for _, of_one in every:
                total.merge(of_one[i])
            stats.load_state_dict(total.state_dict())
        self._merged = [copy.copy(stats) for stats in own]

    def restart(self) -> None:
        """Forget the episodes in flight: the environments were not reset through this wrapper."""
        self._returns[:] = 0
        self._ended[:] = False
        self._counted[:] = False

    def get_obs_rms(self) -> Nested:
        """The statistics of the observations.

        Returns:
            RunningStats; in a tree like the observations where they are nested, None for leaves
            that are not normalized. None altogether without `norm_obs`.
        """
        return self._obs_stats if self.norm_obs else None

    def state_dict(self) -> dict[str, Array]:
        """Everything that changes, as arrays."""
        state = {
            "returns": self._returns.copy(),
            "ended": self._ended.copy(),
            "counted": self._counted.copy(),
        }
        for prefix, stats in self._named_stats():
            for name, value in stats.state_dict().items():
                state[f"{prefix}.{name}"] = np.asarray(value)
        return state

    def load_state_dict(self, state: dict[str, Array]) -> None:
        """Take over what `state_dict` gave.

        The returns of the episodes in flight are taken over if the number of environments is the
        same, so that statistics can go to an environment for evaluation.

        Raises:
            KeyError: An entry is missing.
            ValueError: A shape differs.
        """
        for prefix, stats in self._named_stats():
            parts = {name.removeprefix(f"{prefix}."): array for name, array in state.items()}
            stats.load_state_dict(parts)
        self._merged = [copy.copy(stats) for _, stats in self._named_stats()]
        if len(state["returns"]) == self.num_envs:
            self._returns[:] = state["returns"]
            self._ended[:] = state["ended"]
            self._counted[:] = state["counted"]

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Call a method of each environment, as the wrapped vector environment does."""
        return self.env.call(name, *args, **kwargs)  # type: ignore[attr-defined, no-any-return]

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """An attribute of each environment."""
        return self.env.get_attr(name)  # type: ignore[attr-defined, no-any-return]

    def set_attr(self, name: str, values: Any) -> None:
        """Set an attribute of each environment."""
        self.env.set_attr(name, values)  # type: ignore[attr-defined]

    def _named_stats(self) -> list[tuple[str, RunningStats]]:
        named = [(f"obs.{path}" if path else "obs", x) for path, x in leaves(self._obs_stats)]
        return [(name, x) for name, x in [*named, ("return", self._return_stats)] if x is not None]

    def _count_obs(self, obs: Nested) -> None:
        if self.training and self.norm_obs:
            map_leaves(_count, self._obs_stats, obs)

    def _normalized(self, obs: Nested) -> Nested:
        if not self.norm_obs:
            return obs
        return map_leaves(self._normalized_leaf, self._obs_stats, obs)

    def _normalized_leaf(self, stats: RunningStats | None, leaf: Any) -> Any:
        if stats is None:
            return leaf
        array = np.asarray(leaf, np.float32)
        normalized = stats.normalize(array, self.clip_obs, self.epsilon)
        return normalized if all_finite(array) else _with_not_finite(normalized, array)

    def _normalized_final(self, next_obs: Nested, ended: Array) -> Array:
        """The last observations in Gymnasium's form, an array of N of them or None."""
        self._count_obs(_rows(next_obs, ended))
        normalized = self._normalized(next_obs)
        final_obs = np.full(len(ended), None, object)
        for i in np.flatnonzero(ended):
            final_obs[i] = _rows(normalized, i)
        return final_obs

    def _scaled(self, rewards: Array) -> Array:
        """Rewards over the spread of the return."""
        if self.training:
            self._count_returns(rewards)
        if not self.norm_reward:
            return rewards
        scaled = rewards / self.reward_std
        held: Array = np.minimum(np.maximum(scaled, -self.clip_reward), self.clip_reward)
        return held if all_finite(rewards) else _with_not_finite(held, rewards)

    def _count_returns(self, rewards: Array) -> None:
        self._returns *= self.gamma
        self._returns += rewards
        if self._mode == "next_step" and self._ended.any():
            self._returns[self._ended] = 0
            _count(self._return_stats, self._returns[~self._ended])
        else:
            _count(self._return_stats, self._returns)


def _statistics(space: gym.Space[Any]) -> RunningStats | None:
    if isinstance(space, spaces.Box) and space.dtype.kind == "f":
        return RunningStats(space.shape)
    return None


def _rows(obs: Nested, rows: Any) -> Nested:
    return map_leaves(lambda leaf: np.asarray(leaf)[rows], obs)


def _count(stats: RunningStats | None, batch: Any) -> None:
    if stats is None:
        return
    try:
        stats.update(batch)
    except ValueError:
        rows = np.asarray(batch).reshape(-1, *stats.shape)
        finite = np.isfinite(rows).reshape(len(rows), -1).all(axis=1)
        if finite.all():
            raise
        stats.update(rows[finite])


def _with_not_finite(clipped: Array, raw: Array) -> Array:
    """Clipping must not hide what is not finite."""
    return np.where(np.isfinite(raw), clipped, raw)


def _normalized_space(space: gym.Space[Any], clip: float) -> gym.Space[Any]:
    if isinstance(space, spaces.Dict):
        return spaces.Dict({key: _normalized_space(x, clip) for key, x in space.spaces.items()})
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple([_normalized_space(inner, clip) for inner in space.spaces])
    if _statistics(space) is None:
        return space
    return spaces.Box(-clip, clip, space.shape, np.float32)
