"""`sharpwave check-env`: a line for each fault of an environment, and what it exits with."""

from __future__ import annotations

from pathlib import Path

import pytest

from sharpwave.cli import main
from sharpwave.testing import ENV_RULES, MULTI_ENV_RULES

MODULE = """
import gymnasium as gym
import numpy as np


class Drift(gym.Env):
    observation_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, speed=0.0, reward=1.0, render_mode=None):
        self.speed, self.reward = speed, reward

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 0.0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        if self.reward == "none":
            raise RuntimeError("no reward\\nto give")
        self.place += self.speed
        return np.full(1, self.place, np.float32), float(self.reward), False, False, {}


class Capped(gym.ObservationWrapper):
    def observation(self, observation):
        return np.clip(observation, -1, 1)


gym.register("Drift-v0", Drift, max_episode_steps=20)
"""
ENV = "drifting:Drift-v0"


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "drifting.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)


def test_an_environment_that_is_as_it_should_be(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-env", ENV, "--steps", "50"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"{ENV} keeps ")


def test_every_fault_has_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    faults = ["--env-kwargs", "speed=0.5", "reward=NaN", "--steps", "30"]
    assert main(["check-env", ENV, *faults]) == 1
    *lines, last = capsys.readouterr().out.splitlines()
    found = [line.partition(": ")[0] for line in lines]
    assert "observations_are_in_their_space" in found
    assert "rewards_are_finite" in found
    assert set(found) <= set(ENV_RULES)
    assert last == f"{ENV} breaks {len(lines)} of {len(ENV_RULES)} rules"


def test_a_wrapper_is_checked_with_what_it_wraps(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["check-env", ENV, "--env-kwargs", "speed=0.5", "--steps", "30"]
    assert main(command) == 1
    assert main([*command, "--wrapper", "drifting:Capped"]) == 0
    assert "keeps" in capsys.readouterr().out


def test_an_exception_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-env", ENV, "--env-kwargs", "reward=none"]) == 1
    first, last = capsys.readouterr().out.splitlines()
    assert "RuntimeError: no reward to give" in first
    assert "Traceback" not in first
    assert "breaks 1 of" in last


def test_environments_of_many_agents_have_rules_of_their_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("mpe2")
    assert main(["check-env", "mpe2/simple_v3", "--steps", "10"]) == 0
    said = capsys.readouterr().out
    assert sum(int(word) for word in said.split() if word.isdigit()) == len(MULTI_ENV_RULES)


def test_an_id_that_is_not_there_is_a_wrong_argument(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-env", "CartPol-v1"]) == 2
    assert "CartPole-v1" in capsys.readouterr().err
