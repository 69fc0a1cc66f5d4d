"""Algorithms of stable-baselines3 learn from our buffers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete

from sharpwave.types import Array, Nested

pytest.importorskip("stable_baselines3")
torch = pytest.importorskip("torch")

from stable_baselines3 import DQN, SAC
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor

from sharpwave.integrations.sb3 import HerReplayBuffer, ReplayBuffer

pytestmark = pytest.mark.integration


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small networks only lose by more, and several tests run at a time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Match(gym.Env[Array, Any]):
    """The reward is highest where the action is the observation; the time limit must not count."""

    observation_space = Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, *, discrete: bool) -> None:
        self.action_space: gym.Space[Any] = (
            Discrete(2) if discrete else Box(-1.0, 1.0, (1,), np.float32)
        )
        self.discrete = discrete

    def reset(self, **options: Any) -> tuple[Array, dict[str, Any]]:
        super().reset(**options)
        self.t = 0
        return self.draw(), {}

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        self.t += 1
        if self.discrete:
            reward = float((self.value > 0) == (action == 1))
        else:
            reward = 1.0 - abs(float(self.value - action[0]))
        return self.draw(), reward, False, self.t == 10, {}

    def draw(self) -> Array:
        self.value = float(self.np_random.choice([-0.8, 0.8]))
        return np.array([self.value], np.float32)


class FlipBits(gym.Env[Any, Any]):
    """Make the bits those of the goal, one flip a step: hopeless without hindsight."""

    def __init__(self, n: int = 8) -> None:
        bits = Box(0.0, 1.0, (n,), np.float32)
        self.observation_space = Dict(
            {"observation": bits, "achieved_goal": bits, "desired_goal": bits}
        )
        self.action_space = Discrete(n)
        self.n = n

    def reset(self, **options: Any) -> tuple[Nested, dict[str, Any]]:
        super().reset(**options)
        self.bits, self.goal = self.np_random.integers(0, 2, (2, self.n)).astype(np.float32)
        self.t = 0
        return self.seen(), {}

    def step(self, action: Any) -> tuple[Nested, float, bool, bool, dict[str, Any]]:
        self.bits[int(action)] = 1 - self.bits[int(action)]
        self.t += 1
        reward = float(self.compute_reward(self.bits, self.goal, {}))
        return self.seen(), reward, reward == 0.0, self.t == self.n, {}

    def seen(self) -> Nested:
        bits = self.bits.copy()
        return {"observation": bits, "achieved_goal": bits, "desired_goal": self.goal.copy()}

    def compute_reward(self, achieved_goal: Array, desired_goal: Array, info: Any) -> Array:
        missed: Array = np.any(achieved_goal != desired_goal, axis=-1)
        return -missed.astype(np.float32)


def mean_return(model: Any, env: gym.Env[Any, Any], episodes: int = 20) -> float:
    found, _ = evaluate_policy(model, Monitor(env), n_eval_episodes=episodes)
    return float(found)


@pytest.mark.long
def test_sac_learns_to_match() -> None:
    model = SAC(
        *("MlpPolicy", Match(discrete=False)),
        replay_buffer_class=ReplayBuffer,
        learning_rate=3e-3,
        learning_starts=50,
        batch_size=64,
        gamma=0.5,
        ent_coef=0.01,
        policy_kwargs={"net_arch": [32]},
        seed=0,
        device="cpu",
    )
    model.learn(500)
    assert mean_return(model, Match(discrete=False)) > 8.5


@pytest.mark.long
def test_dqn_learns_to_match_with_n_step_returns() -> None:
    model = DQN(
        *("MlpPolicy", Match(discrete=True)),
        replay_buffer_class=ReplayBuffer,
        replay_buffer_kwargs={"n_steps": 2, "gamma": 0.5},
        learning_rate=3e-3,
        learning_starts=50,
        train_freq=1,
        target_update_interval=50,
        gamma=0.5,
        policy_kwargs={"net_arch": [32]},
        seed=0,
        device="cpu",
    )
    model.learn(800)
    assert mean_return(model, Match(discrete=True)) > 9.5


@pytest.mark.long
def test_dqn_flips_bits_with_hindsight() -> None:
    model = DQN(
        *("MultiInputPolicy", FlipBits()),
        replay_buffer_class=HerReplayBuffer,
        learning_rate=2e-3,
        learning_starts=100,
        batch_size=128,
        train_freq=2,
        target_update_interval=100,
        exploration_fraction=0.5,
        gamma=0.9,
        policy_kwargs={"net_arch": [64]},
        seed=0,
        device="cpu",
    )
    model.learn(4000)
    # Success on a goal four flips away returns -3; a failure returns -8.
    assert mean_return(model, FlipBits(), 50) > -5.0


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_sac_learns_pendulum() -> None:
    model = SAC(
        *("MlpPolicy", "Pendulum-v1"),
        replay_buffer_class=ReplayBuffer,
        learning_rate=1e-3,
        policy_kwargs={"net_arch": [64, 64]},
        seed=0,
        device="cpu",
    )
    model.learn(6000)
    found = mean_return(model, gym.make("Pendulum-v1"), 20)
    print(f"mean return {found:.0f}")
    assert found > -300.0
