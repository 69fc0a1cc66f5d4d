"""Replay buffers of programs for Stable-Baselines3 are filled and drawn from."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3.common.buffers import NStepReplayBuffer, ReplayBuffer
from stable_baselines3.common.env_util import make_vec_env

from sharpwave.compat.sb3 import DQN, SAC

SMALL: dict[str, Any] = {
    "policy_kwargs": {"net_arch": [8]},
    "batch_size": 16,
    "learning_starts": 20,
}


class Doubles(ReplayBuffer):  # type: ignore[misc]
    """A buffer of a program, which doubles rewards."""

    def __init__(self, *args: Any, factor: float = 2.0, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.factor = factor

    def add(self, obs: Any, next_obs: Any, action: Any, reward: Any, *rest: Any) -> None:
        super().add(obs, next_obs, action, self.factor * reward, *rest)


@pytest.mark.parametrize("n_envs", [1, 2])
def test_a_buffer_of_a_program_holds_the_steps(n_envs: int) -> None:
    model = DQN(
        "MlpPolicy",
        make_vec_env("CartPole-v1", n_envs),
        replay_buffer_class=Doubles,
        replay_buffer_kwargs={"factor": 3.0},
        learning_starts=20,
        batch_size=16,
    ).learn(60)
    buffer = model.replay_buffer.buffer.buffer
    assert isinstance(buffer, Doubles)
    assert buffer.size() == model.num_timesteps >= 60
    assert set(np.unique(buffer.rewards[:60])) == {3.0}
    assert model.agent.learner.updates > 0


def test_continuous_actions_are_those_of_the_environment() -> None:
    env = gym.make("Pendulum-v1")
    model = SAC("MlpPolicy", env, replay_buffer_class=Doubles, **SMALL).learn(40)
    actions = model.replay_buffer.buffer.buffer.actions[:40]
    assert 1.0 < np.abs(actions).max() <= 2.0


def test_classes_of_sb3_are_the_buffer_of_the_agent() -> None:
    for kind, kwargs in ((ReplayBuffer, {}), (NStepReplayBuffer, {"n_steps": 3, "gamma": 0.9})):
        model = DQN(
            "MlpPolicy",
            "CartPole-v1",
            replay_buffer_class=kind,
            replay_buffer_kwargs=kwargs,
            n_steps=3,
        )
        assert model.agent.given_buffer is None
        assert model.agent.config.n_step == 3


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match=r"handle_timeout_termination.*coming_from_sb3"):
        DQN(
            "MlpPolicy",
            "CartPole-v1",
            replay_buffer_kwargs={"handle_timeout_termination": False},
        )
    with pytest.raises(TypeError, match="replay_buffer_kwargs has no 'sizes'"):
        DQN("MlpPolicy", "CartPole-v1", replay_buffer_kwargs={"sizes": 3})
    with pytest.raises(ValueError, match="given with an environment, not an id"):
        DQN("MlpPolicy", "CartPole-v1", replay_buffer_class=Doubles)
    with pytest.raises(ValueError, match='unit of train_freq must be "step" or "episode"'):
        DQN("MlpPolicy", "CartPole-v1", train_freq=(1, "year"))
