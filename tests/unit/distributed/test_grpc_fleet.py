"""Fleets over gRPC: who joins, what is asked for, what is refused, and who comes back."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from tests.waiting import LONG, wait_for, without_hanging

pytest.importorskip("grpc")

from sharpwave.distributed import EnvRecipe, Unroll, make_actor
from sharpwave.distributed.codec import pack
from sharpwave.distributed.grpc_fleet import PROTOCOL, GrpcFleet
from sharpwave.distributed.security import Access
from sharpwave.errors import EnvironmentFailed, NonFiniteError, WireError
from tests.unit.distributed.remote import (
    RECIPE,
    WEIGHTS,
    Acting,
    Liar,
    address_of,
    listening,
    unroll_bytes,
)

TOKEN = "a-token-of-the-tests"


def received(fleet: GrpcFleet) -> Unroll:
    unroll = fleet.receive(LONG)
    assert unroll is not None
    return unroll


def test_actors_of_a_node_make_the_unrolls_that_they_would_make_here() -> None:
    with listening(in_step=True) as fleet:
        node = Acting(address_of(fleet), n_actors=2)
        fleet.publish(WEIGHTS, 0)
        fleet.publish(WEIGHTS * np.float32(0.5), 1)
        found = sorted(
            (received(fleet) for _ in range(4)), key=lambda one: (one.actor, one.version)
        )
        for number in range(2):
            actor = make_actor(RECIPE, number)
            for version, weights in enumerate((WEIGHTS, WEIGHTS * np.float32(0.5))):
                ours, theirs = actor.collect(weights, version, lambda: False), found.pop(0)
                assert ours is not None
                assert (theirs.actor, theirs.version) == (number, version)
                columns = theirs.columns()
                assert columns.keys() == ours.columns().keys()
                for name, column in ours.columns().items():
                    np.testing.assert_array_equal(columns[name], column)
            actor.close()
        assert fleet.receive(0.05) is None
    assert node.wait() is None
    assert node.said == [f"joined {node._node._learner} as actor 0, actor 1"]


def test_weights_go_once_to_a_node_and_only_where_it_has_others() -> None:
    with listening(n_actors=3, max_in_flight=3) as fleet, Liar(address_of(fleet)) as node:
        welcome = node.join(3)
        assert welcome.columns["numbers"].tolist() == [0, 1, 2]
        assert [node.hear().kind for _ in range(4)] == ["weights", "ask", "ask", "ask"]
        node.say(unroll_bytes(1))
        received(fleet)
        assert node.hear().meta == {"actor": 1, "version": 0}  # with the weights that it has
        fleet.publish(WEIGHTS * 2, 5)
        node.say(unroll_bytes(2))
        received(fleet)
        new = node.hear()
        np.testing.assert_array_equal(new.columns["weights"], WEIGHTS * 2)
        assert node.hear().meta == {"actor": 2, "version": 5}
        # A run that was set back has other weights of a version that was there before.
        fleet.publish(WEIGHTS * 3, 5)
        node.say(unroll_bytes(0))
        received(fleet)
        np.testing.assert_array_equal(node.hear().columns["weights"], WEIGHTS * 3)


@pytest.mark.long
def test_no_more_is_asked_for_than_may_be_in_flight() -> None:
    with listening(max_in_flight=3) as fleet:
        node = Acting(address_of(fleet), n_actors=2)
        wait_for(lambda: fleet.stats().waiting == 3)
        time.sleep(0.1)
        stats = fleet.stats()
        assert (stats.alive, stats.busy, stats.waiting, stats.in_flight) == (2, 0, 3, 3)
        # More actors than were counted on may have more in flight.
        more = Acting(address_of(fleet), n_actors=2)
        wait_for(lambda: fleet.stats().waiting == 6)
        time.sleep(0.1)
        assert fleet.stats().in_flight == 6
        missing = {0, 1, 2, 3}
        while missing:
            missing.discard(received(fleet).actor)
        fleet.pause()
        assert fleet.stats().busy == 0
    assert [node.wait(), more.wait()] == [None, None]


def test_actors_join_and_leave_while_others_go_on() -> None:
    with listening(n_actors=1, max_in_flight=1) as fleet:
        steady = Acting(address_of(fleet))
        wait_for(lambda: fleet.stats().alive == 1)
        for _ in range(2):
            with Liar(address_of(fleet)) as guest:
                assert guest.join().columns["numbers"].tolist() == [1]
                assert fleet.stats().alive == 2
            wait_for(lambda: fleet.stats().alive == 1)
            assert received(fleet).actor == 0
        with Liar(address_of(fleet)) as guest:
            welcome = guest.join()
            # Whoever comes next in a place draws other numbers.
            assert (welcome.columns["numbers"].tolist(), welcome.columns["lives"].tolist()) == (
                [1],
                [2],
            )
        assert fleet.stats().restarts == 2
    assert steady.wait() is None


def test_what_an_actor_was_making_is_lost_with_it() -> None:
    with listening() as fleet:
        with Liar(address_of(fleet)) as node:
            node.join(2)
            wait_for(lambda: fleet.stats().busy == 2)
        wait_for(lambda: fleet.stats().alive == 0)
        stats = fleet.stats()
        assert (stats.lost, stats.busy, stats.in_flight, stats.may_join) == (2, 0, 0, True)
        fleet.pause()  # waits for nobody who is gone


def test_in_step_whoever_comes_next_makes_what_was_asked_for() -> None:
    with listening(in_step=True) as fleet:
        fleet.publish(WEIGHTS, 0)
        with Liar(address_of(fleet)) as node:
            node.join(2)
            assert [node.hear().kind for _ in range(3)] == ["weights", "ask", "ask"]
            node.say(unroll_bytes(1))
            assert received(fleet).actor == 1
        wait_for(lambda: fleet.stats().alive == 0)
        assert fleet.stats().asked == 1
        later = Acting(address_of(fleet), n_actors=2)
        unroll = received(fleet)
        assert (unroll.actor, unroll.version) == (0, 0)
        assert fleet.receive(0.1) is None
    assert later.wait() is None


@pytest.mark.long
def test_in_step_there_is_no_place_for_more_actors() -> None:
    with listening(in_step=True, n_actors=1, max_in_flight=1) as fleet:
        first, second = (Acting(address_of(fleet), patience=5.0) for _ in range(2))
        wait_for(lambda: "actors" in "".join([*first.said, *second.said]))
        fleet.publish(WEIGHTS, 0)
        assert received(fleet).actor == 0
        told = [*first.said, *second.said]
        assert any("the learner has its 1 actors" in line for line in told)
    assert [first.wait(), second.wait()].count(None) == 1


@pytest.mark.long
def test_a_silent_node_is_given_up_at_its_deadline_and_may_return() -> None:
    with listening(deadline=8.0) as fleet, Liar(address_of(fleet)) as silent:
        steady = Acting(address_of(fleet))
        wait_for(lambda: fleet.stats().alive == 1)
        silent.join()
        assert fleet.stats().alive == 2
        with without_hanging():
            while fleet.stats().alive == 2:
                received(fleet)  # of the other one, which goes on
        with pytest.raises(ConnectionError):
            [silent.hear() for _ in range(100)]
        with Liar(address_of(fleet)) as again:
            assert again.join().columns["lives"].tolist() == [1]
    assert steady.wait() is None


@pytest.mark.parametrize(
    ("first", "says"),
    [
        (
            pack("join", meta={"protocol": PROTOCOL + 1, "actors": 1}),
            "must speak protocol 1, got 2",
        ),
        (pack("join", meta={"actors": 1}), "must speak protocol 1, got None"),
        (pack("join", meta={"protocol": PROTOCOL, "actors": 0}), "must have 1 to 64 actors, got 0"),
        (pack("join", meta={"protocol": PROTOCOL, "actors": 65}), "must have 1 to 64 actors"),
        (pack("beat"), "expected a message of kind 'join', got 'beat'"),
        (b"", "at least 28 bytes, got 0"),
    ],
)
def test_who_does_not_say_what_it_is_does_not_join(first: bytes, says: str) -> None:
    with listening() as fleet, Liar(address_of(fleet)) as node:
        node.say(first)
        with pytest.raises(WireError, match=says):
            node.hear()
        assert fleet.stats().alive == 0


def test_without_the_token_nobody_joins() -> None:
    with listening(access=Access(TOKEN)) as fleet:
        stranger = Acting(address_of(fleet), access=Access("another-token-of-tests"))
        assert isinstance(stranger.wait(), PermissionError)
        friend = Acting(address_of(fleet), access=Access(TOKEN))
        assert received(fleet).actor == 0
    assert friend.wait() is None


def test_what_an_actor_raised_is_raised_by_the_learner() -> None:
    failed = {"kind": "EnvironmentFailed", "env_index": 2, "doing": "step(1)", "trace": "Traceback"}
    with listening() as fleet:
        for told, error in (
            (failed, EnvironmentFailed),
            ({"kind": "NonFiniteError", "text": "actor 1: rewards"}, NonFiniteError),
            ({"kind": "KeyError", "text": "'x'"}, RuntimeError),
        ):
            with Liar(address_of(fleet)) as node:
                node.join()
                node.say(pack("failed", meta={**told, "actor": 0}))  # type: ignore[dict-item]
                with pytest.raises(error) as caught:
                    [fleet.receive(5.0) for _ in range(4)]
                assert str(told.get("text", "Traceback")) in str(caught.value)
            wait_for(lambda: fleet.stats().alive == 0)  # its place is free
            fleet.start(WEIGHTS, 0)  # whoever goes on nevertheless may


def test_an_actor_that_cannot_tell_its_state_is_raised_and_not_waited_for() -> None:
    failed = {"kind": "TypeError", "text": "cannot be copied", "actor": 0}
    with (
        listening(max_in_flight=1, n_actors=1) as fleet,
        Liar(address_of(fleet)) as node,
    ):
        node.join()
        node.say(unroll_bytes(0))
        wait_for(lambda: fleet.stats().waiting == 1)  # and no other one was asked for

        def answer() -> None:
            while node.hear().kind != "tell":
                pass
            node.say(pack("failed", meta=failed))  # type: ignore[arg-type]

        answering = threading.Thread(target=answer)
        answering.start()
        with pytest.raises(RuntimeError, match="cannot be copied"):
            fleet.state_dict()
        assert fleet.stats().alive == 1  # nobody waited until it fell silent
        answering.join()


def test_actors_that_never_come_end_the_run() -> None:
    with (
        listening(patience=0.2) as fleet,
        pytest.raises(ConnectionError, match=r"0 of 2 actors .*`sharpwave actor --learner 127"),
    ):
        [fleet.receive(0.05) for _ in range(1000)]


def test_a_fleet_that_is_stopped_listens_no_more() -> None:
    before = set(threading.enumerate())
    with listening() as fleet:
        node = Acting(address_of(fleet), n_actors=2)
        received(fleet)
        address = address_of(fleet)
        with without_hanging():
            fleet.stop()
        assert node.wait() is None
        with pytest.raises(RuntimeError, match="the fleet is stopped"):
            fleet.start(WEIGHTS, 0)
        late = Acting(address, patience=0.3)
        error = late.wait()
        assert isinstance(error, ConnectionError)
        assert "has not answered for" in str(error)
    wait_for(lambda: not {one.name for one in set(threading.enumerate()) - before} & ours())


def ours() -> set[str]:
    return {one.name for one in threading.enumerate() if one.name.startswith("sharpwave")}


def test_nodes_wait_for_a_learner_that_is_started_again() -> None:
    with listening() as fleet:
        address = address_of(fleet)
        node = Acting(address, patience=30)
        received(fleet)
        assert fleet._server is not None
        fleet._server.stop(0)  # as if its process had ended: nobody says goodbye
    with listening(address=address) as resumed:
        assert received(resumed).version == 0
    assert node.wait() is None
    assert any("waiting for" in line for line in node.said)


@pytest.mark.long
def test_actors_go_on_from_a_state_whichever_node_they_are_on() -> None:
    def rounds(fleet: GrpcFleet, versions: range) -> list[Unroll]:
        found = []
        for version in versions:
            fleet.publish(WEIGHTS, version)
            found += sorted((received(fleet) for _ in range(2)), key=lambda one: one.actor)
        return found

    with listening(in_step=True) as whole:
        node = Acting(address_of(whole), n_actors=2)
        expected = rounds(whole, range(12))[12:]
    assert node.wait() is None
    with listening(in_step=True) as half:
        node = Acting(address_of(half), n_actors=2)
        rounds(half, range(6))
        state = half.state_dict()
        fresh = half.state_dict()
        rounds(half, range(6, 9))
        half.load_state_dict(fresh, in_flight=True)  # those who are there are set back
        again = rounds(half, range(6, 12))
    assert node.wait() is None
    with listening(in_step=True) as resumed:
        resumed.load_state_dict(state, in_flight=True)
        nodes = [Acting(address_of(resumed)) for _ in range(2)]
        resumed.start(WEIGHTS, 6)
        found = rounds(resumed, range(6, 12))
    assert [one.wait() for one in nodes] == [None, None]
    for others in (again, found):
        for one, other in zip(expected, others, strict=True):
            assert (one.actor, one.version) == (other.actor, other.version)
            for name, column in one.columns().items():
                np.testing.assert_array_equal(column, other.columns()[name])


def test_what_waits_is_part_of_the_state() -> None:
    with listening() as fleet:
        with Liar(address_of(fleet)) as node:
            node.join(2)
            node.say(unroll_bytes(1))
            wait_for(lambda: fleet.stats().waiting == 1)
        wait_for(lambda: fleet.stats().alive == 0)
        state = fleet.state_dict()
    assert (state["actors"], state["lives"]) == ([None, None], [0, 0])
    with listening() as resumed:
        resumed.load_state_dict(state, in_flight=True)
        assert received(resumed).actor == 1
        with Liar(address_of(resumed)) as guest:
            # Nobody knows where those of then stood, and whoever comes draws other numbers.
            assert guest.join(2).columns["lives"].tolist() == [1, 1]


def test_what_names_code_is_made_only_where_the_command_line_names_it() -> None:
    for env, says in (
        (EnvRecipe(env="tests.no_such_module:My-v0", n_envs=4), "pass --env tests.no_such_module"),
        (EnvRecipe(env="CartPole-v1", n_envs=4, kwargs={"x": "os:system"}), "os:system"),
    ):
        with listening(replace(RECIPE, env=env)) as fleet:
            error = Acting(address_of(fleet)).wait()
            assert isinstance(error, ValueError)
            assert "names code that would be imported" in str(error)
            assert says in str(error)


def test_another_environment_or_other_spaces_are_named() -> None:
    with listening() as fleet:
        error = Acting(address_of(fleet), env="Acrobot-v1").wait()
        assert "env must be the learner's 'CartPole-v1', got 'Acrobot-v1'" in str(error)
    with listening(replace(RECIPE, env=EnvRecipe(env="Acrobot-v1", n_envs=4))) as fleet:
        error = Acting(address_of(fleet)).wait()
        assert "Acrobot-v1 must have the spaces" in str(error)


def test_weights_of_another_size_are_named() -> None:
    with listening() as fleet:
        fleet.publish(WEIGHTS[:-1], 1)
        error = Acting(address_of(fleet)).wait()
        assert isinstance(error, WireError)
        assert f"weights must be float32 ({WEIGHTS.size},)" in str(error)


def test_code_is_not_sent_anywhere() -> None:
    with pytest.raises(TypeError, match="env must be an id for actors elsewhere"):  # noqa: SIM117
        with listening(replace(RECIPE, env=EnvRecipe(env=Counter, n_envs=4))):
            pass
