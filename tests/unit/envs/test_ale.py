"""Atari games through ale-py, singly and by its own vector environment."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ale_py")

from ale_py.vector_env import AtariVectorEnv
from gymnasium.vector import AutoresetMode

from sharpwave.envs import Stepper, autoreset_mode, make_vec_env

MODES = ["next_step", "same_step"]


def atari(mode: str, **kwargs: Any) -> Any:
    """Games that end after a few steps."""
    settings = {"max_num_frames_per_episode": 40, "noop_max": 0, "use_fire_reset": False}
    return AtariVectorEnv(
        "pong", 3, autoreset_mode=AutoresetMode[mode.upper()], **{**settings, **kwargs}
    )


@pytest.mark.long
def test_games_are_registered_when_asked_for() -> None:
    program = (
        "from sharpwave.envs import make_vec_env;"
        "print(make_vec_env('ALE/Pong-v5', 2, mode='sync').observation_space.shape,"
        " make_vec_env('PongNoFrameskip-v4', 2).single_action_space)"
    )
    command = [sys.executable, "-c", program]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "(2, 210, 160, 3) Discrete(6)"


def test_a_misspelt_game_gets_the_nearest() -> None:
    with pytest.raises(ValueError, match="ALE/Pong-v5"):
        make_vec_env("ALE/Pnog-v5")


@pytest.mark.long
def test_each_vector_environment_keeps_its_mode() -> None:
    envs = {mode: atari(mode) for mode in MODES}
    assert {mode: autoreset_mode(env) for mode, env in envs.items()} == {x: x for x in MODES}


@pytest.mark.long
@pytest.mark.parametrize("mode", MODES)
def test_steps_are_read_in_every_mode(mode: str) -> None:
    env = make_vec_env(atari(mode), 3, seed=0)
    stepper = Stepper(env)
    assert stepper.mode == mode
    obs, _ = stepper.reset(seed=5)
    assert obs.shape == (3, 4, 84, 84)
    kept = [obs.copy()]
    steps = []
    for _ in range(25):
        steps.append(stepper.step(np.zeros(3, np.int64)))
        kept.append(steps[-1].obs.copy())
    ends = [t for t, step in enumerate(steps) if (step.terminated | step.truncated).any()]
    assert len(ends) >= 2
    for t, step in enumerate(steps):
        assert step.rewards.dtype.kind == "f"
        np.testing.assert_array_equal(step.obs, kept[t + 1])  # not overwritten by later steps
        ended = step.terminated | step.truncated
        if mode == "next_step":
            if t > 0 and t - 1 in ends:
                assert step.valid is not None
                assert not step.valid.any()
        elif ended.any():
            assert step.valid is None
            assert not np.array_equal(step.next_obs[ended], step.obs[ended])
        else:
            assert step.next_obs is step.obs
    env.close()


@pytest.mark.long
def test_last_observations_are_the_same_in_every_mode() -> None:
    last: dict[str, Any] = {}
    for mode in MODES:
        env = atari(mode)
        stepper = Stepper(env)
        stepper.reset(seed=5)
        while mode not in last:
            step = stepper.step(np.full(3, 2))
            if (step.terminated | step.truncated).all():
                last[mode] = step.next_obs
        env.close()
    np.testing.assert_array_equal(last["same_step"], last["next_step"])


@pytest.mark.long
def test_batches_of_some_environments_are_refused() -> None:
    with pytest.raises(ValueError, match="batch_size must be num_envs"):
        make_vec_env(AtariVectorEnv("pong", 4, batch_size=2))


@pytest.mark.long
def test_by_itself_a_game_is_prepared_as_usual() -> None:
    env = make_vec_env("ALE/Breakout-v5", 2, env_kwargs={"max_num_frames_per_episode": 400})
    assert env.observation_space.shape == (2, 4, 84, 84)
    stepper = Stepper(env)
    stepper.reset(seed=0)
    assert stepper.mode == "same_step"
    for _ in range(120):
        step = stepper.step(env.action_space.sample())
        np.testing.assert_array_equal(step.rewards, np.sign(step.infos["raw_rewards"]))
    env.close()


def test_pictures_of_a_game_have_the_same_spaces() -> None:
    pytest.importorskip("cv2")
    plain = make_vec_env("ALE/Pong-v5", 1)
    filmed = make_vec_env("ALE/Pong-v5", 1, env_kwargs={"render_mode": "rgb_array"})
    assert filmed.single_action_space == plain.single_action_space
    assert filmed.single_observation_space.shape == plain.single_observation_space.shape
    filmed.reset(seed=0)
    filmed.step(np.array([0]))
    pictures = filmed.render()
    assert pictures is not None
    assert np.shape(pictures[0]) == (210, 160, 3)
    filmed.close()


@pytest.mark.long
def test_ppo_learns_from_a_game_and_evaluates_it() -> None:
    import sharpwave as sw

    settings = {"n_envs": 2, "n_steps": 8, "batch_size": 16, "n_epochs": 1}
    kwargs = {"max_num_frames_per_episode": 100}
    ppo = sw.PPO.preset("ALE/Pong-v5", **settings, env_kwargs=kwargs)
    ppo.train(64)
    result = ppo.evaluate(2)
    assert max(result.lengths) <= 25
