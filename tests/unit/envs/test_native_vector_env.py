"""Native environments as a Gymnasium vector environment."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode, VectorEnv

from sharpwave.envs import NativeVectorEnv, PythonVectorEnv, Stepper, autoreset_mode
from tests.reference.nests import assert_equal
from tests.unit.envs.native_runs import IDS, MODES, played, sampled, short_episodes


@pytest.mark.parametrize("env_id", IDS)
def test_it_looks_like_gymnasiums_own(env_id: str) -> None:
    env = NativeVectorEnv(env_id, 3)
    theirs = gym.make_vec(env_id, 3, vectorization_mode="sync")
    assert isinstance(env, VectorEnv)
    assert env.unwrapped is env
    for name in ("single_observation_space", "single_action_space"):
        assert getattr(env, name) == getattr(theirs, name)
    for name in ("observation_space", "action_space"):
        assert getattr(env, name) == getattr(theirs, name)
    assert env.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    assert autoreset_mode(env) == "same_step"
    assert env.spec is not None
    assert env.spec.id == env_id
    assert repr(env) == f"NativeVectorEnv({env_id}, num_envs=3)"
    obs, infos = env.reset(seed=0)
    assert infos == {}
    assert obs in env.observation_space
    for action in sampled(env, 20):
        ours = env.step(action)
        assert ours[0].dtype == np.float32
        assert ours[0] in env.observation_space or env_id == "CartPole-v1"
        assert [x.dtype.name for x in ours[1:4]] == ["float64", "bool", "bool"]
        assert [x.shape for x in ours[1:4]] == [(3,)] * 3
    env.close()
    env.close()
    assert env.closed
    theirs.close()


@pytest.mark.parametrize("env_id", IDS)
def test_every_step_returns_arrays_of_its_own(env_id: str) -> None:
    env = NativeVectorEnv(env_id, 2)
    first, _ = env.reset(seed=0)
    kept = first.copy()
    before = env.step(sampled(env, 1)[0])
    copies = [x.copy() for x in before[:4]]
    env.step(sampled(env, 1)[0])
    np.testing.assert_array_equal(first, kept)
    for one, other in zip(before[:4], copies, strict=True):
        np.testing.assert_array_equal(one, other)


def test_an_end_is_told_as_gymnasium_does() -> None:
    """The same infos as those of Gymnasium's environments in mode SAME_STEP."""
    env = short_episodes(2, "same_step")
    env.reset(seed=0)
    theirs = PythonVectorEnv([lambda: gym.make("CartPole-v1", max_episode_steps=5)] * 2)
    theirs.reset(seed=0)
    infos: list[Any] = [played(x, [np.array([0, 1])] * 5)[-1][4] for x in (env, theirs)]
    assert list(infos[0]) == ["final_obs", "_final_obs", "final_info", "_final_info"]
    assert set(infos[0]) == set(infos[1])
    ours, gyms = infos
    assert ours["final_obs"].dtype == gyms["final_obs"].dtype == object
    assert ours["final_obs"][0].shape == gyms["final_obs"][0].shape == (4,)
    assert ours["final_obs"][0].dtype == np.float32
    assert ours["final_info"] == gyms["final_info"] == {}
    for name in ("_final_obs", "_final_info"):
        np.testing.assert_array_equal(ours[name], gyms[name])


def test_only_ended_environments_have_a_last_observation() -> None:
    env = NativeVectorEnv("CartPole-v1", 5)
    env.reset(seed=0)
    state = env.get_state()
    state["variables"][:, 1] = (0, 0, 0.2, 3)
    state["variables"][:, 4] = (2.39, 3, 0, 0)
    env.set_state(state)
    obs, _, terminated, truncated, infos = env.step(np.zeros(5, np.int64))
    assert terminated.tolist() == [False, True, False, False, True]
    assert not truncated.any()
    assert [last is None for last in infos["final_obs"]] == [True, False, True, True, False]
    assert infos["_final_obs"].tolist() == terminated.tolist()
    assert abs(infos["final_obs"][1][2]) > 0.2095
    assert np.abs(obs[terminated]).max() <= 0.05
    assert env.step(np.zeros(5, np.int64))[4] == {}


def test_all_modes_give_the_same_steps() -> None:
    """A Stepper's view of the true steps does not depend on the mode."""
    seen: dict[str, list[Any]] = {}
    for mode in MODES:
        env = NativeVectorEnv("CartPole-v1", 1, autoreset_mode=mode, max_episode_steps=30)
        assert autoreset_mode(env) == mode
        stepper = Stepper(env)
        stepper.reset(seed=3)
        steps: list[Any] = []
        actions = np.random.default_rng(0).integers(2, size=400)
        while len(steps) < 200:
            step = stepper.step(actions[len(steps) : len(steps) + 1])
            if step.valid is None or step.valid[0]:
                steps.append((step.next_obs, step.rewards, step.terminated, step.truncated))
            else:
                assert step.rewards[0] == 0
                assert not stepper.ended[0]
        seen[mode] = steps
    assert sum(terminated[0] for _, _, terminated, _ in seen["same_step"]) > 3
    assert sum(truncated[0] for _, _, _, truncated in seen["same_step"]) > 0
    for mode in MODES[1:]:
        assert_equal(seen[mode], seen["same_step"])


def test_the_step_after_an_end_only_resets_in_mode_next_step() -> None:
    env = short_episodes(2, "next_step")
    env.reset(seed=0)
    outcomes = played(env, [np.array([0, 1])] * 7)
    assert outcomes[4][3].tolist() == [True, True]
    assert outcomes[4][4] == {}
    obs, rewards, terminated, truncated, _ = outcomes[5]
    assert np.abs(obs).max() <= 0.05
    assert rewards.tolist() == [0, 0]
    assert not (terminated | truncated).any()
    assert outcomes[6][1].tolist() == [1, 1]


def test_without_autoreset_an_ended_environment_must_be_reset() -> None:
    env = short_episodes(3, "disabled")
    env.reset(seed=0)
    played(env, [np.zeros(3, np.int64)] * 4)
    mask = np.array([True, False, False])
    env.reset(options={"reset_mask": mask})
    _, _, _, truncated, infos = env.step(np.ones(3, np.int64))
    assert truncated.tolist() == [False, True, True]
    assert infos == {}
    before = env.get_state()
    with pytest.raises(ResetNeeded, match="reset first"):
        env.step(np.ones(3, np.int64))
    env.reset(options={"reset_mask": mask})
    with pytest.raises(ResetNeeded):
        env.step(np.ones(3, np.int64))
    obs, _ = env.reset(options={"reset_mask": truncated})
    assert np.abs(obs[1:]).max() <= 0.05
    assert env.step(np.ones(3, np.int64))[1].tolist() == [1, 1, 1]
    assert before["ended"].tolist() == [False, True, True]
