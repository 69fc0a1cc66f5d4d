"""Runs are read again whenever they have changed, whatever happens to their folders."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sharpwave as sw
from sharpwave.pages.watch import WatchedRuns
from sharpwave.pages.watch.runs import EVALUATED, POINTS
from tests.unit.pages.watch.folders import append, write_run


def by_name(watched: WatchedRuns) -> dict[str, dict[str, Any]]:
    for run in watched._runs.values():
        run.rested_until = 0.0  # they are read as often as this test asks
    return {run["id"]: run for run in watched.listed()}


def test_runs_are_found_wherever_they_lie_below_the_folder(tmp_path: Path) -> None:
    write_run(tmp_path / "a", [1.0])
    write_run(tmp_path / "sweep" / "b", [1.0, 2.0])
    write_run(tmp_path / "sweep" / "b" / "replay" / "no", [1.0])
    write_run(tmp_path / ".hidden", [1.0])
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text('{"format": "something else"}')
    assert list(by_name(WatchedRuns(tmp_path))) == ["a", "sweep/b"]
    assert list(by_name(WatchedRuns(tmp_path / "sweep" / "b"))) == ["b"]


def test_facts_of_a_run(tmp_path: Path) -> None:
    write_run(tmp_path / "a", [10.0, 30.0], status="finished", seed=7, network={"hidden": [64, 64]})
    run = by_name(WatchedRuns(tmp_path))["a"]
    assert (run["algorithm"], run["subject"], run["seed"]) == ("ppo", "CartPole-v1", 7)
    assert (run["steps"], run["value"], run["headline"]) == (200.0, 30.0, "mean_return")
    assert run["metrics"] == ["mean_return", "loss"]
    assert run["state"] == "finished"
    assert run["options"]["network.hidden"] == "[64, 64]"
    assert json.dumps(run, allow_nan=False)


def test_a_curve_has_steps_and_seconds(tmp_path: Path) -> None:
    write_run(tmp_path / "a", [10.0, float("nan"), 30.0])
    watched = WatchedRuns(tmp_path)
    by_name(watched)
    curve = watched.curve("a", "mean_return")
    assert (curve["step"], curve["seconds"], curve["y"]) == ([100, 300], [2.0, 6.0], [10.0, 30.0])
    assert watched.curve("a", "unknown")["y"] == []
    with pytest.raises(KeyError, match="there is no run 'b'"):
        watched.curve("b", "mean_return")


def test_long_curves_keep_their_extremes(tmp_path: Path) -> None:
    values = np.sin(np.arange(5 * POINTS))
    values[1234] = 17.0
    write_run(tmp_path / "a", values.tolist())
    watched = WatchedRuns(tmp_path)
    by_name(watched)
    curve = watched.curve("a", "mean_return")
    assert len(curve["y"]) <= POINTS
    assert max(curve["y"]) == 17.0
    assert curve["step"][curve["y"].index(17.0)] == 123_500


def test_evaluations_have_a_curve(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a", [10.0, 20.0])
    (run / "evaluations.jsonl").write_text('{"step": 150, "mean": 99.0}\n{"step": 20')
    watched = WatchedRuns(tmp_path)
    assert by_name(watched)["a"]["metrics"][0] == EVALUATED
    curve = watched.curve("a", EVALUATED)
    assert (curve["step"], curve["seconds"], curve["y"]) == ([150.0], [3.0], [99.0])


def test_what_a_run_appends_is_there_the_next_time(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a", [10.0])
    watched = WatchedRuns(tmp_path)
    first = by_name(watched)["a"]
    assert by_name(watched)["a"]["version"] == first["version"]
    append(run, [20.0])
    second = by_name(watched)["a"]
    assert second["version"] > first["version"]
    assert second["value"] == 20.0


def test_rows_that_a_resumed_run_cut_are_gone(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a", [10.0, 20.0, 30.0])
    watched = WatchedRuns(tmp_path)
    by_name(watched)
    write_run(run, [10.0, 15.0])
    assert by_name(watched)["a"]["value"] == 15.0
    assert watched.curve("a", "mean_return")["y"] == [10.0, 15.0]


def test_runs_come_and_go(tmp_path: Path) -> None:
    watched = WatchedRuns(tmp_path)
    assert by_name(watched) == {}
    run = write_run(tmp_path / "a", [1.0])
    assert list(by_name(watched)) == ["a"]
    shutil.rmtree(run)
    assert by_name(watched) == {}


def test_a_killed_run_is_silent_after_a_while(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a", [1.0])
    watched = WatchedRuns(tmp_path)
    assert by_name(watched)["a"]["state"] == "running"
    before = time.time() - 3600
    for file in run.iterdir():
        os.utime(file, (before, before))
    assert by_name(watched)["a"]["state"] == "silent"


def test_a_torn_run_says_what_it_can(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a", [1.0, 2.0])
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 300, "mean_re')
    (run / "summary.json").write_text('{"stat')
    assert by_name(WatchedRuns(tmp_path))["a"]["value"] == 2.0
    write_run(tmp_path / "empty", [])
    assert by_name(WatchedRuns(tmp_path))["empty"]["value"] is None


def test_a_run_that_is_slow_to_read_is_read_less_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write_run(tmp_path / "a", [1.0])
    clock = [100.0]
    monkeypatch.setattr("sharpwave.pages.watch.runs.time.monotonic", lambda: clock[0])
    from sharpwave.storage.run_folder import RunFolder

    read = RunFolder.metrics

    def slowly(self: RunFolder) -> Any:
        clock[0] += 3.0
        return read(self)

    monkeypatch.setattr(RunFolder, "metrics", slowly)
    watched = WatchedRuns(tmp_path)
    watched.listed()
    append(run, [2.0])
    clock[0] = 129.0
    assert watched.listed()[0]["value"] == 1.0
    clock[0] = 131.0
    assert watched.listed()[0]["value"] == 2.0


@pytest.mark.long
def test_a_run_of_the_library_is_watched(tmp_path: Path) -> None:
    agent = sw.PPO("CartPole-v1", n_envs=2, n_steps=16, seed=3)
    agent.train(256, run_dir=tmp_path / "mine")
    run = by_name(WatchedRuns(tmp_path))["mine"]
    assert (run["state"], run["seed"], run["steps"]) == ("finished", 3, 256.0)
    assert {"mean_return", "policy_loss", "sps"} <= set(run["metrics"])
    assert run["options"]["n_steps"] == "16"
