"""Environments of this library under the interface of `VecEnv`."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3.common import env_util
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import (
    DummyVecEnv,
    VecEnv,
    VecFrameStack,
    VecMonitor,
    VecNormalize,
    is_vecenv_wrapped,
)

from sharpwave.compat.sb3 import A2C, PPO, make_vec_env
from sharpwave.compat.sb3.vec_env import NativeVecEnv, each_info
from sharpwave.envs import NativeVectorEnv


def play(env: Any, steps: int) -> list[Any]:
    """Answers of an environment to the same actions."""
    actions = np.random.default_rng(0).integers(2, size=(steps, env.num_envs))
    return [env.reset(), *(env.step(action) for action in actions)]


def test_native_environments_give_what_sb3s_give() -> None:
    ours, theirs = make_vec_env("CartPole-v1", 2), env_util.make_vec_env("CartPole-v1", 2)
    assert isinstance(ours.env, NativeVectorEnv)
    for env in (ours, theirs):
        env.seed(3)
    played = [play(env, 60)[1:] for env in (ours, theirs)]
    for own, their in zip(*played, strict=True):
        assert [np.shape(part) for part in own[:3]] == [np.shape(part) for part in their[:3]]
        assert [part.dtype for part in own[:3]] == [part.dtype for part in their[:3]]
    keys = [
        {
            (bool(done), frozenset(info))
            for step in steps
            for done, info in zip(*step[2:], strict=True)
        }
        for steps in played
    ]
    assert keys[0] == keys[1]
    assert len(keys[0]) == 2  # where episodes end, and where not


def test_it_passes_for_sb3s() -> None:
    env = make_vec_env("CartPole-v1", 2)
    assert isinstance(env, VecEnv)
    assert isinstance(env, DummyVecEnv)
    assert env.env_is_wrapped(Monitor) == [True, True]
    assert not is_vecenv_wrapped(env, VecMonitor)
    stacked = VecFrameStack(VecNormalize(env), 2)
    assert stacked.reset().shape == (2, 8)
    assert PPO("MlpPolicy", stacked, n_steps=16, batch_size=16).learn(32).num_timesteps == 32


def test_attributes_and_methods() -> None:
    native = make_vec_env("CartPole-v1")
    assert native.get_attr("render_mode") == [None]
    assert not native.has_attr("gravity")
    for name in ("get_attr", "env_method"):
        with pytest.raises(AttributeError, match=r"gravity.*environment of Gymnasium's"):
            getattr(native, name)("gravity")
    env = NativeVecEnv(sync("CartPole-v1", 2))
    assert env.get_attr("gravity", indices=[1]) == [9.8]
    env.set_attr("marked", 3)
    assert env.get_attr("marked") == [3, 3]


def sync(env_id: str, n: int) -> Any:
    from sharpwave import envs

    return envs.make_vec_env(env_id, n, mode="sync")


def test_seeds_are_those_of_the_environments() -> None:
    starts = [make_vec_env("CartPole-v1", 2, seed=seed).reset() for seed in (1, 1, 2)]
    assert np.array_equal(starts[0], starts[1])
    assert not np.array_equal(starts[0], starts[2])
    models = [A2C("MlpPolicy", make_vec_env("CartPole-v1", 2, seed=5)).learn(50) for _ in range(2)]
    weights = [model.policy.state_dict()["action_net.weight"] for model in models]
    assert (weights[0] == weights[1]).all()


def test_native_environments_say_that_they_draw_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert make_vec_env("CartPole-v1").render("human") is None
    assert 'render_mode="rgb_array"' in capsys.readouterr().err


def test_wrappers_are_left_to_sb3() -> None:
    env = make_vec_env("CartPole-v1", 2, wrapper_class=gym.wrappers.RecordEpisodeStatistics)
    assert type(env) is DummyVecEnv
    assert isinstance(env.envs[0], gym.wrappers.RecordEpisodeStatistics)


def test_infos_of_each_environment() -> None:
    infos = {
        "lives": np.array([3, 0]),
        "_lives": np.array([True, False]),
        "inner": {"a": np.array([1, 2]), "_a": np.array([False, True])},
        "_inner": np.array([False, True]),
    }
    assert each_info(infos, 2) == [{"lives": 3}, {"inner": {"a": 2}}]
