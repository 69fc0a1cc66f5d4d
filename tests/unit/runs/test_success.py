"""Environments that say which episodes reached their goal, and runs that pass it on.

There was no success rate anywhere.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import sharpwave as sw
from sharpwave.cli import main
from sharpwave.envs.step_infos import success_of
from sharpwave.pages.report import write_comparison
from sharpwave.tensors import TensorCollector, TensorTransitionCollector
from tests.envs import CountingEnv, vectorized
from tests.unit.envs.tensor_envs import Points
from tests.unit.pages.report_pages import ReportPage

KINDS = ["own", "async", "next_step", "same_step", "disabled"]
N_ENVS = 4


class GoalEnv(CountingEnv):
    """Says in every info whether the goal is reached: every fourth episode does, at its end."""

    key = "is_success"

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = super().step(action)
        ended = terminated or truncated
        # Before the end it claims the opposite: what counts is the last step.
        reached = (self.episode % 4 == 0) if ended else (self.episode % 4 != 0)
        return obs, reward, terminated, truncated, {**info, self.key: float(reached)}


class OtherGoalEnv(GoalEnv):
    """Says so by the other name, and only in the last step."""

    key = "success"

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = super().step(action)
        if not (terminated or truncated):
            del info[self.key]
        else:
            info[self.key] = bool(info[self.key])
        return obs, reward, terminated, truncated, info


def made(env: Any, kind: str) -> Any:
    maker = partial(env, (3, 2), 0, "alternating")
    if kind in ("own", "async"):
        return maker
    return vectorized([maker] * N_ENVS, kind)


@pytest.mark.long(but=["GoalEnv-own"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("env", [GoalEnv, OtherGoalEnv])
def test_success_rates_are_those_of_the_last_steps(env: Any, kind: str) -> None:
    mode = "async" if kind == "async" else "auto"
    options: dict[str, Any] = {"n_envs": N_ENVS, "env_mode": mode, "hidden": (8,), "seed": 0}
    agents: list[Any] = [sw.PPO(made(env, kind), n_steps=20, **options)]
    if kind != "async":
        agents.append(sw.DQN(made(env, kind), learning_starts=10, batch_size=8, **options))
    for agent in agents:
        metrics = agent.train(N_ENVS * 40)
        ended = agent.episodes.count
        # All environments count alike, so that the first of every four episodes is a success.
        per_env = ended // N_ENVS
        assert ended == per_env * N_ENVS > 30
        assert metrics["success_rate"] == pytest.approx(-(-per_env // 4) / per_env)
        agent.close()


@pytest.mark.parametrize("kind", ["own", "next_step", "same_step", "disabled"])
def test_evaluations_have_a_success_rate(kind: str) -> None:
    agent = sw.PPO(made(GoalEnv, "own"), n_envs=N_ENVS, n_steps=8, hidden=(8,))
    env = made(GoalEnv, kind)
    result = agent.evaluate(8, env=env)
    # Each environment plays two episodes, and the first one of them ends well.
    n_envs = 1 if kind == "own" else N_ENVS
    expected = 2 / 8 if n_envs == 1 else 4 / 8
    assert result.success_rate == expected
    assert len(result.successes) == 8
    assert f"success rate {expected:.0%}" in str(result)


def test_a_window_of_episodes_and_its_checkpoint(tmp_path: Path) -> None:
    agent = sw.PPO(made(GoalEnv, "own"), n_envs=N_ENVS, n_steps=50, hidden=(8,))
    agent.train(N_ENVS * 400)
    assert len(agent.collector.episodes.successes) == 100
    assert agent.episodes.success_rate == pytest.approx(0.25, abs=0.02)
    agent.save(tmp_path / "agent.safetensors")
    again = sw.PPO.from_checkpoint(tmp_path / "agent.safetensors", made(GoalEnv, "own"))
    assert again.episodes.success_rate == agent.episodes.success_rate


class GoalPoints(Points):
    """Says which points are near the middle."""

    def step(self, actions: Any) -> Any:
        obs, rewards, terminated, truncated, infos = super().step(actions)
        near = infos["final_obs"][:, 0].abs() < 1
        return obs, rewards, terminated, truncated, {**infos, "is_success": near}


@pytest.mark.long
@pytest.mark.parametrize("algorithm", ["ppo", "sac"])
def test_success_of_tensors(algorithm: str, tmp_path: Path) -> None:
    expected: list[float] = []

    class Count(sw.Callback):
        def on_step(self, transitions: Any) -> None:
            ended = transitions.terminated | transitions.truncated
            expected.extend((transitions.next_obs[ended, 0].abs() < 1).float().tolist())

    def make() -> Any:
        if algorithm == "ppo":
            return sw.PPO(GoalPoints(5, limit=7), n_steps=10, hidden=(8,), backend="torch")
        options: dict[str, Any] = {"learning_starts": 50, "batch_size": 8, "hidden": 8}
        return sw.SAC(GoalPoints(5, limit=7), buffer="device", **options)

    agent = make()
    metrics = agent.train(300, callbacks=Count())
    assert isinstance(agent.collector, TensorCollector | TensorTransitionCollector)
    assert len(expected) == agent.episodes.count > 30
    assert metrics["success_rate"] == pytest.approx(np.mean(expected[-100:]))
    again = make()
    again.collector.episodes.load_state_dict(agent.collector.episodes.state_dict())
    assert again.episodes.success_rate == agent.episodes.success_rate
    numpy_stats = sw.PPO("CartPole-v1", n_envs=5).collector.episodes
    numpy_stats.load_state_dict(agent.collector.episodes.state_dict())
    assert numpy_stats.success_rate == pytest.approx(agent.episodes.success_rate)
    assert torch.is_tensor(agent.collector.episodes.tracker.state_dict()["running"])


@pytest.mark.long
def test_the_folder_the_report_and_the_terminal_tell_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    agent = sw.PPO(made(GoalEnv, "own"), n_envs=N_ENVS, n_steps=20, hidden=(8,))
    evaluation = sw.EvalCallback(eval_freq=160, n_eval_episodes=32)
    logger = sw.JSONLLogger(tmp_path / "log.jsonl")
    agent.loggers = type(agent.loggers)(logger)
    agent.train(320, callbacks=evaluation, run_dir=folder)
    assert evaluation.history[-1]["success_rate"] == 0.25
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["eval_success_rate"] for line in lines if "eval_success_rate" in line] == [
        0.25
    ] * 2
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["success_rate"] == agent.episodes.success_rate
    page = ReportPage(folder / "report.html")
    assert page.tiles["Success rate"] == ("25 %", "of the final evaluation")
    assert {row["Success"] for row in page.table("Step")} == {"25 %"}
    assert "Success rate" in page.captions
    comparison = ReportPage(write_comparison([folder], tmp_path / "comparison.html"))
    assert comparison.table("Run")[0]["Success"] == "25 %"


@pytest.mark.long
def test_what_does_not_say_so_has_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    options = ["--n-envs", "2", "--n-steps", "64", "--total-timesteps", "256", "--run-dir"]
    assert main(["train", "ppo", "CartPole-v1", *options, str(folder)]) == 0
    assert main(["eval", str(folder), "--episodes", "2"]) == 0
    assert "success" not in capsys.readouterr().out
    for name in ("metrics.csv", "evaluations.jsonl", "summary.json"):
        assert "success" not in (folder / name).read_text()
    page = ReportPage(folder / "report.html")
    assert "Success rate" not in {**page.tiles, **page.captions}
    assert "Success" not in page.tables[0][0]


@pytest.mark.parametrize(
    ("infos", "expected"),
    [
        ({}, None),
        ({"is_success": np.array([True, False, True])}, [1.0, np.nan, 1.0]),
        ({"is_success": np.array([1.0, 0, 0]), "_is_success": np.array([1, 0, 0], bool)}, [1.0]),
        ({"final_info": {"is_success": np.array([0.0, 1, 1])}}, [0.0, np.nan, 1.0]),
        ({"is_success": np.ones(3), "final_info": {"x": np.ones(3)}}, None),
        ({"final_info": [{"success": True}, None, {}]}, [1.0]),
        (
            {"final_info": np.array([{"is_success": 0}, None, {"success": 1}], object)},
            [0, np.nan, 1],
        ),
        ({"is_success": np.array(["no", "yes", None], object)}, None),
    ],
)
def test_forms_of_infos(infos: dict[str, Any], expected: list[float] | None) -> None:
    found = success_of(infos, np.array([True, False, True]))
    if expected is None:
        assert found is None
    else:
        padded = [*expected, *[np.nan] * (3 - len(expected))]
        np.testing.assert_array_equal(found, padded)


@pytest.mark.long
def test_results_of_ones_own_need_not_say_so(tmp_path: Path) -> None:
    class Result:
        mean, std, mean_length, returns, lengths = 1.0, 0.0, 2.0, (1.0,), (2,)

    class OwnEvaluation(sw.PPO):
        def evaluate(self, *args: Any, **kwargs: Any) -> Any:
            return Result()

    agent = OwnEvaluation(made(GoalEnv, "own"), n_envs=N_ENVS, n_steps=20, hidden=(8,))
    evaluation = sw.EvalCallback(eval_freq=80, n_eval_episodes=1)
    agent.train(80, callbacks=evaluation, run_dir=tmp_path / "run")
    assert "success_rate" not in evaluation.history[-1]
    assert "Success" not in ReportPage(tmp_path / "run" / "report.html").table("Step")[0]
