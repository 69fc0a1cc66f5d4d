"""Studies of real trials: what they leave, what they go on with, and what they refuse."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

import sharpwave as sw
from sharpwave.cli import main
from sharpwave.tuning.spaces import Range
from sharpwave.tuning.study import Study, held
from sharpwave.tuning.trials import Outcome
from tests.processes import children, command_of, interruptible, is_running
from tests.waiting import LONG

pytest.importorskip("optuna")

QUICK: dict[str, Any] = {
    "space": {"learning_rate": {"low": 1e-4, "high": 1e-2, "log": True}, "hidden": [[8], [16]]},
    "total_timesteps": 512,
    "n_envs": 2,
    "n_steps": 32,
    "evaluations": 2,
    "eval_episodes": 2,
    "jobs": 2,
}


def study(path: Path, **options: Any) -> Study:
    space = {"gamma": Range(0.9, 0.99)}
    given: dict[str, Any] = {"sampler": "random", "pruner": "median", "seed": 0, **options}
    return Study(path, {"env": "E"}, space, sw.PPOConfig, **given)


@pytest.mark.long
def test_a_study_ends_with_the_best_configuration_and_goes_on(tmp_path: Path) -> None:
    storage = tmp_path / "study.journal"
    first = sw.tune("ppo", "CartPole-v1", trials=4, storage=storage, **QUICK)
    assert [trial.number for trial in first.trials] == [0, 1, 2, 3]
    assert {trial.state for trial in first.trials} == {"complete"}
    assert first.best.value == max(trial.value or 0 for trial in first.trials)
    assert {trial.options["hidden"] for trial in first.trials} <= {(8,), (16,)}
    written = yaml.safe_load(first.config.read_text())
    assert written["learning_rate"] == first.best.options["learning_rate"]
    assert (written["n_envs"], written["total_timesteps"]) == (2, 512)
    agent: Any = sw.Trainer("ppo", "CartPole-v1", config=first.config).algo
    assert agent.config.hidden == first.best.options["hidden"]
    page = first.page.read_text()
    assert "ppo · CartPole-v1" in page
    assert "learning_rate" in page

    again = sw.tune("ppo", "CartPole-v1", trials=6, storage=storage, **QUICK)
    assert again.trials[:4] == first.trials
    assert len(again.trials) == 6
    assert len({trial.options["learning_rate"] for trial in again.trials}) == 6
    done = sw.tune("ppo", "CartPole-v1", trials=6, storage=storage, **QUICK)
    assert done.trials == again.trials


@pytest.mark.long
def test_a_trial_whose_process_is_killed_is_lost_and_another_takes_its_place(
    tmp_path: Path,
) -> None:
    def kill() -> None:
        end = time.monotonic() + LONG
        while time.monotonic() < end:
            for pid in children(os.getpid()):
                if "sharpwave.tuning.worker" in command_of(pid):
                    os.kill(pid, signal.SIGKILL)
                    return
            time.sleep(0.01)

    killer = threading.Thread(target=kill)
    killer.start()
    options = {**QUICK, "jobs": 1}
    tuned = sw.tune("ppo", "CartPole-v1", trials=2, storage=tmp_path / "s.journal", **options)
    killer.join()
    assert [trial.state for trial in tuned.trials] == ["lost", "complete", "complete"]
    assert tuned.trials[0].reason == "its process ended with SIGKILL"


@pytest.mark.long
def test_a_search_that_is_killed_leaves_a_study_that_goes_on(tmp_path: Path) -> None:
    storage, config = tmp_path / "study.journal", tmp_path / "begin.yaml"
    config.write_text("total_timesteps: 512\nn_envs: 2\nn_steps: 32\n")
    command = ["tune", "ppo", "CartPole-v1", "--config", str(config), "--storage", str(storage)]
    command += ["--eval-episodes", "2", "--jobs", "1"]
    with subprocess.Popen(
        [sys.executable, "-m", "sharpwave", *command, "--trials", "50"],
        stdout=subprocess.PIPE,
        text=True,
    ) as search:
        assert search.stdout is not None
        for _ in range(2):
            assert search.stdout.readline().startswith("trial ")
        search.send_signal(signal.SIGKILL)
    with storage.open("a") as file:
        file.write('{"op_code":4,"work')  # as a line ends that was cut
    assert main([*command, "--trials", "4"]) == 0
    with held(storage):
        description = {"env": "E"}
        with pytest.raises(ValueError, match="holds a study with env CartPole-v1, got E"):
            Study(storage, description, {}, sw.PPOConfig, sampler="tpe", pruner="none", seed=0)
    states = yaml.safe_load(storage.with_suffix(".yaml").read_text())
    assert states["n_envs"] == 2
    page = storage.with_suffix(".html").read_text()
    assert page.count("<td>complete</td>") + page.count("<td>pruned</td>") == 4


@pytest.mark.long
def test_ctrl_c_ends_the_trials_and_the_study_goes_on(tmp_path: Path) -> None:
    words = ["tune", "ppo", "CartPole-v1", "--storage", "study", "--total-timesteps", "100000"]
    with interruptible(*words, "--jobs", "2", cwd=tmp_path) as search:
        assert search.stdout is not None
        assert search.stdout.readline().startswith("trial ")
        workers = [pid for pid in children(search.pid) if "tuning.worker" in command_of(pid)]
        search.send_signal(signal.SIGINT)
        _, complaints = search.communicate(timeout=LONG)
    assert (search.returncode, complaints) == (130, "sharpwave: interrupted\n")
    assert workers
    assert not any(map(is_running, workers))
    with held(tmp_path / "study"), pytest.raises(ValueError, match="got E"):
        study(tmp_path / "study")


@pytest.mark.long
def test_options_that_cannot_be_trained_fail_with_their_reason(tmp_path: Path) -> None:
    options: dict[str, Any] = {"space": {"gamma": [0.9, 0.99]}, "jobs": 2}
    unable: dict[str, Any] = {"backend": "native", "compile": True}
    with pytest.raises(RuntimeError, match=r"5 trials came to nothing: .*native"):
        sw.tune("dqn", "CartPole-v1", storage=tmp_path / "s", **options, **unable)


def test_a_trial_that_does_worse_than_the_others_is_cut(tmp_path: Path) -> None:
    with held(tmp_path / "study"):
        made = study(tmp_path / "study")
        for value in range(6):
            trial = made.ask()
            assert made.goes_on(trial, 100, 100.0 + value)
            made.tell(trial, Outcome("complete", 200.0 + value))
        trial = made.ask()
        assert not made.goes_on(trial, 100, 1.0)
        cut = made.tell(trial, Outcome("pruned", 1.0))
        assert (cut.state, cut.value) == ("pruned", 1.0)
        never = study(tmp_path / "study", pruner="none")
        assert never.goes_on(never.ask(), 100, 0.0)


@pytest.mark.long(only=["cmaes"])
@pytest.mark.parametrize("sampler", ["tpe", "random", "cmaes"])
def test_samplers_propose_values_of_the_space_and_others_when_a_study_goes_on(
    sampler: str, tmp_path: Path
) -> None:
    proposed = []
    for _ in range(2):
        with held(tmp_path / "study"):
            made = study(tmp_path / "study", sampler=sampler)
            for _ in range(3):
                trial = made.ask()
                proposed.append(made.options(trial)["gamma"])
                made.tell(trial, Outcome("complete", proposed[-1]))
    assert len(set(proposed)) == 6
    assert all(0.9 <= gamma <= 0.99 for gamma in proposed)


def test_running_trials_of_a_killed_search_are_lost(tmp_path: Path) -> None:
    with held(tmp_path / "study"):
        study(tmp_path / "study").ask()
    with held(tmp_path / "study"):
        assert [trial.state for trial in study(tmp_path / "study").trials()] == ["lost"]


def test_the_option_that_decides_is_the_most_important(tmp_path: Path) -> None:
    space = {"gamma": Range(0.9, 0.99), "vf_coef": Range(0.1, 1.0)}
    with held(tmp_path / "study"):
        made = Study(
            tmp_path / "study", {}, space, sw.PPOConfig, sampler="random", pruner="none", seed=0
        )
        for _ in range(20):
            trial = made.ask()
            made.tell(trial, Outcome("complete", 100 * made.options(trial)["vf_coef"]))
        found = made.importances()
    assert list(found) == ["vf_coef", "gamma"]
    assert found["vf_coef"] > 0.5


def test_a_storage_in_use_is_refused_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    storage = tmp_path / "study.journal"
    with held(storage):
        with pytest.raises(sw.FolderLockedError, match=f"storage {storage} is in use"):
            sw.tune("ppo", "CartPole-v1", storage=storage)
        assert main(["tune", "ppo", "CartPole-v1", "--storage", str(storage)]) == 2
    assert f"storage {storage} is in use: another process" in capsys.readouterr().err


@pytest.mark.parametrize("content", ["notes of mine\n", '{"a": 1}\n', "[1]\n"])
def test_another_file_is_no_storage_and_stays(content: str, tmp_path: Path) -> None:
    storage = tmp_path / "notes.txt"
    storage.write_text(content)
    with pytest.raises(ValueError, match=f"storage must be the file of a study, {storage}"):
        sw.tune("ppo", "CartPole-v1", storage=storage)
    assert storage.read_text() == content


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"algorithm": "iql"}, "algorithm must be one of those that learn in an environment"),
        ({"algorithm": "mappo"}, "algorithm must be one of those that learn in an environment"),
        ({"algorithm": "dreamer_v3"}, "dreamer_v3 has no search space of its own"),
        ({"sampler": "grid"}, "sampler must be one of tpe, random, cmaes, got 'grid'"),
        ({"pruner": "medain"}, "pruner must be one of .*did you mean 'median'"),
        ({"trials": 0}, "trials must be at least 1, got 0"),
        ({"evaluations": 0}, "evaluations must be at least 1, got 0"),
        ({"space": {"gamma": [0.9]}, "gamma": 0.99}, "gamma is in the space and is given as 0.99"),
        ({"gamma": 2.0}, "gamma must be between 0 and 1, got 2.0"),
    ],
)
def test_impossible_arguments_are_refused(
    options: dict[str, Any], said: str, tmp_path: Path
) -> None:
    given = {"algorithm": "ppo", "env": "CartPole-v1", "storage": tmp_path / "study", **options}
    with pytest.raises(ValueError, match=said):
        sw.tune(**given)
    assert not (tmp_path / "study").exists()
