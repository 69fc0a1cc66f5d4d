"""Rollouts in one native call are those that are collected step by step."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import sharpwave as sw
from sharpwave import _native
from sharpwave.collect import NativeRollouts, NonFiniteError, OnPolicyCollector, Rollout
from sharpwave.envs import NativeVectorEnv
from tests.unit.envs.native_runs import IDS

collect_rollout: Any = _native.collect_rollout

COLUMNS = ("obs", "actions", "log_probs", "values", "rewards", "terminated", "truncated", "starts")
RESULTS = ("advantages", "returns", "real")


def agent(env_id: str, n_envs: int = 5, limit: int | None = 23, **options: Any) -> Any:
    env = NativeVectorEnv(env_id, n_envs, max_episode_steps=limit, **options)
    return sw.PPO(env, n_steps=17, hidden=(8, 8), seed=4)


def collectors(env_id: str, **options: Any) -> tuple[NativeRollouts, OnPolicyCollector]:
    """Two collectors of agents that are alike."""
    ours, theirs = agent(env_id, **options), agent(env_id, **options)
    plain = OnPolicyCollector(
        theirs.env, theirs.actor, theirs.action_map, n_steps=17, seed=theirs.env_seed
    )
    assert isinstance(ours.collector, NativeRollouts)
    return ours.collector, plain


def assert_equal(ours: Rollout | None, theirs: Rollout | None) -> None:
    assert ours is not None
    assert theirs is not None
    for name in COLUMNS + RESULTS:
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name), err_msg=name)
    went_on = ~theirs.terminated
    np.testing.assert_array_equal(ours.next_values[went_on], theirs.next_values[went_on])


def assert_same_place(ours: OnPolicyCollector, theirs: OnPolicyCollector) -> None:
    states = [one.state_dict() for one in (ours, theirs)]
    for state in states:
        state.pop("timings")
    np.testing.assert_equal(states[0], states[1])
    np.testing.assert_equal(ours.env.get_state(), theirs.env.get_state())


@pytest.mark.parametrize("env_id", IDS)
@pytest.mark.parametrize("n_envs", [1, 5, 130])
def test_they_are_the_same_bit_for_bit(env_id: str, n_envs: int) -> None:
    ours, theirs = collectors(env_id, n_envs=n_envs)
    for _ in range(4):
        assert_equal(ours.collect(0.9, 0.8), theirs.collect(0.9, 0.8))
        assert_same_place(ours, theirs)
    assert theirs.episodes.count > 0


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
def test_single_steps_and_whole_rollouts_take_turns(env_id: str) -> None:
    ours, theirs = collectors(env_id)
    heard: list[float] = []
    for number in range(6):
        listener = heard.append if number % 2 else None
        assert_equal(
            ours.collect(0.9, 0.8, listener),  # type: ignore[arg-type]
            theirs.collect(0.9, 0.8),
        )
        assert_same_place(ours, theirs)
    assert len(heard) == 3 * 17


def test_the_number_of_threads_changes_nothing() -> None:
    rollouts = []
    for threads in (1, 2, 4):
        collector = agent("CartPole-v1", n_envs=3000, threads=threads).collector
        collector.collect(0.9, 0.8)
        rollouts.append(collector.collect(0.9, 0.8))
    for rollout in rollouts[1:]:
        assert_equal(rollout, rollouts[0])


def test_log_probs_and_values_are_those_of_the_policy() -> None:
    algo = agent("Pendulum-v1")
    rollout = algo.collector.collect(0.9, 0.8)
    rows = rollout.rows()
    log_probs, _, values = algo.native.learner.evaluate(rows)
    np.testing.assert_allclose(rows["log_probs"], log_probs, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(rows["values"], values, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_weights_that_are_no_numbers_are_named(env_id: str, bad: float) -> None:
    algo = agent(env_id)
    algo.native.flat.data[-1] = bad
    with pytest.raises(NonFiniteError, match="the policy must give finite numbers"):
        algo.collector.collect(0.9, 0.8)


@pytest.mark.parametrize("mode", ["next_step", "disabled"])
def test_other_modes_are_collected_step_by_step(mode: str) -> None:
    algo = agent("CartPole-v1", autoreset_mode=mode)
    assert type(algo.collector) is OnPolicyCollector
    assert algo.train(200)["timesteps"] >= 200


def arguments(algo: Any) -> list[Any]:
    collector = algo.collector
    collector.collect(0.9, 0.8)
    rollout = collector._rollout
    columns = tuple(getattr(rollout, name) for name in (*COLUMNS, "next_values"))
    place = (collector.obs, collector.starts, *collector.episodes.in_flight)
    return [algo.native.learner.native, algo.env, 1, 2, -1.0, 1.0, columns, place]


@pytest.mark.parametrize(
    ("position", "bad", "error"),
    [
        (0, None, TypeError),
        (1, object(), TypeError),
        (2, -1, OverflowError),
        (3, "a", TypeError),
        (4, "low", TypeError),
        (6, (), TypeError),
        (6, (None,) * 9, TypeError),
        (7, [1, 2, 3, 4], TypeError),
        (7, (np.zeros(3),) * 4, ValueError),
    ],
)
def test_bad_arguments_are_refused(position: int, bad: Any, error: type[Exception]) -> None:
    given = arguments(agent("CartPole-v1"))
    given[position] = bad
    with pytest.raises(error):
        collect_rollout(*given)


def test_arrays_that_do_not_fit_are_named() -> None:
    given = arguments(agent("CartPole-v1"))
    columns = list(given[6])
    columns[4] = columns[4][:, :2]
    with pytest.raises(ValueError, match="rewards"):
        collect_rollout(*given[:6], tuple(columns), given[7])
    other = arguments(agent("Pendulum-v1"))
    with pytest.raises(ValueError, match="learner must have the observations and actions"):
        collect_rollout(other[0], *given[1:])


def test_environments_that_were_not_reset_or_are_closed_are_refused() -> None:
    algo = agent("CartPole-v1")
    given = arguments(algo)
    given[1] = NativeVectorEnv("CartPole-v1", 5)
    with pytest.raises(RuntimeError, match="must be reset first"):
        collect_rollout(*given)
    given[1].close()
    with pytest.raises(Exception, match="closed"):
        collect_rollout(*given)


def test_threads_of_one_collector_wait_for_each_other() -> None:
    algo = agent("CartPole-v1")
    given = arguments(algo)
    threads = [
        threading.Thread(target=lambda: [collect_rollout(*given) for _ in range(50)])
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lengths = algo.env.get_state()["steps"]
    np.testing.assert_array_equal(given[7][3], lengths)
