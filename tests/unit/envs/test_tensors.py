"""Environments that step tensors, seen as vector environments."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from sharpwave.envs import Stepper, TensorVectorEnv, is_tensor_env, make_vec_env
from tests.unit.envs.tensor_envs import NamedPoints, Points, ReusingPoints, RslPoints


def test_they_are_recognized() -> None:
    assert is_tensor_env(Points(2))
    assert not is_tensor_env(Points)
    assert not is_tensor_env("CartPole-v1")
    assert not is_tensor_env(gym.make("CartPole-v1"))
    assert not is_tensor_env(gym.make_vec("CartPole-v1", num_envs=2))
    env = make_vec_env(Points(2))
    assert isinstance(env, TensorVectorEnv)
    assert make_vec_env(env) is env
    assert (env.num_envs, env.observation_space.shape) == (2, (2, 2))


@pytest.mark.parametrize("tells_final", [True, False])
def test_arrays_are_those_of_the_tensors(tells_final: bool) -> None:
    arrays = Stepper(make_vec_env(NamedPoints(3, tells_final=tells_final)))
    tensors = TensorVectorEnv(NamedPoints(3, tells_final=tells_final))
    obs, _ = arrays.reset(seed=4)
    raw, _ = tensors.reset_tensors(seed=4)
    assert list(obs) == ["policy"]
    np.testing.assert_array_equal(obs["policy"], raw["policy"])
    rng = np.random.default_rng(0)
    for _ in range(60):
        before = raw
        actions = rng.uniform(-1, 1, (3, 1)).astype(np.float32)
        step, other = arrays.step(actions), tensors.step_tensors(torch.from_numpy(actions))
        raw = other.obs
        np.testing.assert_array_equal(step.obs["policy"], raw["policy"])
        np.testing.assert_array_equal(step.rewards, other.rewards)
        np.testing.assert_array_equal(step.terminated, other.terminated)
        np.testing.assert_array_equal(step.truncated, other.truncated)
        ended = step.terminated | step.truncated
        last = other.final_obs if tells_final else before
        np.testing.assert_array_equal(step.next_obs["policy"][ended], last["policy"][ended])


def test_an_environment_may_use_its_memory_again() -> None:
    env = TensorVectorEnv(ReusingPoints(3))
    obs, infos = env.reset_tensors(seed=4)
    for _ in range(5):
        kept = obs.clone(), infos["action_mask"].clone()
        step = env.step_tensors(torch.ones(3, 1))
        assert torch.equal(obs, kept[0])
        assert torch.equal(infos["action_mask"], kept[1])
        assert not torch.equal(step.obs, obs)
        obs, infos = step.obs, step.infos


def test_one_that_lacks_something_is_named() -> None:
    class Half:
        num_envs, device = 2, "cpu"

        def step(self, actions: Any) -> Any: ...

    with pytest.raises(TypeError, match="env must have single_observation_space, Half has not"):
        make_vec_env(Half())


def test_seeds_and_numbers_that_do_not_fit() -> None:
    env = make_vec_env(Points(2))
    with pytest.raises(TypeError, match="seed must be one number"):
        env.reset(seed=[1, 2])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="n_envs must be 2 like the env's, got 3"):
        make_vec_env(Points(2), 3)


class TestOnesForRslRl:
    def test_their_spaces_are_those_of_their_numbers(self) -> None:
        env = make_vec_env(RslPoints(3))
        assert isinstance(env, TensorVectorEnv)
        space: Any = env.single_observation_space
        assert {name: one.shape for name, one in space.spaces.items()} == {
            "policy": (1,),
            "critic": (2,),
        }
        actions: Any = env.single_action_space
        assert (actions.shape, actions.high.tolist()) == ((1,), [np.inf])
        env.close()

    @pytest.mark.parametrize("tells_limits", [True, False])
    def test_episodes_are_truncated_where_time_was_out(self, tells_limits: bool) -> None:
        env = TensorVectorEnv(RslPoints(4, tells_limits=tells_limits))
        like = Points(4, tells_final=False)
        like.generator.set_state(env.env._points.generator.get_state())
        obs, _ = env.reset_tensors(seed=3)  # which they do not take
        first, _ = like.reset()
        assert torch.equal(obs["critic"], first)
        assert set(obs) == {"policy", "critic"}
        ends, draw = torch.zeros(2), torch.Generator().manual_seed(0)
        for _ in range(200):
            actions = 2 * torch.rand(4, 1, generator=draw) - 1
            step = env.step_tensors(actions)
            state, rewards, terminated, truncated, _ = like.step(actions)
            assert torch.equal(step.obs["critic"], state)
            assert torch.equal(step.rewards, rewards)
            both = terminated | truncated
            assert torch.equal(step.terminated, terminated if tells_limits else both)
            assert torch.equal(step.truncated, truncated & tells_limits)
            assert step.final_obs is None
            ends += torch.stack((terminated.sum(), truncated.sum()))
        assert (ends > 0).all()

    def test_arrays_of_them_are_a_vector_environment(self) -> None:
        env = make_vec_env(RslPoints(2))
        obs, _ = env.reset(seed=1)
        assert obs["critic"].shape == (2, 2)
        _, rewards, terminated, truncated, _ = env.step(np.ones((2, 1), np.float32))
        assert rewards.shape == terminated.shape == truncated.shape == (2,)

    def test_one_without_spaces_and_numbers_is_named(self) -> None:
        class Bare:
            num_envs, device, num_actions = 2, "cpu", 1

            def step(self, actions: Any) -> Any: ...

        with pytest.raises(TypeError, match="env must have single_observation_space, Bare has"):
            make_vec_env(Bare())
