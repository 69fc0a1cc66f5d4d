"""Native environments that are saved and restored, copied, and stepped by threads."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.error import ResetNeeded

from sharpwave.envs import (
    NativeVectorEnv,
    Stepper,
    environment_state,
    random_state,
    restore_environment_state,
    restore_random_state,
)
from sharpwave.episodes.record_vector import RecordVectorEpisodes
from tests.reference.nests import assert_equal
from tests.unit.envs.native_runs import IDS, MODES, played, sampled, short_episodes


class TestState:
    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.parametrize("n_steps", [0, 1, 4, 5, 6, 13])
    def test_a_restored_environment_goes_on_bit_for_bit(self, mode: str, n_steps: int) -> None:
        env = short_episodes(3, mode)
        stepper = Stepper(env)
        stepper.reset(seed=1)
        actions = sampled(env, 40)
        for action in actions[:n_steps]:
            stepper.step(action)
        state = environment_state(env)
        assert state is not None
        other = short_episodes(3, mode)
        other.reset(seed=99)
        restore_environment_state(other, state)
        assert_equal(environment_state(other), state)
        resumed = Stepper(other)
        resumed.ended = stepper.ended.copy()
        for action in actions[n_steps:]:
            assert_equal(resumed.step(action), stepper.step(action))
        assert_equal(env.reset(), other.reset())

    @pytest.mark.parametrize("env_id", IDS)
    def test_a_state_is_what_can_be_written_to_a_file(self, env_id: str) -> None:
        env = NativeVectorEnv(env_id, 4)
        env.reset(seed=0)
        for value in env.get_state().values():
            assert isinstance(value, bool | str) or value.dtype != object

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"id": "Pendulum-v1"}, "must be of CartPole-v1, got Pendulum-v1"),
            ({"is_ready": False}, "after a reset"),
            ({"variables": np.zeros((4, 3))}, r"variables must have shape \(4, 2\), got \(4, 3\)"),
            ({"variables": np.zeros((2, 4))}, r"shape \(4, 2\), got \(2, 4\)"),
            ({"variables": np.zeros((4, 2), "f")}, "dtype float64, got float32"),
            ({"variables": np.full((4, 2), np.nan)}, "variables must be finite"),
            ({"returns": np.full(2, np.inf)}, "returns must be finite"),
            ({"steps": np.array([0, -1])}, "steps must be within"),
            ({"seeds": np.zeros(2, np.int64)}, "seeds must have dtype uint64, got int64"),
            ({"ended": np.array([True, False])}, "ended must be False"),
        ],
    )
    def test_what_is_no_state_is_refused(self, change: dict[str, Any], message: str) -> None:
        env = NativeVectorEnv("CartPole-v1", 2)
        env.reset(seed=0)
        before = env.get_state()
        with pytest.raises(ValueError, match=message):
            env.set_state({**before, **change})
        with pytest.raises(ValueError, match="state must have"):
            env.set_state({key: value for key, value in before.items() if key not in change})
        assert_equal(env.get_state(), before)

    def test_copies_and_pickles_go_on_where_they_were(self) -> None:
        env = NativeVectorEnv("Pendulum-v1", 2, g=3.0, max_episode_steps=7)
        twins = [copy.deepcopy(env), pickle.loads(pickle.dumps(env))]
        env.reset(seed=0)
        env.step(np.ones((2, 1)))
        twins += [copy.deepcopy(env), pickle.loads(pickle.dumps(env))]
        with pytest.raises(ResetNeeded):
            twins[0].step(np.ones((2, 1)))
        outcomes = played(env, [np.ones((2, 1))] * 10)
        for twin in twins[2:]:
            assert_equal(played(twin, [np.ones((2, 1))] * 10), outcomes)
            assert twin.spec is not None
            assert twin.spec.kwargs == {"g": 3.0, "max_episode_steps": 7}


class TestThreads:
    N = 30_011  # enough to be worth four threads, and no round number

    @pytest.mark.long(but=["Acrobot-v1"])
    @pytest.mark.parametrize("env_id", IDS)
    def test_the_number_of_threads_changes_nothing(self, env_id: str) -> None:
        runs = []
        for threads in (1, 2, 4):
            env = NativeVectorEnv(env_id, self.N, threads=threads)
            runs.append([env.reset(seed=1), *played(env, sampled(env, 12))])
        assert_equal(runs[1], runs[0])
        assert_equal(runs[2], runs[0])

    def test_several_python_threads_may_step_one_environment(self) -> None:
        env = NativeVectorEnv("MountainCar-v0", self.N, threads=2, max_episode_steps=10**6)
        env.reset(seed=0)
        small = NativeVectorEnv("MountainCar-v0", 3, max_episode_steps=10**6)
        small.reset(seed=0)
        failures: list[BaseException] = []

        def step() -> None:
            try:
                for _ in range(25):
                    env.step(np.zeros(self.N, np.int64))
                    small.step([0, 1, 2])
                    env.get_state()
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=step) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures
        assert (env.get_state()["steps"] == 100).all()
        assert (small.get_state()["steps"] == 100).all()

    @pytest.mark.long
    def test_a_forked_process_steps_too(self) -> None:
        program = f"""
import os, warnings
import numpy as np
from sharpwave.envs import NativeVectorEnv
warnings.simplefilter("ignore")
env = NativeVectorEnv("CartPole-v1", {self.N}, threads=2)
env.reset(seed=0)
actions = np.ones({self.N}, np.int64)
env.step(actions)
child = os.fork()
obs = [env.step(actions)[0] for _ in range(20)][-1]
if child == 0:
    os._exit(int(obs.sum(dtype=np.float64) * 1000) % 251)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == int(obs.sum(dtype=np.float64) * 1000) % 251
"""
        subprocess.run([sys.executable, "-c", program], check=True, timeout=100)


def test_recorded_episodes_begin_anew_and_draws_go_on(tmp_path: Path) -> None:
    env = RecordVectorEpisodes(NativeVectorEnv("Pendulum-v1", 2), tmp_path / "a")
    env.reset(seed=3)
    env.step(np.zeros((2, 1), np.float32))
    assert environment_state(env) is None
    state: Any = random_state(env)
    expected, _ = env.reset()
    env.close()
    again = RecordVectorEpisodes(NativeVectorEnv("Pendulum-v1", 2), tmp_path / "b")
    restore_random_state(again, state)
    np.testing.assert_array_equal(again.reset()[0], expected)
    again.close()
