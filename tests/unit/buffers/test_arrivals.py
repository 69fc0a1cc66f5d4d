"""Arrivals: windows of observations with what led there, the last one of every episode included."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sharpwave import (
    MmapReplayBuffer,
    OfflineDatasetBuffer,
    Prioritized,
    PrioritizedReplayBuffer,
    ReplayBuffer,
    Sequence,
    WithoutReplacement,
)
from tests.contract.cases import CASES, Case
from tests.reference.nests import assert_same, transform
from tests.reference.replay import NO_STEP, ReplayOracle
from tests.reference.steps import as_batch

FIELDS: dict[str, Any] = {
    "obs": "float32",
    "action": "int32",
    "reward": "float32",
    "terminated": "bool",
    "truncated": "bool",
    "latent": ("float16", (2,)),
}
IN_ORDER = [case for case in CASES if case.make(capacity=30, seed=0).n_envs is not None]


def push(buffer: ReplayBuffer, number: float, next_obs: float, **flags: bool) -> None:
    """A step from observation `number` with action 10, reward 100 and latent 1000 more."""
    both = {"terminated": False, "truncated": False, **flags}
    buffer.push(number, number + 10, number + 100, next_obs=next_obs, latent=[number] * 2, **both)


def rows_of(buffer: ReplayBuffer, first: int, length: int, **options: Any) -> dict[str, Any]:
    view = Sequence(length, arrivals=True, cross=True, **options)
    out = buffer.batch(1, view=view, indices=True)
    return {
        name: array[0].tolist()
        for name, array in buffer.gather([first], view=view, out=out).items()
    }


@pytest.fixture
def three_episodes() -> ReplayBuffer:
    """0 1 2 | 10 11 (truncated) | 20 21 (cut by a reset) | 30."""
    buffer = ReplayBuffer(100, fields=FIELDS, n_envs=1)
    push(buffer, 0, 1)
    push(buffer, 1, 2, terminated=True)
    push(buffer, 10, 11, truncated=True)
    push(buffer, 20, 21)
    push(buffer, 30, 31)
    return buffer


def test_every_observation_of_an_episode_is_a_row_with_what_led_there(
    three_episodes: ReplayBuffer,
) -> None:
    rows = rows_of(three_episodes, 0, 8)
    assert rows["obs"] == [0, 1, 2, 10, 11, 20, 21, 30]
    assert rows["prev_actions"] == [0, 10, 11, 0, 20, 0, 30, 0]
    assert rows["rewards"] == [0, 100, 101, 0, 110, 0, 120, 0]
    assert rows["is_first"] == [i in (0, 3, 5, 7) for i in range(8)]
    assert rows["is_last"] == [i in (2, 4, 6) for i in range(8)]
    assert rows["is_terminal"] == [i == 2 for i in range(8)]
    assert rows["mask"] == [True] * 8
    assert [latent[0] for latent in rows["latent"]] == [0, 1, 0, 10, 0, 20, 0, 30]
    assert rows["indices"] == [0, 1, NO_STEP, 3, NO_STEP, 5, NO_STEP, 7]
    assert "next_obs" not in rows
    assert "terminated" not in rows


def test_the_newest_observation_is_no_row_before_its_step_is_known(
    three_episodes: ReplayBuffer,
) -> None:
    assert rows_of(three_episodes, 7, 2, pad=True)["mask"] == [True, False]
    assert Sequence(2, arrivals=True).rows == 2
    assert three_episodes.indices(Sequence(9, arrivals=True, cross=True)).tolist() == []
    push(three_episodes, 31, 32, terminated=True)
    assert rows_of(three_episodes, 7, 3)["is_terminal"] == [False, False, True]


def test_windows_stay_in_their_episode_unless_they_may_cross(three_episodes: ReplayBuffer) -> None:
    assert three_episodes.indices(Sequence(3, arrivals=True)).tolist() == [0]
    assert three_episodes.indices(Sequence(2, arrivals=True)).tolist() == [0, 1, 3, 5]
    assert three_episodes.indices(Sequence(3, arrivals=True, cross=True)).tolist() == [0, 1, 3, 5]


def test_context_adds_rows_and_the_window_begins_with_the_drawn_step(
    three_episodes: ReplayBuffer,
) -> None:
    with_context = rows_of(three_episodes, 1, 3, context=1)
    assert with_context == rows_of(three_episodes, 1, 4)
    assert Sequence(3, context=1, arrivals=True).rows == 4


def test_an_end_that_looks_like_the_next_beginning_is_two_rows() -> None:
    buffer = ReplayBuffer(100, fields=FIELDS, n_envs=1)
    for reward in range(4):  # every observation is the same, and every second step ends
        buffer.push(7, reward, reward, reward % 2 == 1, False, 7, latent=[reward] * 2)
    rows = rows_of(buffer, 0, 6)
    assert rows["obs"] == [7] * 6
    assert rows["rewards"] == [0, 0, 1, 0, 2, 3]
    assert rows["is_first"] == [True, False, False, True, False, False]
    assert rows["is_last"] == rows["is_terminal"] == [False, False, True, False, False, True]
    assert [latent[0] for latent in rows["latent"]] == [0, 1, 0, 2, 3, 0]


def test_a_step_whose_beginning_was_overwritten_is_not_drawn() -> None:
    buffer = ReplayBuffer(4, fields=FIELDS, n_envs=1)
    for t in range(7):
        push(buffer, t, t + 1)
    assert buffer.indices().tolist() == [3, 4, 5, 6]
    view = Sequence(2, arrivals=True)
    assert buffer.indices(view).tolist() == [4, 5]
    assert set(buffer.sample(4, 1, view=view, indices=True)["indices"][:, 0].tolist()) <= {4, 5}
    rows = buffer.gather([3], view=view)  # whoever asks for it is told nothing of what led there
    assert rows["rewards"].tolist() == [[0, 103]]
    assert rows["is_first"].tolist() == [[False, False]]


@pytest.mark.long(but=["extras in streams", "mapped frames", "frames first"])
@pytest.mark.parametrize("case", IN_ORDER, ids=lambda case: case.name)
def test_every_buffer_gives_the_arrivals_of_the_oracle(case: Case) -> None:
    buffer, oracle = case.make(capacity=30, seed=0), case.oracle(30)
    rows = case.steps().take(78)
    buffer.push_batch(**as_batch(rows))
    oracle.push_batch(rows)
    for view in (Sequence(4, arrivals=True, cross=True), Sequence(3, arrivals=True, pad=True)):
        ids = buffer.indices(view)
        assert ids.tolist() == oracle.drawable(view)
        for selector in (None, WithoutReplacement()):
            batch = buffer.sample(len(ids), 5, view=view, selector=selector, indices=True)
            check(case, batch, oracle, view)
        expected = buffer.sample(6, 5, view=view, indices=True)
        for out in (
            transform(np.zeros_like, expected),
            transform(lambda array: torch.from_numpy(np.zeros_like(array)), expected),
            buffer.batch(6, view=view, indices=True),
        ):
            filled = buffer.sample(6, 5, view=view, indices=True, out=out)
            assert_same(transform(np.asarray, dict(filled)), expected)


def check(case: Case, batch: dict[str, Any], oracle: ReplayOracle, view: Sequence) -> None:
    if case.squeeze:  # steps have an action without the axis of one that windows keep
        batch = {**batch, "prev_actions": batch["prev_actions"][..., 0]}
    oracle.check_batch(batch, view)


def test_datasets_in_episodes_have_arrivals_too() -> None:
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(12, 3)).astype(np.float32)
    dataset = OfflineDatasetBuffer(
        obs=obs[:-1],
        next_obs=obs[1:] + 0.5,
        actions=np.arange(11, dtype=np.float32)[:, None],
        rewards=np.arange(11, dtype=np.float32),
        terminated=np.arange(11) == 3,
        truncated=np.arange(11) == 7,
    )
    rows = dataset.rows
    view = Sequence(8, arrivals=True, cross=True)
    got = rows.gather([1], view=view)
    ends = obs[1:] + 0.5
    expected = [obs[1], obs[2], obs[3], ends[3], obs[4], obs[5], obs[6], obs[7]]
    np.testing.assert_array_equal(got["obs"][0], np.stack(expected))
    assert got["rewards"][0].tolist() == [0, 1, 2, 3, 0, 4, 5, 6]
    assert got["is_last"][0].tolist() == [i == 3 for i in range(8)]
    assert got["is_terminal"][0].tolist() == [i == 3 for i in range(8)]
    assert rows.gather([7], view=Sequence(2, arrivals=True))["is_terminal"].tolist() == [
        [False] * 2
    ]


def test_priorities_are_those_of_the_first_step_of_a_window() -> None:
    buffer = PrioritizedReplayBuffer(50, fields=FIELDS, n_envs=1, alpha=1.0)
    for t in range(20):
        push(buffer, t, t + 1)
    buffer.update_priorities(np.arange(20), np.zeros(20))
    buffer.update_priorities([6], [3.0])
    view = Sequence(3, arrivals=True)
    batch = buffer.sample(5, view=view, selector=Prioritized())
    assert batch["indices"].tolist() == [[6, 7, 8]] * 5
    assert batch["weights"].shape == (5,)


def test_an_episode_that_the_end_of_a_process_cut_is_not_terminal(tmp_path: Path) -> None:
    folder = tmp_path / "replay"
    with MmapReplayBuffer(10, 100, cold_path=folder, fields=FIELDS, n_envs=1) as buffer:
        push(buffer, 0, 1)
        push(buffer, 1, 2)
    with MmapReplayBuffer.open(folder) as buffer:
        push(buffer, 2, 3)  # the same observation, and yet another run
        rows = rows_of(buffer, 0, 4)
        assert rows["obs"] == [0, 1, 2, 2]
        assert rows["is_last"] == [False, False, True, False]
        assert not any(rows["is_terminal"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"arrivals": True, "burn_in": 2}, "burn_in must be 0 with arrivals"),
        ({"arrivals": True, "gamma": 0.9}, "gamma must be None with arrivals"),
        ({"context": 1}, "context must be 0 without arrivals"),
        ({"arrivals": True, "context": -1}, "context must be from 0"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Sequence(3, **options)


def test_buffers_that_cannot_tell_are_refused() -> None:
    view = Sequence(1, arrivals=True)
    with pytest.raises(ValueError, match="n_envs="):
        ReplayBuffer(10, 3, 1).gather([], view=view)
    with pytest.raises(ValueError, match="fields obs and next_obs"):
        ReplayBuffer(10, fields={"x": "float32"}, n_envs=1).gather([], view=view)
    with pytest.raises(ValueError, match="'is_last', which is a field"):
        ReplayBuffer(10, fields={**FIELDS, "is_last": "bool"}, n_envs=1).gather([], view=view)
    view = Sequence(1, arrivals=True, fields=("actions",))
    with pytest.raises(ValueError, match="fields must name"):
        ReplayBuffer(10, fields=FIELDS, n_envs=1).gather([], view=view)
