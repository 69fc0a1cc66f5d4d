"""Completions of a language model: callbacks hear of them, folders keep some of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sharpwave.loops.loop import Loop
from sharpwave.pages.samples import as_text, picked
from sharpwave.runs.callbacks import (
    Callback,
    CheckpointCallback,
    EarlyStoppingCallback,
    EvalCallback,
)
from sharpwave.runs.evaluation import EvaluationResult
from sharpwave.runs.interval import Interval
from sharpwave.runs.loggers import ConsoleLogger, LoggerCallback, TensorBoardLogger, WandbLogger
from sharpwave.runs.recorder import RunRecorder
from sharpwave.storage.run_folder import RunFolder
from tests.unit.runs.writing import HOSTILE, Lazy, Write, row

ROOT = Path(__file__).parents[3]


class Hearing(Callback):
    def __init__(self, stop_at: int | None = None) -> None:
        self.heard: list[tuple[str, int]] = []
        self.rows: Any = None
        self.stop_at = stop_at

    def on_samples(self, step: int, rows: Any) -> bool:
        self.heard.append(("samples", step))
        self.rows = rows
        return step != self.stop_at

    def on_train_batch(self, step: int) -> None:
        self.heard.append(("update", step))


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


# Hearing of them


def test_callbacks_hear_of_every_update_once_before_it() -> None:
    hearing = Hearing()
    Write().train(3, callbacks=hearing)
    assert hearing.heard == [(what, i) for i in (1, 2, 3) for what in ("samples", "update")]
    assert [one["reward"] for one in hearing.rows] == [0.5, None, 3, 0.0, 0.25]
    assert hearing.rows[2]["completion"] == "completion 2"


def test_false_stops_the_run_at_the_next_boundary() -> None:
    hearing = Hearing(stop_at=2)
    agent = Write()
    agent.train(5, callbacks=hearing)
    assert (agent.timesteps, agent.updates) == (2, 2)
    assert agent.stop_reason == "Hearing.on_samples returned False"


def test_nothing_is_made_where_nobody_listens() -> None:
    agent = Write(logger=LoggerCallback())
    agent.train(2, callbacks=Callback())
    assert agent.loop.asked == 0
    agent.train(2, callbacks=Hearing())
    assert agent.loop.asked == 2


def test_a_logger_of_ones_own_gets_samples_before_their_metrics() -> None:
    told: list[tuple[str, int, int]] = []

    class Mine(LoggerCallback):
        def on_samples(self, step: int, rows: Sequence[Any]) -> None:
            told.append(("samples", step, len(rows)))

        def on_train_step(self, step: int, metrics: Any) -> None:
            told.append(("metrics", step, 0))

    Write(logger=[LoggerCallback(), Mine()]).train(2)
    assert told == [("samples", 1, 5), ("metrics", 1, 0), ("samples", 2, 5), ("metrics", 2, 0)]


# Picking some


@pytest.mark.long
@settings(max_examples=50)
@given(st.lists(st.none() | st.floats(-5, 5), max_size=12))
def test_best_median_and_worst_are_picked_each_once(rewards: list[float | None]) -> None:
    rows = [{"reward": reward, "at": i} for i, reward in enumerate(rewards)]
    found = picked(rows)
    scored = sorted(reward for reward in rewards if reward is not None)
    assert len({one["at"] for one in found.values()}) == len(found)
    if not scored:
        assert list(found) == (["unscored"] if rewards else [])
        return
    assert (
        list(found)
        == [["best"], ["best", "worst"], ["best", "median", "worst"]][min(len(scored), 3) - 1]
    )
    assert found["best"]["reward"] == scored[-1]
    if len(scored) > 1:
        assert found["worst"]["reward"] == scored[0]
    if len(scored) > 2:
        assert found["median"]["reward"] == scored[(len(scored) - 1) // 2]


def test_picking_makes_three_rows_of_many() -> None:
    rows = Lazy([float(i) for i in range(500)])
    assert [one["reward"] for one in picked(rows).values()] == [499.0, 249.0, 0.0]
    assert rows.made == 3


def test_tokens_are_read_as_numbers() -> None:
    assert as_text([3, 14, 15]) == "3 14 15"


# The folder


def test_a_folder_keeps_best_median_and_worst_of_every_update(tmp_path: Path) -> None:
    Write().train(3, callbacks=RunRecorder(tmp_path / "run", report=False))
    kept = lines(tmp_path / "run" / "samples.jsonl")
    assert [(one["step"], one["rank"], one["reward"]) for one in kept] == [
        (step, rank, reward)
        for step in (1, 2, 3)
        for rank, reward in (("best", step), ("median", 0.25), ("worst", 0.0))
    ]
    assert kept[0]["completion"] == "completion 2"
    found = RunFolder(tmp_path / "run").samples()
    assert list(found) == [1, 2, 3]
    assert list(found[2]) == ["best", "median", "worst"]


@pytest.mark.long
def test_what_a_resumed_run_writes_again_is_cut(tmp_path: Path) -> None:
    path, other = tmp_path / "run", tmp_path / "other"
    Write().train(4, callbacks=RunRecorder(path, report=False))
    whole = (path / "samples.jsonl").read_text()
    # A kill left rows of updates that no checkpoint knows, and half a row.
    torn = json.dumps({"step": 5, "rank": "best"}) + '\n{"step": 5, "ra'
    (path / "samples.jsonl").write_text(whole + torn)
    resumed = Write.from_checkpoint(path / "checkpoints" / "latest.safetensors")
    resumed.train(2, callbacks=RunRecorder(path, report=False))
    Write().train(6, callbacks=RunRecorder(other, report=False))
    assert (path / "samples.jsonl").read_text() == (other / "samples.jsonl").read_text()


@pytest.mark.long
def test_a_killed_run_goes_on_as_if_it_had_not_been(tmp_path: Path) -> None:
    program = (
        "import os, sys\n"
        "from sharpwave.runs.callbacks import Callback\n"
        "from tests.unit.runs.writing import Write\n"
        "class Kill(Callback):\n"
        "    def on_samples(self, step):\n"
        "        if step == 40: os.kill(os.getpid(), 9)\n"
        "Write().train(60, run_dir=sys.argv[1], callbacks=Kill())"
    )
    path, other = tmp_path / "run", tmp_path / "other"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run([sys.executable, "-c", program, str(path)], check=False, env=environment)
    assert ended.returncode == -signal.SIGKILL
    assert RunFolder(path).summary["timesteps"] == 25
    assert list(RunFolder(path).samples()) == list(range(1, 40))
    Write().train(60, run_dir=path, resume=True)
    Write().train(60, run_dir=other)
    assert (path / "samples.jsonl").read_text() == (other / "samples.jsonl").read_text()


@pytest.mark.long
def test_any_text_can_be_kept(tmp_path: Path) -> None:
    agent = Write()
    for rows in ([row(1.0, HOSTILE), row(float("inf"), [1, 2])], [row(None, HOSTILE)], []):
        agent.loop.given = rows
        agent.train(1, callbacks=RunRecorder(tmp_path / "run", report=False))
    kept = lines(tmp_path / "run" / "samples.jsonl")
    assert [(one["rank"], one["completion"]) for one in kept] == [
        ("best", [1, 2]),
        ("worst", HOSTILE),
        ("unscored", HOSTILE),
    ]
    assert kept[0]["reward"] is None


def test_rows_that_say_nothing_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    path.write_text(
        '{"rank": "best"}\n[1]\n{"step": "x", "rank": "best"}\n{"step": 1, "rank": 3}\n'
    )
    assert RunFolder(tmp_path).samples() == {}


# Loggers


def test_the_console_prints_the_best_on_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    ConsoleLogger(0).on_samples(3, [row(0.0, "no"), row(0.5, "4")])
    ConsoleLogger(0).on_samples(4, [row(None, HOSTILE)])
    ConsoleLogger(0).on_samples(5, [row(1.0, "漢" * 100)])
    ConsoleLogger(0).on_samples(6, [])
    first, hostile, wide = capsys.readouterr().out.splitlines()
    assert first == "         3  best 0.5: 2+2= → 4"
    assert "unscored: 2+2= → </script>" in hostile
    assert len(hostile) == 60
    assert hostile.endswith("…")
    assert wide.endswith("漢…")
    assert 58 <= len(wide) + wide.count("漢") <= 60


def test_escape_sequences_are_only_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    ConsoleLogger(0).on_samples(1, [row(1.0, HOSTILE)])
    shown = capsys.readouterr().out
    assert shown.count("\n") == 1
    assert "\\n\\t a  b \\x00\\x1b[31m\\x9b\\u2028\\u202e \\ud83d é 漢" in shown
    assert all(one.isprintable() for one in shown[:-1])


def test_a_run_shows_samples_with_every_line_that_it_prints(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Write(logger=ConsoleLogger()).train(2)
    shown = capsys.readouterr().out.splitlines()
    assert shown[1].split()[:2] == ["step", "reward"]
    assert [line.split()[0] for line in (shown[0], *shown[2:])] == ["1", "1", "2", "2"]
    assert shown[3].startswith("         2  best 2: 2+2= → completion 2")


def test_tensorboard_gets_texts(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    logger = TensorBoardLogger(tmp_path, log_interval=2)
    for step in (1, 2):
        logger.on_samples(step, [row(0.0, "no\nway"), row(0.5, HOSTILE, finished=False)])
    logger.close()
    events = accumulator.EventAccumulator(str(tmp_path)).Reload()
    (event,) = events.Tensors("samples")
    text = event.tensor_proto.string_val[0].decode()
    assert event.step == 2
    assert "**best**: reward 0.5, 1 tokens, cut" in text
    assert "    no\n    way" in text
    assert "\\ud83d" in text


def test_wandb_gets_a_table_of_all_completions(monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[dict[str, Any]] = []

    class Service:
        id = "1"

        @staticmethod
        def init(**_: Any) -> Service:
            return Service()

        @staticmethod
        def Table(columns: list[str], data: list[list[Any]]) -> Any:  # noqa: N802 - its name
            return [dict(zip(columns, values, strict=True)) for values in data]

        def define_metric(self, *_: Any, **__: Any) -> None: ...
        def finish(self) -> None: ...
        def log(self, values: dict[str, Any]) -> None:
            logged.append(values)

    monkeypatch.setitem(sys.modules, "wandb", Service)
    logger = WandbLogger(log_interval=0)
    rows = [
        row(1.0, HOSTILE, rewards={"a": 1.0, "b": None}),
        row(0.0, [7], rewards={"a": 0, "b": 0}),
    ]
    logger.on_samples(4, rows)
    logger.close()
    ((first, second),) = (one["samples"] for one in logged)
    assert logged[0]["step"] == 4
    assert (second["completion"], second["reward_a"], second["finished"]) == ("7", 0, True)
    assert first["reward_b"] is None
    assert "\\ud83d" in first["completion"]


# What a step is decides how often


class Saving(Write):
    """Remembers when it was saved."""

    saves: list[int]

    def save(self, path: Any) -> None:
        self.saves.append(self.timesteps)
        super().save(path)


def test_runs_that_count_updates_are_saved_every_25(tmp_path: Path) -> None:
    agent = Saving()
    agent.saves = []
    agent.train(60, callbacks=RunRecorder(tmp_path / "run", report=False))
    assert agent.saves == [25, 50, 60]
    agent.saves = []
    agent.train(10, callbacks=CheckpointCallback(4, tmp_path / "own"))
    assert agent.saves == [64, 68]


class Judged(Write):
    """Can be evaluated, in words of its own."""

    def evaluate(self) -> None:
        raise AssertionError("asked in the words of users")

    def evaluate_in_run(self, n: int, *, env: Any, deterministic: bool) -> EvaluationResult:
        assert (n, env, deterministic) == (2, None, True)
        return EvaluationResult((0.5, 1.0), (3, 4), samples=(row(0.5, HOSTILE), row(1.0)))


def test_runs_that_count_updates_are_evaluated_every_ten(tmp_path: Path) -> None:
    evaluate = EvalCallback(n_eval_episodes=2)
    Judged().train(25, callbacks=[evaluate, RunRecorder(tmp_path / "run", report=False)])
    assert [one["step"] for one in evaluate.history] == [10, 20, 25]
    kept = lines(tmp_path / "run" / "evaluations.jsonl")
    assert kept[0]["samples"] == [row(0.5, HOSTILE), row(1.0)]
    (first, *_) = RunFolder(tmp_path / "run").evaluations()
    assert (first.mean, first.returns) == (0.75, (0.5, 1.0))


def test_an_evaluation_says_what_it_counts() -> None:
    assert str(EvaluationResult((1.0,), (3,))) == "1.00 ± 0.00 over 1 episode"
    written = EvaluationResult((1.0, 0.0), (3, 3), each="completion")
    assert str(written) == "0.50 ± 0.50 over 2 completions"
    assert HOSTILE not in repr(EvaluationResult((1.0,), (3,), samples=(row(1.0, HOSTILE),)))


def test_what_was_given_is_kept_whatever_a_step_is() -> None:
    given, left = Interval(7, name="x", reports=10), Interval(None, name="x", reports=10)
    assert left.every == 10 * Loop.log_every == 10_000
    for interval in (given, left):
        interval.start(0, 1)
    assert (given.every, left.every) == (7, 10)


def test_early_stopping_says_what_it_watched() -> None:
    agent = Write()
    agent.train(9, callbacks=EarlyStoppingCallback(patience=3))
    assert agent.stop_reason is not None
    assert "mean reward" in agent.stop_reason
