"""Environments of one agent, in the form of those of many."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv

from sharpwave.core.tree import map_leaves
from sharpwave.envs.autoreset import Step, Stepper
from sharpwave.envs.masks import action_masks
from sharpwave.envs.multi.vector import GroupStep, MultiAgentVectorEnv, MultiStep
from sharpwave.types import Array, Flags, Nested

__all__ = ["SingleAgentVectorEnv"]


class SingleAgentVectorEnv(MultiAgentVectorEnv):
    """A Gymnasium vector environment as one of a single agent, named "agent_0", and no state.

    Every number is the vector environment's own. In its mode next_step an agent whose episode ended
    is not alive for the one step that only resets.

    Args:
        env: The vector environment, of any autoreset mode, with its wrappers.

    Attributes:
        env: The vector environment.
        stepper: The `Stepper` of it, whose `ended` is part of the state to save in mode next_step.

    Example:
        >>> from sharpwave.envs import make_vec_env
        >>> env = SingleAgentVectorEnv(make_vec_env("CartPole-v1", 4))
        >>> env.reset(seed=0).groups["agent_0"].obs.shape
        (4, 1, 4)
        >>> step = env.step({"agent_0": np.ones((4, 1), np.int64)})
        >>> step.groups["agent_0"].rewards.tolist()
        [[1.0], [1.0], [1.0], [1.0]]
    """

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        self.env = env
        self.stepper = Stepper(env)
        self.resets_apart = self.stepper.mode == "next_step"
        self.num_envs = env.num_envs
        self.metadata = dict(env.metadata or {})  # type: ignore[misc]
        self.render_mode = getattr(env, "render_mode", None)
        self.agents = ("agent_0",)
        self.groups = {"agent_0": self.agents}
        self.observation_spaces = {"agent_0": env.single_observation_space}
        self.action_spaces = {"agent_0": env.single_action_space}
        self.state_space = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> MultiStep:
        """Begin new episodes everywhere.

        Args:
            seed: Environment i gets seed + i; None goes on with the environments' own generators.
            options: For every environment.
        """
        obs, infos = self.stepper.reset(seed, options)
        none = np.zeros(self.num_envs, np.bool_)
        first = Step(obs, np.zeros(self.num_envs), none, none, obs, None, infos)
        return self._result(first)

    def step(self, actions: Mapping[str, Any]) -> MultiStep:
        """Step all environments.

        Args:
            actions: [N, 1, ...] of the only group.
        """
        if actions.keys() != self.groups.keys():
            raise ValueError(f"actions must have the group 'agent_0', got {list(actions)}")
        array = np.asarray(actions["agent_0"])
        shape = (self.num_envs, 1, *(self.env.single_action_space.shape or ()))
        if array.shape != shape:
            raise ValueError(f"actions['agent_0'] must have shape {shape}, got {array.shape}")
        return self._result(self.stepper.step(array[:, 0]))

    def close(self) -> None:
        """Close all environments."""
        self.env.close()

    def render(self) -> Any:
        """The frame of each environment."""
        return self.env.render()

    @property
    def unwrapped(self) -> Any:
        """The vector environment without its wrappers, which has the state of everything."""
        return self.env.unwrapped

    def _result(self, step: Step) -> MultiStep:
        ended = step.terminated | step.truncated
        alive = np.ones(self.num_envs, np.bool_)
        next_obs = map_leaves(_of_one, step.next_obs)
        obs = next_obs if step.obs is step.next_obs else map_leaves(_of_one, step.obs)
        if self.resets_apart and np.count_nonzero(ended):
            alive = ~ended
            obs = map_leaves(lambda leaf: _without(leaf, ended), obs)
        masks = action_masks(self.env, step.infos)
        group = GroupStep(
            obs=obs,
            next_obs=next_obs,
            rewards=step.rewards.astype(np.float64, copy=False)[:, None],
            terminated=step.terminated[:, None],
            truncated=step.truncated[:, None],
            alive=alive[:, None],
            masks=None if masks is None else masks[:, None],
        )
        infos = _Infos(step.infos, self.num_envs)
        return MultiStep({"agent_0": group}, None, None, ended, infos)


class _Infos(Sequence[Mapping[str, Any]]):
    """The infos of a vector environment, of one environment at a time."""

    def __init__(self, infos: dict[str, Any], num_envs: int) -> None:
        self.infos = infos
        self._num_envs = num_envs

    def __len__(self) -> int:
        return self._num_envs

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self._num_envs))]
        if not -self._num_envs <= index < self._num_envs:
            raise IndexError(f"index must be below {self._num_envs}, got {index}")
        index %= self._num_envs
        own = _of_row(self.infos, index, self._num_envs)
        final = own.pop("final_info", None)
        own.pop("final_obs", None)
        return (
            {"agent_0": own}
            if final is None
            else {"agent_0": own, "final_info": {"agent_0": final}}
        )

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return (self[i] for i in range(self._num_envs))


def _of_row(infos: Mapping[str, Any], row: int, num_envs: int) -> dict[str, Any]:
    """The info of one environment, from those of a vector environment."""
    own: dict[str, Any] = {}
    for name, value in infos.items():
        if name.startswith("_") and name[1:] in infos:
            continue
        has = infos.get(f"_{name}")
        if has is not None and not has[row]:
            continue
        if isinstance(value, Mapping):
            own[name] = _of_row(value, row, num_envs)
        else:
            own[name] = value[row] if np.ndim(value) and len(value) == num_envs else value
    return own


def _of_one(leaf: Array) -> Array:
    return leaf[:, None]


def _without(leaf: Array, gone: Flags) -> Nested:
    kept = np.array(leaf)
    kept[gone] = 0
    return kept
