"""Learning in native environments that step tensors."""

from __future__ import annotations

from typing import Any

import pytest
from gymnasium.vector import VectorEnv, VectorWrapper

import sharpwave as sw
from sharpwave.envs import make_vec_env
from sharpwave.tensors import TensorCollector, TensorTransitionCollector
from tests.learning.test_bars import best_three

CART_POLE: dict[str, Any] = {
    "n_steps": 64,
    "batch_size": 1024,
    "n_epochs": 8,
    "learning_rate": 1e-3,
    "anneal_lr": True,
    "total_timesteps": 250_000,
    "seed": 1,
    "backend": "torch",
    "device": "cpu",
}


class Stepped(VectorWrapper):
    """Environments whose rollouts native code does not collect."""


def test_a_run_is_the_one_of_environments_of_arrays() -> None:
    def trained(env: VectorEnv[Any, Any, Any]) -> Any:
        agent = sw.PPO(env, **{**CART_POLE, "n_steps": 32, "n_epochs": 2})
        metrics = agent.train(8192)
        return agent, [metrics[name] for name in ("policy_loss", "value_loss", "entropy")]

    tensors, learned = trained(make_vec_env("CartPole-v1", 64, device="cpu"))
    arrays, wanted = trained(Stepped(make_vec_env("CartPole-v1", 64)))
    assert isinstance(tensors.collector, TensorCollector)
    assert tensors.episodes.count == arrays.episodes.count > 200
    assert list(tensors.episodes.returns) == list(arrays.episodes.returns)
    assert learned == pytest.approx(wanted, rel=1e-3)


@pytest.mark.long
def test_ppo_learns_cartpole_of_tensors() -> None:
    agent = sw.PPO(make_vec_env("CartPole-v1", 64, device="cpu"), **CART_POLE)
    assert isinstance(agent.collector, TensorCollector)
    assert best_three(agent, every=20_480) >= 400


@pytest.mark.long
def test_sac_swings_a_pendulum_of_tensors_up() -> None:
    options: dict[str, Any] = {"hidden": (64, 64), "learning_rate": 2e-3, "batch_size": 128}
    options |= {"seed": 1, "backend": "torch", "device": "cpu", "buffer": "device"}
    env = make_vec_env("Pendulum-v1", 1, device="cpu")
    agent = sw.SAC(env, learning_starts=200, **options)
    assert isinstance(agent.collector, TensorTransitionCollector)
    agent.train(3200)
    assert agent.evaluate(10).mean >= -600
