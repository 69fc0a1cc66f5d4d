"""The environments of a model: as its agent takes them, and as a `VecEnv` for its program."""

from __future__ import annotations

import sys
from typing import Any

import gymnasium as gym
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from sharpwave.compat.sb3.from_vec_env import FromVecEnv, SharedStatistics
from sharpwave.compat.sb3.vec_env import NativeVecEnv
from sharpwave.core.optional import is_installed

__all__ = ["NoEnvironments", "Training", "training_env"]


class NoEnvironments(VectorEnv[Any, Any, Any]):
    """Spaces of environments that are not there, of a model that was loaded to predict.

    Args:
        observation_space: Of one environment.
        action_space: Of one environment.
        num_envs: Number of environments of its training.
    """

    def __init__(self, observation_space: Any, action_space: Any, num_envs: int) -> None:
        self.num_envs = num_envs
        self.single_observation_space = observation_space
        self.single_action_space = action_space
        self.observation_space = batch_space(observation_space, num_envs)
        self.action_space = batch_space(action_space, num_envs)
        self.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}

    def reset(self, **_: Any) -> Any:
        """Raise ValueError."""
        raise ValueError(
            "env must be set: the model was loaded without; use set_env, or load(env=)"
        )

    def step(self, actions: Any) -> Any:  # noqa: ARG002
        """Raise ValueError."""
        return self.reset()


class Training:
    """Environments that a program gave.

    Args:
        env: As it gave them.
        takes_seed: Seed environments of SB3 at the first reset.
        has_masks: Ask them for `action_masks`.
        stores_raw: Steps are stored, and normalized when they are drawn.

    Attributes:
        for_agent: The environments, or an id, as an agent takes them.
        n_envs: Number of environments; None for an id.
        seed: That its program gave them; None where it did not.
    """

    def __init__(
        self, env: Any, *, takes_seed: bool, has_masks: bool, stores_raw: bool = False
    ) -> None:
        self._theirs: FromVecEnv | None = None
        self._view: NativeVecEnv | None = None
        self._agent: Any = None
        self.seed: int | None = None
        if isinstance(env, gym.Env) and is_installed("stable_baselines3"):
            env = _monitored(env)
        if isinstance(env, NativeVecEnv):
            self._view, self.seed = env, env.next_seed
            self.for_agent: Any = env.env
        elif _is_vec_env(env):
            normalizer = env if stores_raw and hasattr(env, "obs_rms") else None
            inner = env if normalizer is None else env.venv
            self._venv = env
            self._theirs = FromVecEnv(inner, takes_seed=takes_seed, has_masks=has_masks)
            self.for_agent = self._theirs
            if normalizer is not None:
                self.for_agent = SharedStatistics(normalizer, self._theirs)
        else:
            self.for_agent = env

    @property
    def n_envs(self) -> int | None:
        """Number of environments; None for an id."""
        if isinstance(self.for_agent, str):
            return None
        return int(getattr(self.for_agent, "num_envs", 1))

    @property
    def observation_space(self) -> Any:
        """The space of one observation; None for an id, which the agent makes."""
        made = self.for_agent
        one = getattr(made, "observation_space", None)
        return getattr(made, "single_observation_space", one)

    def attach(self, agent: Any) -> None:
        """Know the agent, which makes the environments of an id."""
        self._agent = agent

    @property
    def action_space(self) -> Any:
        """The space of one action; None for an id."""
        made = self.for_agent
        return getattr(made, "single_action_space", getattr(made, "action_space", None))

    @property
    def vec_env(self) -> Any:
        """The environments as a `VecEnv`: SB3's own where they are."""
        if self._theirs is not None:
            return self._venv
        if self._view is None:
            self._view = NativeVecEnv(self._agent.env)
        return self._view

    @property
    def last(self) -> Any:
        """The last step as SB3's environment gave it; None of other environments."""
        return None if self._theirs is None else self._theirs.last

    @property
    def normalizer(self) -> Any:
        """SB3's VecNormalize around the environments; None where there is none."""
        if self._theirs is None:
            return None
        from stable_baselines3.common.vec_env import unwrap_vec_normalize

        self.push_statistics()
        return unwrap_vec_normalize(self._venv)

    def pull_statistics(self) -> None:
        """Take over the running statistics of SB3's VecNormalize, where they are shared."""
        if isinstance(self.for_agent, SharedStatistics):
            self.for_agent.pull()

    def push_statistics(self) -> None:
        """Let SB3's VecNormalize have the running statistics, where they are shared."""
        if isinstance(self.for_agent, SharedStatistics):
            self.for_agent.push()

    def take_disturbed(self) -> bool:
        """Return whether the program stepped the environments itself since the last call."""
        view = self._view
        if view is None:
            return False
        disturbed, view.was_stepped = view.was_stepped, False
        return disturbed


def training_env(env: Any, **options: Any) -> Training | None:
    """The environments that a program gave; None where it gave none. See `Training`."""
    return None if env is None else Training(env, **options)


def _is_vec_env(env: Any) -> bool:
    """Return whether an environment is one of SB3, which who has one has imported."""
    theirs = sys.modules.get("stable_baselines3.common.vec_env")
    return theirs is not None and isinstance(env, theirs.VecEnv)


def _monitored(env: Any) -> Any:
    """An environment as SB3 wraps it: in Monitor, unless it is, and in a DummyVecEnv."""
    from stable_baselines3.common.env_util import is_wrapped
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.vec_env import DummyVecEnv

    made = env if is_wrapped(env, Monitor) else Monitor(env)
    return DummyVecEnv([lambda: made])
