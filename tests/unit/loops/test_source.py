"""Sources of environments as users give them, and making them again."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import pytest

from sharpwave.envs import NativeVectorEnv, PythonVectorEnv
from sharpwave.loops.source import EnvSource


class Halved(gym.RewardWrapper[Any, Any]):
    """CartPole that pays half."""

    def __init__(self) -> None:
        super().__init__(gym.make("CartPole-v1"))

    def reward(self, reward: Any) -> float:
        return 0.5 * float(reward)


def test_a_class_of_wrapped_environments_has_no_id() -> None:
    source = EnvSource(Halved)
    assert source.env_id is None
    assert source.to_json() is None
    assert source.make(2, "sync").num_envs == 2


def test_an_instance_has_the_id_it_was_made_with() -> None:
    source = EnvSource(gym.make("CartPole-v1"))
    assert source.env_id == "CartPole-v1"
    assert source.make_another(3).num_envs == 3


def test_an_environment_in_wrappers_is_not_made_again_without_them() -> None:
    source = EnvSource(Halved())
    assert source.env_id is None
    with pytest.raises(ValueError, match="env must be given"):
        source.make_another(1)


def test_a_factory_is_made_again_with_its_wrappers() -> None:
    env = EnvSource(Halved).make_another(1)
    env.reset(seed=0)
    assert env.step([0])[1].tolist() == [0.5]


@pytest.mark.parametrize("mode", ["sync", "vector_entry_point"])
def test_a_vector_environment_of_gymnasium_is_made_again(mode: str) -> None:
    env = gym.make_vec("CartPole-v1", 2, vectorization_mode=mode, max_episode_steps=7)
    source = EnvSource(env)
    assert source.env_id == "CartPole-v1"
    assert source.to_json() == {"id": "CartPole-v1", "kwargs": {"max_episode_steps": 7}}
    another = source.make_another(3)
    assert another.num_envs == 3
    assert another.spec.max_episode_steps == 7


def test_one_with_wrappers_is_not() -> None:
    source = EnvSource(
        gym.make_vec("CartPole-v1", 2, "sync", wrappers=[gym.wrappers.FlattenObservation])
    )
    assert source.env_id is None
    assert source.to_json() is None


def test_a_native_environment_is_made_again() -> None:
    source = EnvSource(NativeVectorEnv("Pendulum-v1", 2, g=3.0))
    assert source.to_json() == {"id": "Pendulum-v1", "kwargs": {"g": 3.0}}
    another = source.make_another(3)
    assert isinstance(another, NativeVectorEnv)
    assert another.spec is not None
    assert another.spec.kwargs == {"g": 3.0}
    assert isinstance(source.make_another(1, render_mode="rgb_array"), PythonVectorEnv)
