"""Runs without a seed draw one, say which, and keep it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sharpwave as sw
from sharpwave.compat import rlox
from tests.contract.learners import LEARNERS, state_of

every = pytest.mark.parametrize("name", LEARNERS)


@pytest.fixture(autouse=True)
def drawn_seed() -> None:
    """Seeds are drawn here as they are for users."""


@every
def test_two_runs_without_a_seed_differ(name: str) -> None:
    """The default was 42 for everyone: three runs were one run three times."""
    learner = LEARNERS[name]
    one, other = (learner.make(seed=None) for _ in range(2))
    assert one.seed != other.seed
    assert (one.config.seed, other.config.seed) == (one.seed, other.seed)
    assert state_of(one) != state_of(other)


@pytest.mark.parametrize("name", ["ppo", "sac", "td3_bc"])
def test_the_seed_that_was_drawn_gives_the_same_run(name: str, tmp_path: Path) -> None:
    learner = LEARNERS[name]
    drawn = learner.make(seed=None)
    drawn.train(learner.steps)
    again = learner.make(seed=drawn.seed)
    again.train(learner.steps)
    assert state_of(drawn) == state_of(again)
    drawn.save(tmp_path / "a")
    world = {} if learner.is_online else {"dataset": learner.world()}
    resumed = learner.cls.from_checkpoint(tmp_path / "a", **world)
    assert resumed.seed == drawn.seed
    assert learner.cls.Config.from_dict(drawn.config.to_dict()).seed == drawn.seed


@pytest.mark.long
def test_a_run_folder_and_loggers_say_which_it_was(tmp_path: Path) -> None:
    told: dict[str, Any] = {}

    class Listener(sw.LoggerCallback):
        def log_config(self, config: Any) -> None:
            told.update(config)

    agent = LEARNERS["ppo"].make(seed=None, logger=Listener())
    agent.train(32, run_dir=tmp_path / "run")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["seed"] == agent.seed
    assert told["seed"] == agent.seed


def test_the_global_generator_has_no_say_and_is_left_alone() -> None:
    seeds = []
    for _ in range(2):
        np.random.seed(0)  # noqa: NPY002
        seeds.append(sw.PPO("CartPole-v1", n_envs=1).seed)
        assert np.random.random() == pytest.approx(0.5488135)  # noqa: NPY002
    assert seeds[0] != seeds[1]


def test_configs_have_none_until_a_run_draws_it() -> None:
    config = sw.PPOConfig()
    assert config.seed is None
    one, other = (sw.PPO("CartPole-v1", config=config) for _ in range(2))
    assert one.seed != other.seed


def test_presets_name_theirs() -> None:
    assert sw.PPO.preset("CartPole-v1").seed == sw.PPO.preset("CartPole-v1").seed == 42
    assert sw.PPO.preset("CartPole-v1", seed=3).seed == 3


@pytest.mark.parametrize("name", ["PPO", "A2C", "DQN", "SAC", "TD3"])
def test_under_rloxs_names_it_is_42(name: str) -> None:
    env = "Pendulum-v1" if name in ("SAC", "TD3") else "CartPole-v1"
    agent: Any = getattr(rlox, name)(env)
    assert agent.seed == 42


@pytest.mark.long
def test_the_command_line_says_it(tmp_path: Path) -> None:
    line = [sys.executable, "-m", "sharpwave", "train", "ppo", "CartPole-v1", "--n-envs", "2"]
    line += ["--n-steps", "8", "--total-timesteps", "16", "--run-dir"]
    drawn = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        done = subprocess.run([*line, folder], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        drawn.append(json.loads((folder / "summary.json").read_text())["seed"])
        assert f"seed {drawn[-1]}" in done.stdout + done.stderr
    assert drawn[0] != drawn[1]
