"""Every preset of DreamerV3 makes an agent that acts in what it is for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sharpwave as sw
from sharpwave.config.world_model_presets import DREAMER_V3, SIZES
from tests.contract.learners import DREAMER
from tests.envs import Catch

SMALL: dict[str, Any] = {
    **{name: DREAMER[name] for name in ("deter", "hidden", "latents", "classes", "units")},
    "depth": 2,
    "buffer_size": 2000,
}
"""Sizes that fit into a test, in place of those of a preset."""
ENVS: dict[str, Any] = {
    "state_control": "Pendulum-v1",
    "image_control": Catch,
    "atari_100k": "ALE/Pong-v5",
    "crafter": Catch,
    "Atari": "ALE/Pong-v5",
}


@pytest.mark.parametrize("name", DREAMER_V3)
def test_every_preset_makes_an_agent(name: str) -> None:
    env = ENVS.get(name, "CartPole-v1" if name in SIZES else name)
    if str(env).startswith("ALE/"):
        pytest.importorskip("ale_py")
    if name in SIZES:
        small = {key: value for key, value in SMALL.items() if key != "depth"}
        small = small if SIZES[name].get("deter", 0) > 512 else {"buffer_size": 2000}
        agent = sw.DreamerV3(env, preset=name, **small)
    elif name == "Atari":
        agent = sw.DreamerV3.preset(env, **SMALL)
    else:
        agent = sw.DreamerV3(env, preset=name, **SMALL)
    assert agent.config.train_ratio == DREAMER_V3[name].get("train_ratio", 64.0)
    assert agent.action_space.contains(agent.predict(agent.observation_space.sample()))
    agent.close()


@pytest.mark.long
def test_games_of_atari_are_color_images() -> None:
    pytest.importorskip("ale_py")
    agent = sw.DreamerV3("ALE/Pong-v5", **SMALL)
    assert agent.observation_space.shape == (64, 64, 3)
    large = {"img_height": 96, "img_width": 96}
    other = sw.DreamerV3("ALE/Pong-v5", env_kwargs=large, **SMALL)
    assert other.observation_space.shape == (96, 96, 3)
    with pytest.raises(ValueError, match=r"got 80 x 64 x 3: .*ResizeObservation"):
        sw.DreamerV3("ALE/Pong-v5", env_kwargs={"img_height": 80}, **SMALL)
    for each in (agent, other):
        each.close()


@pytest.mark.long
def test_games_that_end_give_their_last_image() -> None:
    pytest.importorskip("ale_py")
    short = {**sw.DreamerV3.of_atari, "max_num_frames_per_episode": 40, "noop_max": 0}
    env = sw.make_vec_env("ALE/Pong-v5", 2, seed=0, env_kwargs=short)
    env.reset(seed=0)
    for _ in range(30):
        obs, _, terminated, truncated, infos = env.step(np.zeros(2, np.int64))
        assert obs.shape == (2, 64, 64, 3)
        assert env.observation_space.contains(obs)
        if (terminated | truncated).any():
            assert np.shape(infos["final_obs"]) == (2, 64, 64, 3)
            break
    else:
        raise AssertionError("no game ended")
    env.close()
