"""Numbers of the user's own reach every logger, the run folder and the report.

There was no way to log one.
"""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import sharpwave as sw
from sharpwave.algorithms.dqn import DQNLearner
from sharpwave.runs.loggers.periodic import IntervalLogger
from tests.unit.agents.small_runs import STEPS_PER_UPDATE, Alike, small_ppo
from tests.unit.pages.report_pages import ReportPage


class Log(sw.LoggerCallback):
    def __init__(self) -> None:
        self.rows: list[tuple[int, dict[str, Any]]] = []

    def on_train_step(self, step: int, metrics: Any) -> None:
        self.rows.append((step, dict(metrics)))


class Recorder(sw.Callback):
    """Records in every hook, by its name."""

    def on_training_start(self, algo: Any) -> None:
        algo.record("start", 1)

    def on_step(self, algo: Any, step: int) -> None:
        algo.record("mean/step", step)

    def on_rollout_end(self, algo: Any, update: int) -> None:
        algo.record("rollout", np.float32(update))

    def on_train_batch(self, algo: Any, updates: float) -> None:
        algo.record("updated", updates)


def test_a_number_is_logged_with_the_next_report() -> None:
    log = Log()
    algo = small_ppo(Alike, logger=log)
    metrics = algo.train(3 * STEPS_PER_UPDATE, callbacks=Recorder())
    rows = [row for _, row in log.rows]
    assert [row.get("start") for row in rows] == [1, None, None, None]
    per_update = np.arange(4, 3 * STEPS_PER_UPDATE + 1, 4).reshape(3, -1).mean(1)
    assert [row["mean/step"] for row in rows[:3]] == per_update.tolist()
    assert [row["rollout"] for row in rows[:3]] == [0, 1, 2]
    # What is recorded after an update is in the report of the next, and at the end in its own.
    assert [row.get("updated") for row in rows] == [None, 1, 2, 3]
    assert [step for step, _ in log.rows] == [128, 256, 384, 384]
    assert rows[-1]["loss"] == rows[-2]["loss"]
    assert metrics["updated"] == 3
    assert all(isinstance(row["rollout"], float) for row in rows[:3])


@pytest.mark.long
def test_columns_appear_in_the_middle_of_a_run_and_survive_a_resume(tmp_path: Path) -> None:
    class Late(sw.Callback):
        def on_rollout_end(self, algo: Any, update: int) -> None:
            if update >= 2:
                algo.record(f"late_{update}", update + 0.5)

    folder = tmp_path / "run"
    algo = small_ppo(Alike)
    algo.train(4 * STEPS_PER_UPDATE, callbacks=Late(), run_dir=folder)
    again = sw.PPO.from_checkpoint(folder / "checkpoints/latest.safetensors", Alike)
    again.train(STEPS_PER_UPDATE, callbacks=Late(), run_dir=folder)
    with (folder / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["step"] for row in rows] == [str(128 * (i + 1)) for i in range(5)]
    assert [row["late_2"] for row in rows] == ["", "", "2.5", "", ""]
    assert [row["late_3"] for row in rows] == ["", "", "", "3.5", ""]
    assert [row["late_4"] for row in rows] == ["", "", "", "", "4.5"]
    assert all(math.isfinite(float(row["loss"])) for row in rows)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert ["late_3" in line for line in lines] == [False, False, False, True, False]


@pytest.mark.long
def test_the_report_shows_it(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    small_ppo(Alike).train(3 * STEPS_PER_UPDATE, callbacks=Recorder(), run_dir=folder)
    page = ReportPage(folder / "report.html")
    assert page.captions["Rollout"] == "2"
    assert page.captions["Updated"] == "3"
    assert page.captions["Start"] == "1"
    # A number that is logged now and then is not one that is no longer finite.
    assert "not finite" not in page.text
    with (folder / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["updated"] for row in rows] == ["", "1.0", "2.0", "3.0"]
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["metrics"]["updated"] == 3


def test_losses_of_ones_own_record_tensors() -> None:
    algo = small_ppo(Alike, backend="torch")
    loss, calls = algo.learner.loss, 0

    def own_loss(batch: Any) -> Any:
        nonlocal calls
        made = loss(batch)
        calls += 1
        algo.record("calls", torch.tensor(calls))
        parameter = next(iter(algo.policy.parameters()))
        algo.record("weight", parameter.abs().mean())
        return made

    algo.learner.loss = own_loss
    metrics = algo.train(STEPS_PER_UPDATE)
    assert calls == 4
    assert metrics["calls"] == 2.5
    assert 0 < metrics["weight"] < 1
    assert not any(parameter.grad_fn for parameter in algo.policy.parameters())


@pytest.mark.long
def test_off_policy_and_offline_runs_record_too(tmp_path: Path) -> None:
    class OwnSteps(DQNLearner):
        def update(self, batch: Any) -> Any:
            return {**super().update(batch), "rows": float(len(batch.rewards))}

    small: dict[str, Any] = {"batch_size": 8, "hidden": 8, "log_interval": 32, "n_envs": 1}
    algo = sw.DQN(Alike, learning_starts=16, learner=OwnSteps, **small)
    assert algo.train(96)["rows"] == 8
    rng = np.random.default_rng(0)
    data = {
        "obs": rng.normal(size=(40, 3)).astype(np.float32),
        "actions": rng.uniform(-1, 1, (40, 1)).astype(np.float32),
        "rewards": np.ones(40),
        "terminated": np.zeros(40, bool),
        "truncated": np.arange(40) % 10 == 9,
    }
    data["next_obs"] = data["obs"]

    class Twice(sw.Callback):
        def on_step(self, algo: Any, step: int) -> None:
            algo.record("twice", 2 * step)

    clone = sw.BC(data, hidden=8, batch_size=8, log_interval=5)
    assert clone.train(10, callbacks=Twice())["twice"] == np.mean([12, 14, 16, 18, 20])


def test_values_are_those_of_the_moment() -> None:
    algo, log = small_ppo(Alike), Log()
    algo.loggers = type(algo.loggers)(log)
    tensor, array = torch.ones(1), np.ones(1)
    algo.record("tensor", tensor)
    algo.record("array", array)
    tensor.fill_(5)
    array.fill(5)
    algo.record("flag", True)
    algo.record("nan", math.nan)
    algo.train(STEPS_PER_UPDATE)
    row = log.rows[0][1]
    assert (row["tensor"], row["array"], row["flag"]) == (1, 1, 1)
    assert math.isnan(row["nan"])


def test_loggers_that_skip_updates_do_not_lose_it() -> None:
    written: list[tuple[int, dict[str, Any]]] = []

    class Rare(IntervalLogger):
        def write(self, step: int, metrics: Any) -> None:
            written.append((step, dict(metrics)))

    class Once(sw.Callback):
        def on_rollout_end(self, algo: Any, update: int) -> None:
            if update == 0:
                algo.record("once", 7)

    small_ppo(Alike, logger=Rare(300)).train(4 * STEPS_PER_UPDATE, callbacks=Once())
    assert [(step, "once" in row) for step, row in written] == [(384, True), (512, False)]
    assert written[0][1]["once"] == 7
    assert written[0][1]["updates"] == 3


@pytest.mark.parametrize(
    ("name", "value", "error", "said"),
    [
        (3, 1.0, TypeError, "name must be a string, got int"),
        ("", 1.0, ValueError, "name must begin with a letter"),
        ("9lives", 1.0, ValueError, "name must begin with a letter"),
        ("two\nlines", 1.0, ValueError, "name must begin with a letter"),
        ('a,"b"', 1.0, ValueError, "name must begin with a letter"),
        ("a" * 200, 1.0, ValueError, "at most 100"),
        ("step", 1.0, ValueError, "'step', which every run logs"),
        ("seconds", 1.0, ValueError, "'seconds', which every run logs"),
        ("x", "high", TypeError, "value of 'x' must be a number, got str"),
        ("x", None, TypeError, "value of 'x' must be a number, got NoneType"),
        ("x", 1j, TypeError, "value of 'x' must be a number, got complex"),
        ("x", [1.0, 2.0], ValueError, r"value of 'x' must be one number, got shape \(2,\)"),
        ("x", np.zeros(0), ValueError, r"got shape \(0,\)"),
        ("x", torch.zeros(2, 1), ValueError, r"got a tensor of torch.float32 with shape \(2, 1\)"),
        ("x", {"a": 1}, TypeError, "value of 'x' must be a number, got dict"),
    ],
)
def test_bad_names_and_values_are_named(name: Any, value: Any, error: Any, said: str) -> None:
    algo = small_ppo(Alike)
    with pytest.raises(error, match=said):
        algo.record(name, value)
    assert "x" not in algo.train(STEPS_PER_UPDATE)


def test_a_name_that_the_algorithm_logs_is_refused() -> None:
    algo = small_ppo(Alike)
    algo.record("entropy", 1.0)
    with pytest.raises(ValueError, match="'entropy', which PPO logs"):
        algo.train(STEPS_PER_UPDATE)


def test_recording_waits_for_no_device() -> None:
    algo = small_ppo(Alike)
    for _ in range(3):
        algo.record("x", torch.zeros((), device="meta"))  # which has no number to fetch
    assert algo.run._recorded.take()["x"].is_meta
