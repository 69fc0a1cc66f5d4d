"""Requests are done once, and those that cannot be done are refused in words."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("google.protobuf")

from sharpwave.distributed.envs.arrays import (
    array_message,
    array_of,
    flat_infos,
    merged,
    messages,
    nested_infos,
    parsed,
)
from sharpwave.distributed.envs.session import ActionCheck, Session
from sharpwave.distributed.envs.sessions import Sessions, SessionsFull
from sharpwave.envs import PythonVectorEnv
from sharpwave.errors import WireError
from tests import envs


class Stepped(envs.CountingEnv):
    """Counts all steps that it ever took."""

    total = 0

    def step(self, action: Any) -> Any:
        Stepped.total += 1
        return super().step(action)


@pytest.fixture
def session() -> Session:
    Stepped.total = 0
    return Session(PythonVectorEnv([Stepped] * 2), "of a test")


def step(number: int, *actions: int) -> Any:
    known = messages()
    raw = np.array(actions or (0, 1)).tobytes()
    return known.PlayRequest(id=number, step=known.StepRequest(raw=raw))


def reset(number: int, **fields: Any) -> Any:
    known = messages()
    return known.PlayRequest(id=number, reset=known.ResetRequest(**fields))


def test_the_same_number_is_answered_again_and_done_once(session: Session) -> None:
    session.answer(reset(1))
    first = session.answer(step(2))
    assert Stepped.total == 2
    assert session.answer(step(2)).SerializeToString() == first.SerializeToString()
    assert Stepped.total == 2
    session.answer(step(3))
    assert Stepped.total == 4
    for number in (1, 2, 5):
        with pytest.raises(WireError, match=f"id must be 3 again or 4, got {number}"):
            session.answer(step(number))
    assert Stepped.total == 4


def test_what_cannot_be_done_changes_nothing(session: Session) -> None:
    known = messages()
    input_kind = known.Failure.INPUT
    refused = {
        "must be reset before the first step": step(1),
        "seeds must be one for each of 2, got 1": reset(2, seeds=["1"]),
        "seeds must be integers from 0": reset(3, seeds=["1", "-2"]),
        "seeds must have at most 40 digits": reset(4, seeds=["1" * 41, ""]),
        "options must be JSON": reset(5, options="{"),
        "options must be a JSON object": reset(6, options="[1]"),
        "reset_mask must be bool": reset(7, mask=array_message(np.zeros(2))),
    }
    for said, request in refused.items():
        failure = session.answer(request).failure
        assert failure.kind == input_kind
        assert said in failure.message
    assert [env.episode for env in session.env.envs] == [-1, -1]
    assert session.answer(reset(8, seeds=["1", ""])).HasField("reset")
    failure = session.answer(step(9, 0, 5)).failure
    assert failure.message == "actions must be in Discrete(2), got 5 for environment 1"
    failure = session.answer(step(10, 0, 1, 0)).failure
    assert "actions must be 16 bytes, int64 of shape (2,), got 24" in failure.message
    assert Stepped.total == 0
    with pytest.raises(WireError, match="must be a reset or a step, got hello"):
        session.answer(known.PlayRequest(id=11, hello=known.Hello()))


@pytest.mark.parametrize(
    ("space", "right", "wrong"),
    [
        (gym.spaces.Discrete(3, start=-1), [-1, 1], [0, 2]),
        (gym.spaces.MultiDiscrete([2, 3]), [[1, 2], [0, 0]], [[1, 2], [2, 0]]),
        (gym.spaces.MultiBinary(2), [[1, 0], [0, 1]], [[1, 0], [0, 2]]),
        (gym.spaces.Box(-1, 1, (1,)), [[7.0], [0.0]], [[0.0], [np.nan]]),
    ],
)
def test_actions_outside_of_their_space_are_refused(space: Any, right: Any, wrong: Any) -> None:
    check = ActionCheck(space).check
    check(np.array(right, space.dtype))
    with pytest.raises(WireError, match="actions must be"):
        check(np.array(wrong, space.dtype))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"dtype": "|O", "data": b"12345678"}, "must be flags, integers or floats"),
        ({"dtype": "<f4", "shape": [3], "data": b"1234"}, "must have 12 bytes, got 4"),
        ({"dtype": "<f4", "shape": [2**31, 2**31, 2**31], "data": b""}, "bytes, got 0"),
        ({"dtype": "<f4", "shape": [0] * 40, "data": b""}, "bytes, got 0"),
        ({"dtype": "\x1b[31m"}, r"got \\x1b\[31m of shape"),
    ],
)
def test_arrays_that_are_none_are_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(WireError, match=said):
        array_of(messages().Array(**fields), "it")


def test_flags_are_flags_whatever_their_bytes() -> None:
    flags = array_of(messages().Array(dtype="|b1", shape=[3], data=b"\x00\x01\x07"), "it")
    assert flags.view(np.uint8).tolist() == [0, 1, 1]


@pytest.mark.parametrize("dtype", ["?", "i1", ">i4", "u8", "f2", ">f8"])
def test_arrays_come_back_as_they_were(dtype: str) -> None:
    array = np.arange(6).reshape(2, 3)[:, ::-1].astype(dtype)
    back = array_of(parsed(messages().Array, array_message(array).SerializeToString()), "it")
    assert back.dtype == array.dtype.newbyteorder("<")
    np.testing.assert_array_equal(back, array)


def test_infos_that_contradict_each_other_are_refused() -> None:
    row = array_message(np.zeros(1), ["a"])
    with pytest.raises(WireError, match="infos must be 1 rows at a path each"):
        flat_infos([row, row], 1)
    with pytest.raises(WireError, match="infos must be 2 rows"):
        flat_infos([row], 2)
    with pytest.raises(WireError, match="must have one shape"):
        merged([{("a",): np.zeros((1, 2))}, {("a",): np.zeros((1, 3))}], [1, 1])
    for paths in ([("a",), ("a", "b")], [("a", "b"), ("a",)]):
        with pytest.raises(WireError, match="infos must have"):
            nested_infos(dict.fromkeys(paths, np.zeros(1)))


def test_bytes_that_are_no_message_are_refused() -> None:
    with pytest.raises(WireError, match="must be a PlayRequest, got 3 other bytes"):
        parsed(messages().PlayRequest, b"\xff\xff\xff")


def test_sessions_are_given_back_once() -> None:
    given_back: list[Any] = []
    sessions = Sessions(lambda: PythonVectorEnv([Stepped]), given_back.append, 1, 60.0)
    seat = sessions.open()
    with pytest.raises(SessionsFull, match="all 1 sessions are taken"):
        sessions.open()
    assert sessions.find(seat.session.name) is seat
    sessions.leave(seat, turn=1, patience=0.0)  # the connection before: another one has it now
    assert len(sessions) == 1
    sessions.leave(seat, seat.turn, patience=0.0)
    assert given_back == [seat.session.env]
    assert sessions.find(seat.session.name) is None
    sessions.open()
    sessions.close()
    assert len(given_back) == 2


def test_environments_that_cannot_be_made_take_no_session() -> None:
    def fail() -> Any:
        raise OSError("no space left")

    sessions = Sessions(fail, lambda _: None, 1, 60.0)
    for _ in range(2):
        with pytest.raises(OSError, match="no space left"):
            sessions.open()
    sessions.close()
