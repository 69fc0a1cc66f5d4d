"""Results of presets are those that files hold: runs of the benchmark, and bars of tests."""

from __future__ import annotations

import ast
import importlib
import json
from pathlib import Path

import pytest

from sharpwave.cli import main
from sharpwave.config.preset_facts import BARS, RESULTS, evidence_of, source_of
from sharpwave.config.presets import PRESETS, presets

ROOT = Path(__file__).parents[3]
EVERY = [(algorithm, name) for algorithm in PRESETS for name in presets(algorithm)]


def test_measured_results_are_those_of_the_learning_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    results = importlib.import_module("learning_results")
    rows = importlib.import_module("preset_results").rows
    kept = json.loads(RESULTS.read_text())
    assert kept == rows(results.by_task(results.load(results.FILE)))
    assert {(row["algorithm"], row["env"]) for row in kept} <= set(EVERY)


def test_a_run_with_other_settings_is_no_result_of_the_preset(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    tasks = importlib.import_module("learning_tasks").TASKS
    made = importlib.import_module("preset_results")
    run = {
        "steps": 1_000_000,
        "reached": 1_000_000,
        "curve": [(1, 5.0)],
        "machine": "2026-01-02: x",
    }
    both = {"sharpwave": [run], "SB3": [run]}
    assert tasks["PPO Hopper"].steps == tasks["PPO Acrobot"].steps == 1_000_000
    # Values are not clipped there, since the two libraries mean different things by it.
    assert made.rows({"PPO Hopper": both}) == []
    (row,) = made.rows({"PPO Acrobot": both})
    assert (row["env"], row["mean"], row["date"]) == ("Acrobot-v1", 5.0, "2026-01-02")
    cut = {"sharpwave": [{**run, "reached": 900_000}], "SB3": [run]}
    assert made.rows({"PPO Acrobot": cut}) == []


@pytest.mark.parametrize(("algorithm", "name"), BARS)
def test_bars_are_those_of_tests(algorithm: str, name: str) -> None:
    bar = BARS[algorithm, name]
    file, _, test = bar.test.partition(":")
    text = (ROOT / "tests/learning" / file).read_text()
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
    (found,) = [node for node in functions if node.name == test]
    body = "".join(ast.unparse(node) for node in (*found.decorator_list, *found.body))
    assert f"{bar.least:g}" in body.replace(".0", "")
    assert bar.steps is None or f"total_timesteps={bar.steps}" in body
    assert "preset" in body
    assert (algorithm, name) in EVERY


def test_every_preset_is_listed_with_its_result_or_its_source(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["list", "presets"]) == 0
    listed = " ".join(capsys.readouterr().out.split())
    for algorithm, name in EVERY:
        evidence = evidence_of(algorithm, name)
        said = f"{name}: {evidence}" if evidence else f"settings of {source_of(algorithm, name)}, "
        assert said in listed
        assert name in listed
