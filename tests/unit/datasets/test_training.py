"""A training run becomes datasets, and one that was interrupted is gone on with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sharpwave as sw
from sharpwave.datasets import (
    TRAINED_KINDS,
    TrainingStopped,
    collect,
    episode_returns,
    read_description,
    record_training,
)
from sharpwave.datasets.recorded_run import Improvements, read_improvements
from sharpwave.episodes.transitions import transitions_of
from sharpwave.runs.evaluation import EvaluationResult
from sharpwave.storage.run_folder import RunFolder

OPTIONS: dict[str, Any] = {
    "total_timesteps": 900,
    "n_steps": 500,
    "eval_freq": 300,
    "n_eval_episodes": 2,
    "learning_starts": 100,
    "log_interval": 100,
    "hidden": (16, 16),
    "batch_size": 32,
    "train_freq": 4,
    "seed": 3,
}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pendulum")
    return record_training("Pendulum-v1", folder, list(TRAINED_KINDS), **OPTIONS)


@pytest.mark.long
def test_policies_play_as_many_steps_as_asked_for(recorded: dict[str, Path]) -> None:
    for kind in ("random", "medium", "medium-expert", "expert"):
        data = transitions_of(recorded[kind])
        assert data["obs"].shape == (500, 3)
        assert np.flatnonzero(data["truncated"]).tolist()[-1] == 499
        assert len(np.unique(data["actions"])) > 100


@pytest.mark.long
def test_replays_are_the_episodes_of_training(recorded: dict[str, Path]) -> None:
    full, medium = (transitions_of(recorded[kind]) for kind in ("full-replay", "medium-replay"))
    assert len(full["obs"]) == 900
    assert 200 <= len(medium["obs"]) < 900
    np.testing.assert_array_equal(full["obs"][: len(medium["obs"])], medium["obs"])
    step = read_description(recorded["medium-replay"])["policies"][0]["step"]
    assert step - 200 < len(medium["obs"]) <= step


@pytest.mark.long
def test_all_kinds_have_the_same_fields(recorded: dict[str, Path]) -> None:
    with sw.EpisodeUnion(list(recorded.values())) as union:
        assert union.num_episodes == sum(len(episode_returns(path)) for path in recorded.values())


@pytest.mark.long
def test_the_description_says_which_policies_played(recorded: dict[str, Path]) -> None:
    found = {kind: read_description(path) for kind, path in recorded.items()}
    improvements = read_improvements(recorded["expert"].parent / "training" / "policies")
    best = {"step": improvements[-1].step, "mean_return": improvements[-1].mean}
    assert found["expert"]["policies"] == [best]
    assert found["medium-expert"]["policies"] == [*found["medium"]["policies"], best]
    assert found["medium"]["policies"][0]["step"] <= best["step"]
    assert found["expert"]["algorithm"] == "sac"
    assert found["expert"]["config"]["hidden"] == [16, 16]
    assert "config" not in found["random"]
    assert {one["kind"] for one in found.values()} == set(TRAINED_KINDS)
    assert {one["env_id"] for one in found.values()} == {"Pendulum-v1"}


@pytest.mark.long
def test_the_run_is_kept_and_its_replay_is_not(recorded: dict[str, Path]) -> None:
    folder = recorded["expert"].parent
    run = RunFolder(folder / "training")
    assert run.summary["status"] == "finished"
    assert [one.step for one in run.evaluations()] == [300, 600, 900]
    assert {path.name for path in folder.iterdir()} == {*TRAINED_KINDS, "training"}
    assert not (run.path / "replay").exists()


@pytest.mark.long
def test_a_second_call_only_makes_what_is_missing(
    recorded: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(sw.algorithms.SAC, "train", fails)
    before = recorded["expert"].stat().st_mtime_ns
    folder = recorded["expert"].parent
    assert record_training("Pendulum-v1", folder, ["expert"], **OPTIONS).keys() == {"expert"}
    assert recorded["expert"].stat().st_mtime_ns == before


class Stop(sw.Callback):
    """Stops a run at some step."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_train_batch(self, *, step: int, **_: Any) -> bool:
        return step < self.step


@pytest.mark.long
def test_a_stopped_training_is_gone_on_with(tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    arguments: Any = {**OPTIONS, "progress": lambda *now: told.append(now)}
    with pytest.raises(TrainingStopped, match="stopped at 500 of 900 steps"):
        record_training("Pendulum-v1", tmp_path, ["medium"], callbacks=Stop(500), **arguments)
    assert not (tmp_path / "medium").exists()
    assert (tmp_path / "training" / "replay").exists()
    record_training("Pendulum-v1", tmp_path, ["full-replay"], **arguments)
    assert read_description(tmp_path / "full-replay")["n_steps"] == 900
    assert told[:2] == [("training sac", 100, 900), ("training sac", 200, 900)]
    assert ("training sac", 600, 900) in told
    improvements = read_improvements(tmp_path / "training" / "policies")
    assert [one.step for one in improvements] == sorted({one.step for one in improvements})


def test_random_data_need_no_training(tmp_path: Path) -> None:
    assert record_training("CartPole-v1", tmp_path, ["random"], n_steps=50) == {
        "random": tmp_path / "random"
    }
    assert [path.name for path in tmp_path.iterdir()] == ["random"]


@pytest.mark.long
def test_another_algorithm_may_train(tmp_path: Path) -> None:
    options: Any = {"n_envs": 2, "n_steps": 100, "total_timesteps": 64, "eval_freq": 32}
    record_training("CartPole-v1", tmp_path, ["expert"], algorithm="a2c", **options)
    assert read_description(tmp_path / "expert")["algorithm"] == "a2c"


def test_only_policies_that_improve_are_kept(tmp_path: Path) -> None:
    agent = sw.A2C("CartPole-v1", n_envs=2)
    policies = tmp_path / "policies"
    with collect("CartPole-v1", n_episodes=7, folder=tmp_path / "episodes") as episodes:
        callback = Improvements(policies, episodes)
        callback.on_training_start(step=0)
        for step, mean in enumerate([3.0, 1.0, 4.0, 4.0, 5.0]):
            callback.on_eval(algo=agent, step=step, result=EvaluationResult((mean,), (1,)))
        found = read_improvements(policies)
        assert [(one.step, one.mean, one.n_episodes) for one in found] == [
            (0, 3, 7),
            (2, 4, 7),
            (4, 5, 7),
        ]
        files = [found[i].path(policies) for i in range(3)]
        assert sorted(policies.glob("step_*")) == files
        sw.A2C.from_checkpoint(files[1])

        callback = Improvements(policies, episodes)
        callback.on_training_start(step=3)  # a run that goes on from before the last
        callback.on_eval(algo=agent, step=5, result=EvaluationResult((4.5,), (1,)))
        assert [one.step for one in read_improvements(policies)] == [0, 2, 5]


@pytest.mark.parametrize(
    ("arguments", "error", "reason"),
    [
        ({"kinds": ["medum"]}, ValueError, "unknown kind 'medum'; did you mean 'medium'"),
        ({"kinds": "medium"}, TypeError, "kinds must be a list of kinds, got 'medium'"),
        ({"medium": 2}, ValueError, "medium must be between 0 and 1, got 2"),
        ({"algorithm": "sca"}, ValueError, "unknown algorithm 'sca'; did you mean 'sac'"),
        ({"hiden": (8,)}, TypeError, "did you mean 'hidden'"),
    ],
)
def test_bad_arguments_are_explained_before_anything_is_done(
    tmp_path: Path, arguments: dict[str, Any], error: type[Exception], reason: str
) -> None:
    with pytest.raises(error, match=reason):
        record_training("Pendulum-v1", tmp_path, **arguments)
    assert list(tmp_path.iterdir()) == []
