"""The grid of learning runs: what its file holds, what is left of it, and what its numbers are."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def results(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("learning_results")


@pytest.fixture
def grid(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("side_by_side")


def run(seed: int = 0, contender: str = "SB3", reached: int = 10_000, **more: Any) -> Any:
    return {
        "task": "SAC Pendulum",
        "contender": contender,
        "seed": seed,
        "steps": 10_000,
        "reached": reached,
        "wall": reached / 100,
        "given": 100.0,
        "curve": [[1000, -1000.0]],
        **more,
    }


def test_the_run_that_went_furthest_counts_and_a_torn_line_does_not(
    results: ModuleType, tmp_path: Path
) -> None:
    path = tmp_path / "grid.jsonl"
    for one in (run(reached=4000), run(), run(reached=2000), run(seed=1, reached=3000)):
        results.append(path, one)
    with path.open("a") as file:
        file.write(json.dumps(run(seed=2))[:40])
    assert [(one["seed"], one["reached"]) for one in results.load(path)] == [(0, 10_000), (1, 3000)]


def test_runs_made_elsewhere_replace_those_of_their_tasks(
    results: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "FILE", tmp_path / "kept.jsonl")
    results.save(results.FILE, [run(seed=7), run(task="TD3 Pendulum"), run(task="PPO Acrobot")])
    other = [run(), run(contender="sharpwave"), run(task="TD3 Pendulum", seed=3)]
    results.save(tmp_path / "other.jsonl", other)
    assert results.take_over(tmp_path / "other.jsonl") == ["SAC Pendulum"]
    kept = [(one["task"], one["seed"]) for one in results.load(results.FILE)]
    assert kept == [
        ("PPO Acrobot", 0),
        ("SAC Pendulum", 0),
        ("SAC Pendulum", 0),
        ("TD3 Pendulum", 0),
    ]


def test_a_call_goes_on_with_what_is_left(
    grid: ModuleType, results: ModuleType, tmp_path: Path
) -> None:
    path = tmp_path / "grid.jsonl"
    results.save(path, [run(), run(contender="sharpwave", reached=5000)])
    asked = list(grid.pieces(["SAC Pendulum"], 2))
    as_long = grid.Grid(asked, path, 110)
    assert [(piece.contender, piece.seed) for piece in as_long.left] == [
        ("SB3", 1),
        ("sharpwave", 1),
    ]
    longer = grid.Grid(asked, path, 200)
    assert ("SAC Pendulum", "sharpwave", 0) in longer.left


def test_a_run_is_made_where_it_ends_in_time_or_is_cut_by_any_limit(
    grid: ModuleType, results: ModuleType, tmp_path: Path
) -> None:
    path = tmp_path / "grid.jsonl"
    results.save(path, [run(wall=60.0)])
    made = grid.Grid([], path, 100)
    short, unknown = (grid.Piece("SAC Pendulum", side, 1) for side in ("SB3", "sharpwave"))
    assert [made._is_worth_it(short, left) for left in (70, 50)] == [True, False]
    assert [made._is_worth_it(unknown, left) for left in (70, 49)] == [True, False]


def test_tasks_get_a_few_seeds_each_before_one_gets_more(grid: ModuleType) -> None:
    order = list(grid.pieces(["PPO CartPole", "SAC Pendulum"], 10))
    assert len(order) == len(set(order)) == 2 * (10 + 5)
    first = [(piece.task, piece.seed) for piece in order if piece.contender == "SB3"][:6]
    assert first == [(task, i) for task in ("PPO CartPole", "SAC Pendulum") for i in range(3)]


def test_interquartile_means_leave_out_a_quarter_on_each_side(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    statistics = importlib.import_module("learning_statistics")
    assert statistics.interquartile_mean(np.array([9.0, 1.0, 2.0, -50.0])) == pytest.approx(1.5)
    # Of three runs the middle one counts whole and the others by a quarter each.
    assert statistics.interquartile_mean(np.array([0.0, 3.0, 12.0])) == pytest.approx(4.0)
    found = statistics.estimate([1.0, 2.0, 3.0, 4.0, 100.0])
    assert found.low < found.mean < found.high
    assert statistics.estimate([5.0] * 3) == (5.0, 5.0, 5.0)


@pytest.mark.long
def test_runs_are_lines_of_the_file_and_are_not_made_again(
    results: ModuleType, tmp_path: Path
) -> None:
    path = tmp_path / "grid.jsonl"
    command = [sys.executable, str(BENCHMARKS / "side_by_side.py"), "--results", str(path)]
    command += ["--tasks", "PPO CartPole", "--seeds", "1", "--jobs", "2", "--seconds", "6"]
    for left in ("2 of 2", "0 of 2"):
        shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert shown.startswith(f"{left} runs are left")
    ours, theirs = sorted(results.load(path), key=lambda one: one["contender"], reverse=True)
    assert ours["reached"] == 100_000
    assert 0 < theirs["reached"] < 100_000
    assert len(ours["curve"]) == len(ours["clock"]) == 20


def test_tasks_in_which_ours_learns_less_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    page = importlib.import_module("learning_page")

    def runs(*ends: float) -> list[Any]:
        return [run(curve=[[1, 0.0], [2, 0.0], [3, 3 * end]]) for end in ends]

    tasks = {
        "PPO Acrobot": {"sharpwave": runs(-90, -88, -89), "SB3": runs(-80, -79, -81)},
        "SAC Pendulum": {"sharpwave": runs(-90, -70, -80), "SB3": runs(-80, -79, -81)},
        # Up to the points that all have there is no difference.
        "TD3 Pendulum": {"sharpwave": [run(curve=[[1, 0.0]])], "SB3": runs(5.0)},
    }
    assert page.below(tasks) == ["PPO Acrobot"]
