"""The contract of fleets: versions, bounds, rests, failures, states, and nothing left behind."""

from __future__ import annotations

import contextlib
import gc
import re
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sharpwave as sw
from sharpwave.errors import ActorFailed, EnvironmentFailed, NonFiniteError
from sharpwave.testing.bits import state_of
from tests.contract.fleets import FLEETS, OPTIONS, Row, received, stop_ray
from tests.envs import resumable
from tests.fleet_envs import RELEASE, Failing, Hanging, Infinite, Slow
from tests.waiting import LONG, wait_for, without_hanging

WORLDS = pytest.mark.parametrize("world", ["CartPole-v1", resumable], ids=["native", "python"])
STARTS = pytest.mark.long(only=["processes", "grpc", "ray"])
"""Starting processes takes a while."""


# Ray leaves files and sockets to the collector.
OF_RAY = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]


@pytest.fixture(autouse=True, scope="module")
def ray_is_stopped() -> Iterator[None]:
    yield
    stop_ray()


def is_gone(row: Row) -> bool:
    """True if nothing is left of fleets that nobody knows any more."""
    gc.collect()  # does nothing where another thread collects
    return row.left() == []


@pytest.fixture(params=[pytest.param(one, marks=OF_RAY * (one == "ray")) for one in FLEETS])
def row(request: pytest.FixtureRequest) -> Iterator[Row]:
    found = FLEETS[request.param]
    wait_for(lambda: is_gone(found))  # what tests before this one forgot
    yield found
    RELEASE.set()  # a thread that hangs cannot be ended
    wait_for(lambda: found.left() == [])
    RELEASE.clear()


@pytest.mark.long(but=["threads-native"])
@WORLDS
def test_unrolls_follow_each_other_and_their_weights(row: Row, world: Any) -> None:
    """No unroll came twice or got lost, and the weights that it names are those that acted."""
    with row.agent(world) as agent:
        fleet, learner = agent.loop.fleet, agent.learner
        weights = learner.weights()
        published = {0: weights}
        last: dict[int, Any] = {}
        fleet.start(weights, 0)
        deadline, version, newest = time.monotonic() + LONG, 0, 0
        # Actors take turns as they like, and one may still be starting.
        while version < 9 or (len(last) < 2 and time.monotonic() < deadline):
            version += 1
            unroll = received(fleet)
            newest, rollout = max(newest, unroll.version), unroll.rollout
            if unroll.actor in last:
                np.testing.assert_array_equal(rollout.obs[0], last[unroll.actor])
            last[unroll.actor] = rollout.last_obs
            learner.follow_weights(published[unroll.version])
            log_probs, _, _ = learner.actor.evaluate(rollout.rows())
            np.testing.assert_allclose(log_probs, rollout.rows()["log_probs"], atol=1e-5)
            published[version] = published[version - 1] * np.float32(0.99)
            fleet.publish(published[version], version)
        assert len(last) == 2
        assert newest > 0
    row.check_none_is_left()


@pytest.mark.long
@STARTS
def test_in_step_each_actor_makes_one_unroll_of_each_version(row: Row) -> None:
    with row.agent(n_actors=3, deterministic=True) as agent:
        fleet, weights = agent.loop.fleet, agent.learner.weights()
        fleet.start(weights, 0)
        assert fleet.receive(0.05) is None
        for version in range(4):
            fleet.publish(weights, version)
        assert fleet.stats().in_flight == 12
        # However late an actor begins, its weights are those that it was asked for.
        fleet.start(weights, 99)
        seen = Counter((one.actor, one.version) for one in (received(fleet) for _ in range(12)))
        assert seen == Counter((actor, version) for actor in range(3) for version in range(4))
        assert fleet.receive(0.05) is None


@pytest.mark.long
@STARTS
def test_actors_rest_where_enough_unrolls_wait(row: Row) -> None:
    with row.agent(max_in_flight=5) as agent:
        fleet = agent.loop.fleet
        fleet.start(agent.learner.weights(), 0)
        wait_for(lambda: fleet.stats().waiting == 5)
        # An actor hands its unroll over a moment before it rests.
        wait_for(lambda: (fleet.stats().busy, fleet.stats().waiting) == (0, 5))
        time.sleep(0.05)
        stats = fleet.stats()
        assert (stats.actors, stats.alive, stats.busy, stats.waiting) == (2, 2, 0, 5)
        first = received(fleet)
        assert fleet.stats().received_bytes == first.nbytes > 1000
        wait_for(lambda: fleet.stats().waiting == 5)


@pytest.mark.long
@STARTS
def test_a_pause_leaves_the_environments_where_they_are(row: Row) -> None:
    with row.agent(max_in_flight=50, max_lag=30) as agent:
        fleet = agent.loop.fleet
        fleet.start(agent.learner.weights(), 0)
        received(fleet)
        fleet.pause()
        before = fleet.stats().waiting
        time.sleep(0.05)
        assert fleet.stats().waiting == before
        assert fleet.stats().busy == 0
        fleet.start(agent.learner.weights(), 1)
        assert [received(fleet).version for _ in range(before + 3)][-1] == 1


@pytest.mark.long
@STARTS
@pytest.mark.parametrize("deterministic", [False, True])
def test_an_actor_whose_environment_raises_is_made_again(row: Row, deterministic: bool) -> None:
    """Every actor fails in its fourth unroll, again and again."""
    with row.agent(partial(Failing, 30), deterministic=deterministic) as agent:
        metrics = agent.train(960)
        stats = agent.loop.fleet.stats()
        assert stats.failures == stats.restarts == stats.lost >= metrics["restarts"] >= 4
        assert metrics["lost_unrolls"] == metrics["restarts"]
        assert metrics["actors_alive"] == 2
        learned = 64 * agent.learner.updates
        assert agent.timesteps == learned + 32 * metrics["dropped_unrolls"] >= 960
        if deterministic:
            assert learned == 960
    row.check_none_is_left()


@pytest.mark.long
@STARTS
@pytest.mark.parametrize("deterministic", [False, True])
def test_an_actor_that_fails_three_times_in_a_row_ends_the_run(
    row: Row, deterministic: bool
) -> None:
    """An actor's exception died silently, and the learner waited for it."""
    with row.agent(partial(Failing, 3), deterministic=deterministic) as agent:
        for rounds in (1, 2):
            with pytest.raises(EnvironmentFailed, match="the pole broke"):
                agent.train(5000)
            stats = agent.loop.fleet.stats()
            assert 3 * rounds <= stats.failures <= 8 * rounds
            assert stats.restarts <= stats.failures
            assert (stats.busy, stats.received_bytes) == (0, 0)
    row.check_none_is_left()


@pytest.fixture
def hanging(row: Row, request: pytest.FixtureRequest) -> Row:
    case = request.node.name
    if row is FLEETS.get("ray") and "hangs_is_made_again[ray-False]" not in case:
        pytest.skip("its nodes are those of gRPC, and start slowly: one case is enough")
    return row


@pytest.mark.long
@STARTS
@pytest.mark.parametrize("deterministic", [False, True])
def test_an_actor_whose_environment_hangs_is_made_again(hanging: Row, deterministic: bool) -> None:
    """Its process gave signs of life, and the learner waited for ever."""
    world, options = (
        partial(Hanging, 30),
        {"deterministic": deterministic, "step_timeout": hanging.step_timeout},
    )
    with hanging.agent(world, **options) as agent:
        metrics = agent.train(384)
        stats = agent.loop.fleet.stats()
        assert stats.failures == stats.restarts == stats.lost >= metrics["restarts"] >= 1
        learned = 64 * agent.learner.updates
        assert agent.timesteps == learned + 32 * metrics["dropped_unrolls"] >= 384
        assert agent.loop.fleet.stats().alive == 2


@pytest.mark.long
@STARTS
def test_an_actor_whose_environment_lets_no_other_thread_run_is_made_again(
    hanging: Row, request: pytest.FixtureRequest
) -> None:
    if request.node.callspec.params["row"] == "threads":
        pytest.skip("nothing runs in a process whose interpreter is kept by one thread")
    with hanging.agent(partial(Hanging, 30, True), step_timeout=hanging.step_timeout) as agent:
        metrics = agent.train(384)
        stats = agent.loop.fleet.stats()
        assert stats.failures == stats.restarts == stats.lost >= metrics["restarts"] >= 1
    hanging.check_none_is_left()


@pytest.mark.long
@STARTS
@pytest.mark.slow(only=["grpc"])
def test_an_actor_that_hangs_three_times_in_a_row_ends_the_run_and_is_named(hanging: Row) -> None:
    seconds = hanging.step_timeout
    with hanging.agent(partial(Hanging, 3), step_timeout=seconds) as agent:
        with pytest.raises(ActorFailed) as caught:
            agent.train(5000)
        assert caught.value.actor in (0, 1)
        # Where it stands, and which environment it is.
        assert re.search(r"in step\n.*wait\(100_000\)", caught.value.trace)
        assert f"environment 0 did not come back within {seconds:g} s" in str(caught.value)
        assert agent.loop.fleet.stats().busy == 0


@pytest.mark.long
@STARTS
def test_a_reward_that_is_not_finite_ends_the_run_and_is_named(row: Row) -> None:
    with row.agent(partial(Infinite, 13)) as agent:
        message = r"^actor [01]: rewards .* environment 0 at step 48$"
        with pytest.raises(NonFiniteError, match=message):
            agent.train(5000)
        assert agent.loop.fleet.stats().restarts == 0


@pytest.mark.long
@WORLDS
@STARTS
def test_weights_that_are_not_finite_end_the_run_and_are_named(row: Row, world: Any) -> None:
    with row.agent(world) as agent:
        fleet, weights = agent.loop.fleet, agent.learner.weights()
        fleet.start(weights, 0)
        received(fleet)
        broken = weights.copy()
        broken[3] = np.nan

        def go_on() -> None:
            for version in range(1, 100):
                fleet.publish(broken, version)
                received(fleet)

        with pytest.raises(NonFiniteError, match=r"^actor [01]: weights .* at 3, at step \d+$"):
            go_on()
        # Whoever gives others goes on, once the other actor has raised it too.
        fleet.pause()
        with contextlib.suppress(NonFiniteError):
            fleet.receive(0.0)
        fleet.start(weights, 100)
        fleet.publish(weights, 100)
        while received(fleet).version < 100:
            pass


@WORLDS
@pytest.mark.long
def test_a_deterministic_run_is_the_same_in_all_fleets_and_goes_on_in_each(
    row: Row, world: Any, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"deterministic": True, "seed": 4}
    with FLEETS["threads"].agent(world, **options) as whole, row.agent(world, **options) as half:
        whole.train(192)
        half.train(192)
        whole.loop.config = half.loop.config  # they differ in the kind of their fleet
        assert state_of(half.learner) == state_of(whole.learner)
        half.save(tmp_path / "half")
        for kind in [one for one in FLEETS if one != "ray" or row is FLEETS["ray"]]:
            with FLEETS[kind].agent(world, checkpoint=tmp_path / "half") as again:
                again.learner.config = half.learner.config  # the same schedule
                again.train(192)
                if kind == "threads":
                    whole.train(192)
                    half.train(192)
                for one in (half, again):
                    assert state_of(one.learner) == state_of(whole.learner)
                    np.testing.assert_array_equal(one.episodes.returns, whole.episodes.returns)
                    assert one.timesteps == whole.timesteps == 384
                states = [one.loop.fleet.state_dict() for one in (whole, half, again)]
                assert states[0].keys() == states[1].keys() == states[2].keys()
                for found in states[1:]:
                    np.testing.assert_equal(without_times(found), without_times(states[0]))
    row.check_none_is_left()


def without_times(state: Any) -> Any:
    """A state without the seconds that it took."""
    if isinstance(state, dict):
        return {name: without_times(x) for name, x in state.items() if name != "timings"}
    return [without_times(x) for x in state] if isinstance(state, list) else state


@pytest.mark.long
@STARTS
def test_a_run_goes_on_from_a_checkpoint_after_failures(row: Row, tmp_path: Path) -> None:
    """The first actor's own environments were saved, though they had been replaced."""
    world, options = partial(Failing, 30), {"deterministic": True}
    with contextlib.ExitStack() as stack:
        whole, half = (stack.enter_context(row.agent(world, **options)) for _ in range(2))
        half.train(384)
        assert half.loop.fleet.stats().restarts >= 2
        half.save(tmp_path / "half")
        again = stack.enter_context(row.agent(world, checkpoint=tmp_path / "half"))
        again.learner.config = half.learner.config  # the same schedule
        whole.train(384)
        for rounds in (1, 2):
            assert state_of(whole.learner) == state_of(half.learner) == state_of(again.learner)
            assert whole.timesteps == half.timesteps == again.timesteps == 384 * rounds
            states = [one.loop.fleet.state_dict() for one in (whole, half, again)]
            for found in states[1:]:
                np.testing.assert_equal(without_times(found), without_times(states[0]))
            for one in (whole, half, again) if rounds == 1 else ():
                one.train(384)


@pytest.mark.long
@WORLDS
@STARTS
def test_nothing_is_left_of_a_fleet_that_is_closed(row: Row, world: Any) -> None:
    with row.agent(world, max_in_flight=20, max_lag=10) as agent:
        agent.train(256)
        assert len(row.left()) == 2
        with without_hanging():
            agent.close()
        row.check_none_is_left()
        with pytest.raises(RuntimeError, match="stopped"):
            agent.train(256)


@pytest.mark.long
@STARTS
def test_nothing_is_left_of_a_fleet_that_is_forgotten(
    row: Row, request: pytest.FixtureRequest
) -> None:
    kind: Any = request.node.callspec.params["row"]
    if kind not in ("threads", "processes"):
        pytest.skip("others act elsewhere")
    agent = sw.IMPALA("CartPole-v1", actors=kind, **OPTIONS)
    agent.train(256)
    assert len(row.left()) == 2
    del agent
    wait_for(lambda: is_gone(row))


@pytest.mark.long
@STARTS
def test_a_long_unroll_is_given_up_where_the_fleet_stops(row: Row) -> None:
    with row.agent(Slow, n_envs=1, n_steps=5000) as agent:
        agent.loop.fleet.start(agent.learner.weights(), 0)
        wait_for(lambda: agent.loop.fleet.stats().busy == 2)
        time.sleep(0.2)
        with without_hanging():
            agent.close()
    row.check_none_is_left()
