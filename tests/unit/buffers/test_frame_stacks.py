"""Stacked frames are stored once and come back exactly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sharpwave import Field, NStep, PrioritizedReplayBuffer, ReplayBuffer, Sequence
from tests.reference.nests import assert_same
from tests.reference.replay import ReplayOracle
from tests.reference.steps import Steps

FLAGS: dict[str, Any] = {"reward": "float32", "terminated": "bool", "truncated": "bool"}
SHAPES = {0: (4, 3, 2), 1: (3, 4, 2), -1: (3, 2, 4)}


def fields(axis: int, dtype: str = "uint8") -> dict[str, Any]:
    return {"obs": Field(dtype, SHAPES[axis], stack=4, axis=axis), "action": "int64", **FLAGS}


def run(
    script: list[dict[str, Any]], n_envs: int, capacity: int, spec: dict[str, Any]
) -> tuple[ReplayBuffer, ReplayOracle]:
    """Every environment plays the script, one step after another."""
    buffer = ReplayBuffer(capacity, fields=spec, n_envs=n_envs)
    oracle = ReplayOracle(capacity, buffer.schema, n_envs)
    steps = Steps(buffer.schema, n_envs)
    for how in script:
        for env in range(n_envs):
            row = steps.step(env, **how)
            where = {} if n_envs == 1 else {"stream": env}
            buffer.push(**row, **where)
            oracle.push(row, env)
        check(buffer, oracle)
    return buffer, oracle


def check(buffer: ReplayBuffer, oracle: ReplayOracle) -> None:
    ids = buffer.indices()
    assert ids.tolist() == oracle.ids()
    for view in (None, NStep(3, 0.9), Sequence(3, burn_in=1, pad=True, cross=True)):
        oracle.check_batch({**buffer.gather(ids, view=view), "indices": ids}, view)


SCRIPTS: dict[str, list[dict[str, Any]]] = {
    "one long episode": [{}] * 30,
    "terminations": [{}, {}, {"ending": "terminated"}] * 8,
    "truncations": [{}, {"ending": "truncated"}, {}] * 8,
    "episodes of one step": [{"ending": "truncated"}] * 12,
    "resets without an end": [{}, {}, {"reset": True}] * 8,
    "jumping successors": [{}, {"jump": True}, {}] * 8,
    "always jumping": [{"jump": True}] * 12,
    "ends that jump": [{}, {"jump": True, "ending": "truncated"}, {}] * 6,
}


@pytest.mark.long(but=["2-9-1"])
@pytest.mark.parametrize("axis", SHAPES)
@pytest.mark.parametrize("capacity", [4, 9, 100])
@pytest.mark.parametrize("n_envs", [1, 2])
@pytest.mark.parametrize("name", SCRIPTS)
def test_stacks_are_exact(name: str, n_envs: int, capacity: int, axis: int) -> None:
    run(SCRIPTS[name], n_envs, capacity * n_envs, fields(axis))


@pytest.mark.long(but=["bool"])
@pytest.mark.parametrize("dtype", ["bool", "uint16", "float32", "float64"])
def test_stacks_of_any_dtype_are_exact(dtype: str) -> None:
    run(SCRIPTS["truncations"], 2, 20, fields(-1, dtype))


@pytest.mark.long
def test_stacks_of_different_depth_live_side_by_side() -> None:
    spec = {
        "obs": {
            "deep": Field("uint8", (4, 2, 2), stack=4),
            "short": Field("float32", (2, 5), stack=2),
            "plain": ("float64", (3,)),
        },
        "action": "int64",
        **FLAGS,
    }
    for script in SCRIPTS.values():
        run(script, 2, 24, spec)


def test_autoreset_junk_between_episodes_does_not_spoil_stacks() -> None:
    """The step that a next-step autoreset makes: from the last stack to a fresh one."""
    script: list[dict[str, Any]] = [{}, {}, {"ending": "terminated"}, {"jump": True}, {}] * 5
    run(script, 2, 30, fields(0))


def test_a_reset_that_equals_the_last_observation_is_stored_once() -> None:
    buffer = ReplayBuffer(40, fields=fields(0), n_envs=1)
    oracle = ReplayOracle(40, buffer.schema, 1)
    stacks = [np.full((4, 3, 2), number, np.uint8) for number in (7, 7, 7)]
    for ended in (False, True, False):
        row = {
            "obs": stacks[0],
            "next_obs": stacks[1],
            "action": np.int64(0),
            "reward": np.float32(1),
            "terminated": np.bool_(ended),
            "truncated": np.bool_(False),
        }
        buffer.push(**row)
        oracle.push(row)
    check(buffer, oracle)
    assert buffer.indices().tolist() == [3, 4, 5]


def test_prioritized_frames_wrap_exactly() -> None:
    buffer = PrioritizedReplayBuffer(24, fields=fields(0), n_envs=3)
    oracle = ReplayOracle(24, buffer.schema, 3)
    steps = Steps(buffer.schema, 3)
    for number, row in enumerate(steps.take(150)):
        buffer.push(**row, stream=number % 3)
        oracle.push(row, number % 3)
        if len(oracle) > 4:
            oracle.check_batch(buffer.sample(4, seed=number))


@pytest.mark.parametrize(("capacity", "n_envs"), [(3, 1), (11, 3)])
def test_the_capacity_must_hold_a_stack_for_every_environment(capacity: int, n_envs: int) -> None:
    with pytest.raises(ValueError, match="capacity"):
        ReplayBuffer(capacity, fields=fields(0), n_envs=n_envs)


def test_frames_need_streams() -> None:
    with pytest.raises(ValueError, match="n_envs"):
        ReplayBuffer(10, fields={**fields(0), "next_obs": fields(0)["obs"]})
    with pytest.raises(ValueError, match="stack"):
        ReplayBuffer(10, fields={"obs": Field("uint8", (3, 2), stack=4)}, n_envs=1)


def test_a_step_of_four_atari_frames_takes_one_frame_of_memory() -> None:
    spec = {"obs": Field("uint8", (4, 84, 84), stack=4), "action": "int64", **FLAGS}
    buffer = ReplayBuffer(2000, fields=spec, n_envs=1)
    assert buffer.stats()["bytes_per_step"] <= 7200
    frames = np.zeros((5, 84, 84), np.uint8)
    for number in range(10):
        frames = np.concatenate([frames[1:], np.full((1, 84, 84), number + 1, np.uint8)])
        buffer.push(frames[:4], 0, 0.0, False, False, frames[1:])
    assert buffer.stats()["bytes_per_step"] <= 7200
    assert len(buffer) == 10
    assert buffer.gather([9 + 3])["next_obs"][0, :, 0, 0].tolist() == [7, 8, 9, 10]


def payload(obs: int, act: int) -> int:
    return 4 * (2 * obs + act + 1) + 2


@pytest.mark.parametrize(("obs", "act"), [(17, 6), (4, 1), (376, 17)])
def test_transition_rows_take_little_more_than_their_payload(obs: int, act: int) -> None:
    plain = ReplayBuffer(5000, obs, act).stats()["bytes_per_step"]
    assert plain <= 1.03 * payload(obs, act) + (2 if obs < 17 else 0)  # alignment of tiny rows


def test_prioritized_rows_take_little_more_than_their_payload() -> None:
    buffer = PrioritizedReplayBuffer(5000, 17, 6)
    assert buffer.stats()["bytes_per_step"] <= 1.08 * payload(17, 6)


def test_stream_rows_store_an_observation_once() -> None:
    buffer = ReplayBuffer(5000, 17, 6, n_envs=1)
    assert buffer.stats()["bytes_per_step"] <= 102
    zeros = np.zeros((5000, 17), np.float32)
    ends = np.arange(5000) % 1000 == 999
    buffer.push_batch(zeros, zeros, np.zeros((5000, 6)), np.zeros(5000), ends, np.zeros(5000))
    assert buffer.stats()["bytes"] / len(buffer) <= 102


def test_a_stack_comes_back_writable_and_alone() -> None:
    buffer, _ = run(SCRIPTS["one long episode"], 1, 10, fields(-1))
    first = buffer.gather(buffer.indices())
    expected = buffer.gather(buffer.indices())
    first["obs"][...] = 0
    assert_same(buffer.gather(buffer.indices()), expected)
