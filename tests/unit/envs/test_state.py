"""Environments that go on exactly where others were."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import wrappers
from gymnasium.vector import SyncVectorEnv

from sharpwave.envs import (
    PythonVectorEnv,
    Stepper,
    SubprocessVectorEnv,
    VecNormalize,
    environment_state,
    make_vec_env,
    random_state,
    restore_environment_state,
    restore_random_state,
)
from tests.envs import CountingEnv, RandomWalkEnv, vectorized
from tests.reference.nests import assert_equal

N = 3


def wrapped() -> gym.Env[Any, Any]:
    env: gym.Env[Any, Any] = RandomWalkEnv()
    env = wrappers.OrderEnforcing(wrappers.PassiveEnvChecker(env))
    env = wrappers.TransformReward(wrappers.TimeLimit(env, 4), lambda reward: float(reward) * 2)
    return wrappers.RecordEpisodeStatistics(env)


def vector_of(kind: str) -> Any:
    if kind == "sync":
        return PythonVectorEnv([wrapped] * N)
    if kind == "async":
        return SubprocessVectorEnv([wrapped] * N)
    return vectorized([wrapped] * N, kind)


def through_json(value: Any) -> Any:
    """The value as a file of JSON and arrays gives it back."""
    arrays: list[Any] = []

    def put(one: Any) -> Any:
        arrays.append(one)
        return {"array": len(arrays) - 1}

    text = json.dumps(value, default=put)
    return json.loads(text, object_hook=lambda x: arrays[x["array"]] if "array" in x else x)


KINDS = ["sync", "async", "next_step", "same_step", "disabled"]


def outcomes(stepper: Stepper, steps: int) -> list[Any]:
    taken = []
    for t in range(steps):
        step = stepper.step(np.array([t % 2, 1, 0]))
        infos = {name: step.infos[name] for name in ("step", "first") if name in step.infos}
        taken.append((step.obs, step.next_obs, step.rewards, step.terminated, infos))
    return taken


@pytest.mark.long(only=["async"])
@pytest.mark.parametrize("n_steps", [1, 2, 3, 7])
@pytest.mark.parametrize("kind", KINDS)
def test_a_restored_environment_goes_on_bit_for_bit(kind: str, n_steps: int) -> None:
    env = VecNormalize(vector_of(kind), norm_obs=False, norm_reward=False)
    stepper = Stepper(env)
    stepper.reset(seed=1)
    outcomes(stepper, n_steps)
    state = environment_state(env)
    assert state is not None
    ended = stepper.ended.copy()
    expected = outcomes(stepper, 12)
    env.close()

    other = vector_of(kind)  # never reset
    restore_environment_state(other, through_json(state))
    resumed = Stepper(other)
    resumed.ended = ended
    assert_equal(outcomes(resumed, 12), expected)
    other.close()


def test_a_state_is_not_changed_by_what_follows() -> None:
    env = vector_of("sync")
    env.reset(seed=0)
    state = environment_state(env)
    text = json.dumps(state, default=lambda array: array.tolist())
    for _ in range(5):
        env.step(np.zeros(N, np.int64))
    assert json.dumps(state, default=lambda array: array.tolist()) == text


class StatefulWrapper(gym.Wrapper[Any, Any, Any, Any]):
    """Counts steps of all episodes."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.count = 0

    def step(self, action: Any) -> Any:
        self.count += 1
        return super().step(action)


class HonestWrapper(StatefulWrapper):
    def get_state(self) -> Any:
        return {"count": self.count}

    def set_state(self, state: Any) -> None:
        self.count = state["count"]


def test_wrappers_with_a_state_of_their_own_are_asked() -> None:
    env = PythonVectorEnv([lambda: HonestWrapper(wrapped())] * 2)
    env.reset(seed=0)
    env.step(np.zeros(2, np.int64))
    state = environment_state(env)
    assert state is not None
    other = PythonVectorEnv([lambda: HonestWrapper(wrapped())] * 2)
    restore_environment_state(other, state)
    assert other.get_attr("count") == (1, 1)


@pytest.mark.long(but=["<lambda>0"])
@pytest.mark.parametrize(
    "maker",
    [
        lambda: StatefulWrapper(wrapped()),
        lambda: wrappers.FrameStackObservation(wrapped(), 2),
        lambda: wrappers.NormalizeReward(wrapped()),
        lambda: gym.make("CartPole-v1"),
        lambda: wrappers.TimeLimit(gym.make("CartPole-v1"), 3),
    ],
)
def test_no_state_where_a_layer_keeps_its_own(maker: Callable[[], Any]) -> None:
    for vector in (PythonVectorEnv, SyncVectorEnv, SubprocessVectorEnv):
        env: Any = vector([maker] * 2)
        env.reset(seed=0)
        assert environment_state(env) is None
        env.close()


def test_no_state_of_vector_environments_that_keep_theirs() -> None:
    env = gym.make_vec("CartPole-v1", num_envs=2, vectorization_mode="vector_entry_point")
    env.reset(seed=0)
    assert environment_state(env) is None
    assert random_state(env) is None


def test_a_vector_environment_that_offers_its_state_is_asked_itself() -> None:
    class Whole(PythonVectorEnv):
        secret = 0

        def get_state(self) -> Any:
            return {"secret": self.secret}

        def set_state(self, state: Any) -> None:
            self.secret = state["secret"]

    env, other = (Whole([CountingEnv] * 2) for _ in range(2))
    env.secret = 5
    state = environment_state(VecNormalize(env))
    assert state is not None
    restore_environment_state(other, through_json(state))
    assert other.secret == 5
    with pytest.raises(TypeError, match="get_state and set_state like the saved one"):
        restore_environment_state(PythonVectorEnv([CountingEnv] * 2), state)


def test_the_wrong_number_of_environments_or_layers_is_told() -> None:
    env = PythonVectorEnv([CountingEnv] * 2)
    env.reset()
    state = environment_state(env)
    assert state is not None
    with pytest.raises(ValueError, match="env must have 2 environments, got 3"):
        restore_environment_state(PythonVectorEnv([CountingEnv] * 3), state)
    with pytest.raises(ValueError, match="env must have 1 layers like the saved one, got 2"):
        restore_environment_state(
            PythonVectorEnv([lambda: wrappers.TimeLimit(CountingEnv(), 3)] * 2), state
        )


@pytest.mark.parametrize("value", [(1, 2), {1: 2}, object(), np.array([None])])
def test_states_that_cannot_be_saved_are_named(value: Any) -> None:
    class Odd(CountingEnv):
        def get_state(self) -> Any:
            return {"odd": [value]}

    env = PythonVectorEnv([Odd])
    with pytest.raises(TypeError, match=r"Odd\.get_state\(\)\['odd'\]\[0\] must be"):
        environment_state(env)


@pytest.mark.long
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_random_numbers_go_on_in_environments_without_a_state(mode: str) -> None:
    env = make_vec_env("CartPole-v1", 2, seed=0, mode=mode)
    state = random_state(env)
    assert state is not None
    first, _ = env.reset()
    env.close()
    other = make_vec_env("CartPole-v1", 2, mode=mode)  # never seeded
    restore_random_state(other, through_json(state))
    np.testing.assert_array_equal(other.reset()[0], first)
    with pytest.raises(ValueError, match="env must have 2 environments, got 3"):
        restore_random_state(make_vec_env("CartPole-v1", 3), state)
    other.close()


def test_any_bit_generator_is_restored() -> None:
    class Twister(CountingEnv):
        def __init__(self) -> None:
            super().__init__()
            self.np_random = np.random.Generator(np.random.MT19937(3))

    env = PythonVectorEnv([Twister])
    state = random_state(env)
    assert state is not None
    expected = env.np_random[0].normal(size=5)
    other = PythonVectorEnv([CountingEnv])
    restore_random_state(other, through_json(state))
    np.testing.assert_array_equal(other.np_random[0].normal(size=5), expected)
