"""`VecEnv`, `GymVecEnv` and `VecNormalize` of the rlox names."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from sharpwave.compat.rlox import GymVecEnv, VecEnv, VecNormalize
from sharpwave.types import Array
from tests.learning import probes


class Counting(gym.Env[Array, Any]):
    """Observes how many steps were taken; pays that; ends after 3, by truncation if odd."""

    observation_space = gym.spaces.Box(-10, 10, (2,), np.float64)
    action_space = gym.spaces.Box(-1, 1, (2,))

    def __init__(self) -> None:
        self.episodes = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Array, Any]:
        super().reset(seed=seed)
        self.steps = 0
        self.episodes += 1
        return np.zeros(2), {}

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        self.action = action
        self.steps += 1
        ended = self.steps == 3
        by_time = self.episodes % 2 == 1
        obs = np.full(2, self.steps, np.float64)
        return obs, float(self.steps), ended and not by_time, ended and by_time, {}


def test_a_step_has_the_documented_keys_dtypes_and_shapes() -> None:
    env = GymVecEnv("CartPole-v1", n_envs=3, seed=0)
    obs = env.reset_all()
    assert (obs.shape, obs.dtype) == ((3, 4), np.float32)
    step = env.step_all([0, 1, 0])
    assert list(step) == ["obs", "rewards", "terminated", "truncated", "terminal_obs"]
    assert {key: (step[key].shape, step[key].dtype.name) for key in list(step)[:4]} == {
        "obs": ((3, 4), "float32"),
        "rewards": ((3,), "float64"),
        "terminated": ((3,), "uint8"),
        "truncated": ((3,), "uint8"),
    }
    assert step["terminal_obs"] == [None, None, None]
    assert env.num_envs() == 3
    assert env.action_space == gym.spaces.Discrete(2)
    assert env.observation_space.shape == (4,)
    assert env.env_id == "CartPole-v1"
    env.close()


def test_the_last_observation_of_an_episode_is_the_terminal_one() -> None:
    env = GymVecEnv(Counting, n_envs=2)
    env.reset_all()
    for _ in range(2):
        env.step_all(np.zeros((2, 2)))
    step = env.step_all(np.zeros((2, 2)))
    assert step["obs"].tolist() == [[0, 0], [0, 0]]
    assert [last.tolist() for last in step["terminal_obs"]] == [[3, 3], [3, 3]]
    assert step["terminal_obs"][0].dtype == np.float32
    assert step["truncated"].tolist() == [1, 1]
    assert step["terminated"].tolist() == [0, 0]


def test_episode_returns_and_lengths_fill() -> None:
    env = GymVecEnv(Counting, n_envs=2)
    env.reset_all()
    for _ in range(200 * 3):
        env.step_all(np.zeros((2, 2)))
    assert env.episode_rewards == [6.0] * 400
    assert env.episode_lengths == [3] * 400


def test_a_reset_forgets_the_episodes_in_flight() -> None:
    env = GymVecEnv(Counting, n_envs=1)
    env.reset_all()
    env.step_all(np.zeros((1, 2)))
    env.reset_all()
    for _ in range(3):
        env.step_all(np.zeros((1, 2)))
    assert env.episode_rewards == [6.0]


def test_statistics_can_be_left_out() -> None:
    env = GymVecEnv(Counting, n_envs=1, record_episode_stats=False)
    env.reset_all()
    for _ in range(3):
        env.step_all(np.zeros((1, 2)))
    assert env.episode_rewards == []
    assert env.episode_lengths == []


def test_seeds_decide_the_episodes() -> None:
    first, second = GymVecEnv("CartPole-v1", 2, seed=7), GymVecEnv("CartPole-v1", 2, seed=7)
    np.testing.assert_array_equal(first.reset_all(), second.reset_all())
    again = first.reset_all()
    np.testing.assert_array_equal(again, second.reset_all())
    np.testing.assert_array_equal(first.reset_all(seed=7), GymVecEnv("CartPole-v1", 2).reset_all(7))
    assert not np.array_equal(again, first.reset_all(seed=7))


@pytest.mark.parametrize(
    "actions", [np.ones(4), np.ones((2, 2), np.float64), [[1, 1], [1, 1]], [1.0, 1.0, 1.0, 1.0]]
)
def test_actions_are_taken_in_natural_and_flat_shapes(actions: Any) -> None:
    env = GymVecEnv(Counting, n_envs=2)
    env.reset_all()
    env.step_all(actions)
    assert env.vector.envs[1].action.tolist() == [1, 1]  # type: ignore[attr-defined]


@pytest.mark.parametrize("actions", [[0.0, 1.0], np.array([0, 1], np.uint32), np.array([[0], [1]])])
def test_whole_numbers_are_discrete_actions(actions: Any) -> None:
    env = GymVecEnv("CartPole-v1", n_envs=2)
    env.reset_all()
    assert env.step_all(actions)["rewards"].tolist() == [1, 1]


@pytest.mark.parametrize(
    ("actions", "message"),
    [([0], r"shape \(2,\), got \(1,\)"), ([0.5, 0], "integers"), ([np.nan, 0], "integers")],
)
def test_actions_that_do_not_fit_are_refused(actions: Any, message: str) -> None:
    env = GymVecEnv("CartPole-v1", n_envs=2)
    env.reset_all()
    with pytest.raises(ValueError, match=message):
        env.step_all(actions)


def test_environments_that_reset_late_are_refused() -> None:
    late = gym.make_vec("CartPole-v1", num_envs=2)
    with pytest.raises(ValueError, match="no step"):
        GymVecEnv(late, n_envs=2)
    late.close()


class TestVecEnv:
    def test_a_step_has_the_documented_keys_dtypes_and_shapes(self) -> None:
        env = VecEnv(3)
        obs = env.reset_all()
        assert (obs.shape, obs.dtype) == ((3, 4), np.float32)
        step = env.step_all([0, 1, 0])
        assert list(step) == ["obs", "rewards", "terminated", "truncated", "terminal_obs"]
        assert {key: (step[key].shape, step[key].dtype.name) for key in list(step)[:4]} == {
            "obs": ((3, 4), "float32"),
            "rewards": ((3,), "float64"),
            "terminated": ((3,), "uint8"),
            "truncated": ((3,), "uint8"),
        }
        assert step["terminal_obs"] == [None, None, None]
        assert env.num_envs() == 3
        assert env.action_space == {"type": "discrete", "n": 2}

    def test_a_continuous_action_space(self) -> None:
        env = VecEnv(2, env_id="Pendulum")
        box = {"type": "box", "shape": [1], "low": [-2.0], "high": [2.0]}
        assert env.action_space == box
        assert env.env_id == "Pendulum-v1"

    @pytest.mark.parametrize("actions", [np.ones(2, "f"), np.ones((2, 1), "f"), [1.0, 1.0]])
    def test_numbers_are_taken_in_natural_and_flat_shapes(self, actions: Any) -> None:
        env, other = VecEnv(2, 1, "Pendulum-v1"), VecEnv(2, 1, "Pendulum-v1")
        np.testing.assert_array_equal(env.reset_all(), other.reset_all())
        expected = other.step_all(np.ones((2, 1)))
        np.testing.assert_array_equal(env.step_all(actions)["obs"], expected["obs"])

    @pytest.mark.parametrize("actions", [[0, 1], np.array([0, 1], np.uint32), [0.0, 1.0]])
    def test_whole_numbers_are_choices(self, actions: Any) -> None:
        env = VecEnv(2)
        env.reset_all()
        assert env.step_all(actions)["rewards"].tolist() == [1, 1]

    @pytest.mark.parametrize("actions", [[0], [0, 2], [0, -1], [0.5, 0], [np.nan, 0]])
    def test_actions_that_do_not_fit_are_refused(self, actions: Any) -> None:
        env = VecEnv(2)
        env.reset_all()
        with pytest.raises(ValueError, match="actions must"):
            env.step_all(actions)

    def test_seeds_decide_the_episodes(self) -> None:
        first, second, default = VecEnv(2, seed=7), VecEnv(2, seed=7), VecEnv(2)
        np.testing.assert_array_equal(first.reset_all(), second.reset_all())
        np.testing.assert_array_equal(first.reset_all(), second.reset_all())
        np.testing.assert_array_equal(default.reset_all(), first.reset_all(seed=0))

    def test_the_last_observation_of_an_episode_is_the_terminal_one(self) -> None:
        env = VecEnv(4)
        obs = env.reset_all()
        ended = 0
        for _ in range(100):
            step = env.step_all(np.ones(4, np.int64))
            for i in range(4):
                last = step["terminal_obs"][i]
                if not step["terminated"][i]:
                    assert last is None
                    continue
                ended += 1
                assert last.dtype == np.float32
                assert abs(last[2]) > 0.2
                assert np.abs(step["obs"][i]).max() <= 0.05
                assert last[0] == pytest.approx(obs[i, 0] + 0.02 * obs[i, 1], abs=1e-6)
            obs = step["obs"]
        assert ended > 20

    def test_no_environment_stands_in_for_another(self) -> None:
        for env_id in ("HalfCheetah", "HalfCheetah-v4", "CartPole-v0", "cartpole", ""):
            with pytest.raises(ValueError, match=f"env_id must be one of .*got '{env_id}'"):
                VecEnv(2, env_id=env_id)
        with pytest.raises(ValueError, match="at least 1"):
            VecEnv(0)

    def test_it_can_be_normalized(self) -> None:
        env = VecNormalize(VecEnv(4, env_id="Acrobot"))
        env.reset_all()
        steps = [env.step_all(np.ones(4, np.int64)) for _ in range(50)]
        assert np.abs(steps[-1]["obs"]).max() <= 10


class TestVecNormalize:
    def test_observations_and_rewards_are_normalized(self) -> None:
        env = VecNormalize(GymVecEnv("Pendulum-v1", n_envs=4), clip_reward=5.0)
        env.reset_all(seed=0)
        steps = [env.step_all(np.zeros(4)) for _ in range(300)]
        late = np.concatenate([step["obs"] for step in steps[100:]])
        assert np.all(np.abs(late) <= 10)
        assert np.all(np.abs(late.mean(axis=0)) < 1.5)
        assert all(np.all(np.abs(step["rewards"]) <= 5) for step in steps)
        assert steps[-1]["obs"].dtype == np.float32

    def test_statistics_are_those_of_what_was_seen(self) -> None:
        env = VecNormalize(GymVecEnv(Counting, n_envs=2))
        env.reset_all()
        seen = [np.zeros((2, 2))]
        for t in range(1, 7):
            env.step_all(np.zeros((2, 2)))
            seen.append(np.full((2, 2), (t - 1) % 3 + 1.0))
            if t % 3 == 0:
                seen.append(np.zeros((2, 2)))
        stats = env.get_obs_rms()
        np.testing.assert_allclose(stats["mean"], np.concatenate(seen).mean(axis=0))
        np.testing.assert_allclose(stats["var"], np.concatenate(seen).var(axis=0))

    def test_frozen_statistics_stay(self) -> None:
        env = VecNormalize(GymVecEnv("CartPole-v1", n_envs=2))
        env.reset_all(seed=0)
        env.training = False
        before = {key: value.copy() for key, value in env.get_obs_rms().items()}
        env.step_all([0, 1])
        assert env.training is False
        for key, value in env.get_obs_rms().items():
            np.testing.assert_array_equal(value, before[key])

    def test_one_observation_or_a_batch_is_normalized_by_hand(self) -> None:
        env = VecNormalize(GymVecEnv("CartPole-v1", n_envs=2))
        env.reset_all(seed=0)
        env.step_all([0, 1])
        stats = env.get_obs_rms()
        obs = np.array([0.1, 0.2, 0.3, 0.4], np.float32)
        expected = np.clip((obs - stats["mean"]) / np.sqrt(stats["var"] + 1e-8), -10, 10)
        np.testing.assert_allclose(env.normalize_obs(obs), expected, rtol=1e-4)
        np.testing.assert_allclose(env.normalize_obs(obs[None])[0], expected, rtol=1e-4)

    def test_terminal_observations_are_normalized_too(self) -> None:
        env = VecNormalize(GymVecEnv(Counting, n_envs=1))
        env.reset_all()
        for _ in range(2):
            env.step_all(np.zeros((1, 2)))
        last = env.step_all(np.zeros((1, 2)))["terminal_obs"][0]
        assert np.all(last > 0)
        assert np.all(last < 3)

    def test_episode_returns_are_raw_and_seen_through_the_inner_environment(self) -> None:
        inner = GymVecEnv(Counting, n_envs=1)
        env = VecNormalize(inner)
        env.reset_all()
        for _ in range(6):
            env.step_all(np.zeros((1, 2)))
        assert env.episode_rewards == inner.episode_rewards == [6.0, 6.0]
        assert env.env is inner
        assert (env.num_envs(), env.env_id) == (1, None)

    def test_without_observations_there_are_no_statistics(self) -> None:
        env = VecNormalize(GymVecEnv("CartPole-v1", 2), norm_obs=False)
        obs = env.reset_all(seed=0)
        np.testing.assert_array_equal(obs, GymVecEnv("CartPole-v1", 2).reset_all(seed=0))
        with pytest.raises(ValueError, match="norm_obs"):
            env.get_obs_rms()

    def test_a_wrong_size_and_a_wrong_environment_are_named(self) -> None:
        with pytest.raises(ValueError, match="obs_dim must be 4"):
            VecNormalize(GymVecEnv("CartPole-v1", 2), obs_dim=3)
        with pytest.raises(TypeError, match="GymVecEnv"):
            VecNormalize(probes.Identity())  # type: ignore[arg-type]
