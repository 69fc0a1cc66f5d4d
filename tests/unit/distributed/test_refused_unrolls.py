"""Unrolls that are not what was asked for: each is refused with a name, and the run goes on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from tests.waiting import wait_for

pytest.importorskip("grpc")

from sharpwave.collect import Rollout
from sharpwave.distributed import Unroll
from sharpwave.distributed.codec import pack
from sharpwave.distributed.state_codec import state_to_bytes
from sharpwave.distributed.unroll_schema import UnrollSchema
from sharpwave.errors import WireError
from tests.contract.fleets import received
from tests.unit.distributed.remote import WEIGHTS, Liar, address_of, listening, unroll_bytes


def at(step: int, env: int) -> Any:
    """A flag for each step of an unroll, one of which is set."""
    flags = np.zeros((8, 4), np.bool_)
    flags[step, env] = True
    return flags


def ended(episode_return: float) -> dict[str, Any]:
    """The columns of an unroll in which an episode was cut off."""
    return {
        "truncated": at(3, 1),
        "final_obs": np.zeros((1, 4), np.float32),
        "episode_returns": np.full(1, episode_return),
        "episode_lengths": np.ones(1, np.int64),
    }


REFUSED: list[tuple[bytes, str]] = [
    (b"noise", "at least 28 bytes"),
    (pack("nothing"), "expected one of unroll, beat, failed, told, got 'nothing'"),
    (unroll_bytes(5), r"actors must be \[0\], got 5"),
    (unroll_bytes(version=3), "an unroll with weights 0 was asked for, got one with 3"),
    (unroll_bytes(serial=1), "actor 0: unroll 0 was expected, got 1"),
    (unroll_bytes(serial=None), "unroll 0 was expected, got None"),
    (
        unroll_bytes(rewards=np.zeros((8, 3), np.float32)),
        r"actor 0: rewards must be float32 \(8, 4",
    ),
    (unroll_bytes(rewards=np.zeros((8, 4))), "rewards must be float32 .* got float64"),
    (unroll_bytes(obs=np.zeros((8, 4, 3), np.float32)), "obs must be float32"),
    (unroll_bytes(last_obs=None), "must have last_obs"),
    (unroll_bytes(final_obs=np.zeros((1, 4), np.float32)), "final_obs must be"),
    (unroll_bytes(actions=np.full((8, 4), 2)), "actions must be from 0 to 1, got 2..2"),
    (unroll_bytes(actions=np.full((8, 4), -1)), "actions must be from 0 to 1"),
    (unroll_bytes(actions=np.zeros((8, 4), np.float32)), "actions must be integers"),
    (unroll_bytes(actions=np.zeros((8, 5), int)), "actions must have shape"),
    (unroll_bytes(state=np.zeros((1, 4, 2), np.float32)), "state must be None"),
    (
        unroll_bytes(masks=np.ones((7, 4, 2), np.bool_)),
        r"masks must be bool \(8, 4, 2\), got bool \(7",
    ),
    (unroll_bytes(masks=np.ones((8, 4, 7), np.bool_)), r"actor 0: masks must be bool \(8, 4, 2\)"),
    (unroll_bytes(masks=np.ones((8, 4), np.bool_)), "masks must be .* got bool"),
    (
        unroll_bytes(masks=~at(3, 1)[..., None].repeat(2, 2)),
        "actor 0: masks must allow an action, got none at step 3, environment 1",
    ),
    (
        unroll_bytes(**{**ended(1.0), "final_obs": None}),
        "actor 0: final_obs must have what a truncated .* at step 3, environment 1",
    ),
    (
        unroll_bytes(**ended(np.nan)),
        "actor 0: episode returns must be finite, got nan at episode 0",
    ),
    (
        unroll_bytes(**ended(1.0), successes=np.full(1, np.inf)),
        "successes must be finite, got inf at episode 0",
    ),
    (unroll_bytes(**{"extra.noise": np.ones((8, 4), np.float32)}), "extra must be None, got"),
    (unroll_bytes(episode_returns=np.zeros(9)), "episode returns must be"),
    (pack("beat", meta={"lost": -1}), "lost must be a count, got -1"),
    (pack("beat", meta={"restarts": "many"}), "restarts must be a count, got 'many'"),
    (unroll_bytes(meta={"failures": -1}), "failures must be a count, got -1"),
]


@pytest.mark.parametrize(("data", "says"), REFUSED, ids=[says for _, says in REFUSED])
def test_what_is_no_unroll_that_was_asked_for_is_refused(data: bytes, says: str) -> None:
    with listening() as fleet, Liar(address_of(fleet)) as node:
        node.join()
        assert [node.hear().kind, node.hear().kind] == ["weights", "ask"]
        node.say(data)
        with pytest.raises(WireError, match=says):
            node.hear()
        wait_for(lambda: fleet.stats().alive == 0)
        assert fleet.stats().failures == 1
        # Others may still join, and nothing of it was taken.
        assert fleet.receive(0.01) is None
        with Liar(address_of(fleet)) as honest:
            honest.join()
            assert [honest.hear().kind, honest.hear().kind] == ["weights", "ask"]
            honest.say(unroll_bytes(0))
            assert received(fleet).actor == 0


@pytest.mark.parametrize("in_step", [False, True])
def test_an_unroll_that_is_refused_for_its_counts_is_asked_for_again(in_step: bool) -> None:
    """It was counted as under way for ever, and nobody else was asked."""
    with listening(n_actors=1, max_in_flight=1, in_step=in_step) as fleet:
        if in_step:
            fleet.publish(WEIGHTS, 0)
        with Liar(address_of(fleet)) as node:
            node.join()
            node.say(unroll_bytes(meta={"failures": -1}))
            with pytest.raises(WireError, match="failures must be a count, got -1"):
                [node.hear() for _ in range(3)]
        wait_for(lambda: fleet.stats().alive == 0)
        with Liar(address_of(fleet)) as honest:
            honest.join()
            assert [honest.hear().kind, honest.hear().kind] == ["weights", "ask"]
            honest.say(unroll_bytes())
            assert received(fleet).actor == 0


def test_what_a_node_says_too_late_is_not_of_the_one_that_came_after_it() -> None:
    with listening(n_actors=1, max_in_flight=1) as fleet:
        with Liar(address_of(fleet)) as node:
            node.join()
            (left,) = fleet._sessions
        wait_for(lambda: fleet.stats().alive == 0)
        with Liar(address_of(fleet)) as other:
            other.join()
            fleet._take(left, pack("failed", meta={"actor": 0, "kind": "KeyError"}))
            fleet._take(left, state_to_bytes("told", {}, actor=0, life=0))
            other.say(unroll_bytes())
            assert received(fleet).actor == 0


@pytest.mark.long(but=["rewards"])
@pytest.mark.parametrize("column", ["rewards", "log_probs", "obs"])
def test_numbers_that_are_not_finite_are_refused_with_their_place(column: str) -> None:
    values = np.zeros((8, 4, 4) if column == "obs" else (8, 4), np.float32)
    values[5, 2] = np.nan
    with listening() as fleet, Liar(address_of(fleet)) as node:
        node.join()
        node.say(unroll_bytes(**{column: values}))
        wanted = rf"actor 0: {column} must be finite, got nan at step 5, environment 2"
        with pytest.raises(WireError, match=wanted):
            [node.hear() for _ in range(3)]


def test_an_unroll_is_taken_once() -> None:
    with listening() as fleet, Liar(address_of(fleet)) as node:
        node.join()
        data = unroll_bytes(0)
        node.say(data)
        received(fleet)
        wait_for(lambda: fleet.stats().busy == 1)  # another one was asked for
        node.say(data)
        with pytest.raises(WireError, match="unroll 1 was expected, got 0"):
            [node.hear() for _ in range(4)]
        assert fleet.receive(0.05) is None


def test_an_unroll_that_was_not_asked_for_is_refused() -> None:
    with listening(max_in_flight=1, n_actors=1) as fleet, Liar(address_of(fleet)) as node:
        node.join()
        node.say(unroll_bytes(0))
        wait_for(lambda: fleet.stats().waiting == 1)
        node.say(unroll_bytes(0, serial=1))
        with pytest.raises(WireError, match="no unroll was asked for, got one"):
            [node.hear() for _ in range(3)]
        assert fleet.stats().waiting == 1


MANY, BITS, BOX = spaces.MultiDiscrete([2, 3]), spaces.MultiBinary(3), spaces.Box(-1, 1, (2,))


def check(space: spaces.Space[Any], obs: Any, actions: spaces.Space[Any], **columns: Any) -> None:
    """Check an unroll of 3 steps in 2 environments, all of which observe this."""
    one = np.asarray(obs, np.float32 if isinstance(space, spaces.Box) else space.dtype)
    flags = np.zeros((3, 2), np.bool_)
    given: dict[str, Any] = {
        "obs": np.broadcast_to(one, (3, 2, *one.shape)),
        "last_obs": np.broadcast_to(one, (2, *one.shape)),
        "actions": np.zeros((3, 2, *(actions.shape or ())), actions.dtype),
        **dict.fromkeys(("log_probs", "rewards"), np.zeros((3, 2), np.float32)),
        **dict.fromkeys(("terminated", "truncated", "starts"), flags),
        "valid": ~flags,
        **columns,
    }
    ends = int(given["truncated"].sum())
    of_episodes = np.zeros(ends), np.ones(ends, np.int64), np.zeros(0)
    UnrollSchema(space, actions, 3, 2).check(
        Unroll(0, 0, Rollout.without_values(**given), *of_episodes)
    )


@pytest.mark.parametrize(
    ("actions", "rows", "says"),
    [
        (MANY, [1, 0, 0, 0, 1], None),
        (MANY, [1, 1, 0, 0, 0], "must allow an action, got none at step 0, environment 0"),
        (MANY, [1, 1, 1], r"masks must be bool \(3, 2, 5\), got bool \(3, 2, 3\)"),
        (BITS, [0, 0, 0], None),
        (BITS, [1, 1], r"masks must be bool \(3, 2, 3\)"),
        (BOX, [1, 1], "masks must be None"),
    ],
)
def test_masks_are_of_the_choices_of_an_action_and_leave_one(
    actions: spaces.Space[Any], rows: list[int], says: str | None
) -> None:
    masks = np.broadcast_to(np.array(rows, np.bool_), (3, 2, len(rows)))
    if says is None:
        check(BOX, [0, 0], actions, masks=masks)
        return
    with pytest.raises(WireError, match=f"actor 0: .*{says}"):
        check(BOX, [0, 0], actions, masks=masks)


@pytest.mark.parametrize(
    ("space", "inside", "outside"),
    [
        (spaces.Discrete(3, start=-1), [-1, 1], [-2, 2]),
        (spaces.MultiDiscrete([2, 3], start=[5, 0]), [[5, 2], [6, 0]], [[4, 0], [6, 3]]),
        (spaces.MultiBinary(2), [[0, 1]], [[0, 2], [-1, 0]]),
    ],
)
def test_observations_that_are_indices_are_in_their_range(
    space: Any, inside: list[Any], outside: list[Any]
) -> None:
    """They were learned from as observations of nothing."""
    for obs in inside:
        check(space, obs, MANY)
    for obs in outside:
        with pytest.raises(WireError, match=r"actor 0: obs must be from .* to"):
            check(space, obs, MANY)


def test_rows_that_are_resets_have_the_last_observations_of_truncated_episodes() -> None:
    """Environments of autoreset mode next_step: nothing else keeps them."""
    cut = np.zeros((3, 2), np.bool_)
    cut[0, 1] = cut[2, 0] = True
    valid = np.ones((3, 2), np.bool_)
    valid[1, 1] = False
    check(BOX, [0, 0], MANY, truncated=cut, valid=valid)
    with pytest.raises(WireError, match=r"final_obs must have .* at step 0, environment 1"):
        check(BOX, [0, 0], MANY, truncated=cut)
