"""Loggers: what they write, and that it is still there after a kill and a resume."""

import csv
import json
import math
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sharpwave as sw
from sharpwave.runs.loggers import (
    ConsoleLogger,
    CSVLogger,
    JSONLLogger,
    LoggerCallback,
    LoggerList,
    MLflowLogger,
    TensorBoardLogger,
    WandbLogger,
)
from tests.unit.agents.small_runs import small_ppo

FileLogger = CSVLogger | JSONLLogger


def read(path: Path) -> list[dict[str, Any]]:
    """The rows of either kind of file, with numbers where there are any."""
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    with path.open() as file:
        return [
            {name: float(text) for name, text in row.items() if text}
            for row in csv.DictReader(file)
        ]


@pytest.fixture(params=["csv", "jsonl"])
def log_path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / "new" / f"metrics.{request.param}"


def make(path: Path) -> FileLogger:
    return CSVLogger(path) if path.suffix == ".csv" else JSONLLogger(path)


def test_every_row_is_in_the_file_at_once(log_path: Path) -> None:
    logger = make(log_path)
    for step in (128, 256):
        logger.on_train_step(step, {"loss": step / 3, "episodes": 2})
        assert read(log_path)[-1] == {"step": step, "loss": step / 3, "episodes": 2}
    assert len(read(log_path)) == 2
    logger.close()


def test_evaluations_get_rows_of_their_own(log_path: Path) -> None:
    logger = make(log_path)
    logger.on_train_step(128, {"loss": 0.5})
    logger.on_eval(128, {"eval_mean_return": 9.5})
    logger.on_train_step(256, {"loss": 0.25})
    logger.close()
    assert read(log_path) == [
        {"step": 128, "loss": 0.5},
        {"step": 128, "eval_mean_return": 9.5},
        {"step": 256, "loss": 0.25},
    ]


def test_numpy_numbers_are_numbers(log_path: Path) -> None:
    logger = make(log_path)
    logger.on_train_step(1, {"loss": np.float32(0.5), "updates": np.int64(3), "x": np.array(2.0)})
    logger.close()
    assert read(log_path) == [{"step": 1, "loss": 0.5, "updates": 3, "x": 2}]


def test_what_is_not_a_number_is_refused_by_name(log_path: Path) -> None:
    with pytest.raises(TypeError, match=r"metrics\['grads'\] must be a number, got ndarray"):
        make(log_path).on_train_step(1, {"grads": np.zeros(3)})


def test_a_logger_goes_on_after_close(log_path: Path) -> None:
    logger = make(log_path)
    logger.on_train_step(1, {"loss": 1.0})
    logger.close()
    logger.on_train_step(2, {"loss": 2.0})
    logger.close()
    assert [row["step"] for row in read(log_path)] == [1, 2]


def test_a_resumed_run_rewrites_what_lies_beyond_its_step(log_path: Path) -> None:
    logger = make(log_path)
    for step in (100, 200, 300):
        logger.on_train_step(step, {"loss": 1.0})
    logger.close()

    resumed = make(log_path)
    resumed.truncate_after(200)
    resumed.on_train_step(300, {"loss": 2.0, "new": 3.0})
    resumed.close()
    rows = read(log_path)
    assert [row["step"] for row in rows] == [100, 200, 300]
    assert rows[-1] == {"step": 300, "loss": 2.0, "new": 3.0}


def test_a_new_run_starts_a_new_log(log_path: Path) -> None:
    logger = make(log_path)
    logger.on_train_step(100, {"old": 1.0})
    logger.close()
    again = make(log_path)
    again.truncate_after(0)
    again.on_train_step(50, {"loss": 2.0})
    again.close()
    assert read(log_path) == [{"step": 50, "loss": 2.0}]
    assert "old" not in log_path.read_text()


def test_truncating_while_open_keeps_the_rows_before(log_path: Path) -> None:
    logger = make(log_path)
    logger.on_train_step(100, {"loss": 1.0})
    logger.on_train_step(200, {"loss": 2.0})
    logger.truncate_after(150)
    logger.on_train_step(160, {"loss": 3.0})
    logger.close()
    assert [row["step"] for row in read(log_path)] == [100, 160]


def test_a_missing_file_needs_no_truncation(log_path: Path) -> None:
    make(log_path).truncate_after(10)
    assert not log_path.exists()


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_row_torn_by_a_kill_goes_at_the_next_run(log_path: Path, cut: int) -> None:
    logger = make(log_path)
    logger.on_train_step(100, {"loss": 1.0})
    logger.on_train_step(200, {"loss": 2.0})
    logger.close()
    content = log_path.read_bytes()
    whole = content[: content.rindex(b"\n", 0, -1) + 1]
    log_path.write_bytes(content[: max(len(content) - cut, len(whole))])

    resumed = make(log_path)
    resumed.on_train_step(300, {"loss": 3.0})
    resumed.close()
    assert [row["step"] for row in read(log_path)] == [100, 300]


@pytest.mark.long
def test_a_killed_process_loses_nothing_it_logged(log_path: Path) -> None:
    program = (
        "import os, signal, sys\n"
        "from sharpwave.runs.loggers import CSVLogger, JSONLLogger\n"
        "path = sys.argv[1]\n"
        "logger = CSVLogger(path) if path.endswith('.csv') else JSONLLogger(path)\n"
        "for step in range(1, 51):\n"
        "    logger.on_train_step(step, {'loss': float(step)})\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    ended = subprocess.run([sys.executable, "-c", program, str(log_path)], check=False)
    assert ended.returncode == -9
    assert [row["step"] for row in read(log_path)] == list(range(1, 51))


@pytest.mark.parametrize("name", ["notes.csv", "notes.jsonl"])
def test_a_file_that_is_no_log_is_left_alone(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text("dear diary\n")
    with pytest.raises(ValueError, match="dear diary"):
        make(path).truncate_after(0)
    assert path.read_text() == "dear diary\n"


def test_a_column_that_appears_later_is_empty_before(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    logger = CSVLogger(path)
    logger.on_train_step(1, {"loss": 0.5})
    logger.on_train_step(2, {"kl": 0.1, "loss": math.nan})
    logger.close()
    assert path.read_text().splitlines() == ["step,loss,kl", "1,0.5,", "2,nan,0.1"]


def test_texts_are_quoted_where_they_must_be(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    logger = CSVLogger(path)
    logger.on_train_step(1, {"a, b": 'say "no",\nthen go', "none": None})
    logger.close()
    with path.open() as file:
        rows = list(csv.reader(file))
    assert rows == [["step", "a, b", "none"], ["1", 'say "no", then go', ""]]


def test_nan_and_infinity_are_null_in_json(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    logger = JSONLLogger(path)
    logger.on_train_step(1, {"a": math.nan, "b": math.inf, "c": 1.5})
    logger.close()
    assert json.loads(path.read_text()) == {"step": 1, "a": None, "b": None, "c": 1.5}


def test_the_console_prints_aligned_lines(capsys: pytest.CaptureFixture[str]) -> None:
    logger = ConsoleLogger(log_interval=1000)
    for step in range(512, 3072, 512):
        logger.on_train_step(
            step, {"loss": 0.123456, "mean_return": math.nan, "sps": 12345.6, "timesteps": step}
        )
    evaluated = {"eval_mean_return": -1133.2, "eval_std_return": 4.5, "eval_mean_length": 200.0}
    logger.on_eval(2560, {**evaluated, "eval_success_rate": 0.25})
    logger.close()
    assert capsys.readouterr().out.splitlines() == [
        "      step    return   steps/s      loss",
        "     1,024         -    12,346    0.1235",
        "     2,048         -    12,346    0.1235",
        "     2,560  evaluation: return -1,133 ± 4.5, length 200, success 0.25",
        "     2,560         -    12,346    0.1235",
    ]


@pytest.mark.parametrize(
    "value", [-0.00071472, -1.23456e-5, -1.2345e-12, 3.2e15, -4.567e123, -999999.9, 12345678.9]
)
def test_small_and_huge_numbers_stay_in_their_columns(
    value: float, capsys: pytest.CaptureFixture[str]
) -> None:
    """Small negative numbers were wider than their columns."""
    ConsoleLogger(log_interval=0).on_train_step(10, {"loss": value, "mean_return": value})
    header, line = capsys.readouterr().out.splitlines()
    assert len(header) == len(line)
    assert float(line.split()[1].replace(",", "")) == pytest.approx(value, rel=1e-2)


def test_the_console_keeps_to_the_width_of_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    metrics = {f"metric_{i}": float(i) for i in range(20)}
    ConsoleLogger(log_interval=0).on_train_step(10, {**metrics, "mean_return": 3.0})
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line) <= 60 for line in lines)
    assert lines[0].split()[:2] == ["step", "return"]


def test_the_console_counts_from_the_step_a_run_resumes_at(
    capsys: pytest.CaptureFixture[str],
) -> None:
    logger = ConsoleLogger(log_interval=1000)
    logger.truncate_after(50_000)
    logger.on_train_step(50_100, {"loss": 1.0})
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("interval", "error", "message"),
    [
        (-1, ValueError, "log_interval must be at least 0, got -1"),
        (0.5, TypeError, "log_interval must be an integer, got 0.5"),
    ],
)
def test_a_bad_interval_is_refused(interval: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ConsoleLogger(interval)


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(folder)).Reload()
    return {
        tag: [(event.step, event.value) for event in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
    }


def test_tensorboard_reads_what_was_logged(tmp_path: Path) -> None:
    logger = TensorBoardLogger(tmp_path, log_interval=0)
    logger.truncate_after(0)
    logger.log_config({"n_envs": 8, "hidden": (64, 64)})
    logger.on_train_step(128, {"loss": 0.5, "mean_return": math.nan})
    assert scalars(tmp_path) == {"train/loss": [(128, 0.5)]}
    logger.on_eval(128, {"eval_mean_return": 9.5})
    logger.on_train_step(256, {"loss": 0.25, "mean_return": 20.0})
    logger.close()
    assert scalars(tmp_path) == {
        "train/loss": [(128, 0.5), (256, 0.25)],
        "train/mean_return": [(256, 20.0)],
        "eval/mean_return": [(128, 9.5)],
    }


def test_tensorboard_gets_some_updates_and_the_last(tmp_path: Path) -> None:
    logger = TensorBoardLogger(tmp_path, log_interval=1000)
    for step in range(40, 2400, 40):
        logger.on_train_step(step, {"loss": 1.0})
    logger.close()
    assert [step for step, _ in scalars(tmp_path)["train/loss"]] == [1000, 2000, 2360]


def test_tensorboard_drops_what_a_resumed_run_writes_again(tmp_path: Path) -> None:
    logger = TensorBoardLogger(tmp_path, log_interval=0)
    for step in (100, 200, 300):
        logger.on_train_step(step, {"loss": 1.0})
    logger.close()
    logger.truncate_after(200)
    logger.on_train_step(300, {"loss": 2.0})
    logger.close()
    assert scalars(tmp_path)["train/loss"] == [(100, 1.0), (200, 1.0), (300, 2.0)]


@pytest.mark.parametrize(
    ("make_logger", "module", "extra"),
    [
        (TensorBoardLogger, "tensorboard", "tensorboard"),
        (lambda: WandbLogger("project"), "wandb", "wandb"),
        (MLflowLogger, "mlflow", "mlflow"),
    ],
)
def test_a_missing_library_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, make_logger: Any, module: str, extra: str
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == module]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf'pip install "sharpwave\[{extra}\]"'):
        make_logger()


@pytest.mark.integration
def test_wandb_gets_one_run_over_two_trainings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    logger = WandbLogger("tests", mode="offline", dir=str(tmp_path), log_interval=0)
    logger.log_config({"n_envs": 8})
    logger.on_train_step(100, {"loss": 0.5, "mean_return": math.nan})
    logger.on_eval(100, {"eval_mean_return": 9.5})
    assert dict(logger.run.config) == {"n_envs": 8}
    summary = dict(logger.run.summary)
    assert summary["step"] == 100
    assert summary["train/loss"] == 0.5
    assert summary["eval/mean_return"] == 9.5
    first = logger.run.id
    logger.close()
    logger.on_train_step(200, {"loss": 0.25})
    assert logger.run.id == first
    logger.close()


@pytest.mark.integration
def test_mlflow_gets_one_run_over_two_trainings(tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow")
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    logger = MLflowLogger("tests", tracking_uri=uri, log_interval=0)
    logger.log_config({"n_envs": 8})
    logger.on_train_step(100, {"loss": 0.5, "mean_return": math.nan})
    logger.on_eval(100, {"eval_mean_return": 9.5})
    logger.close()
    logger.log_config({"n_envs": 8, "gamma": 0.99})
    logger.on_train_step(200, {"loss": 0.25})
    logger.close()

    client = mlflow.MlflowClient(uri)
    run = client.get_run(logger.run_id)
    assert run.info.status == "FINISHED"
    assert run.data.params == {"n_envs": "8", "gamma": "0.99"}
    assert run.data.metrics == {"train/loss": 0.25, "eval/mean_return": 9.5}
    history = client.get_metric_history(logger.run_id, "train/loss")
    assert sorted((m.step, m.value) for m in history) == [(100, 0.5), (200, 0.25)]


def test_a_list_forwards_to_all_and_closes_all(tmp_path: Path) -> None:
    class Failing(LoggerCallback):
        def close(self) -> None:
            raise OSError("disk full")

    closed = []

    class Closing(LoggerCallback):
        def close(self) -> None:
            closed.append(True)

    path = tmp_path / "metrics.csv"
    loggers = LoggerList([Failing(), CSVLogger(path), Closing()])
    loggers.on_train_step(1, {"loss": 1.0})
    with pytest.raises(OSError, match="disk full"):
        loggers.close()
    assert read(path) == [{"step": 1, "loss": 1.0}]
    assert closed == [True]


def test_what_is_not_a_logger_is_refused() -> None:
    with pytest.raises(TypeError, match=r"loggers\[0\] must be a LoggerCallback, got 'csv'"):
        LoggerList(["csv"])  # type: ignore[list-item]


def test_a_run_logs_every_update_and_evaluation(log_path: Path) -> None:
    algo = small_ppo(logger=make(log_path))
    metrics = algo.train(384, callbacks=sw.EvalCallback(eval_freq=256, n_eval_episodes=2))
    rows = read(log_path)
    updates = [row for row in rows if "loss" in row]
    assert [row["step"] for row in updates] == [128, 256, 384]
    assert {name: updates[-1][name] for name in metrics} == metrics
    evaluated = [row["step"] for row in rows if "eval_mean_return" in row]
    assert evaluated == [256, 384]


def test_a_resumed_run_logs_as_if_it_had_never_stopped(log_path: Path, tmp_path: Path) -> None:
    saved = sw.CheckpointCallback(256, tmp_path)
    small_ppo(logger=make(log_path)).train(640, callbacks=saved)
    algo = sw.PPO.from_checkpoint(tmp_path / "checkpoint_256.safetensors", logger=make(log_path))
    algo.train()
    assert [row["step"] for row in read(log_path)] == [128, 256, 384, 512, 640]


def test_a_run_closes_what_tensorboard_writes(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    before = threading.active_count()
    algo = small_ppo(logger=TensorBoardLogger(tmp_path, log_interval=0))
    metrics = algo.train(256)
    assert threading.active_count() == before
    logged = scalars(tmp_path)
    assert {tag.removeprefix("train/") for tag in logged} == metrics.keys()
    step, loss = logged["train/loss"][-1]
    assert step == 256
    assert loss == pytest.approx(metrics["loss"])
