"""Native environments among Gymnasium's tools."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import vector as vector_wrappers

from sharpwave.envs import NativeVectorEnv
from tests.unit.envs.native_runs import IDS, played, sampled


class TestFrames:
    @pytest.mark.parametrize("env_id", IDS)
    def test_frames_are_gymnasiums(self, env_id: str) -> None:
        pytest.importorskip("pygame")
        env = NativeVectorEnv(env_id, 2, render_mode="rgb_array")
        env.reset(seed=0)
        env.step(sampled(env, 1)[0])
        theirs: Any = gym.make(env_id, render_mode="rgb_array")
        theirs.reset(seed=0)
        frames = env.render()
        assert frames is not None
        assert len(frames) == 2
        for frame, state in zip(frames, env.get_state()["variables"].T, strict=True):
            theirs.unwrapped.state = state
            np.testing.assert_array_equal(frame, theirs.render())
        env.close()

    def test_without_a_render_mode_there_are_none(self) -> None:
        env = NativeVectorEnv("CartPole-v1", 2)
        env.reset(seed=0)
        assert env.render() is None


class TestGymnasium:
    @pytest.mark.parametrize("env_id", IDS)
    def test_make_vec(self, env_id: str) -> None:
        env = gym.make_vec(f"sharpwave/{env_id}", 3)
        assert isinstance(env, NativeVectorEnv)
        assert env.num_envs == 3
        assert env.spec is not None
        assert env.spec.id == f"sharpwave/{env_id}"
        assert env.spec.max_episode_steps == gym.spec(env_id).max_episode_steps
        env.reset(seed=0)
        env.step(sampled(env, 1)[0])
        assert env.spec.to_json()

    def test_make_vec_with_arguments(self) -> None:
        env = gym.make_vec(
            "sharpwave/Pendulum-v1",
            2,
            vectorization_mode="vector_entry_point",
            max_episode_steps=3,
            g=1.0,
            autoreset_mode=AutoresetMode.NEXT_STEP,
        )
        env.reset(seed=0)
        assert played(env, [np.zeros((2, 1))] * 3)[-1][3].all()
        assert env.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP

    def test_gymnasiums_ids_stay_gymnasiums(self) -> None:
        env = gym.make_vec("CartPole-v1", 2, vectorization_mode="vector_entry_point")
        assert type(env).__module__.startswith("gymnasium.")
        single = gym.make("sharpwave/CartPole-v1")
        assert type(single.unwrapped).__module__.startswith("gymnasium.")

    def test_its_wrappers_in_mode_same_step(self) -> None:
        env: Any = vector_wrappers.RecordEpisodeStatistics(NativeVectorEnv("CartPole-v1", 4))
        env = vector_wrappers.ClipReward(env, -2, 0.5)
        env.reset(seed=0)
        lengths = []
        for action in sampled(env, 200):
            _, rewards, terminated, _, infos = env.step(action)
            assert (rewards == 0.5).all()
            if terminated.any():
                lengths += infos["episode"]["l"][terminated].tolist()
        assert 10 < np.mean(lengths) < 40

    def test_its_wrappers_in_mode_next_step(self) -> None:
        env: Any = NativeVectorEnv("Pendulum-v1", 4, autoreset_mode="next_step")
        env = vector_wrappers.NormalizeObservation(vector_wrappers.NormalizeReward(env))
        env = vector_wrappers.VectorizeTransformObservation(
            env,
            gym.wrappers.TransformObservation,
            func=lambda obs: obs[:2],
            observation_space=gym.spaces.Box(-np.inf, np.inf, (2,)),
        )
        env.reset(seed=0)
        outcomes = played(env, sampled(env, 450))
        late = np.concatenate([obs for obs, *_ in outcomes[200:]])
        assert late.shape[1:] == (2,)
        assert np.abs(late.mean(axis=0)).max() < 1

    def test_its_speed_test(self) -> None:
        from gymnasium.utils import performance

        if not hasattr(performance, "benchmark_vector_step"):
            pytest.skip("this version of Gymnasium has none")
        env = NativeVectorEnv("CartPole-v1", 4)
        assert performance.benchmark_vector_step(env, target_duration=0, seed=0) >= 0
