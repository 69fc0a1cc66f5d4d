"""Seeds and options of resets of native environments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium.error import ResetNeeded

from sharpwave.envs import NativeVectorEnv
from sharpwave.envs.native import SPECS
from tests.reference.nests import assert_equal
from tests.unit.envs.native_runs import IDS, played, sampled, short_episodes


class TestSeeds:
    @pytest.mark.long
    def test_the_same_seed_gives_the_same_run(self) -> None:
        for env_id in IDS:
            runs = []
            for _ in range(2):
                env = NativeVectorEnv(env_id, 9)
                runs.append([env.reset(seed=4), *played(env, sampled(env, 250))])
            assert_equal(runs[0], runs[1])

    def test_another_seed_gives_another_run(self) -> None:
        env = NativeVectorEnv("Acrobot-v1", 2)
        assert not np.array_equal(env.reset(seed=1)[0], env.reset(seed=2)[0])

    def test_environment_i_gets_seed_plus_i(self) -> None:
        env = NativeVectorEnv("CartPole-v1", 3)
        together = env.reset(seed=7)[0]
        assert env.np_random_seed == (7, 8, 9)
        one_by_one, _ = env.reset(seed=[7, 8, 9])
        np.testing.assert_array_equal(together, one_by_one)
        for i in range(3):
            alone, _ = NativeVectorEnv("CartPole-v1").reset(seed=7 + i)
            np.testing.assert_array_equal(alone[0], together[i])

    def test_an_environment_does_the_same_in_any_group(self) -> None:
        group, alone = NativeVectorEnv("CartPole-v1", 37), NativeVectorEnv("CartPole-v1", 1)
        group.reset(seed=100)
        alone.reset(seed=120)
        for actions in sampled(group, 300):
            many, one = group.step(actions)[:4], alone.step(actions[20:21])[:4]
            for part in range(4):
                np.testing.assert_array_equal(many[part][20], one[part][0])

    def test_a_reset_without_a_seed_goes_on(self) -> None:
        first, second = NativeVectorEnv("Pendulum-v1", 2), NativeVectorEnv("Pendulum-v1", 2)
        starts = [first.reset(seed=0)[0], first.reset()[0], first.reset()[0]]
        again = [second.reset(seed=0)[0], second.reset()[0], second.reset()[0]]
        assert_equal(starts, again)
        assert not np.array_equal(starts[1], starts[0])
        assert not np.array_equal(starts[1], starts[2])

    def test_some_streams_go_on_and_some_begin(self) -> None:
        env = NativeVectorEnv("CartPole-v1", 2)
        first, _ = env.reset(seed=5)
        second, _ = env.reset(seed=[5, None])
        np.testing.assert_array_equal(second[0], first[0])
        assert not np.array_equal(second[1], first[1])

    def test_without_any_seed_runs_differ(self) -> None:
        starts = [NativeVectorEnv("CartPole-v1", 2).reset()[0] for _ in range(2)]
        assert not np.array_equal(starts[0], starts[1])

    def test_a_later_reset_does_not_seed_anew(self) -> None:
        env = NativeVectorEnv("CartPole-v1", 2)
        env.reset(seed=3)
        seeds = env.np_random_seed
        env.reset()
        assert env.np_random_seed == seeds

    @pytest.mark.parametrize(
        ("seed", "error", "message"),
        [
            (-1, ValueError, r"within \[0, 2\*\*64\), got -1"),
            (2**64 - 1, ValueError, "within"),
            ([1], ValueError, "one for each of 2, got 1"),
            ([1, -2], ValueError, "within"),
            ([1, 2.5], TypeError, "integer, got 2.5"),
            (True, TypeError, "got True"),
            ("1", TypeError, "got '1'"),
            (1.5, TypeError, "got 1.5"),
        ],
    )
    def test_bad_seeds(self, seed: Any, error: type[Exception], message: str) -> None:
        env = NativeVectorEnv("CartPole-v1", 2)
        env.reset(seed=0)
        before = env.get_state()
        with pytest.raises(error, match=message):
            env.reset(seed=seed)
        assert_equal(env.get_state(), before)


class TestResetOptions:
    @pytest.mark.parametrize("env_id", [x for x in IDS if x != "Pendulum-v1"])
    def test_bounds(self, env_id: str) -> None:
        env = NativeVectorEnv(env_id, 500)
        env.reset(seed=0, options={"low": -0.51, "high": -0.5})
        drawn = env.get_state()["variables"][: 1 if env_id.startswith("Mountain") else 4]
        assert drawn.min() >= np.float32(-0.51)
        assert drawn.max() <= np.float32(-0.5)
        env.reset(options={"high": 0.35})
        drawn = env.get_state()["variables"][0]
        assert 0.3 < drawn.max() <= np.float32(0.35)
        assert drawn.min() >= np.float32(SPECS[env_id]["low"][0])
        env.reset()
        assert env.get_state()["variables"][0].max() <= np.float32(SPECS[env_id]["high"][0])

    def test_bounds_of_a_pendulum(self) -> None:
        env = NativeVectorEnv("Pendulum-v1", 500)
        env.reset(seed=0, options={"x_init": 0.1, "y_init": 0.01})
        angle, speed = np.abs(env.get_state()["variables"])
        assert 0.09 < angle.max() <= 0.1
        assert 0.009 < speed.max() <= 0.01
        env.reset(options={"y_init": 0.0})
        angle, speed = np.abs(env.get_state()["variables"])
        assert angle.max() > 3
        assert not speed.any()

    def test_bounds_hold_for_one_reset(self) -> None:
        env = short_episodes(50, "same_step")
        env.reset(seed=0, options={"low": 0.06, "high": 0.07})
        obs = played(env, [np.zeros(50, np.int64)] * 5)[-1][0]
        assert np.abs(obs).max() <= 0.05

    def test_a_mask(self) -> None:
        env = NativeVectorEnv("Pendulum-v1", 3)
        env.reset(seed=0)
        before, *_ = env.step(np.ones((3, 1)))
        obs, _ = env.reset(options={"reset_mask": np.array([False, True, False])})
        np.testing.assert_array_equal(obs[[0, 2]], before[[0, 2]])
        assert not np.array_equal(obs[1], before[1])
        assert env.get_state()["steps"].tolist() == [1, 0, 1]

    @pytest.mark.parametrize(
        ("env_id", "options", "message"),
        [
            ("CartPole-v1", {"low": 1, "high": 0}, "low must not be above high, got 1.0 and 0.0"),
            ("CartPole-v1", {"low": "a"}, "low must be a number, got 'a'"),
            ("CartPole-v1", {"high": np.inf}, "high must be within"),
            ("CartPole-v1", {"low": np.nan}, "low must be within"),
            ("CartPole-v1", {"lo": 1}, "must be among low, high, reset_mask, got lo"),
            ("Pendulum-v1", {"low": 1}, "must be among x_init, y_init, reset_mask, got low"),
            ("Pendulum-v1", {"x_init": -1}, "x_init must not be negative, got -1"),
            ("CartPole-v1", {"reset_mask": [1, 0]}, r"bool array of shape \(2,\), got int64"),
            ("CartPole-v1", {"reset_mask": np.ones(3, bool)}, r"got bool of shape \(3,\)"),
        ],
    )
    def test_bad_options(self, env_id: str, options: dict[str, Any], message: str) -> None:
        env = NativeVectorEnv(env_id, 2)
        env.reset(seed=0)
        before = env.get_state()
        with pytest.raises(ValueError, match=message):
            env.reset(seed=1, options=options)
        assert_equal(env.get_state(), before)

    def test_the_first_reset_is_one_of_all(self) -> None:
        env = NativeVectorEnv("CartPole-v1", 2)
        with pytest.raises(ResetNeeded, match="all"):
            env.reset(options={"reset_mask": np.array([True, False])})
