"""Replay shards and evaluations that Ray starts: they work, and come back when they are killed."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

import sharpwave as sw
from tests.contract.fleets import descends, start_ray, stop_ray
from tests.envs import resumable, vectorized
from tests.waiting import LONG, wait_for

if importlib.util.find_spec("ray") is None:
    pytest.skip("Ray is not installed", allow_module_level=True)

from sharpwave.distributed.ray_cluster import RayCluster
from sharpwave.distributed.replay import RayShards, ShardOptions
from sharpwave.envs import make_vec_env
from sharpwave.runs.ray_evaluation import RayEvaluator

pytestmark = [
    pytest.mark.slow,  # Ray gives itself 30 s to start, which a busy machine may need more of
    pytest.mark.timeout(600),
    # Ray's own: files and sockets that it leaves to the collector.
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture(scope="module", autouse=True)
def one_ray() -> Iterator[None]:
    """A Ray for all tests: it is slow to start."""
    start_ray()
    yield
    stop_ray()


def processes(kind: str) -> list[int]:
    """The processes of Ray that are of a class, of those that this process has started."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):  # it has ended meanwhile
                line = (folder / "cmdline").read_bytes().decode(errors="replace")
                if line.startswith(f"ray::{kind}") and descends(int(folder.name)):
                    found.append(int(folder.name))
    return sorted(found)


def kill_one(kind: str) -> int:
    wait_for(lambda: processes(kind) != [])
    killed = processes(kind)[0]
    os.kill(killed, signal.SIGKILL)
    return killed


def test_a_shard_that_is_killed_comes_back_with_its_steps(tmp_path: Path) -> None:
    options = ShardOptions(tmp_path / "steps", capacity=2_000)
    with RayShards(2, options) as shards, shards.replay(seed=0, timeout=LONG / 4) as replay:
        assert len(set(shards.addresses)) == 2
        dqn: Any = sw.DQN("CartPole-v1", n_envs=2, buffer=replay, learning_starts=50, seed=0)
        before = dqn.learner.weights().copy() if hasattr(dqn.learner, "weights") else None
        dqn.train(400)
        assert len(replay) == 400
        assert before is None or (dqn.learner.weights() != before).any()
        killed = kill_one("_RayShard")
        wait_for(lambda: len(processes("_RayShard")) == 2 and killed not in processes("_RayShard"))
        wait_for(lambda: replay.stats()["shards_alive"] == 2 and len(replay) == 400)
        dqn.train(100)
        assert len(replay) > 400
        dqn.close()
    wait_for(lambda: processes("_RayShard") == [])


@pytest.mark.parametrize(
    ("made", "options"),
    [
        ("PPO", {"n_envs": 2, "n_steps": 32, "normalize_obs": True}),
        ("PPO", {"n_envs": 2, "n_steps": 32, "backend": "torch", "recurrent": "lstm"}),
        ("DQN", {"learning_starts": 50}),
        ("IMPALA", {"n_envs": 2, "n_steps": 8}),
    ],
    ids=["normalized", "lstm", "dqn", "impala"],
)
def test_an_evaluation_there_is_one_of_here(made: str, options: dict[str, Any]) -> None:
    agent = getattr(sw, made)("CartPole-v1", seed=3, **options)
    agent.train(200)
    with RayEvaluator(agent) as evaluator:
        evaluator.submit(6)
        assert evaluator.n_running == 1
        step, here = agent.timesteps, agent.evaluate(6)
        agent.train(200)  # which the weights that were sent do not follow
        assert evaluator.finished(None) == [(step, here)]
        assert evaluator.n_running == 0
    agent.close()


class Gate(gym.Wrapper[Any, Any, Any, Any]):
    """Begins an episode once a file is there, and says in another that it waits."""

    def __init__(self, folder: Path) -> None:
        super().__init__(gym.make("CartPole-v1"))
        self.folder = folder

    def reset(self, **options: Any) -> Any:
        (self.folder / f"waits-{os.getpid()}").touch()
        while not (self.folder / "open").exists():
            time.sleep(0.01)
        return self.env.reset(**options)


class Open(sw.Callback):
    """Opens a gate once an evaluation waits there and training has gone on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.steps: list[int] = []
        self.told: list[tuple[int, int]] = []

    def on_train_batch(self, *, step: int, **_: Any) -> None:
        waits = list(self.folder.glob("waits-*"))
        if waits and len(self.steps) < 3:
            self.steps.append(step)
            if len(self.steps) == 2:  # and the one who waits is started again
                os.kill(int(waits[0].name.partition("-")[2]), signal.SIGKILL)
            if len(self.steps) == 3:
                (self.folder / "open").touch()

    def on_eval(self, *, algo: Any, step: int, **_: Any) -> None:
        self.told.append((step, algo.timesteps))


def test_training_goes_on_while_an_evaluation_does_and_its_process_is_killed(
    tmp_path: Path,
) -> None:
    opens = Open(tmp_path)
    evals = sw.RayEvalCallback(64, 2, eval_env=lambda: Gate(tmp_path))
    agent = sw.PPO("CartPole-v1", n_envs=2, n_steps=32, seed=0, callbacks=[evals, opens])

    class Until(sw.Callback):
        def on_train_batch(self, *, step: int, **_: Any) -> None:
            if step == 64 * 300:  # updates are over before a process has started
                wait_for(lambda: list(tmp_path.glob("waits-*")))

    agent.train(64 * 400, callbacks=Until())
    assert len(opens.steps) == 3
    asked, told = opens.told[0]
    assert asked == 64 < opens.steps[0] < opens.steps[2] < told
    assert evals.history[0]["step"] == 64
    assert evals.history[-1]["step"] == 64 * 400
    env = make_vec_env(lambda: Gate(tmp_path), 2, mode="sync")
    assert evals.history[-1]["mean"] == agent.evaluate(2, env=env).mean
    env.close()
    agent.close()


def test_an_error_of_an_evaluation_is_raised() -> None:
    agent = sw.PPO("CartPole-v1", n_envs=2, n_steps=32, seed=0)
    with RayEvaluator(agent, env="Acrobot-v1") as evaluator:
        evaluator.submit(2)
        with pytest.raises(RuntimeError, match="all 1 processes are evaluating"):
            evaluator.submit(2)
        with pytest.raises(Exception, match="observation"):
            evaluator.finished(None)
    agent.close()


def test_what_cannot_be_is_named() -> None:
    with pytest.raises(ValueError, match="n must be at least 1, got 0"):
        RayShards(0)
    agent = sw.PPO(vectorized([resumable] * 2, "same_step"), n_steps=32, seed=0)
    with pytest.raises(ValueError, match="env must be given"):
        RayEvaluator(agent)
    agent.close()


def test_a_cluster_that_takes_everybody_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with pytest.raises(PermissionError, match="must ask for tokens"):
        RayCluster("auto")
    assert start_ray().is_initialized()  # it is somebody else's
