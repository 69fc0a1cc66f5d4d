"""Native environments refuse bad input before anything changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gymnasium.error import ClosedEnvironmentError, ResetNeeded

from sharpwave.envs import NativeVectorEnv
from tests.reference.nests import assert_equal


class TestBadActions:
    @pytest.mark.parametrize(
        ("actions", "error", "message"),
        [
            (np.zeros(2, np.int64), ValueError, r"shape \(3,\), got \(2,\)"),
            (np.zeros((3, 1), np.int64), ValueError, r"shape \(3,\), got \(3, 1\)"),
            (1, ValueError, r"got \(\)"),
            ([0, 2, 0], ValueError, "from 0 to 1, got 2 for environment 1"),
            ([0, 0, -1], ValueError, "got -1 for environment 2"),
            (np.array([0, 200, 0], np.uint8), ValueError, "got 200"),
            (np.zeros(3), TypeError, "integers, got dtype float64"),
            (np.zeros(3, bool), TypeError, "integers, got dtype bool"),
            ([0, None, 1], TypeError, "array of numbers"),
            ("left", TypeError, "actions must"),
            (None, TypeError, "actions must"),
        ],
    )
    def test_choices(self, actions: Any, error: type[Exception], message: str) -> None:
        env = NativeVectorEnv("CartPole-v1", 3)
        env.reset(seed=0)
        before = env.get_state()
        with pytest.raises(error, match=message):
            env.step(actions)
        assert_equal(env.get_state(), before)

    @pytest.mark.parametrize(
        ("actions", "error", "message"),
        [
            (np.zeros(3, np.float32), ValueError, r"shape \(3, 1\), got \(3,\)"),
            (np.zeros((3, 2), np.float32), ValueError, r"got \(3, 2\)"),
            ([[0.0], [np.nan], [0.0]], ValueError, "finite, got nan for environment 1"),
            ([[0.0], [0.0], [-np.inf]], ValueError, "finite, got -inf for environment 2"),
            ([[0.0], [1e300], [0.0]], ValueError, "must fit float32"),
            ([[1j], [0], [0]], TypeError, "real numbers"),
            ([["a"], ["b"], ["c"]], TypeError, "numbers"),
        ],
    )
    @pytest.mark.parametrize("env_id", ["Pendulum-v1", "MountainCarContinuous-v0"])
    def test_numbers(self, env_id: str, actions: Any, error: type[Exception], message: str) -> None:
        env = NativeVectorEnv(env_id, 3)
        env.reset(seed=0)
        before = env.get_state()
        with pytest.raises(error, match=message):
            env.step(actions)
        assert_equal(env.get_state(), before)

    @pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint64, np.int64])
    def test_any_integers_will_do(self, dtype: Any) -> None:
        env, other = NativeVectorEnv("Acrobot-v1", 3), NativeVectorEnv("Acrobot-v1", 3)
        env.reset(seed=0)
        other.reset(seed=0)
        strided = np.array([0, 9, 1, 9, 2, 9], dtype)[::2]
        assert_equal(env.step(strided), other.step([0, 1, 2]))

    def test_any_real_numbers_will_do(self) -> None:
        envs = [NativeVectorEnv("Pendulum-v1", 2) for _ in range(3)]
        given: list[Any] = [[[1.0], [-1]], np.array([[1.0], [-1.0]]), np.array([[1], [-1]], "i1")]
        outcomes = [(env.reset(seed=0), env.step(x)) for env, x in zip(envs, given, strict=True)]
        assert_equal(outcomes[0], outcomes[1])
        assert_equal(outcomes[0], outcomes[2])

    def test_the_argument_has_a_name(self) -> None:
        env = NativeVectorEnv("CartPole-v1", 1)
        env.reset(seed=0)
        env.step(actions=[0])
        with pytest.raises(TypeError, match="one argument, actions"):
            env.step(action=[0])  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="one argument, actions"):
            env.step()  # type: ignore[call-arg]


def test_a_step_needs_a_reset() -> None:
    env = NativeVectorEnv("CartPole-v1", 1)
    with pytest.raises(ResetNeeded, match="before the first step"):
        env.step([0])


@pytest.mark.parametrize(
    "use", [lambda env: env.step([0]), lambda env: env.reset(), lambda env: env.get_state()]
)
def test_a_closed_environment_says_so(use: Callable[[Any], Any]) -> None:
    env = NativeVectorEnv("CartPole-v1", 1)
    env.reset(seed=0)
    env.close()
    with pytest.raises(ClosedEnvironmentError):
        use(env)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"env_id": "HalfCheetah-v4"}, ValueError, "one of .*CartPole-v1.* got 'HalfCheetah-v4'"),
        ({"num_envs": 0}, ValueError, "num_envs must be at least 1, got 0"),
        ({"num_envs": -3}, ValueError, "num_envs must be at least 1, got -3"),
        ({"num_envs": 2.5}, TypeError, "float"),
        ({"max_episode_steps": 0}, ValueError, "max_episode_steps must be at least 1, got 0"),
        ({"autoreset_mode": "sometimes"}, ValueError, "same_step.*got 'sometimes'"),
        ({"render_mode": "human"}, ValueError, "None or \"rgb_array\", got 'human'"),
        ({"threads": -1}, ValueError, "threads must not be negative, got -1"),
        ({"g": 1.0}, TypeError, "CartPole-v1 has no argument 'g'"),
        ({"env_id": "Acrobot-v1", "": 1.0}, TypeError, "no argument ''"),
        ({"env_id": "Pendulum-v1", "g": "1?"}, TypeError, "g must be a number"),
        ({"env_id": "Pendulum-v1", "g": np.nan}, ValueError, "g must be finite"),
    ],
)
def test_bad_construction(arguments: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        NativeVectorEnv(**{"env_id": "CartPole-v1", **arguments})


def test_far_too_many_environments_do_not_fit() -> None:
    with pytest.raises(MemoryError):
        NativeVectorEnv("CartPole-v1", 2**60)
