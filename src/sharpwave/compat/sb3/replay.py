"""Replay buffers of SB3 as options of this library."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sharpwave.compat.sb3.refusals import check_names, refuse
from sharpwave.types import BatchDict, Nested

__all__ = ["StoredSteps", "TheirBuffer", "replay_options"]

PLAIN = ("ReplayBuffer", "DictReplayBuffer", "NStepReplayBuffer")
HINDSIGHT = "HerReplayBuffer"
OWN = ("stable_baselines3", "sharpwave")
"""Libraries whose buffers are the one of the agent."""
GOALS = ("n_sampled_goal", "goal_selection_strategy", "copy_info_dict")


def replay_options(given: Mapping[str, Any], env: Any) -> dict[str, Any]:
    """The options of the agent for SB3's arguments about replay buffers.

    Args:
        given: Arguments of the constructor.
        env: The environments.

    Raises:
        TypeError: An argument of the buffer is unknown.
        ValueError: It has no counterpart.
    """
    kind, kwargs = given["replay_buffer_class"], dict(given["replay_buffer_kwargs"] or {})
    name = getattr(kind, "__name__", "")
    is_own = kind is None or str(kind.__module__).partition(".")[0] in OWN
    if is_own and name == HINDSIGHT:
        check_names(kwargs, GOALS, "replay_buffer_kwargs")
        strategy = kwargs.get("goal_selection_strategy", "future")
        return {
            "her_goals": kwargs.get("n_sampled_goal", 4),
            "her_strategy": str(getattr(strategy, "name", strategy)).lower(),
        }
    if is_own and (kind is None or name in PLAIN):
        kwargs.pop("n_steps", None)
        kwargs.pop("gamma", None)
        if not kwargs.pop("handle_timeout_termination", True):
            raise refuse("handle_timeout_termination", False, "True")
        check_names(kwargs, (), "replay_buffer_kwargs")
        return {}
    if env is None or env.observation_space is None:
        raise refuse("replay_buffer_class", name, "given with an environment, not an id")
    return {"buffer": TheirBuffer(kind, given, env, kwargs)}


class StoredSteps:
    """The replay buffer of an agent, with SB3's `size`; all else is as that buffer has it.

    Args:
        buffer: The buffer.
        n_envs: Number of environments.
    """

    def __init__(self, buffer: Any, n_envs: int) -> None:
        self.buffer = buffer
        self.n_envs = n_envs

    def __len__(self) -> int:
        return len(self.buffer)

    def size(self) -> int:
        """Steps of each environment."""
        return len(self) // self.n_envs

    def __getattr__(self, name: str) -> Any:
        return getattr(self.buffer, name)


class TheirBuffer:
    """A replay buffer of a program for SB3, as a buffer of an agent.

    Args:
        kind: Its class, with SB3's constructor, `add` and `sample`.
        given: Arguments of the algorithm.
        env: The environments.
        kwargs: More arguments of the buffer.

    Attributes:
        buffer: What the class made, of one environment: those of several take turns.
    """

    def __init__(self, kind: Any, given: Mapping[str, Any], env: Any, kwargs: Any) -> None:
        spaces = env.observation_space, env.action_space
        options = {"device": "cpu", "n_envs": 1, **kwargs}
        self.buffer = kind(given["buffer_size"], *spaces, **options)
        self.capacity = int(given["buffer_size"])
        self._gamma = float(given["gamma"])
        self._is_continuous = hasattr(env.action_space, "low")

    def __len__(self) -> int:
        return int(self.buffer.size())

    def push(
        self,
        obs: Nested,
        action: Any,
        reward: float,
        terminated: bool,
        truncated: bool,
        next_obs: Nested,
    ) -> None:
        """Add a step."""
        info = {"TimeLimit.truncated": truncated and not terminated}
        done = np.array([terminated or truncated])
        self.buffer.add(
            _row(obs), _row(next_obs), np.asarray(action)[None], np.array([reward]), done, [info]
        )

    def sample(self, batch_size: int) -> BatchDict:
        """A batch; actions as the buffer was given them."""
        drawn = self.buffer.sample(batch_size)
        discounts = getattr(drawn, "discounts", None)
        left = 1.0 - _array(drawn.dones).reshape(-1)
        factor = self._gamma if discounts is None else _array(discounts).reshape(-1)
        actions = _array(drawn.actions)
        if not self._is_continuous and actions.shape[1:] == (1,):
            actions = actions[:, 0]
        return {
            "obs": _tree(drawn.observations),
            "actions": actions,
            "rewards": _array(drawn.rewards).reshape(-1),
            "next_obs": _tree(drawn.next_observations),
            "discounts": (left * factor).astype(np.float32),
        }


def _row(obs: Any) -> Any:
    if isinstance(obs, dict):
        return {key: np.asarray(leaf)[None] for key, leaf in obs.items()}
    return np.asarray(obs)[None]


def _array(tensor: Any) -> Any:
    return tensor.cpu().numpy()


def _tree(obs: Any) -> Any:
    return (
        {key: _array(leaf) for key, leaf in obs.items()} if isinstance(obs, dict) else _array(obs)
    )
