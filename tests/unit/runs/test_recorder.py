import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

from sharpwave.algorithms.ppo import PPO
from sharpwave.pages.report import write_report
from sharpwave.runs.callbacks import Callback, EvalCallback
from sharpwave.runs.recorder import RunRecorder
from sharpwave.storage.run_folder import RunFolder

STEPS = 4 * 16


def small_ppo(**options: Any) -> PPO:
    return PPO("CartPole-v1", **({"n_envs": 4, "n_steps": 16, "batch_size": 32} | options))


class At(Callback):
    """Does something once, at the first update boundary after some steps."""

    def __init__(self, at: int, act: Any) -> None:
        self.at, self.act = at, act

    def on_train_batch(self, *, algo: Any, step: int, **_: Any) -> None:
        if step >= self.at:
            self.act(algo)


def fail(_: Any) -> None:
    raise RuntimeError("out of luck")


def record(path: Path, steps: int = 5 * STEPS, *extra: Callback, **options: Any) -> RunFolder:
    callbacks = [*extra, RunRecorder(path, **({"checkpoint_freq": 2 * STEPS} | options))]
    algo = small_ppo(seed=42)
    try:
        algo.train(steps, callbacks=callbacks)
    finally:
        algo.close()
    return RunFolder(path)


@pytest.mark.long
def test_a_folder_that_says_neither_unit_nor_headline_goes_on(tmp_path: Path) -> None:
    """Runs were recorded before these were written down; they were in environments."""
    folder = record(tmp_path / "run", 2 * STEPS, report=False)
    told = {k: v for k, v in folder.config.items() if k not in ("unit", "subject", "headline")}
    folder.config_file.write_text(json.dumps(told))
    page = write_report(folder.path).read_text()
    assert "PPO on CartPole-v1" in page
    assert "over environment steps" in page
    small_ppo().train(4 * STEPS, run_dir=folder.path, resume=True)
    assert folder.metrics()["step"].tolist() == [STEPS * i for i in range(1, 5)]
    assert folder.config["unit"] == "environment steps"
    assert folder.config["headline"]["metric"] == "mean_return"


@pytest.mark.long
def test_folder_holds_everything_about_the_run(tmp_path: Path) -> None:
    evaluate = EvalCallback(eval_freq=2 * STEPS, n_eval_episodes=3)
    folder = record(tmp_path / "run", 5 * STEPS, evaluate)
    names = {str(file.relative_to(folder.path)) for file in folder.path.rglob("*")}
    assert names >= {
        "config.json",
        "environment.json",
        "metrics.csv",
        "metrics.jsonl",
        "evaluations.jsonl",
        "summary.json",
        "report.html",
        "checkpoints/latest.safetensors",
        "checkpoints/best.safetensors",
    }
    assert not [name for name in names if name.endswith(".tmp")]
    config = folder.config
    assert (config["algorithm"], config["env"], config["seed"]) == ("ppo", "CartPole-v1", 42)
    assert config["config"]["n_steps"] == 16
    assert set(config["changed"]) == {"n_envs", "n_steps", "batch_size", "seed"}
    assert folder.metrics()["step"].tolist() == [STEPS * i for i in range(1, 6)]
    assert (folder.metrics()["seconds"] > 0).all()
    assert [one.step for one in folder.evaluations()] == [2 * STEPS, 4 * STEPS, 5 * STEPS]
    assert all(len(one.returns) == 3 for one in folder.evaluations())
    summary = folder.summary
    assert (summary["status"], summary["reason"]) == ("finished", None)
    assert summary["timesteps"] == 5 * STEPS
    assert summary["metrics"]["updates"] == 5
    assert set(summary["timings"]) >= {"collect", "update", "callbacks"}
    best = max(one.mean for one in folder.evaluations())
    assert summary["best_evaluation"]["mean"] == best
    assert summary["final_evaluation"]["n_episodes"] == 3


@pytest.mark.long
def test_csv_and_json_lines_hold_the_same_rows(tmp_path: Path) -> None:
    folder = record(tmp_path)
    with folder.metrics_csv.open() as file:
        table = list(csv.DictReader(file))
    lines = [json.loads(line) for line in folder.metrics_jsonl.read_text().splitlines()]
    for row, line in zip(table, lines, strict=True):
        assert int(row["step"]) == line["step"]
        assert float(row["value_loss"]) == line["value_loss"]


@pytest.mark.long
def test_checkpoints_of_the_folder_can_be_loaded(tmp_path: Path) -> None:
    evaluate = EvalCallback(eval_freq=2 * STEPS, n_eval_episodes=1)
    folder = record(tmp_path, 5 * STEPS, evaluate)
    best = max(folder.evaluations(), key=lambda one: one.mean)
    for path, steps in (
        (folder.latest_checkpoint, 5 * STEPS),
        (folder.best_checkpoint, best.step),
    ):
        algo = PPO.from_checkpoint(path)
        assert algo.timesteps == steps
        algo.close()


@pytest.mark.parametrize(
    ("options", "first_save"),
    [
        ({"checkpoint_seconds": 30.0}, 35.0),
        ({"checkpoint_freq": 1, "checkpoint_seconds": 1e9}, 7.0),
    ],
)
def test_saves_that_take_long_are_seldom(
    options: dict[str, Any], first_save: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sharpwave.runs.recorder.SLOW_SAVE", 0.1)
    now = 0.0
    saved_at: list[float] = []

    class Slow(PPO):
        def save(self, path: Any) -> None:
            nonlocal now
            super().save(path)
            saved_at.append(now)
            now += 10.0

    class Wait(Callback):
        def on_train_batch(self, **_: Any) -> None:
            nonlocal now
            now += 7.0

    clock = SimpleNamespace(perf_counter=lambda: now)
    monkeypatch.setattr("sharpwave.runs.recorder.time", clock)
    algo = Slow("CartPole-v1", n_envs=1, n_steps=4, hidden=(4,))
    recorder = RunRecorder(tmp_path, report=False, **options)
    algo.train(4 * 80, callbacks=[Wait(), recorder])
    first, second, third, *_ = saved_at
    assert first == first_save
    assert second - first == third - second == 10.0 + 203.0  # 20 times what a save takes


@pytest.mark.long
def test_a_run_that_was_stopped_before_its_first_update_begins_anew(tmp_path: Path) -> None:
    class Stop(Callback):
        def on_training_start(self, *, algo: Any, **_: Any) -> None:
            algo.request_stop("at once")

    small_ppo().train(128, run_dir=tmp_path, callbacks=Stop())
    again = PPO.from_checkpoint(tmp_path / "checkpoints" / "latest.safetensors")
    again.train(128, run_dir=tmp_path)
    assert RunFolder(tmp_path).summary["timesteps"] == 128


def test_latest_checkpoint_is_renewed_on_the_way(tmp_path: Path) -> None:
    seen = []

    class Look(Callback):
        goes_last = True

        def on_train_batch(self, *, step: int, **_: Any) -> None:
            if (tmp_path / "checkpoints" / "latest.safetensors").exists():
                seen.append((step, RunFolder(tmp_path).summary["timesteps"]))

    recorder = RunRecorder(tmp_path, checkpoint_freq=2 * STEPS, report=False)
    algo = small_ppo()
    algo.train(5 * STEPS, callbacks=[recorder, Look()])
    algo.close()
    assert seen[:3] == [(2 * STEPS, 2 * STEPS), (3 * STEPS, 2 * STEPS), (4 * STEPS, 4 * STEPS)]


@pytest.mark.long
def test_a_run_that_goes_on_is_refused_the_folder_of_another(tmp_path: Path) -> None:
    folder = record(tmp_path, STEPS)
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    algo = PPO.from_checkpoint(folder.latest_checkpoint, seed=7)
    with pytest.raises(FileExistsError, match="holds a run whose seed is 42, not 7"):
        algo.train(STEPS, run_dir=tmp_path)
    algo.close()
    assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == before


@pytest.mark.long
def test_resumed_run_continues_its_files_and_cuts_what_came_after(tmp_path: Path) -> None:
    evaluate = EvalCallback(eval_freq=STEPS, n_eval_episodes=1)
    folder = record(tmp_path, 3 * STEPS, evaluate)
    whole = folder.metrics()
    kept = tmp_path / "kept.safetensors"
    kept.write_bytes(folder.latest_checkpoint.read_bytes())
    for _ in range(2):
        algo = PPO.from_checkpoint(kept)
        algo.train(2 * STEPS, callbacks=[EvalCallback(eval_freq=STEPS)], run_dir=tmp_path)
        algo.close()
        metrics = folder.metrics()
        assert metrics["step"].tolist() == [STEPS * i for i in range(1, 6)]
        assert metrics["policy_loss"][:3].tolist() == whole["policy_loss"].tolist()
        assert (metrics["seconds"][1:] > metrics["seconds"][:-1]).all()
        assert [one.step for one in folder.evaluations()] == [STEPS * i for i in range(1, 6)]
        with folder.metrics_csv.open() as file:
            assert [int(row["step"]) for row in csv.DictReader(file)] == [
                STEPS * i for i in range(1, 6)
            ]
    assert folder.environment["resumed_at"] == [3 * STEPS, 3 * STEPS]
    assert folder.summary["timesteps"] == 5 * STEPS


@pytest.mark.long
def test_best_policy_of_steps_that_are_cut_keeps_its_file(tmp_path: Path) -> None:
    folder = record(tmp_path, 2 * STEPS)
    line = {"step": 9 * STEPS, "mean": 1e6, "std": 0, "mean_length": 1, "returns": [1e6]}
    folder.evaluations_file.write_text(json.dumps(line) + "\n")
    folder.best_checkpoint.write_bytes(b"the best")
    algo = PPO.from_checkpoint(folder.latest_checkpoint)
    algo.train(STEPS, callbacks=[EvalCallback(eval_freq=STEPS)], run_dir=tmp_path)
    algo.close()
    aside = folder.checkpoints / f"best_of_step_{9 * STEPS}.safetensors"
    assert aside.read_bytes() == b"the best"
    assert folder.summary["best_evaluation"]["step"] == 3 * STEPS


@pytest.mark.long
def test_second_training_of_one_algorithm_goes_on_in_the_folder(tmp_path: Path) -> None:
    algo = small_ppo()
    algo.train(2 * STEPS, run_dir=tmp_path)
    algo.train(STEPS, run_dir=tmp_path)
    algo.close()
    assert RunFolder(tmp_path).metrics()["step"].tolist() == [STEPS, 2 * STEPS, 3 * STEPS]


@pytest.mark.long
def test_stopped_run_says_why(tmp_path: Path) -> None:
    stop = At(2 * STEPS, lambda algo: algo.request_stop("enough"))
    folder = record(tmp_path, 5 * STEPS, stop)
    assert (folder.summary["status"], folder.summary["reason"]) == ("stopped", "enough")
    assert "stopped: enough" in folder.report_file.read_text()


@pytest.mark.long
def test_failed_run_keeps_its_last_checkpoint_and_says_why(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="out of luck"):
        record(tmp_path, 5 * STEPS, At(3 * STEPS, fail))
    folder = RunFolder(tmp_path)
    assert folder.summary["status"] == "failed"
    assert folder.summary["reason"] == "RuntimeError: out of luck"
    assert "failed: RuntimeError: out of luck" in folder.report_file.read_text()
    algo = PPO.from_checkpoint(folder.latest_checkpoint)
    assert algo.timesteps == 2 * STEPS
    algo.close()


@pytest.mark.long
def test_run_without_a_checkpoint_starts_over_in_its_folder(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="out of luck"):
        record(tmp_path, 5 * STEPS, At(STEPS, fail))
    folder = record(tmp_path, 2 * STEPS)
    assert folder.metrics()["step"].tolist() == [STEPS, 2 * STEPS]
    assert folder.summary["status"] == "finished"


@pytest.mark.long
def test_killed_run_leaves_a_folder_that_can_be_reported_and_resumed(tmp_path: Path) -> None:
    code = (
        "import sys; from sharpwave.algorithms.ppo import PPO\n"
        "from sharpwave.runs.recorder import RunRecorder\n"
        "algo = PPO('CartPole-v1', n_envs=4, n_steps=16, batch_size=32)\n"
        "algo.train(10**8, callbacks=[RunRecorder(sys.argv[1], checkpoint_freq=64)])"
    )
    run = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], env=dict(os.environ))
    folder = RunFolder(tmp_path)
    deadline = time.monotonic() + 120
    while not folder.latest_checkpoint.exists():
        assert run.poll() is None, "it ended by itself"
        assert time.monotonic() < deadline
        time.sleep(0.02)
    run.send_signal(signal.SIGKILL)
    run.wait()
    assert folder.summary["status"] == "running"
    assert "no end on record" in write_report(tmp_path).read_text()
    algo = PPO.from_checkpoint(folder.latest_checkpoint)
    start = algo.timesteps
    algo.train(STEPS, run_dir=tmp_path)
    algo.close()
    assert folder.metrics()["step"].tolist() == list(range(STEPS, start + STEPS + 1, STEPS))
    assert folder.summary["status"] == "finished"


def test_report_that_cannot_be_written_does_not_cost_the_run(tmp_path: Path) -> None:
    in_the_way = At(STEPS, lambda _: (tmp_path / "report.html").mkdir())
    with pytest.warns(UserWarning, match="no report of"):
        folder = record(tmp_path, STEPS, in_the_way)
    assert folder.summary["status"] == "finished"


def test_bad_frequency_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="checkpoint_freq must be at least 1, got 0"):
        RunRecorder(tmp_path, checkpoint_freq=0)
