"""The robots of the benchmarks, whose best policy is known."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest
import torch

import sharpwave as sw

ROOT = Path(__file__).parents[2]
Tracking: Any = runpy.run_path(str(ROOT / "benchmarks/gpu/robotics_envs.py"))["Tracking"]


def mean_return(env: Any, policy: Any) -> float:
    """Of one episode of every robot; a policy is given the step and the states [N, 4, joints]."""
    obs, _ = env.reset(seed=0)
    total = torch.zeros(env.num_envs)
    for step in range(env.limit):
        obs, rewards, terminated, truncated, _ = env.step(policy(step, obs.view(-1, 4, 12)))
        assert not terminated.any()
        assert bool(truncated.all()) == (step == env.limit - 1)
        total += rewards
    return float(total.mean())


def test_the_best_policy_has_the_return_that_is_said() -> None:
    env = Tracking(8192, "cpu", limit=60)
    gains, best = env.best_policy()
    largest = 0.0

    def optimal(step: int, state: torch.Tensor) -> torch.Tensor:
        nonlocal largest
        actions: torch.Tensor = -(gains[step] * state).sum(1)
        largest = max(largest, float(actions.abs().max()))
        return actions

    assert mean_return(env, optimal) == pytest.approx(best, rel=1e-4)
    assert largest < 1.0  # the bounds of actions cost nothing
    for factor in (0.8, 1.2):
        other = mean_return(env, lambda step, state, f=factor: f * optimal(step, state))
        assert other < best * 1.001


def test_a_state_goes_on() -> None:
    env, other = Tracking(5, "cpu", limit=4), Tracking(5, "cpu", limit=4)
    env.reset(seed=3)
    actions = torch.full((5, 12), 0.5)
    env.step(actions)
    other.set_state(env.get_state())
    for _ in range(9):  # new episodes begin twice
        one, two = env.step(actions), other.step(actions)
        assert torch.equal(one[0], two[0])
        assert torch.equal(one[1], two[1])


@pytest.mark.long
def test_ppo_comes_near_to_the_best_policy() -> None:
    env = Tracking(256, "cpu")
    _, best = env.best_policy()
    options: dict[str, Any] = {
        "n_steps": 24,
        "batch_size": 1536,
        "n_epochs": 5,
        "learning_rate": 3e-4,
        "anneal_lr": False,
        "ent_coef": 0.0,
        "log_std_init": -1.0,
        "gamma": 0.97,
        "gae_lambda": 0.95,
    }
    agent = sw.PPO(env, seed=1, backend="torch", device="cpu", **options)
    agent.train(600_000)
    reached = agent.evaluate(64, env=Tracking(64, "cpu")).mean
    assert 4 * best < reached < best  # without any action it is 20 times as much
