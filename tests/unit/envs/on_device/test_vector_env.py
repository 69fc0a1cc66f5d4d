"""Environments on a device as users meet them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from sharpwave.envs import DeviceVectorEnv, NativeVectorEnv, TensorVectorEnv, make_vec_env
from sharpwave.envs.state import environment_state, restore_environment_state
from tests.unit.envs.native_runs import IDS


@pytest.mark.parametrize("env_id", IDS)
def test_they_have_the_form_of_native_ones(env_id: str) -> None:
    native, env = NativeVectorEnv(env_id, 3), make_vec_env(env_id, 3, device="cpu")
    assert isinstance(env, TensorVectorEnv)
    assert env.device == torch.device("cpu")
    assert env.single_observation_space == native.single_observation_space
    assert env.single_action_space == native.single_action_space
    assert env.spec == native.spec


def test_whether_a_step_can_be_captured_is_passed_on() -> None:
    inner = DeviceVectorEnv("CartPole-v1", 2, "cpu")
    assert inner.capturable
    assert TensorVectorEnv(inner).capturable
    inner.capturable = False
    assert not TensorVectorEnv(inner).capturable


def test_arguments_reach_the_environment() -> None:
    kwargs = {"max_episode_steps": 2, "g": 0.0, "render_mode": None}
    env: Any = make_vec_env("sharpwave/Pendulum-v1", 4, seed=3, device="cpu", env_kwargs=kwargs)
    assert env.spec.kwargs == {"max_episode_steps": 2, "g": 0.0}
    before = env.get_state()["variables"]
    env.step(np.zeros((4, 1), np.float32))
    np.testing.assert_array_equal(env.get_state()["variables"][1], before[1])  # nothing pulls
    assert env.step(np.zeros((4, 1), np.float32))[3].all()


def test_runs_go_on_in_native_code_and_back() -> None:
    env, native = make_vec_env("CartPole-v1", 6, device="cpu"), NativeVectorEnv("CartPole-v1", 6)
    env.reset(seed=1)
    pushes = np.ones(6, np.int64)
    for one, other in ((env, native), (native, env)):
        for _ in range(7):
            one.step(pushes)
        state = environment_state(one)
        assert state is not None
        restore_environment_state(other, state)
        np.testing.assert_allclose(other.step(pushes)[0], one.step(pushes)[0], rtol=1e-6)


def test_seeds_go_on_or_begin_anew() -> None:
    env = DeviceVectorEnv("MountainCar-v0", 2, "cpu")
    first = env.reset(seed=[7, 8])[0].clone()
    second = env.reset(seed=[7, None])[0].clone()
    assert torch.equal(first[0], second[0])
    assert not torch.equal(first[1], second[1])
    assert not torch.equal(env.reset()[0], second)
    drawn = {DeviceVectorEnv("MountainCar-v0", 1, "cpu").reset()[0][0, 0].item() for _ in range(3)}
    assert len(drawn) == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"env_id": "Taxi-v3"}, "env_id must be one of CartPole-v1, .*, got 'Taxi-v3'"),
        ({"num_envs": 0}, "num_envs must be at least 1, got 0"),
        ({"max_episode_steps": 0}, "max_episode_steps must be at least 1, got 0"),
        ({"sutton_barto_reward": float("inf")}, "sutton_barto_reward must be finite"),
    ],
)
def test_arguments_that_do_not_fit(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DeviceVectorEnv(**{"env_id": "CartPole-v1", "device": "cpu", **arguments})


@pytest.mark.parametrize(
    ("env", "arguments", "message"),
    [
        ("FrozenLake-v1", {}, "device must be None here, got 'cpu': 'FrozenLake-v1' is not a nat"),
        (DeviceVectorEnv, {}, "device must be None here, got 'cpu': <class .* is not a native"),
        ("CartPole-v1", {"env_kwargs": {"x": 1}}, "has no native argument 'x'"),
        (
            "CartPole-v1",
            {"mode": "sync"},
            "mode must be \"auto\" where device is given, got 'sync'",
        ),
    ],
)
def test_what_is_not_made_on_a_device(env: Any, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_vec_env(env, 2, device="cpu", **arguments)


def test_an_unknown_option_is_named() -> None:
    with pytest.raises(TypeError, match="gravity"):
        DeviceVectorEnv("Pendulum-v1", 1, "cpu", gravity=3.0)


@pytest.mark.parametrize(
    ("actions", "error", "message"),
    [
        (torch.zeros(3, dtype=torch.int64), ValueError, r"must have shape \(2,\), got \(3,\)"),
        (torch.zeros(2), TypeError, "must be a tensor of integers, got torch.float32"),
        ([0, 1], TypeError, "must be a tensor of integers, got list"),
        (torch.zeros(2, dtype=torch.int64, device="meta"), ValueError, "must be on cpu, got meta"),
    ],
)
def test_actions_that_do_not_fit(actions: Any, error: Any, message: str) -> None:
    env = DeviceVectorEnv("CartPole-v1", 2, "cpu")
    with pytest.raises(RuntimeError, match="reset must be called before step"):
        env.step(torch.zeros(2, dtype=torch.int64))
    env.reset(seed=0)
    with pytest.raises(error, match=f"actions {message}"):
        env.step(actions)


def test_states_that_do_not_fit() -> None:
    env = DeviceVectorEnv("CartPole-v1", 2, "cpu")
    env.reset(seed=0)
    state = env.get_state()
    with pytest.raises(ValueError, match="state must be of CartPole-v1, got Acrobot-v1"):
        env.set_state({**state, "id": "Acrobot-v1"})
    with pytest.raises(ValueError, match=r"steps must have shape \(2,\), got \(3,\)"):
        env.set_state({**state, "steps": np.zeros(3, np.int64)})
    with pytest.raises(ValueError, match="ended must be False"):
        env.set_state({**state, "ended": np.array([True, False])})
