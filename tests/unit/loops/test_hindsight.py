"""Goals that were reached later, in batches of a run."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import sharpwave as sw
from sharpwave.envs import goal_rewards, make_vec_env
from tests.envs import BitFlipEnv, CountingEnv, ReachEnv, vectorized

OPTIONS: dict[str, Any] = {"hidden": (4,), "batch_size": 64, "learning_starts": 100, "seed": 1}


class Doubled(gym.Wrapper[Any, Any, Any, Any]):
    """Rewards are twice those of the environment, also in hindsight."""

    def step(self, action: Any) -> Any:
        obs, reward, *rest = self.env.step(action)
        return obs, 2 * reward, *rest  # type: ignore[operator]

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        return 2 * self.env.unwrapped.compute_reward(achieved_goal, desired_goal, info)  # type: ignore[attr-defined]


def doubled() -> Any:
    return Doubled(gym.wrappers.TimeLimit(BitFlipEnv(), 4))


class Single(gym.Env[Any, Any]):
    """Something without a way to reward goals."""

    observation_space = BitFlipEnv().observation_space
    action_space = BitFlipEnv().action_space


def never() -> Any:
    raise ValueError("it was given as an object")


@pytest.mark.long(but=["plain-future"])
@pytest.mark.parametrize("strategy", ["future", "final", "episode"])
@pytest.mark.parametrize("make", [BitFlipEnv, doubled], ids=["plain", "wrapped"])
def test_rewards_are_those_of_the_goals_in_the_batch(make: Any, strategy: Any) -> None:
    dqn = sw.DQN(make, n_envs=2, her_goals=4, her_strategy=strategy, **OPTIONS)
    dqn.train(200)
    scale = 2 if make is doubled else 1
    reached = 0
    for _ in range(10):
        batch = dqn.sampler.sample()
        achieved, desired = batch.next_obs["achieved_goal"], batch.next_obs["desired_goal"]
        success = (achieved == desired).all(1)
        np.testing.assert_array_equal(batch.rewards, np.where(success, 0.0, -scale))
        np.testing.assert_array_equal(batch.obs["desired_goal"], desired)
        reached += int(success.sum())
    stored = dqn.buffer.gather(dqn.buffer.indices())
    share_before = (stored["rewards"] == 0).mean()
    assert reached / 640 > 2 * share_before


def test_without_goals_batches_are_as_they_were() -> None:
    dqn = sw.DQN(BitFlipEnv, **OPTIONS)
    dqn.train(200)
    stored = dqn.buffer.gather(dqn.buffer.indices())
    rows = {tuple(row) for row in np.hstack([stored["obs"][key] for key in sorted(stored["obs"])])}
    obs = dqn.sampler.sample().obs
    assert {tuple(row) for row in np.hstack([obs[key] for key in sorted(obs)])} <= rows


@pytest.mark.long
def test_environments_in_processes_of_their_own() -> None:
    sac = sw.SAC(ReachEnv, n_envs=2, env_mode="async", her_goals=4, **OPTIONS)
    try:
        sac.train(130)
        batch = sac.sampler.sample()
        reached, wanted = batch.next_obs["achieved_goal"], batch.next_obs["desired_goal"]
        distance = np.linalg.norm(reached - wanted, axis=1)
        np.testing.assert_array_equal(batch.rewards == 0, distance < 0.05)
        assert (batch.rewards == 0).any()
    finally:
        sac.close()


def test_priorities_and_goals_go_together() -> None:
    dqn = sw.DQN(BitFlipEnv, her_goals=4, prioritized=True, **OPTIONS)
    dqn.train(150)
    batch = dqn.sampler.sample()
    assert batch.weights is not None
    assert (batch.rewards == 0).any()


class TestRewardFunction:
    def test_is_that_of_the_outermost_wrapper(self) -> None:
        env = make_vec_env(doubled, 2)
        rewards = goal_rewards(env, never)
        bits = np.zeros((3, 5), np.int8)
        assert rewards(bits, bits + 1, {}).tolist() == [-2, -2, -2]

    @pytest.mark.parametrize("mode", ["next_step", "same_step"])
    def test_of_gymnasiums_vector_environments(self, mode: str) -> None:
        rewards = goal_rewards(vectorized([BitFlipEnv] * 2, mode), never)
        assert rewards(np.zeros((1, 5)), np.zeros((1, 5)), {}).tolist() == [0]

    def test_of_a_vector_environment_itself(self) -> None:
        class Vector(gym.vector.VectorEnv[Any, Any, Any]):
            single_observation_space = BitFlipEnv().observation_space

            def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
                return np.full(len(achieved_goal), 5.0)

        assert goal_rewards(Vector(), never)(np.zeros((2, 5)), np.zeros((2, 5)), {}).tolist() == [
            5,
            5,
        ]

    def test_out_of_reach(self) -> None:
        env = gym.vector.AsyncVectorEnv([BitFlipEnv] * 2)
        try:
            with pytest.raises(ValueError, match="out of reach"):
                goal_rewards(env, never)
            with pytest.raises(ValueError, match="out of reach"):
                sw.DQN(env, her_goals=4, **OPTIONS)
        finally:
            env.close()

    def test_of_environments_without_goals(self) -> None:
        with pytest.raises(ValueError, match="achieved_goal and desired_goal"):
            sw.DQN(CountingEnv, her_goals=4, **OPTIONS)

    def test_of_environments_without_the_method(self) -> None:
        with pytest.raises(ValueError, match="compute_reward"):
            sw.DQN(Single, her_goals=4, **OPTIONS)


def test_masks_and_goals_do_not_go_together() -> None:
    class Masked(BitFlipEnv):
        def action_masks(self) -> Any:
            return np.ones(5, np.bool_)

    with pytest.raises(ValueError, match="her_goals"):
        sw.DQN(Masked, her_goals=4, **OPTIONS).train(10)


def test_goals_and_several_steps_do_not_go_together() -> None:
    with pytest.raises(ValueError, match="her_goals"):
        sw.DQN(BitFlipEnv, her_goals=4, n_step=3, **OPTIONS)
