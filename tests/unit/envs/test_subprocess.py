"""Environments in processes: they fail and end like those in this one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import ClosedEnvironmentError

from sharpwave.envs import EnvironmentFailed, PythonVectorEnv, SubprocessVectorEnv
from tests.envs import (
    CountingEnv,
    FailingEnv,
    NestedEnv,
    WrongEnv,
    numbered,
    one_failing,
    play,
)
from tests.reference.nests import assert_equal

N = 3


@pytest.mark.long(but=["discrete"])
@pytest.mark.parametrize(
    "make",
    [
        partial(gym.make, "CartPole-v1", max_episode_steps=9),
        partial(gym.make, "Pendulum-v1", max_episode_steps=9),
        partial(NestedEnv, (1, 3)),
    ],
    ids=["discrete", "box", "nested"],
)
def test_steps_equal_those_in_one_process(make: Any) -> None:
    here, there = PythonVectorEnv([make] * N), SubprocessVectorEnv([make] * N)
    assert_equal(there.reset(seed=3)[0], here.reset(seed=3)[0])
    here.action_space.seed(0)
    for _ in range(30):
        actions = here.action_space.sample()
        got, expected = there.step(actions), here.step(actions)
        for one, other in zip(got[:4], expected[:4], strict=True):
            assert_equal(one, other)
        assert got[4].keys() == expected[4].keys()
    there.close()


@pytest.mark.long(but=["kwargs0-step(np.int64(1))-ZeroDivisionError"])
@pytest.mark.parametrize(
    ("kwargs", "doing", "cause"),
    [
        ({"fail_step": 2}, "step(np.int64(1))", ZeroDivisionError),
        ({"fail_reset": 0}, "reset(seed=6)", LookupError),
        ({"fail_reset": 1}, "reset()", LookupError),
    ],
)
def test_an_environment_that_raises_is_named_and_all_are_closed(
    kwargs: Any, doing: str, cause: Any
) -> None:
    env = SubprocessVectorEnv(one_failing(N, 1, **kwargs))
    with pytest.raises(EnvironmentFailed) as caught:
        play(env, 3)
    failure = caught.value
    assert failure.env_index == 1
    assert failure.doing == doing
    assert isinstance(failure.__cause__, cause)
    assert str(failure.__cause__.args[0]) in str(failure)
    assert "tests/envs.py" in str(failure)
    assert env.closed
    assert not any(process.is_alive() for process in env.processes)
    with pytest.raises(ClosedEnvironmentError):
        env.step(np.array([0, 1, 0]))
    env.close()


class Touching(FailingEnv):
    """Leaves a file behind when it is closed."""

    def __init__(self, folder: Any, number: int) -> None:
        super().__init__((9,), number, fail_step=2 if number == 0 else -1)
        self.folder = folder

    def close(self) -> None:
        (self.folder / str(self.number)).touch()


@pytest.mark.long
def test_the_other_environments_close_what_they_hold(tmp_path: Any) -> None:
    env = SubprocessVectorEnv([partial(Touching, tmp_path, number) for number in range(N)])
    (tmp_path / "0").unlink()  # of the environment made here, to read its spaces
    env.reset()
    env.step(np.zeros(N, np.int64))
    with pytest.raises(EnvironmentFailed):
        env.step(np.zeros(N, np.int64))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1", "2"]


class UnpicklableError(Exception):
    def __init__(self, one: Any, two: Any) -> None:
        super().__init__(f"{one} and {two}")
        self.lock = lambda: None


class Unpicklable(CountingEnv):
    def step(self, action: Any) -> Any:
        raise UnpicklableError("this", "that")


def test_an_exception_that_cannot_travel_is_told() -> None:
    env = SubprocessVectorEnv(numbered(2, Unpicklable))
    env.reset()
    with pytest.raises(EnvironmentFailed, match="UnpicklableError: this and that") as caught:
        env.step(np.zeros(2, np.int64))
    assert caught.value.env_index == 0
    assert "this and that" in str(caught.value.__cause__)


@pytest.mark.long
def test_what_does_not_fit_is_blamed_on_its_environment() -> None:
    env = SubprocessVectorEnv(numbered(3, WrongEnv, wrong={"obs": np.zeros(1, np.float32)}))
    env.reset()
    env.step(np.zeros(3, np.int64))
    with pytest.raises(EnvironmentFailed, match=r"shape \(3,\), got \(1,\)") as caught:
        env.step(np.zeros(3, np.int64))
    assert caught.value.env_index == 1


class Dying(CountingEnv):
    def step(self, action: Any) -> Any:
        if self.number == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)


@pytest.mark.long
def test_a_process_that_dies_in_a_step_is_noticed() -> None:
    env = SubprocessVectorEnv(numbered(N, Dying))
    env.reset()
    with pytest.raises(EnvironmentFailed, match="exit code -9") as caught:
        env.step(np.zeros(N, np.int64))
    assert caught.value.env_index == 1
    assert not any(process.is_alive() for process in env.processes)


@pytest.mark.long(but=["reset"])
@pytest.mark.parametrize("use", ["reset", "step", "call", "set_attr", "get_states"])
def test_a_process_killed_from_outside_is_noticed(use: str) -> None:
    env = SubprocessVectorEnv(numbered(N))
    env.reset()
    env.processes[2].kill()
    env.processes[2].join()
    uses: dict[str, Any] = {
        "reset": env.reset,
        "step": lambda: env.step(np.zeros(N, np.int64)),
        "call": lambda: env.call("render"),
        "set_attr": lambda: env.set_attr("number", 1),
        "get_states": lambda: env.get_states("state"),
    }
    with pytest.raises(EnvironmentFailed, match="exit code -9") as caught:
        uses[use]()
    assert caught.value.env_index == 2
    assert env.closed


@pytest.mark.long
def test_makers_that_fail_are_named() -> None:
    def broken() -> Any:
        raise FileNotFoundError("no such world")

    with pytest.raises(EnvironmentFailed, match="environment 0 failed in being made") as caught:
        SubprocessVectorEnv([broken])
    assert isinstance(caught.value.__cause__, FileNotFoundError)

    with pytest.raises(EnvironmentFailed, match="no such world") as caught:
        SubprocessVectorEnv([CountingEnv, broken, CountingEnv])
    assert caught.value.env_index == 1
    assert isinstance(caught.value.__cause__, FileNotFoundError)

    with pytest.raises(EnvironmentFailed, match=r"must make a gymnasium\.Env, got builtins\.int"):
        SubprocessVectorEnv([CountingEnv, int])  # type: ignore[list-item]
    with pytest.raises(TypeError, match=r"must make a gymnasium\.Env, got builtins\.int"):
        SubprocessVectorEnv([int])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="at least one"):
        SubprocessVectorEnv([])


@pytest.mark.long
@pytest.mark.parametrize("context", ["spawn", "forkserver"])
def test_processes_started_in_another_way(context: str) -> None:
    env = SubprocessVectorEnv([partial(gym.make, "CartPole-v1")] * 2, context=context)
    expected = gym.make("CartPole-v1").reset(seed=4)[0]
    np.testing.assert_array_equal(env.reset(seed=4)[0][0], expected)
    env.close()


def test_attributes_and_methods() -> None:
    env = SubprocessVectorEnv(numbered(2))
    assert env.get_attr("number") == (0, 1)
    assert env.call("render") == ("0:0", "1:0")
    env.set_attr("number", [5, 6])
    assert env.get_attr("number") == (5, 6)
    env.reset(seed=4)
    assert env.np_random_seed == (4, 5)
    with pytest.raises(EnvironmentFailed, match="nothing"):
        env.call("nothing")


class Slow(CountingEnv):
    def step(self, action: Any) -> Any:
        time.sleep(60)
        return super().step(action)


@pytest.mark.long
def test_closing_does_not_wait_for_a_step_that_takes_long() -> None:
    env = SubprocessVectorEnv(numbered(2, Slow))
    env.reset()
    env.step_async(np.zeros(2, np.int64))
    start = time.monotonic()
    env.close(timeout=0.2)
    assert time.monotonic() - start < 30
    assert not any(process.is_alive() for process in env.processes)


def test_signals_are_left_to_the_parent() -> None:
    env = SubprocessVectorEnv(numbered(2))
    env.reset()
    for process in env.processes:
        os.kill(process.pid, signal.SIGINT)
        os.kill(process.pid, signal.SIGTERM)
    env.step(np.zeros(2, np.int64))
    env.close()
    assert [process.exitcode for process in env.processes] == [0, 0]


FORGETFUL = """
import os, signal
import gymnasium as gym
from sharpwave.envs import make_vec_env

if __name__ == "__main__":
    env = make_vec_env("CartPole-v1", 2, mode="async", seed=0)
    print(*(process.pid for process in env.processes), flush=True)
    {end}
"""


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    stat = Path(f"/proc/{pid}/stat")  # ended, though whoever inherited it may not have noticed
    return stat.exists() and stat.read_text().rsplit(")", 1)[1].split()[0] == "Z"


@pytest.mark.long
@pytest.mark.parametrize("end", ["", "os.kill(os.getpid(), signal.SIGKILL)", "raise SystemExit(0)"])
def test_workers_end_with_a_program_that_forgets_them(end: str) -> None:
    program = FORGETFUL.replace("{end}", end)
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    pids = [int(word) for word in result.stdout.split()]
    assert len(pids) == 2, result.stderr
    deadline = time.monotonic() + 20
    while not all(gone(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert all(gone(pid) for pid in pids)
