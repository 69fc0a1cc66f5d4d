"""Runs in native environments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import sharpwave as sw
from sharpwave.envs import NativeVectorEnv, PythonVectorEnv, TensorVectorEnv, make_vec_env

SMALL: dict[str, Any] = {"n_envs": 3, "hidden": (8, 8), "seed": 5}
RUNS: dict[str, Any] = {
    "ppo": lambda: sw.PPO("CartPole-v1", n_steps=32, batch_size=32, n_epochs=2, **SMALL),
    "a2c": lambda: sw.A2C("Acrobot-v1", n_steps=16, **SMALL),
    "continuous": lambda: sw.PPO("Pendulum-v1", n_steps=32, normalize_obs=True, **SMALL),
}
HALF = 192
"""Steps in which some episodes of CartPole end, and some are in flight."""


def learned(metrics: dict[str, float]) -> dict[str, float]:
    """The numbers of the last update."""
    return {name: metrics[name] for name in ("policy_loss", "value_loss", "entropy")}


def test_native_environments_are_the_default() -> None:
    assert isinstance(sw.PPO("CartPole-v1").env, NativeVectorEnv)
    assert isinstance(sw.PPO("CartPole-v1", env_mode="sync").env, PythonVectorEnv)
    assert isinstance(sw.PPO("CartPole-v1", env_mode="native").env, NativeVectorEnv)
    with pytest.raises(ValueError, match="FrozenLake-v1' is not a native environment"):
        sw.PPO("FrozenLake-v1", env_mode="native")


def test_environments_of_a_device_are_made_for_a_run() -> None:
    agent = sw.PPO("CartPole-v1", env_mode="device", env_kwargs={"max_episode_steps": 9}, **SMALL)
    assert isinstance(agent.env, TensorVectorEnv)
    assert agent.env.device.type == ("cuda" if torch.cuda.is_available() else "cpu")
    assert agent.evaluate(2).mean <= 9
    with pytest.raises(ValueError, match="FrozenLake-v1' is not a native environment"):
        sw.PPO("FrozenLake-v1", env_mode="device")
    with pytest.raises(ValueError, match="env_mode must not be 'device': actors act with arrays"):
        sw.IMPALA("CartPole-v1", env_mode="device")
    with pytest.raises(ValueError, match=r"mode must be one of .*, got 'device'"):
        sw.MAPPO("simple_spread_v3", env_mode="device")


def test_a_run_goes_on_from_a_device_in_native_code(tmp_path: Path) -> None:
    env = make_vec_env("CartPole-v1", 3, device="cpu")
    first = sw.PPO(env, n_steps=32, batch_size=32, hidden=(8, 8), seed=5, device="cpu")
    first.train(HALF)
    first.save(tmp_path / "half.safetensors")
    resumed = sw.PPO.from_checkpoint(tmp_path / "half.safetensors")
    assert isinstance(resumed.env.unwrapped, NativeVectorEnv)
    states = first.env.get_state(), resumed.env.unwrapped.get_state()
    assert states[0]["steps"].any()  # episodes in flight
    for name, array in states[0].items():
        np.testing.assert_array_equal(states[1][name], array)
    resumed.train(HALF)
    assert resumed.timesteps == 2 * HALF
    assert (resumed.env.unwrapped.get_state()["resets"] >= states[0]["resets"]).all()


@pytest.mark.parametrize("kind", RUNS)
def test_a_resumed_run_is_the_whole_run(kind: str, tmp_path: Path) -> None:
    whole, first = RUNS[kind](), RUNS[kind]()
    whole.train(HALF)
    metrics = learned(whole.train(HALF))
    first.train(HALF)
    first.save(tmp_path / "half.safetensors")
    resumed = type(first).from_checkpoint(tmp_path / "half.safetensors")
    assert isinstance(resumed.env.unwrapped, NativeVectorEnv)
    assert learned(resumed.train(HALF)) == metrics
    states = [run.env.unwrapped.get_state() for run in (whole, resumed)]
    assert states[0]["steps"].any()  # episodes in flight
    for name in ("variables", "steps", "resets", "returns"):
        np.testing.assert_array_equal(states[0][name], states[1][name])


def test_evaluations_can_be_compared() -> None:
    run = RUNS["ppo"]()
    assert run.evaluate(4) == run.evaluate(4)
