"""A run asks nothing of a learner that one without environments could not answer.

`Fit` has no spaces, no environments, no episodes and no `evaluate`; everything around training
works for it as it does for an agent.
"""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sharpwave as sw
from sharpwave.algorithms import registry
from sharpwave.algorithms.trainer import Trainer
from sharpwave.cli.main import main
from sharpwave.pages.report import write_comparison, write_learning_curve
from sharpwave.runs.callbacks import (
    CheckpointCallback,
    EarlyStoppingCallback,
    EvalCallback,
    ProgressCallback,
    StopOnReturn,
    TimingCallback,
    VideoCallback,
)
from sharpwave.runs.recorder import RunRecorder
from sharpwave.storage.run_folder import RunFolder
from tests.contract.fitting import Fit
from tests.unit.pages.report_pages import ReportPage, value_of

METRIC = "mean_squared_error"
NOT_REPEATABLE = ("seconds", "sps")


class Slowly(sw.Callback):
    """Gives others time to interrupt; the run itself is the same."""

    def on_train_batch(self, **_: Any) -> None:
        time.sleep(0.01)


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """Metrics of every update that do not depend on the clock."""
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    return [{k: v for k, v in row.items() if k not in NOT_REPEATABLE} for row in rows]


def visible(page: ReportPage) -> str:
    """The words of a page, without its script."""
    return page.text.partition('{"charts"')[0]


def errors_of(folder: Path) -> list[float]:
    return [row[METRIC] for row in rows_of(folder)]


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """`Fit` has a name in these tests alone."""
    monkeypatch.setitem(registry._OWN, Fit.name, Fit)


@pytest.fixture(autouse=True)
def no_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs draw no picture but where it is asked for."""
    monkeypatch.setattr("sharpwave.runs.recorder.find_spec", lambda _: None)


# Training


def test_it_learns_and_says_so(tmp_path: Path) -> None:
    fit = Fit()
    before = fit.progress_metrics()[METRIC]
    metrics = fit.train(40, run_dir=tmp_path / "run")
    assert (fit.timesteps, fit.updates, fit.progress_remaining) == (40, 40, 0.0)
    assert metrics[METRIC] == fit.progress_metrics()[METRIC] < before / 10
    assert [row["step"] for row in rows_of(tmp_path / "run")] == list(range(1, 41))


def test_the_folder_says_what_ran(tmp_path: Path) -> None:
    Fit(seed=5).train(3, run_dir=tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    told = folder.config
    assert (told["algorithm"], told["seed"], told["unit"]) == ("fit", 5, "updates")
    assert told["subject"] == "64 points of a plane"
    assert told["headline"]["metric"] == METRIC
    assert told["headline"]["lower_is_better"] is True
    assert "env" not in told
    assert (folder.summary["status"], folder.summary["timesteps"]) == ("finished", 3)
    assert "backend" not in folder.environment


def test_loggers_get_the_options_and_no_environment() -> None:
    class Log(sw.LoggerCallback):
        def __init__(self) -> None:
            self.config: dict[str, Any] = {}
            self.steps: list[int] = []

        def log_config(self, config: Any) -> None:
            self.config = dict(config)

        def on_train_step(self, step: int, metrics: Any) -> None:
            assert metrics[METRIC] > 0
            self.steps.append(step)

    log = Log()
    fit = Fit(logger=log)
    fit.train(3)
    assert log.config == fit.config.to_dict()
    assert log.steps == [1, 2, 3]


def test_own_numbers_are_recorded(tmp_path: Path) -> None:
    class Weight(sw.Callback):
        def on_train_batch(self, algo: Any) -> None:
            algo.record("first_weight", algo.weights[0])

    fit = Fit()
    fit.train(5, callbacks=Weight(), run_dir=tmp_path / "run")
    column = RunFolder(tmp_path / "run").metrics()["first_weight"]
    assert column[-1] == pytest.approx(fit.weights[0])


# Callbacks


def test_early_stopping_watches_its_metric(tmp_path: Path) -> None:
    stopping = EarlyStoppingCallback(patience=4)
    fit = Fit()
    fit.train(10_000, callbacks=stopping, run_dir=tmp_path / "run")
    errors = errors_of(tmp_path / "run")
    assert len(errors) < 10_000
    best = int(np.argmin(errors))
    assert stopping.best == errors[best]
    assert len(errors) - 1 - best == 4 == stopping.waited
    assert errors[:2] == sorted(errors[:2], reverse=True)  # falling is what it waits for


def test_early_stopping_goes_on_where_it_was(tmp_path: Path) -> None:
    whole = EarlyStoppingCallback(patience=3)
    Fit().train(10_000, callbacks=whole, run_dir=tmp_path / "whole")
    n = len(errors_of(tmp_path / "whole"))
    fit = Fit()
    fit.train(n - 2, callbacks=EarlyStoppingCallback(patience=3))
    fit.save(tmp_path / "fit.safetensors")
    resumed = EarlyStoppingCallback(patience=3)
    again = Fit.from_checkpoint(tmp_path / "fit.safetensors")
    again.train(10_000, callbacks=resumed)
    assert (again.updates, resumed.best, resumed.waited) == (n, whole.best, whole.waited)


def test_a_minimum_of_improvement_counts_downwards() -> None:
    demanding = EarlyStoppingCallback(patience=1, min_delta=1000.0)
    fit = Fit()
    fit.train(100, callbacks=demanding)
    assert fit.updates == 2


def test_progress_shows_its_unit_and_its_metric(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    fit = Fit()
    fit.train(40, callbacks=ProgressCallback(force=True))
    shown = capsys.readouterr().out
    value = fit.progress_metrics()[METRIC]
    assert "40/40 updates" in shown
    assert f"mean squared error {value:.4g}" in shown
    assert "updates/s" in shown
    assert "return" not in shown
    assert "length" not in shown


def test_checkpoints_are_kept(tmp_path: Path) -> None:
    Fit().train(20, callbacks=[CheckpointCallback(5, tmp_path, keep=2), TimingCallback()])
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "checkpoint_15.safetensors",
        "checkpoint_20.safetensors",
    ]


@pytest.mark.parametrize(
    "callback", [EvalCallback(), StopOnReturn(1.0), VideoCallback()], ids=lambda c: type(c).__name__
)
def test_what_needs_episodes_is_refused_before_the_first_step(callback: sw.Callback) -> None:
    fit = Fit()
    with pytest.raises(ValueError, match=f"{type(callback).__name__} needs a run with .*fit"):
        fit.train(5, callbacks=callback)
    assert fit.timesteps == 0


# Save, load, kill, resume


def test_a_saved_run_goes_on_exactly(tmp_path: Path) -> None:
    whole, part = Fit(seed=2), Fit(seed=2)
    whole.train(30)
    part.train(11)
    part.save(tmp_path / "fit.safetensors")
    again = Fit.from_checkpoint(tmp_path / "fit.safetensors")
    again.train(19)
    assert (again.timesteps, again.updates) == (30, 30)
    np.testing.assert_array_equal(again.weights, whole.weights)


@pytest.mark.long
def test_a_run_that_was_stopped_is_finished_by_the_same_program(tmp_path: Path) -> None:
    class StopAt(sw.Callback):
        def on_train_batch(self, step: int) -> bool:
            return step != 7

    whole = Fit()
    whole.train(20, run_dir=tmp_path / "whole")
    Fit().train(20, run_dir=tmp_path / "part", callbacks=StopAt(), resume=True)
    assert RunFolder(tmp_path / "part").summary["status"] == "stopped"
    again = Fit()
    again.train(20, run_dir=tmp_path / "part", resume=True)
    np.testing.assert_array_equal(again.weights, whole.weights)
    assert rows_of(tmp_path / "part") == rows_of(tmp_path / "whole")


def test_another_run_does_not_go_on_in_its_folder(tmp_path: Path) -> None:
    Fit(seed=1).train(3, run_dir=tmp_path / "run")
    other = Fit(seed=2)
    other.train(3)
    with pytest.raises(FileExistsError, match="seed is 1, not 2"):
        other.train(3, run_dir=tmp_path / "run")


@pytest.mark.long
def test_a_run_that_was_killed_goes_on_exactly(tmp_path: Path) -> None:
    run_dir = tmp_path / "killed"
    child = os.fork()
    if child == 0:
        recorder = RunRecorder(run_dir, checkpoint_freq=10, resume=True)
        Fit(seed=3).train(100, callbacks=[Slowly(), recorder])
        os._exit(0)
    rows = run_dir / "metrics.jsonl"
    while not rows.exists() or rows.read_text().count("\n") < 25:
        assert os.waitpid(child, os.WNOHANG) == (0, 0)
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
    assert 20 <= Fit.from_checkpoint(RunFolder(run_dir).latest_checkpoint).timesteps < 100

    whole, again = Fit(seed=3), Fit(seed=3)
    whole.train(100, callbacks=RunRecorder(tmp_path / "whole", report=False))
    again.train(100, run_dir=run_dir, resume=True)
    np.testing.assert_array_equal(again.weights, whole.weights)
    assert rows_of(run_dir) == rows_of(tmp_path / "whole")
    with (run_dir / "metrics.csv").open(newline="") as file:
        assert [int(row["step"]) for row in csv.DictReader(file)] == list(range(1, 101))
    assert RunFolder(run_dir).summary["status"] == "finished"


ALONE = """
import sys
for name in ("gymnasium", "torch"):
    sys.modules[name] = None  # cannot be imported
from sharpwave.cli.main import main
from tests.contract.fitting import Fit
Fit().train(20, run_dir=sys.argv[1])
Fit().train(30, run_dir=sys.argv[1], resume=True)
assert main(["report", sys.argv[1]]) == 0
"""


@pytest.mark.long
def test_it_needs_neither_gymnasium_nor_torch(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", ALONE, str(tmp_path / "run")], check=True)
    assert RunFolder(tmp_path / "run").summary["timesteps"] == 30


# Reports


def test_the_report_shows_its_metric_over_its_unit(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    Fit().train(30, run_dir=run_dir)
    page, errors = ReportPage(run_dir / "report.html"), errors_of(run_dir)
    assert page.text.strip().startswith("FIT on 64 points of a plane")
    (curve,) = page.charts[0]["series"]
    assert (curve["name"], page.charts[0]["xName"]) == ("mean squared error", "update")
    assert curve["x"] == list(range(1, 31))
    assert curve["y"] == pytest.approx(errors, rel=1e-4)
    assert page.hints["Mean squared error"] == "lower is better; over updates"
    value, best = page.tiles["Mean squared error"]
    assert value_of(value) == pytest.approx(errors[-1], rel=0.01)
    at = int(np.argmin(errors))
    assert best.endswith(f"at step {at + 1}")
    assert page.tiles["Updates"] == ("30", "")
    assert page.tiles["Speed"][1] == "updates per second"
    assert {"Loss", "Gradient norm"} <= page.captions.keys()
    assert "Mean squared error" not in page.captions  # which is large already
    for word in ("nvironment step", "episode", "Episode", "return"):
        assert word not in visible(page)


@pytest.mark.long
def test_the_picture_is_of_its_metric(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.axes import Axes

    said: list[str] = []
    drawn: list[Any] = []
    for name in ("set_xlabel", "set_ylabel"):
        monkeypatch.setattr(Axes, name, lambda _, label, **__: said.append(label))
    monkeypatch.setattr(Axes, "plot", lambda _, x, y, **__: drawn.append((x, y)))
    Fit().train(20, callbacks=RunRecorder(tmp_path / "run", report=False))
    assert write_learning_curve(tmp_path / "run").stat().st_size > 1000
    assert said == ["updates", "mean squared error"]
    np.testing.assert_allclose(drawn[0][1], errors_of(tmp_path / "run"))


@pytest.mark.long
def test_runs_are_compared_by_their_metric(tmp_path: Path) -> None:
    """The lower error is the better one."""
    finals: dict[float, list[float]] = {}
    folders = []
    for rate in (0.1, 0.01):
        for seed in range(3):
            folders.append(tmp_path / f"{rate}_{seed}")
            recorder = RunRecorder(folders[-1], report=False)
            Fit(seed=seed, learning_rate=rate).train(20, callbacks=recorder)
            finals.setdefault(rate, []).append(errors_of(folders[-1])[-1])
    assert max(finals[0.1]) < min(finals[0.01])
    page = ReportPage(write_comparison(folders, tmp_path / "comparison.html"))
    assert page.text.strip().startswith("FIT on 64 points of a plane")
    assert page.hints["Mean squared error"].endswith("; lower is better; over updates")
    for curve in page.charts[0]["series"]:
        assert curve["x"] == list(range(1, 21))  # a point for a step, though there could be more
    head, *rows = next(table for table in page.tables if "IQM" in table[0])
    assert [row[0] for row in rows] == ["FIT learning_rate=0.1", "FIT learning_rate=0.01"]
    for row, scores in zip(rows, finals.values(), strict=True):
        assert value_of(row[head.index("Best")]) == pytest.approx(min(scores), rel=0.01)
        assert value_of(row[head.index("Worst")]) == pytest.approx(max(scores), rel=0.01)
    good, bad = (row[0] for row in rows)
    improvement = next(table for table in page.tables if table[0][1:] == [good, bad])
    assert improvement[1][2] == "100 %"
    assert improvement[2][1] == "0 %"
    profile = page.charts[1]
    assert profile["xName"] == "score below"
    shares = {
        one["name"]: np.interp(0.5 * (max(finals[0.1]) + min(finals[0.01])), one["x"], one["y"])
        for one in profile["series"]
    }
    assert shares == {good: 1, bad: 0}  # of the runs whose error is below
    assert {row["Subject"] for row in page.table("Run")} == {"64 points of a plane"}
    for word in ("nvironment", "episode", "Episode", "return"):
        assert word not in visible(page)


@pytest.mark.long
def test_it_is_compared_apart_from_agents(tmp_path: Path) -> None:
    Fit().train(5, run_dir=tmp_path / "fit")
    sw.PPO("CartPole-v1", n_envs=2, n_steps=16, hidden=(8,)).train(64, run_dir=tmp_path / "ppo")
    folders = [tmp_path / "fit", tmp_path / "ppo"]
    page = ReportPage(write_comparison(folders, tmp_path / "comparison.html"))
    assert page.text.strip().startswith("FIT, PPO on 64 points of a plane, CartPole-v1")
    assert page.hints["Mean squared error"].endswith("over updates")
    assert page.hints["Episode return"].endswith("over environment steps")


# The trainer and the command line


def test_a_trainer_takes_it_by_its_name(tmp_path: Path) -> None:
    trainer = Trainer("fit", seed=4, config={"learning_rate": 0.05}, run_dir=tmp_path / "run")
    trainer.train(10)
    assert (trainer.env, trainer.algo.config.seed) == (None, 4)
    trainer.save(tmp_path / "fit.safetensors")
    again = Trainer.from_checkpoint(tmp_path / "fit.safetensors")
    assert again.algo.timesteps == 10
    for call in (trainer.evaluate, trainer.enjoy, lambda: trainer.predict(np.zeros(3))):
        with pytest.raises(TypeError, match=r"fit has no (evaluate|predict)"):
            call()
    for trained in (trainer, again):
        trained.close()
    with pytest.raises(TypeError, match="env must not be given"):
        Trainer("fit", env="CartPole-v1")
    with pytest.raises(TypeError, match="dataset must not be given"):
        Trainer("fit", dataset={})


def train(run_dir: Path, *options: str) -> int:
    return main(["train", "fit", "--run-dir", str(run_dir), *options])


@pytest.mark.long
def test_the_command_line_trains_and_resumes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_dir = tmp_path / "run"
    assert train(run_dir, "--total-timesteps", "15", "--seed", "7", "--learning-rate", "0.2") == 0
    said = capsys.readouterr().out
    assert "fit on 64 points of a plane, seed 7, to 15 updates" in said
    assert "15 updates in " in said
    assert main(["resume", str(run_dir)]) == 0
    assert f"{run_dir}: complete at 15 updates" in capsys.readouterr().out
    assert main(["resume", str(run_dir), "--total-timesteps", "30"]) == 0
    assert "from 15 to 30 updates" in capsys.readouterr().out
    whole = Fit(seed=7, learning_rate=0.2)
    whole.train(30)
    again = Fit.from_checkpoint(RunFolder(run_dir).latest_checkpoint)
    np.testing.assert_array_equal(again.weights, whole.weights)
    (run_dir / "plan.json").unlink()
    assert main(["resume", str(run_dir), "--total-timesteps", "31", "--quiet"]) == 0
    assert RunFolder(run_dir).summary["timesteps"] == 31


@pytest.mark.long
def test_the_command_line_compares_seeds_and_reports(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_dir = tmp_path / "run"
    assert train(run_dir, "--total-timesteps", "5", "--seeds", "3,5", "--quiet") == 0
    assert ReportPage(run_dir / "comparison.html").text.strip().startswith("FIT on")
    (run_dir / "seed_3" / "report.html").unlink()
    assert main(["report", str(run_dir / "seed_3")]) == 0
    assert (run_dir / "seed_3" / "report.html").is_file()
    assert main(["list", "algorithms"]) == 0
    assert "Linear regression by stochastic" in capsys.readouterr().out


def test_the_command_line_says_what_it_cannot_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_dir = tmp_path / "run"
    assert train(run_dir, "--total-timesteps", "3", "--quiet") == 0
    for command in ("eval", "enjoy"):
        assert main([command, str(run_dir)]) == 2
        assert "fit, which plays no episodes" in capsys.readouterr().err
    assert main(["bench", "fit", "CartPole-v1"]) == 2
    assert "fit acts in no environment" in capsys.readouterr().err
    assert main(["train", "fit", "CartPole-v1"]) == 2
    assert "unexpected argument 'CartPole-v1'" in capsys.readouterr().err
    assert main(["train", "fit", "--env-kwargs", "a=1"]) == 2
    assert "unknown option --env-kwargs" in capsys.readouterr().err


@pytest.mark.long
def test_a_module_brings_its_algorithm_along(tmp_path: Path) -> None:
    """As one that registers environments does; a file alone may not import it."""
    root = str(Path(__file__).parents[2])
    code = "from sharpwave.algorithms import register\nfrom tests.contract.fitting import Fit\n"
    (tmp_path / "own.py").write_text(f"{code}register(Fit)\n")
    environment = {**os.environ, "PYTHONPATH": root}

    def sharpwave(*arguments: str) -> int:
        command = [sys.executable, "-m", "sharpwave", *arguments, "--quiet"]
        return subprocess.run(command, cwd=tmp_path, env=environment, check=False).returncode

    assert sharpwave("train", "fit", "--run-dir", "run", "--total-timesteps", "5") == 2
    imported = ("--import", "own")
    assert sharpwave("train", "fit", "--run-dir", "run", "--total-timesteps", "5", *imported) == 0
    longer = ("resume", "run", "--total-timesteps", "9")
    assert sharpwave(*longer) == 2
    assert sharpwave(*longer, *imported) == 0
    assert RunFolder(tmp_path / "run").summary["timesteps"] == 9


def test_an_algorithm_may_not_take_the_name_of_another() -> None:
    from sharpwave.algorithms import register

    with pytest.raises(ValueError, match="'ppo'"):
        register(type("Mine", (Fit,), {"name": "ppo"}))
