"""Normalized observations and rewards against statistics of everything seen."""

from __future__ import annotations

import json
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import VectorEnv

from sharpwave.envs import PythonVectorEnv, Stepper, VecNormalize, make_vec_env
from tests.envs import CountingEnv, NestedEnv, numbered, vectorized
from tests.reference.nests import assert_same, transform
from tests.reference.normalize import Normalizer
from tests.reference.stepping import single_rows

MODES = ["next_step", "same_step", "disabled"]
N = 3
STEPS = 30
SCHEDULES: dict[str, list[tuple[int, ...]]] = {
    "each its own": [(3, 5), (4,), (2, 1, 6)],
    "all together": [(4,)] * N,
    "one step each": [(1,)] * N,
}


def makers(schedule: str) -> list[Any]:
    return [
        lambda number=number, lengths=lengths: CountingEnv(lengths, number, "alternating")
        for number, lengths in enumerate(SCHEDULES[schedule])
    ]


def actions_of(t: int) -> Any:
    return np.array([t % 2, 1, t // 2 % 2])


@pytest.mark.long(but=["next_step-each its own"])
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("mode", MODES)
def test_every_mode_normalizes_by_all_that_was_seen(mode: str, schedule: str) -> None:
    made = makers(schedule)
    actions = [actions_of(t) for t in range(STEPS)]
    single = [
        single_rows(make, [a[i] for a in actions], 7 + i, mode) for i, make in enumerate(made)
    ]
    reference = Normalizer(N, 0.9, 1.5, 2.0)
    env = VecNormalize(vectorized(made, mode), gamma=0.9, clip_obs=1.5, clip_reward=2.0)
    stepper = Stepper(env)
    first, _ = stepper.reset(seed=7)
    raw_first = [make().reset(seed=7 + i)[0] for i, make in enumerate(made)]
    reference.observations.extend(raw_first)
    np.testing.assert_allclose(first, [reference.obs(obs) for obs in raw_first], atol=1e-5)
    for t, action in enumerate(actions):
        rows = [single[i][t] for i in range(N)]
        step = stepper.step(action)
        reference.see(rows)
        np.testing.assert_array_equal(step.infos["raw_rewards"], [row.reward for row in rows])
        expected_rewards = [reference.reward(row.reward) for row in rows]
        np.testing.assert_allclose(step.rewards, expected_rewards, rtol=1e-6)
        if mode == "disabled":
            continue  # its step and its reset are two looks at the statistics: see below
        np.testing.assert_allclose(step.obs, [reference.obs(r.obs) for r in rows], atol=1e-5)
        for i, row in enumerate(rows):
            if row.next_obs is not None:
                np.testing.assert_allclose(step.next_obs[i], reference.obs(row.next_obs), atol=1e-5)
    stats = env.get_obs_rms()
    assert stats.count == len(reference.observations)
    seen = np.array(reference.observations, np.float64)
    np.testing.assert_allclose(stats.mean, seen.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(stats.var, seen.var(axis=0), rtol=1e-9)
    env.close()


def test_resets_by_mask_count_only_the_rows_that_were_reset() -> None:
    env = VecNormalize(vectorized(makers("each its own"), "disabled"))
    env.reset(seed=0)
    stats = env.get_obs_rms()
    assert stats.count == N
    for _ in range(2):
        *_, terminated, _, _ = env.step(np.zeros(N, np.int64))
    assert stats.count == 3 * N
    assert terminated.tolist() == [False, False, True]
    obs, _ = env.reset(options={"reset_mask": terminated})
    assert stats.count == 3 * N + 1
    np.testing.assert_allclose(obs[2], normalized(env, [2, 1, 0]), rtol=1e-5)


def normalized(env: VecNormalize, raw: list[float]) -> Any:
    stats = env.get_obs_rms()
    scaled = (np.array(raw) - stats.mean) / np.sqrt(stats.var + env.epsilon)
    return np.clip(scaled, -10, 10)


@pytest.mark.parametrize("mode", MODES)
def test_frozen_statistics_stay_but_still_apply(mode: str) -> None:
    env = VecNormalize(vectorized(makers("each its own"), mode))
    stepper = Stepper(env)
    stepper.reset(seed=0)
    for t in range(20):
        stepper.step(actions_of(t))
    env.training = False
    before = env.state_dict()
    stepper.reset(seed=1)
    for t in range(20):
        step = stepper.step(actions_of(t))
    after = env.state_dict()
    for name in set(before) - {"returns", "ended"}:
        np.testing.assert_array_equal(before[name], after[name])
    scale = np.sqrt(after["return.var"] + 1e-8)
    np.testing.assert_allclose(step.rewards, step.infos["raw_rewards"] / scale)
    got = env.normalize_obs(np.array([1.0, 2.0, 3.0]))
    np.testing.assert_allclose(got, normalized(env, [1, 2, 3]), rtol=1e-5)


def test_normalizing_one_or_many_leaves_the_statistics() -> None:
    env = VecNormalize(PythonVectorEnv(numbered(N)))
    env.reset(seed=0)
    env.step(np.zeros(N, np.int64))
    count = env.get_obs_rms().count
    one = env.normalize_obs(np.array([1.0, 2.0, 3.0]))
    many = env.normalize_obs(np.array([[[1.0, 2.0, 3.0]] * 2] * 4))
    assert one.shape == (3,)
    assert many.shape == (4, 2, 3)
    np.testing.assert_array_equal(many[3, 1], one)
    assert one.dtype == many.dtype == np.float32
    assert env.get_obs_rms().count == count


def test_only_leaves_of_floats_are_normalized() -> None:
    env = VecNormalize(PythonVectorEnv(numbered(2, NestedEnv, lengths=(1, 2))))
    for name in ("single_observation_space", "observation_space"):
        assert isinstance(getattr(env, name), gym.spaces.Dict)
    stepper = Stepper(env)
    obs, _ = stepper.reset(seed=0)
    for t in range(7):
        step = stepper.step(np.array([t % 2, 0]))
    stats = env.get_obs_rms()
    assert stats["where"].shape == (2,)
    assert stats["parts"][0] is None
    assert stats["parts"][1] is None
    assert stats["parts"][2].shape == ()
    assert step.obs["parts"][0].dtype == np.uint8
    assert step.obs["parts"][1].dtype == np.int64
    assert step.next_obs["parts"][1].tolist() == [1, 1]
    assert step.obs["parts"][2].dtype == step.next_obs["where"].dtype == np.float32
    for observations in (obs, step.obs, step.next_obs):
        assert env.observation_space.contains(observations)


@pytest.mark.parametrize(("norm_obs", "norm_reward"), [(False, True), (True, False)])
def test_either_can_be_left_out(norm_obs: bool, norm_reward: bool) -> None:
    raw = PythonVectorEnv(numbered(2, lengths=(1, 3)))
    env = VecNormalize(
        PythonVectorEnv(numbered(2, lengths=(1, 3))), norm_obs=norm_obs, norm_reward=norm_reward
    )
    raw.reset(seed=0)
    env.reset(seed=0)
    for _ in range(5):
        raw_obs, raw_rewards, *_, raw_infos = raw.step(np.zeros(2, np.int64))
        obs, rewards, *_, infos = env.step(np.zeros(2, np.int64))
        assert np.array_equal(obs, raw_obs) == (not norm_obs)
        assert np.array_equal(rewards, raw_rewards) == (not norm_reward)
        np.testing.assert_array_equal(infos["raw_rewards"], raw_rewards)
    assert (env.get_obs_rms() is None) == (not norm_obs)
    assert "raw_rewards" not in raw_infos
    same_space = env.single_observation_space == raw.single_observation_space
    assert same_space == (not norm_obs)


@pytest.mark.parametrize("mode", MODES)
def test_a_restored_normalizer_goes_on_bit_for_bit(mode: str) -> None:
    kinds: list[Any] = [CountingEnv, NestedEnv]
    for kind in kinds:
        env = vectorized(numbered(N, kind, lengths=(2, 5, 1)), mode)
        first = VecNormalize(env)
        stepper = Stepper(first)
        stepper.reset(seed=0)
        for t in range(9):
            stepper.step(actions_of(t))
        second = VecNormalize(env)
        second.load_state_dict({name: array.copy() for name, array in first.state_dict().items()})
        twin = VecNormalize(vectorized(numbered(N, kind, lengths=(2, 5, 1)), mode))
        other = Stepper(twin)
        other.reset(seed=0)
        for t in range(9):
            other.step(actions_of(t))
        resumed = Stepper(second)
        resumed.ended = stepper.ended.copy()
        for t in range(9):
            got, expected = resumed.step(actions_of(t)), other.step(actions_of(t))
            assert_same(got.obs, expected.obs)
            assert_same(got.next_obs, expected.next_obs)
            assert_same(got.rewards, expected.rewards)


def test_the_state_is_a_dict_of_arrays() -> None:
    env = VecNormalize(PythonVectorEnv(numbered(2, NestedEnv)))
    env.reset()
    state = env.state_dict()
    assert {type(value) for value in state.values()} == {np.ndarray}
    assert {"obs.where.mean", "obs.parts.2.var", "return.count", "returns", "ended"} <= set(state)
    assert json.dumps({name: array.tolist() for name, array in state.items()})
    with pytest.raises(KeyError):
        env.load_state_dict({})


def test_statistics_go_to_another_number_of_environments() -> None:
    train = VecNormalize(PythonVectorEnv(numbered(3)))
    train.reset(seed=0)
    for _ in range(7):
        train.step(np.zeros(3, np.int64))
    evaluation = VecNormalize(PythonVectorEnv(numbered(1)))
    evaluation.load_state_dict(train.state_dict())
    evaluation.training = False
    assert evaluation.get_obs_rms().count == train.get_obs_rms().count
    obs, _ = evaluation.reset()
    np.testing.assert_array_equal(obs[0], train.normalize_obs(np.array([0.0, 0.0, 0.0])))


def test_statistics_of_other_shapes_are_refused() -> None:
    env = VecNormalize(make_vec_env("CartPole-v1"))
    other = VecNormalize(make_vec_env("Pendulum-v1"))
    with pytest.raises(ValueError, match=r"shape \(4,\), got \(3,\)"):
        env.load_state_dict(other.state_dict())


class Broken(CountingEnv):
    """Number 1 returns NaN once."""

    def observation(self) -> Any:
        observation = super().observation()
        if self.number == 1 and self.step_number == 2:
            observation[0] = np.nan
        return observation


def test_values_that_are_not_finite_pass_and_are_not_counted() -> None:
    env = VecNormalize(PythonVectorEnv(numbered(2, Broken, lengths=(9,))))
    env.reset(seed=0)
    env.step(np.zeros(2, np.int64))
    obs, *_ = env.step(np.zeros(2, np.int64))
    assert np.isnan(obs[1, 0])
    assert np.isfinite(obs[0]).all()
    stats = env.get_obs_rms()
    assert stats.count == 5
    assert np.isfinite(stats.mean).all()


@pytest.mark.parametrize(
    "arguments",
    [{"gamma": 1.5}, {"clip_obs": 0.0}, {"clip_reward": -1.0}, {"epsilon": 0.0}],
)
def test_arguments_out_of_range_are_named(arguments: dict[str, Any]) -> None:
    env: VectorEnv[Any, Any, Any] = PythonVectorEnv(numbered(1))
    with pytest.raises(ValueError, match=f"{next(iter(arguments))} must be"):
        VecNormalize(env, **arguments)


def test_methods_of_the_environments_are_within_reach() -> None:
    env = VecNormalize(PythonVectorEnv(numbered(2)))
    assert env.call("render") == ("0:0", "1:0")
    env.set_attr("number", [3, 4])
    assert env.get_attr("number") == (3, 4)
    assert transform(np.shape, env.reset()[0]) == (2, 3)
