"""Callbacks in real runs: called when and with what they are promised."""

from __future__ import annotations

import contextlib
import math
import os
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import sharpwave as sw
from sharpwave.runs.callbacks import (
    Callback,
    CheckpointCallback,
    EarlyStoppingCallback,
    EvalCallback,
    ProgressBarCallback,
    ProgressCallback,
    StopOnReturn,
    TimingCallback,
    VideoCallback,
    VideoRecordingCallback,
)
from tests.unit.agents.small_runs import STEPS_PER_UPDATE, Alike, small_ppo

METRICS = {
    "loss",
    "policy_loss",
    "value_loss",
    "entropy",
    "approx_kl",
    "clip_fraction",
    "explained_variance",
    "grad_norm",
    "learning_rate",
    "mean_return",
    "mean_length",
    "episodes",
    "timesteps",
    "updates",
    "sps",
}


class Spy(Callback):
    """Records every call, and stops where it is told to."""

    def __init__(self, stop_in: str = "") -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.stop_in = stop_in

    def _record(self, hook: str, kwargs: dict[str, Any]) -> bool | None:
        self.calls.append((hook, kwargs))
        return False if hook == self.stop_in else None

    def on_training_start(self, **kwargs: Any) -> None:
        self._record("on_training_start", kwargs)

    def on_step(self, **kwargs: Any) -> bool | None:
        return self._record("on_step", kwargs)

    def on_rollout_end(self, **kwargs: Any) -> bool | None:
        return self._record("on_rollout_end", kwargs)

    def on_train_batch(self, **kwargs: Any) -> bool | None:
        return self._record("on_train_batch", kwargs)

    def on_eval(self, **kwargs: Any) -> bool | None:
        return self._record("on_eval", kwargs)

    def on_training_end(self, **kwargs: Any) -> None:
        self._record("on_training_end", kwargs)

    def of(self, hook: str) -> list[dict[str, Any]]:
        return [kwargs for name, kwargs in self.calls if name == hook]


def weights(algo: sw.PPO) -> np.ndarray[Any, Any]:
    return np.array(algo.block)


def test_every_hook_gets_what_it_is_promised() -> None:
    spy = Spy()
    algo = small_ppo(Alike, callbacks=spy)
    metrics = algo.train(300)

    assert all(call["algo"] is algo for _, call in spy.calls)
    assert [call["step"] for call in spy.of("on_step")] == list(range(4, 385, 4))
    assert {call["reward"] for call in spy.of("on_step")} == {0.5}
    (start,) = spy.of("on_training_start")
    assert (start["step"], start["total_timesteps"]) == (0, 300)
    rollouts = spy.of("on_rollout_end")
    assert [(call["step"], call["update"]) for call in rollouts] == [(128, 0), (256, 1), (384, 2)]
    assert [call["mean_return"] for call in rollouts] == [4.0, 4.0, 4.0]
    batches = spy.of("on_train_batch")
    assert [call["step"] for call in batches] == [128, 256, 384]
    assert all(call.keys() - {"algo", "step"} >= METRICS for call in batches)
    assert all(isinstance(call[name], float) for call in batches for name in METRICS)
    (end,) = spy.of("on_training_end")
    assert (end["step"], end["metrics"]) == (384, metrics)
    order = [hook for hook, _ in spy.calls if hook != "on_step"]
    update = ["on_rollout_end", "on_train_batch"]
    assert order == ["on_training_start", *update * 3, "on_training_end"]


def test_a_second_run_goes_on_counting() -> None:
    spy = Spy()
    algo = small_ppo(Alike)
    algo.train(128)
    algo.train(128, callbacks=spy)
    assert spy.of("on_training_start")[0]["step"] == 128
    assert spy.of("on_training_start")[0]["total_timesteps"] == 256
    assert [call["step"] for call in spy.of("on_train_batch")] == [256]


@pytest.mark.parametrize(
    ("hook", "steps"),
    [("on_step", 4), ("on_rollout_end", 128), ("on_train_batch", 128), ("on_eval", 256)],
)
def test_a_hook_that_returns_false_stops_the_run(hook: str, steps: int) -> None:
    spy = Spy(stop_in=hook)
    algo = small_ppo(Alike)
    algo.train(10_000, callbacks=[spy, EvalCallback(eval_freq=256, n_eval_episodes=1)])
    assert algo.timesteps == steps
    assert len(spy.of(hook)) == 1
    assert algo.stop_reason == f"Spy.{hook} returned False"
    assert len(spy.of("on_training_end")) == 1


def test_a_stopped_run_can_go_on() -> None:
    algo = small_ppo(Alike)
    algo.train(512, callbacks=Spy(stop_in="on_step"))
    algo.train(256)
    assert algo.timesteps >= 256
    assert algo.stop_reason is None


def test_an_exception_ends_the_run_with_the_callback_named() -> None:
    class Broken(Callback):
        def on_train_batch(self, **kwargs: Any) -> None:
            raise ZeroDivisionError("oops")

    spy = Spy()
    with pytest.raises(ZeroDivisionError, match="oops") as caught:
        small_ppo(Alike).train(512, callbacks=[spy, Broken()])
    assert vars(caught.value)["__notes__"] == ["raised by Broken.on_train_batch at step 128"]
    assert len(spy.of("on_training_end")) == 1


@pytest.mark.parametrize(
    ("eval_freq", "steps"),
    [(1, [128, 256, 384, 512]), (200, [256, 512]), (300, [384, 512]), (512, [512]), (9999, [512])],
)
def test_evaluations_come_every_so_many_steps_and_last(eval_freq: int, steps: list[int]) -> None:
    callback = EvalCallback(eval_freq=eval_freq, n_eval_episodes=2)
    small_ppo(Alike).train(512, callbacks=callback)
    assert [entry["step"] for entry in callback.history] == steps


def test_an_evaluation_reaches_callbacks_and_loggers() -> None:
    rows: list[tuple[int, dict[str, float]]] = []

    class Rows(sw.LoggerCallback):
        def on_eval(self, step: int, metrics: Any) -> None:
            rows.append((step, dict(metrics)))

    spy = Spy()
    callback = EvalCallback(eval_freq=256, n_eval_episodes=3)
    small_ppo(Alike, logger=Rows()).train(256, callbacks=[spy, callback])
    (call,) = spy.of("on_eval")
    assert call["step"] == 256
    assert call["result"].returns == (4.0, 4.0, 4.0)
    assert rows == [
        (256, {"eval_mean_return": 4.0, "eval_std_return": 0.0, "eval_mean_length": 8.0})
    ]
    assert callback.history == [{"step": 256, "mean": 4.0, "std": 0.0, "mean_length": 8.0}]


def test_an_evaluation_plays_the_environment_it_is_given() -> None:
    callback = EvalCallback(partial(Alike, length=3, reward=2.0), 128, n_eval_episodes=2)
    small_ppo(Alike).train(128, callbacks=callback)
    assert callback.best_mean_return == callback.best_mean_reward == 6.0


@pytest.mark.parametrize("deterministic", [True, False])
def test_evaluations_do_not_change_the_training(deterministic: bool) -> None:
    plain, evaluated = small_ppo(), small_ppo()
    plain.train(512)
    callback = EvalCallback(eval_freq=128, n_eval_episodes=3, deterministic=deterministic)
    evaluated.train(512, callbacks=callback)
    assert len(callback.history) == 4
    assert np.array_equal(weights(plain), weights(evaluated))


def test_the_best_policy_is_saved(tmp_path: Path) -> None:
    callback = EvalCallback(eval_freq=128, n_eval_episodes=4, best_model_path=tmp_path / "a" / "b")
    algo = small_ppo()
    algo.train(1024, callbacks=callback)
    best = max(callback.history, key=lambda entry: entry["mean"])
    loaded = sw.PPO.from_checkpoint(tmp_path / "a" / "b")
    assert loaded.timesteps == best["step"]
    assert loaded.evaluate(4).mean == best["mean"] == callback.best_mean_return


def test_the_best_policy_goes_into_a_folder(tmp_path: Path) -> None:
    callback = EvalCallback(eval_freq=128, n_eval_episodes=1, best_model_path=tmp_path)
    small_ppo(Alike).train(256, callbacks=callback)
    assert [path.name for path in tmp_path.iterdir()] == ["best.safetensors"]


def test_an_evaluation_that_reaches_the_goal_stops_the_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    algo = small_ppo(Alike)
    callback = EvalCallback(eval_freq=200, n_eval_episodes=2, verbose=1, stop_at=4.0)
    algo.train(10_000, callbacks=callback)
    assert algo.timesteps == 256
    assert algo.stop_reason == "an evaluation returned 4, which reaches 4"
    assert capsys.readouterr().out == "step 256: evaluated 4.00 ± 0.00 over 2 episodes (best)\n"


def test_checkpoints_come_every_so_many_steps_and_the_oldest_go(tmp_path: Path) -> None:
    callback = CheckpointCallback(200, tmp_path / "new", keep=2)
    mine = tmp_path / "new" / "checkpoint_1.safetensors"
    mine.parent.mkdir()
    mine.write_text("not written by the callback")
    algo = small_ppo()
    algo.train(1024, callbacks=callback)
    names = ["checkpoint_768.safetensors", "checkpoint_1024.safetensors"]
    assert [path.name for path in callback.paths] == names
    assert {path.name for path in mine.parent.iterdir()} == {*names, mine.name}
    assert sw.PPO.from_checkpoint(callback.paths[0]).timesteps == 768


def test_a_resumed_run_keeps_what_callbacks_remember(tmp_path: Path) -> None:
    def callbacks() -> tuple[CheckpointCallback, EvalCallback, EarlyStoppingCallback]:
        return (
            CheckpointCallback(512, tmp_path, keep=2),
            EvalCallback(eval_freq=300, n_eval_episodes=2),
            EarlyStoppingCallback(patience=1000),
        )

    whole = callbacks()
    small_ppo(Alike).train(1024, callbacks=whole)

    resumed = callbacks()
    algo = sw.PPO.from_checkpoint(tmp_path / "checkpoint_512.safetensors", Alike)
    algo.train(callbacks=resumed)
    assert algo.timesteps == 1024
    assert [entry["step"] for entry in resumed[1].history] == [384, 768, 1024]
    assert resumed[1].history == whole[1].history
    assert resumed[1].best_mean_return == 4.0
    assert (resumed[2].best, resumed[2].waited) == (4.0, 7) == (whole[2].best, whole[2].waited)
    assert [path.name for path in resumed[0].paths] == [path.name for path in whole[0].paths]


def test_early_stopping_waits_for_an_improvement() -> None:
    algo = small_ppo(Alike)
    callback = EarlyStoppingCallback(patience=3)
    algo.train(10_000, callbacks=callback)
    assert algo.updates == 4
    assert algo.stop_reason == "the mean return has not exceeded 4 for 3 updates"


def test_early_stopping_knows_no_partial_episodes() -> None:
    algo = small_ppo(partial(Alike, length=150))
    callback = EarlyStoppingCallback(patience=1)
    algo.train(4 * STEPS_PER_UPDATE, callbacks=callback)
    assert algo.updates == 4
    assert algo.episodes.count == 0
    assert (callback.best, callback.waited) == (-math.inf, 0)


def test_early_stopping_counts_only_updates_with_new_episodes() -> None:
    algo = small_ppo(partial(Alike, length=64))
    algo.train(10_000, callbacks=EarlyStoppingCallback(patience=2))
    assert algo.updates == 6  # an episode ends in every other update


def test_an_improvement_must_exceed_min_delta() -> None:
    rising = EarlyStoppingCallback(patience=2)
    flat = EarlyStoppingCallback(patience=2, min_delta=1000.0)
    small_ppo().train(640, callbacks=[rising, flat])
    assert flat.waited >= 2
    assert flat.best < rising.best


@pytest.mark.parametrize(
    ("threshold", "window", "updates"), [(4.0, 10, 1), (4.0, 33, 3), (5, 9, 8)]
)
def test_a_run_stops_when_its_last_episodes_reach_a_return(
    threshold: float, window: int, updates: int
) -> None:
    algo = small_ppo(Alike)
    algo.train(8 * STEPS_PER_UPDATE, callbacks=StopOnReturn(threshold, window))
    assert algo.updates == updates  # 16 episodes end in every update
    assert (algo.stop_reason is None) == (updates == 8)


def test_no_progress_is_shown_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    small_ppo(Alike).train(256, callbacks=ProgressCallback())
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "")


def read_terminal(parent: int) -> str:
    """All that is written to a pseudo-terminal until its other side is closed."""
    parts = []
    with contextlib.suppress(OSError):
        while part := os.read(parent, 4096):
            parts.append(part)
    return b"".join(parts).decode()


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_progress_is_shown_in_a_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a terminal of 80 columns the line was cut, and the bar was gone."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", str(columns))
    for name in ("NO_COLOR", "CI", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    parent, child = os.openpty()
    with ThreadPoolExecutor(1) as pool, os.fdopen(child, "w") as terminal:
        reading = pool.submit(read_terminal, parent)
        monkeypatch.setattr(sys, "stdout", terminal)
        small_ppo(Alike).train(256, callbacks=ProgressCallback())
        monkeypatch.undo()
        terminal.close()
        shown = reading.result()
    os.close(parent)
    plain = re.sub("\x1b\\[[0-9;?]*[A-Za-z]", "", shown)
    last = next(line for line in reversed(re.split("[\r\n]", plain)) if "━" in line).strip()
    assert len(last) <= columns
    assert last.count("━") >= 10
    assert "…" not in last
    assert "256/256 steps  return 4.0" in last
    assert ("length 8" in last) == (columns > 60)
    assert "loss" in last or columns < 120
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")  # the cursor is back


def test_timings_are_shares_of_one_run() -> None:
    algo = small_ppo(Alike)
    algo.train(512)
    timing = TimingCallback()
    assert timing.summary() == {}
    algo.train(512, callbacks=timing)
    summary = timing.summary()
    assert summary.keys() >= {"env", "act", "advantages", "update", "callbacks"}
    assert sum(summary.values()) == pytest.approx(100)
    assert timing.seconds["update"] < algo.timings["update"]


@pytest.mark.long
def test_films_show_whole_episodes(tmp_path: Path) -> None:
    ffmpeg = pytest.importorskip("imageio_ffmpeg")
    pytest.importorskip("pygame")
    callback = VideoCallback(tmp_path / "videos", 200, n_episodes=2)
    plain, filmed = small_ppo(), small_ppo()
    plain.train(256)
    filmed.train(256, callbacks=callback)
    (path,) = (tmp_path / "videos").iterdir()
    assert callback.paths == [path]
    assert path.name == "step_256.mp4"
    frames, _ = ffmpeg.count_frames_and_secs(str(path))
    # Frames come from Gymnasium's own environment, so that is where the same episodes are played.
    played = filmed.evaluate(2, env=sw.make_vec_env("CartPole-v1", mode="sync"))
    assert frames == sum(played.lengths) + 2
    assert np.array_equal(weights(plain), weights(filmed))


def test_an_environment_that_draws_nothing_cannot_be_filmed(tmp_path: Path) -> None:
    pytest.importorskip("imageio_ffmpeg")
    with pytest.raises(ValueError, match="env must have render_mode"):
        small_ppo(Alike).train(128, callbacks=VideoCallback(tmp_path, 128))
    assert list(tmp_path.iterdir()) == []


def test_a_missing_film_library_is_named_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(ImportError, match=r'pip install "sharpwave\[video\]"'):
        small_ppo(Alike).train(128, callbacks=VideoCallback(tmp_path, 128))


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: EvalCallback(eval_freq=0), ValueError, "eval_freq must be at least 1, got 0"),
        (
            lambda: EvalCallback(eval_freq=cast("int", 1e4)),
            TypeError,
            "eval_freq must be an integer, got 10000",
        ),
        (lambda: EvalCallback(n_eval_episodes=-1), ValueError, "n_eval_episodes must be at least"),
        (lambda: CheckpointCallback(0, "x"), ValueError, "save_freq must be at least 1, got 0"),
        (lambda: CheckpointCallback(1, "x", keep=0), ValueError, "keep must be at least 1, got 0"),
        (lambda: EarlyStoppingCallback(0), ValueError, "patience must be at least 1, got 0"),
        (
            lambda: EarlyStoppingCallback(min_delta=math.nan),
            ValueError,
            "min_delta must be at least 0, got nan",
        ),
        (lambda: StopOnReturn(1, window=101), ValueError, "window must be at most 100, got 101"),
        (lambda: VideoCallback(fps=0), ValueError, "fps must be at least 1, got 0"),
    ],
)
def test_bad_options_are_refused(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


def test_the_longer_names_are_the_same_classes() -> None:
    assert ProgressBarCallback is ProgressCallback
    assert VideoRecordingCallback is VideoCallback
