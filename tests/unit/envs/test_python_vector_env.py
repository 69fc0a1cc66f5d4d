"""The vector environment of Python environments, step by step beside Gymnasium's."""

from __future__ import annotations

import pickle
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import ClosedEnvironmentError
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.wrappers import TimeLimit

from sharpwave.envs import EnvironmentFailed, PythonVectorEnv
from tests.envs import (
    CountingEnv,
    NestedEnv,
    RandomWalkEnv,
    WrongEnv,
    numbered,
    one_failing,
    play,
)
from tests.reference.nests import assert_equal

N = 3


MAKERS: dict[str, Any] = {
    "discrete actions": partial(gym.make, "CartPole-v1", max_episode_steps=15),
    "box actions": partial(gym.make, "Pendulum-v1", max_episode_steps=7),
    "discrete observations": partial(gym.make, "FrozenLake-v1"),
    "tuple observations": partial(gym.make, "Blackjack-v1"),
    "nested observations": partial(NestedEnv, lengths=(1, 2, 4)),
    "random episodes": RandomWalkEnv,
}


@pytest.mark.long(but=["discrete actions"])
@pytest.mark.parametrize("kind", MAKERS)
def test_steps_equal_those_of_gymnasium(kind: str) -> None:
    ours = PythonVectorEnv([MAKERS[kind]] * N)
    theirs = SyncVectorEnv([MAKERS[kind]] * N, autoreset_mode=AutoresetMode.SAME_STEP)
    for name in ("observation_space", "action_space"):
        assert getattr(ours, name) == getattr(theirs, name)
        assert getattr(ours, f"single_{name}") == getattr(theirs, f"single_{name}")
    assert ours.metadata == theirs.metadata
    assert_equal(ours.reset(seed=3), theirs.reset(seed=3))
    theirs.action_space.seed(0)
    n_ended = 0
    for _ in range(60):
        actions = theirs.action_space.sample()
        got = ours.step(actions)
        assert_equal(got, theirs.step(actions))
        n_ended += int((got[2] | got[3]).sum())
    assert n_ended > 3
    assert_equal(ours.reset(), theirs.reset())
    assert_equal(ours.reset(seed=[7, None, 9]), theirs.reset(seed=[7, None, 9]))
    ours.close()
    theirs.close()


def test_it_is_a_vector_environment_of_gymnasium() -> None:
    env = PythonVectorEnv(numbered(N))
    assert isinstance(env, VectorEnv)
    assert env.num_envs == N
    assert env.unwrapped is env
    assert repr(env) == "PythonVectorEnv(num_envs=3)"
    wrapped = gym.wrappers.vector.RecordEpisodeStatistics(env)
    wrapped.reset()
    for _ in range(3):
        *_, infos = wrapped.step(np.zeros(N, np.int64))
    assert infos["episode"]["l"].tolist() == [3, 3, 3]


def test_every_step_returns_memory_of_its_own() -> None:
    env = PythonVectorEnv(numbered(2, lengths=(9,)))
    first, _ = env.reset()
    kept = first.copy()
    second, rewards, *_ = env.step(np.array([0, 0]))
    kept_rewards = rewards.copy()
    env.step(np.array([1, 1]))
    np.testing.assert_array_equal(first, kept)
    np.testing.assert_array_equal(rewards, kept_rewards)
    assert second[0, 2] == 1


def test_some_environments_can_be_reset() -> None:
    env = PythonVectorEnv(numbered(N, lengths=(9,)))
    env.reset()
    before, *_ = env.step(np.zeros(N, np.int64))
    options = {"reset_mask": np.array([False, True, False])}
    obs, infos = env.reset(options=options)
    np.testing.assert_array_equal(obs[[0, 2]], before[[0, 2]])
    assert obs[1].tolist() == [1, 1, 0]
    assert infos["_first"].tolist() == [False, True, False]
    assert "reset_mask" in options
    with pytest.raises(ValueError, match=r"reset_mask must be a bool array of shape \(3,\)"):
        env.reset(options={"reset_mask": np.array([True])})


def test_attributes_methods_and_frames() -> None:
    env = PythonVectorEnv(numbered(2, lambda number: TimeLimit(CountingEnv(number=number), 9)))
    assert env.get_attr("number") == (0, 1)
    assert env.call("render") == env.render() == ("0:0", "1:0")
    env.set_attr("number", [5, 6])
    assert env.get_attr("number") == (5, 6)
    env.set_attr("ends", "truncated")
    assert [inner.unwrapped.ends for inner in env.envs] == ["truncated"] * 2  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="values must be one for each of 2, got 1"):
        env.set_attr("number", [1])
    env.reset(seed=4)
    assert env.np_random_seed == (4, 5)
    assert len(env.np_random) == 2
    env.close()
    assert env.closed
    assert all(inner.unwrapped.is_closed for inner in env.envs)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        (np.zeros(2, np.int64), r"actions must have shape \(3,\), got \(2,\)"),
        (np.zeros((3, 1), np.int64), r"actions must have shape \(3,\), got \(3, 1\)"),
        (1, r"actions must have shape \(3,\), got \(\)"),
    ],
)
def test_actions_of_another_shape_are_refused(actions: Any, message: str) -> None:
    env = PythonVectorEnv(numbered(3))
    env.reset()
    with pytest.raises(ValueError, match=message):
        env.step(actions)
    env.step(np.zeros(3, np.int64))


def test_fractions_are_no_discrete_actions() -> None:
    env = PythonVectorEnv(numbered(2))
    env.reset()
    with pytest.raises(TypeError, match="actions must be integers, got float64"):
        env.step(np.array([0.5, 1.0]))


@pytest.mark.parametrize(
    ("kwargs", "doing", "cause"),
    [
        ({"fail_step": 2}, "step(np.int64(1))", ZeroDivisionError),
        ({"fail_reset": 0}, "reset(seed=6)", LookupError),
        ({"fail_reset": 1}, "reset()", LookupError),
    ],
)
def test_an_environment_that_raises_is_named_and_all_are_closed(
    kwargs: Any, doing: str, cause: Any
) -> None:
    env = PythonVectorEnv(one_failing(3, 1, **kwargs))
    with pytest.raises(EnvironmentFailed) as caught:
        play(env, 3)
    failure = caught.value
    assert failure.env_index == 1
    assert failure.doing == doing
    assert isinstance(failure.__cause__, cause)
    assert str(failure).startswith(f"environment 1 failed in {doing}:\nTraceback")
    assert str(failure.__cause__.args[0]) in str(failure)
    assert "tests/envs.py" in str(failure)
    assert [inner.is_closed for inner in env.envs] == [True] * 3  # type: ignore[attr-defined]
    assert env.closed
    with pytest.raises(ClosedEnvironmentError):
        env.step(np.array([0, 1, 0]))
    with pytest.raises(ClosedEnvironmentError):
        env.reset()
    env.close()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"obs": np.zeros(1, np.float32)}, r"shape \(3,\), got \(1,\)"),
        ({"obs": np.zeros(3, np.complex64)}, "dtype float32, got complex"),
        ({"obs": None}, r"shape \(3,\), got \(\)"),
        ({"obs": [[1], [2, 3]]}, r"shape \(3,\)"),
        ({"reward": "much"}, "could not convert"),
        ({"reward": np.zeros(2)}, "array element with a sequence"),
        ({"terminated": np.array([0, 1])}, "ambiguous"),
        ({"info": "none"}, "no attribute 'items'"),
    ],
)
def test_what_does_not_fit_is_blamed_on_its_environment(wrong: Any, message: str) -> None:
    env = PythonVectorEnv(numbered(3, WrongEnv, wrong=wrong))
    env.reset()
    env.step(np.zeros(3, np.int64))
    with pytest.raises(EnvironmentFailed, match=message) as caught:
        env.step(np.zeros(3, np.int64))
    assert caught.value.env_index == 1
    assert env.closed


def test_observations_in_a_wider_dtype_or_as_lists_are_converted() -> None:
    class Wide(CountingEnv):
        def observation(self) -> Any:
            wide = super().observation().astype(np.float64)
            return wide if self.number else wide.tolist()

    env = PythonVectorEnv(numbered(2, Wide))
    obs, _ = env.reset()
    assert obs.dtype == np.float32
    assert obs.tolist() == [[0, 0, 0], [1, 0, 0]]


def test_nested_observations_without_an_entry_are_blamed_on_their_environment() -> None:
    class Lacking(NestedEnv):
        def observation(self) -> Any:
            observation = super().observation()
            if self.number == 1:
                del observation["where"]
            return observation

    env = PythonVectorEnv(numbered(2, Lacking))
    with pytest.raises(EnvironmentFailed, match="observation must have an entry 'where'") as caught:
        env.reset()
    assert caught.value.env_index == 1


def test_closing_goes_on_after_an_environment_that_raises() -> None:
    class Stuck(CountingEnv):
        def close(self) -> None:
            super().close()
            if self.number == 0:
                raise OSError("the window is stuck")

    env = PythonVectorEnv(numbered(3, Stuck))
    with pytest.raises(OSError, match="stuck"):
        env.close()
    assert [inner.is_closed for inner in env.envs] == [True] * 3  # type: ignore[attr-defined]


def test_a_failure_survives_a_pickle() -> None:
    failure = pickle.loads(pickle.dumps(EnvironmentFailed(3, "step(1)", "Traceback ...")))
    assert failure.env_index == 3
    assert str(failure) == "environment 3 failed in step(1):\nTraceback ..."
