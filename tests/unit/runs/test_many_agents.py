"""Runs of several agents: callbacks, loggers, folders and films."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sharpwave as sw
from sharpwave.envs.multi.toys import MatrixGame, Mortal, Roles
from sharpwave.runs.evaluation import EvaluationResult
from sharpwave.storage.run_folder import RunFolder
from sharpwave.testing.bits import state_of

SMALL: dict[str, Any] = {"n_envs": 2, "n_steps": 8, "hidden": (8,), "n_epochs": 2, "seed": 3}
AGENTS = ("agent_0", "agent_1")


class Told(sw.Callback):
    """Keeps what it is told of."""

    def __init__(self) -> None:
        self.steps: list[Any] = []
        self.updates: list[dict[str, Any]] = []

    def on_step(self, *, transitions: Any, **_: Any) -> None:
        self.steps.append(transitions)

    def on_train_batch(self, **metrics: Any) -> None:
        self.updates.append(metrics)


class Kept(sw.LoggerCallback):
    """Keeps evaluations."""

    def __init__(self) -> None:
        self.evaluations: list[dict[str, Any]] = []

    def on_eval(self, step: int, metrics: Any) -> None:
        self.evaluations.append({"step": step, **metrics})


def mappo(env: Any = Roles, **options: Any) -> Any:
    return sw.MAPPO(env, **{**SMALL, **options})


def test_steps_are_told_by_group_with_who_acted() -> None:
    told, agent = Told(), mappo(Mortal, n_steps=10)
    agent.train(20, callbacks=told)
    assert len(told.steps) == 10
    for step in told.steps:
        assert step.obs["agent"].shape == step.next_obs["agent"].shape == (2, 2, 2)
        for entry in (step.actions, step.rewards, step.terminated, step.truncated, step.valid):
            assert entry["agent"].shape == (2, 2)
        assert step.infos["ended"].shape == (2,)
    valid = np.stack([step.valid["agent"] for step in told.steps])
    assert valid[0].all()
    assert not valid[1, :, 1].any()  # who died in the first step
    assert (np.stack([step.rewards["agent"] for step in told.steps])[~valid] == 0).all()
    assert {"policy_loss", "mean_return/agent_1"} <= told.updates[0].keys()
    agent.close()


@pytest.mark.long
def test_evaluations_tell_of_every_agent(tmp_path: Path) -> None:
    kept = Kept()
    agent = mappo(Mortal, logger=kept)
    evaluations = sw.EvalCallback(eval_freq=16, n_eval_episodes=3)
    agent.train(32, callbacks=evaluations, run_dir=tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    rows = [json.loads(line) for line in folder.evaluations_file.read_text().splitlines()]
    for row, past, logged, read in zip(
        rows, evaluations.history, kept.evaluations, folder.evaluations(), strict=True
    ):
        assert row["step"] == past["step"] == logged["step"] == read.step
        for name in AGENTS:
            mean = np.mean(row["agents"][name])
            assert mean == past[f"mean/{name}"] == logged[f"eval_mean_return/{name}"]
            assert mean == read.agents[name]
        assert row["mean"] == pytest.approx(np.mean([read.agents[name] for name in AGENTS]))
    assert set(folder.summary["final_evaluation"]["agents"]) == set(AGENTS)
    assert "mean_return/agent_0" in folder.metrics()
    agent.close()


def test_one_agent_is_told_of_as_ever(tmp_path: Path) -> None:
    agent = mappo("CartPole-v1")
    agent.train(16, callbacks=sw.EvalCallback(n_eval_episodes=1), run_dir=tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    assert not [name for name in folder.metrics() if "/" in name]
    agent.close()


class Duel(Roles):
    """One agent loses the reward of the other."""

    def play(self, actions: dict[str, int]) -> Any:
        _, *ends = super().play(actions)
        paid = 1.0 if actions["agent_0"] == 0 else -1.0
        return {"agent_0": paid, "agent_1": -3.0 * paid}, *ends


def test_returns_are_those_of_agents_that_learn() -> None:
    """The better who learns, the worse the team was told to be where its opponents lose more."""

    def still(obs: Any) -> Any:
        return np.zeros(len(obs), np.int64)

    told, groups = Told(), {"first": ["agent_0"], "second": ["agent_1"]}
    agent = mappo(Duel, groups=groups, opponents={"second": still}, n_epochs=10)
    agent.train(64, callbacks=told)
    for update in told.updates:
        assert update["mean_return"] == update["mean_return/first"] == update["mean_return/agent_0"]
        assert update["mean_return/second"] == pytest.approx(-3 * update["mean_return"])
    result = agent.evaluate(4)
    assert result.returns == result.agents["agent_0"]
    assert result.agents["agent_1"] == tuple(-3 * x for x in result.returns)
    agent.close()


def test_of_equal_evaluations_the_latest_is_the_best(tmp_path: Path) -> None:
    """In a game that one wins and the other loses the first policy was the best for ever."""
    agent = mappo(lambda: MatrixGame(np.array([[[1.0, -1]] * 2, [[-1.0, 1]] * 2]), shared=False))
    best = tmp_path / "own.safetensors"
    evaluations = sw.EvalCallback(eval_freq=16, n_eval_episodes=2, best_model_path=best)
    agent.train(48, callbacks=evaluations, run_dir=tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    assert {one.mean for one in folder.evaluations()} == {0.0}
    assert folder.summary["best_evaluation"]["step"] == 48
    for path in (folder.best_checkpoint, best):
        assert sw.MAPPO.from_checkpoint(path, env=agent.env).timesteps == 48
    agent.close()


@pytest.mark.long
def test_a_run_folder_is_resumed_as_the_run(tmp_path: Path) -> None:
    whole, first, second = (mappo() for _ in range(3))
    whole.train(64)
    first.train(32, run_dir=tmp_path / "run")
    second.train(64, run_dir=tmp_path / "run", resume=True)
    assert second.timesteps == 64
    assert state_of(second.learner) == state_of(whole.learner)
    assert second.progress_metrics() == whole.progress_metrics()
    for agent in (whole, first, second):
        agent.close()


def test_callbacks_work_as_for_one_agent(tmp_path: Path) -> None:
    stopping = sw.StopOnReturn(-1.0, window=1)
    agent = mappo()
    agent.train(
        320, callbacks=[sw.CheckpointCallback(16, tmp_path), sw.ProgressCallback(), stopping]
    )
    assert agent.timesteps < 320
    assert agent.stop_reason is not None
    saved = sorted(tmp_path.glob("*.safetensors"))
    loaded = sw.MAPPO.from_checkpoint(saved[0], env=Roles)
    assert loaded.timesteps == 16
    for one in (agent, loaded):
        one.close()


@pytest.mark.long
def test_a_trainer_takes_environments_of_many_agents() -> None:
    trainer = sw.Trainer("ippo", Roles, **SMALL)
    trainer.train(32)
    assert trainer.evaluate(2).agents.keys() == set(AGENTS)
    size = trainer.env.observation_spaces["agent"].shape
    assert trainer.predict(dict.fromkeys(AGENTS, np.zeros(size))).keys() == set(AGENTS)
    trainer.close()


def test_what_draws_no_pictures_is_named_before_the_run(tmp_path: Path) -> None:
    agent = mappo()
    with pytest.raises(ValueError, match='env must have render_mode "rgb_array", got None'):
        agent.train(16, callbacks=sw.VideoCallback(tmp_path))
    assert agent.timesteps == 0
    agent.close()


class Painted(Roles):
    """Counts its pictures."""

    metadata = {"render_fps": 5}  # noqa: RUF012
    render_mode: Any = "rgb_array"
    pictures = 0

    def render(self) -> Any:
        type(self).pictures += 1
        return np.full((15, 16, 3), 20 * self.time, np.uint8)


@pytest.mark.long
def test_whole_episodes_of_all_agents_are_filmed(tmp_path: Path) -> None:
    imageio_ffmpeg = pytest.importorskip("imageio_ffmpeg")
    agent = mappo(lambda: Painted(horizon=6))
    film = sw.VideoCallback(tmp_path, record_freq=16, n_episodes=2)
    agent.train(16, callbacks=film)
    frames, _ = imageio_ffmpeg.count_frames_and_secs(str(film.paths[0]))
    assert frames == 12
    assert Painted.pictures == 13  # one to find out whether it can be filmed
    agent.close()


def test_means_of_agents_are_those_of_their_returns() -> None:
    result = EvaluationResult((2.0, 4.0), (1, 1), agents={"a": (1.0, 3.0), "b": (3.0, 5.0)})
    assert result.agent_means == {"a": 2.0, "b": 4.0}
    assert EvaluationResult((2.0,), (1,)).agent_means == {}
