"""Replay buffers for the off-policy algorithms of stable-baselines3.

    from stable_baselines3 import SAC
    from sharpwave.integrations.sb3 import ReplayBuffer

    model = SAC("MlpPolicy", "Pendulum-v1", replay_buffer_class=ReplayBuffer)

An observation is stored once, although it is the next observation of one step and the observation
of the next, and the true last observation of an episode is kept, so that bootstrapping at time
limits is exact. The draws follow from the algorithm's seed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from sharpwave import buffers
from sharpwave.buffers import Field, Hindsight, NStep, Sequence, Transition
from sharpwave.types import Array, BatchDict, Ids, Nested

try:
    from stable_baselines3.common import buffers as sb3
    from stable_baselines3.common.type_aliases import DictReplayBufferSamples, ReplayBufferSamples
    from stable_baselines3.her import her_replay_buffer as sb3_her
except ImportError as error:
    raise ImportError(
        'sharpwave.integrations.sb3 needs stable-baselines3: pip install "sharpwave[sb3]"'
    ) from error

__all__ = ["DictReplayBuffer", "HerReplayBuffer", "ReplayBuffer"]

_FIELDS = ("obs", "next_obs", "actions", "rewards", "terminated")


class _Rows(buffers.ReplayBuffer):
    """Stream rows from which more may be drawn than there are, as training begins early."""

    __slots__ = ()

    def __init__(self, capacity: int, fields: dict[str, Any], n_envs: int, seed: int) -> None:
        self._make(capacity, None, None, fields=fields, n_envs=n_envs, seed=seed, oversample=True)


class ReplayBuffer(sb3.ReplayBuffer):  # type: ignore[misc]
    """The `replay_buffer_class` of DQN, SAC, TD3 and their like.

    Args:
        buffer_size: Steps to keep over all environments. The last observation of an episode takes
            the place of a step.
        observation_space: Box, Discrete, MultiDiscrete, MultiBinary, or a Dict of them.
        action_space: The action space.
        device: Device of the sampled tensors.
        n_envs: Environments that are stepped together.
        optimize_memory_usage: Must be False: observations are never stored twice.
        handle_timeout_termination: Bootstrap at time limits, which environments report as
            `info["TimeLimit.truncated"]`.
        n_steps: Rewards to sum before bootstrapping; `discounts` in samples say what is left.
        gamma: The discount of n-step returns.
        stack: Images are stacks of this many frames along `axis`, of which every frame is stored
            once.
        axis: The axis of the frames, 0 where the algorithm moved the channels first.
        seed: Of the draws, by default drawn from NumPy's global generator, which the algorithm
            seeds.

    Raises:
        ValueError: If optimize_memory_usage is set, or the sizes make no sense.

    Example:
        >>> import numpy as np
        >>> from gymnasium.spaces import Box
        >>> buffer = ReplayBuffer(100, Box(-1, 1, (3,)), Box(-1, 1, (1,)), device="cpu")
        >>> obs, done = np.zeros((1, 3), np.float32), np.array([False])
        >>> buffer.add(obs, obs + 1, np.zeros((1, 1), np.float32), np.ones(1), done, [{}])
        >>> buffer.sample(4).next_observations.shape
        torch.Size([4, 3])
    """

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        device: torch.device | str = "auto",
        n_envs: int = 1,
        optimize_memory_usage: bool = False,
        handle_timeout_termination: bool = True,
        *,
        n_steps: int = 1,
        gamma: float = 0.99,
        stack: int = 1,
        axis: int = 0,
        seed: int | None = None,
    ) -> None:
        if optimize_memory_usage:
            raise ValueError(
                "optimize_memory_usage must be False: this buffer stores observations once anyway"
            )
        # Not the base class's own, which would allocate its arrays.
        sb3.BaseBuffer.__init__(
            self, buffer_size, observation_space, action_space, device, n_envs=n_envs
        )
        self.buffer_size = max(buffer_size // n_envs, 1)
        self.pos = 0
        self.full = False
        self.optimize_memory_usage = False
        self.handle_timeout_termination = handle_timeout_termination
        self.n_steps = n_steps
        self.gamma = gamma
        if seed is None:
            seed = int(np.random.randint(2**31))  # noqa: NPY002 - what set_random_seed seeds
        observation = _node(observation_space, self.obs_shape, stack, axis)
        fields = {
            "obs": observation,
            "next_obs": observation,
            "action": Field(_action_dtype(action_space), (self.action_dim,)),
            "reward": Field("float32"),
            "terminated": Field("float32"),
            "truncated": Field("bool"),
            **self._extra_fields(),
        }
        self._rows = _Rows(self.buffer_size * n_envs, fields, n_envs, seed)
        self._view: Transition | NStep = (
            Transition(_FIELDS) if n_steps == 1 else NStep(n_steps, gamma, _FIELDS)
        )
        self._never = np.zeros(n_envs, np.bool_)

    def _extra_fields(self) -> dict[str, Field]:
        return {}

    def _extra_columns(self, infos: list[dict[str, Any]]) -> dict[str, Array]:  # noqa: ARG002
        return {}

    def size(self) -> int:
        """Steps of every environment in the buffer."""
        return len(self._rows) // int(self.n_envs)

    def reset(self) -> None:
        """Forget all steps."""
        super().reset()
        self._rows.clear()

    def add(
        self,
        obs: Nested,
        next_obs: Nested,
        action: Array,
        reward: Array,
        done: Array,
        infos: list[dict[str, Any]],
    ) -> None:
        """Store one step of every environment.

        Args:
            obs: [n_envs, ...].
            next_obs: [n_envs, ...], the true last observations where episodes end.
            action: [n_envs, ...].
            reward: [n_envs].
            done: [n_envs].
            infos: One for every environment.
        """
        terminated, truncated = done, self._never
        if self.handle_timeout_termination and any(done.tolist()):
            timeout = [info.get("TimeLimit.truncated", False) for info in infos]
            truncated = np.logical_and(done, timeout)
            terminated = np.logical_and(done, ~truncated)
        self._rows.push_batch(
            self._shaped(obs),
            self._shaped(next_obs),
            action.reshape(self.n_envs, self.action_dim),
            reward,
            terminated,
            truncated,
            **self._extra_columns(infos),
        )
        self.pos += 1
        if self.pos == self.buffer_size:
            self.full = True
            self.pos = 0

    def _shaped(self, obs: Nested) -> Nested:
        """Observations in the shapes of the fields: those of Discrete spaces come without axis."""
        shape = self.obs_shape
        if isinstance(shape, dict):
            return {key: obs[key].reshape(self.n_envs, *shape[key]) for key in shape}
        return obs.reshape(self.n_envs, *shape)

    def sample(
        self, batch_size: int, env: Any = None
    ) -> ReplayBufferSamples | DictReplayBufferSamples:
        """Draw steps uniformly with replacement.

        Args:
            batch_size: Steps to draw.
            env: A VecNormalize, whose statistics are applied to observations and rewards.

        Returns:
            observations, actions, next_observations, dones [B, 1] (not set at time limits), rewards
            [B, 1] and, for n-step returns, discounts [B, 1], which are 0 where dones are set.
        """
        indices = env is not None and self.n_steps > 1
        batch = self._rows.sample(batch_size, view=self._view, indices=indices)
        return self._samples(batch, env)

    def _get_samples(
        self, batch_inds: Ids, env: Any = None
    ) -> ReplayBufferSamples | DictReplayBufferSamples:
        """The steps of given ids (`indices` of the buffer below)."""
        batch = self._rows.gather(batch_inds, view=self._view)
        return self._samples({**batch, "indices": batch_inds}, env)

    def _samples(self, batch: BatchDict, env: Any) -> ReplayBufferSamples | DictReplayBufferSamples:
        obs, next_obs, rewards = batch["obs"], batch["next_obs"], batch["rewards"]
        if env is not None:
            obs, next_obs = env.normalize_obs(obs), env.normalize_obs(next_obs)
            rewards = self._normalized_rewards(batch, env)
        make = DictReplayBufferSamples if isinstance(obs, dict) else ReplayBufferSamples
        discounts = batch.get("discounts")
        return make(
            self._tensors(obs),
            self._tensors(batch["actions"]),
            self._tensors(next_obs),
            self._tensors(batch["terminated"].reshape(-1, 1)),
            self._tensors(rewards.reshape(-1, 1)),
            None if discounts is None else self._tensors(discounts.reshape(-1, 1)),
        )

    def _normalized_rewards(self, batch: BatchDict, env: Any) -> Array:
        if self.n_steps == 1:
            rewards: Array = env.normalize_reward(batch["rewards"])
        else:  # normalization clips, so every reward must be normalized by itself
            view = Sequence(self.n_steps, pad=True, fields=("rewards",))
            steps = self._rows.gather(batch["indices"], view=view)
            weights = self.gamma ** np.arange(self.n_steps) * steps["mask"]
            rewards = (env.normalize_reward(steps["rewards"]) * weights).sum(axis=1)
        return rewards.astype(np.float32)

    def _tensors(self, arrays: Nested) -> Any:
        """Tensors on the device; on the CPU over the memory of the arrays, which are fresh."""
        if isinstance(arrays, dict):
            return {key: self._tensors(array) for key, array in arrays.items()}
        tensor = torch.from_numpy(arrays)
        return tensor if self.device.type == "cpu" else tensor.to(self.device)


class DictReplayBuffer(ReplayBuffer, sb3.DictReplayBuffer):  # type: ignore[misc]
    """`ReplayBuffer` for Dict observations, under the name that stable-baselines3 gives it."""

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Dict,
        action_space: spaces.Space[Any],
        *args: Any,
        **options: Any,
    ) -> None:
        if not isinstance(observation_space, spaces.Dict):
            raise TypeError(f"observation_space must be a Dict, got {observation_space}")
        super().__init__(buffer_size, observation_space, action_space, *args, **options)


class HerReplayBuffer(DictReplayBuffer, sb3_her.HerReplayBuffer):  # type: ignore[misc]
    """Hindsight experience replay for goal environments.

    A share n_sampled_goal / (n_sampled_goal + 1) of a batch gets a goal that was achieved in the
    same episode, and the reward of that by `compute_reward` of the first environment. Steps of the
    running episode are drawn too, with goals from what is there of it.

    Args:
        buffer_size: As in `ReplayBuffer`.
        observation_space: With the keys observation, achieved_goal and desired_goal.
        action_space: As in `ReplayBuffer`.
        env: The vector environment of the algorithm, which passes it.
        device: As in `ReplayBuffer`.
        n_envs: As in `ReplayBuffer`.
        optimize_memory_usage: As in `ReplayBuffer`.
        handle_timeout_termination: As in `ReplayBuffer`.
        n_sampled_goal: Relabeled steps per original one.
        goal_selection_strategy: "future" (at or after the step), "final" or "episode".
        copy_info_dict: Keep the infos of all steps and pass them to `compute_reward`, which
            otherwise gets empty ones.
        seed: As in `ReplayBuffer`.
    """

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Dict,
        action_space: spaces.Space[Any],
        env: Any,
        device: torch.device | str = "auto",
        n_envs: int = 1,
        optimize_memory_usage: bool = False,
        handle_timeout_termination: bool = True,
        n_sampled_goal: int = 4,
        goal_selection_strategy: Any = "future",
        copy_info_dict: bool = False,
        *,
        seed: int | None = None,
    ) -> None:
        self.copy_info_dict = copy_info_dict
        super().__init__(
            buffer_size,
            observation_space,
            action_space,
            device,
            n_envs,
            optimize_memory_usage,
            handle_timeout_termination,
            seed=seed,
        )
        strategy = getattr(goal_selection_strategy, "name", goal_selection_strategy).lower()
        self.env = env
        self.n_sampled_goal = n_sampled_goal
        self.goal_selection_strategy = goal_selection_strategy
        # The infos of a step stand at the number in its column "info", modulo the length.
        self.infos: list[dict[str, Any]] = [{}] * (self.buffer_size * n_envs * copy_info_dict)
        self._n_infos = 0
        self._hindsight = Hindsight(
            self._rewards, n_sampled_goal, strategy, info=self._infos_of_rows
        )

    def _extra_fields(self) -> dict[str, Field]:
        return {"info": Field("int64")} if self.copy_info_dict else {}

    def _extra_columns(self, infos: list[dict[str, Any]]) -> dict[str, Array]:
        if not self.copy_info_dict:
            return {}
        numbers = self._n_infos + np.arange(len(infos))
        for number, info in zip(numbers, infos, strict=True):
            self.infos[number % len(self.infos)] = info
        self._n_infos += len(infos)
        return {"info": numbers}

    def _infos_of_rows(self, batch: BatchDict, rows: Array) -> list[dict[str, Any]]:
        if not self.copy_info_dict:
            return [{} for _ in range(int(rows.sum()))]
        return [self.infos[number % len(self.infos)] for number in batch["info"][rows]]

    def _rewards(self, achieved_goal: Array, desired_goal: Array, info: Any) -> Array:
        if self.env is None:
            raise ValueError("env must be set to compute rewards: call set_env first")
        rewards: Array = self.env.env_method(
            "compute_reward", achieved_goal, desired_goal, info, indices=[0]
        )[0]
        return rewards

    def sample(self, batch_size: int, env: Any = None) -> DictReplayBufferSamples:
        """Draw steps and relabel a share of them (see `ReplayBuffer.sample`)."""
        return self._samples(self._rows.sample(batch_size, view=self._hindsight), env)

    def truncate_last_trajectory(self) -> None:
        """Nothing to do: a step that does not continue the one before it begins an episode."""


def _node(space: spaces.Space[Any], shape: Any, stack: int, axis: int) -> Any:
    """The field or fields of an observation, whose `shape` is a dict where the space is a Dict."""
    if isinstance(space, spaces.Dict):
        return {key: _node(space[key], shape[key], stack, axis) for key in shape}
    dtype = np.dtype(space.dtype)
    return Field(dtype, shape, stack=stack, axis=axis) if len(shape) >= 3 else Field(dtype, shape)


def _action_dtype(space: spaces.Space[Any]) -> np.dtype[Any]:
    """Policies compute in float32; other dtypes stay."""
    return np.dtype(np.float32 if space.dtype == np.float64 else space.dtype)
