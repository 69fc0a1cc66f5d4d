"""Collecting in a thread while learning."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from functools import partial
from typing import Any

import numpy as np
import pytest

import sharpwave as sw
from sharpwave.errors import EnvironmentFailed
from tests.envs import CountingEnv, FailingEnv
from tests.unit.loops.replay_runs import SpyLearner, assert_same_run, spy


def collecting() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("collect")]


def test_the_environments_step_while_the_networks_learn() -> None:
    run = spy(overlap=True, learning_starts=5, buffer_size=100, log_interval=50)
    learn = run.learner.update

    def patiently(batch: Any) -> Any:
        """Is not done learning before the environments have stepped on."""
        if run.timesteps < run.target_timesteps:
            until = time.monotonic() + 20
            while run.collector.timesteps == run.timesteps:
                assert time.monotonic() < until, "nothing happens meanwhile"
                time.sleep(0.001)
        return learn(batch)

    run.learner.update = patiently
    run.train(20)
    assert run.gradient_steps == 16
    assert not collecting()


def test_the_policy_that_acts_is_the_one_before_the_last_update() -> None:
    weights: list[float] = []
    acted: list[float] = []

    class Watched(SpyLearner):
        def act(self, obs: Any, **options: Any) -> Any:
            acted.append(self.policy.weight.item())
            return super().act(obs, **options)

        def update(self, batch: Any) -> Any:
            weights.append(self.policy.weight.item())
            return super().update(batch)

    run = spy(overlap=True, learning_starts=0, learner=Watched)
    run.train(30)
    # Step t + 1 is collected beside the update after step t, which is number t - 4 of them.
    assert acted[-20:] == weights[-21:-1]


def test_a_run_is_that_of_a_slower_learner() -> None:
    """Overlapping or not, threads may be as slow as they like."""
    plain = spy(overlap=True, train_freq=2, n_envs=2)
    plain.train(60)

    class Slow(CountingEnv):
        def step(self, action: Any) -> Any:
            threading.Event().wait(0.001)
            return super().step(action)

    slow = spy(Slow, overlap=True, train_freq=2, n_envs=2)
    slow.train(60)
    assert_same_run(plain, slow)


class TestEnds:
    def test_no_thread_is_left_after_training(self) -> None:
        run = spy(overlap=True)
        run.train(30)
        assert not collecting()
        run.close()

    @pytest.mark.long
    def test_nothing_keeps_a_run_alive(self) -> None:
        run = spy(overlap=True)
        run.train(30)
        alive = weakref.ref(run)
        del run
        gc.collect()
        assert alive() is None
        assert not collecting()

    def test_without_overlap_there_is_no_thread(self) -> None:
        seen: list[str] = []

        class Look(sw.Callback):
            def on_step(self, **_: Any) -> None:
                seen.extend(collecting())

        spy().train(30, callbacks=Look())
        assert not seen

    def test_an_environment_that_fails_in_the_thread_reaches_the_caller(self) -> None:
        run = spy(partial(FailingEnv, (50,), fail_step=20), overlap=True)
        with pytest.raises(EnvironmentFailed, match="the wheel is flat"):
            run.train(100)
        assert not collecting()
        assert run.timesteps == 19

    def test_what_was_collected_while_learning_failed_is_kept(self) -> None:
        run = spy(partial(CountingEnv, (7,)), overlap=True, train_freq=2)
        learn = run.learner.update

        def fail(batch: Any) -> Any:
            if run.timesteps >= 24:
                raise ZeroDivisionError("no luck")
            return learn(batch)

        run.learner.update = fail
        with pytest.raises(ZeroDivisionError, match="no luck"):
            run.train(100)
        assert not collecting()
        assert run.timesteps == run.collector.timesteps == len(run.buffer) == 26
        run.learner.update = learn
        run.train(10)
        steps = run.buffer.gather(run.buffer.indices())["obs"][:, 1:]
        np.testing.assert_array_equal(steps[:, 0] * 7 + steps[:, 1], np.arange(36))

    def test_what_was_collected_is_kept_when_a_callback_fails(self) -> None:
        class Fail(sw.Callback):
            def on_step(self, *, step: int, **_: Any) -> None:
                if step == 15:
                    raise LookupError("lost")

        run = spy(partial(CountingEnv, (7,)), overlap=True, train_freq=4)
        with pytest.raises(LookupError):
            run.train(100, callbacks=Fail())
        assert run.timesteps == run.collector.timesteps == len(run.buffer) == 16
        assert not collecting()

    def test_ctrl_c_ends_it_and_it_goes_on(self) -> None:
        run = spy(partial(CountingEnv, (7,)), overlap=True)
        learn = run.learner.update

        def interrupt(batch: Any) -> Any:
            if run.timesteps == 25:
                raise KeyboardInterrupt
            return learn(batch)

        run.learner.update = interrupt
        with pytest.raises(KeyboardInterrupt):
            run.train(100)
        assert not collecting()
        assert run.timesteps == len(run.buffer) == 26
        run.learner.update = learn
        run.train(10)
        assert len(run.buffer) == 36

    @pytest.mark.parametrize("overlap", [False, True])
    def test_a_request_to_stop_is_heard_within_an_update(self, overlap: bool) -> None:
        run = spy(overlap=overlap, log_interval=1000)
        learn = run.learner.update

        def ask(batch: Any) -> Any:
            if run.timesteps == 25:
                run.request_stop("enough")
            return learn(batch)

        run.learner.update = ask
        run.train(100)
        assert run.timesteps == 26
        assert run.stop_reason == "enough"
