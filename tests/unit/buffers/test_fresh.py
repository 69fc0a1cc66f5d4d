"""Fresh windows: every one of a length once, as soon as it is complete, in order."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from sharpwave import (
    Fresh,
    Mixture,
    MmapReplayBuffer,
    NStep,
    Prioritized,
    PrioritizedReplayBuffer,
    Recent,
    ReplayBuffer,
    Sequence,
    SharpwaveIOError,
    Uniform,
    Where,
)
from sharpwave.buffers.fresh_queues import dump_queues
from tests.unit.buffers.test_rewriting import FIELDS, stream

VIEW = Sequence(3, context=1, arrivals=True, cross=True)


def first_ids(batch: dict[str, Any]) -> list[int]:
    ids = batch["indices"]
    found: list[int] = (ids if ids.ndim == 1 else ids[:, 0]).tolist()
    return found


def test_environments_take_turns_and_no_row_comes_twice() -> None:
    buffer = ReplayBuffer(200, fields=FIELDS, n_envs=2)
    stream(buffer, 22)
    seen: list[int] = []
    batch = buffer.sample(4, view=VIEW, selector=Fresh(4), indices=True)
    assert [first % 2 for first in first_ids(batch)] == [0, 1, 0, 1]
    seen += batch["indices"][batch["indices"] != 2**64 - 1].tolist()
    assert batch["is_first"][:2, 0].all()
    with pytest.raises(ValueError, match="at most 8, the fresh windows of 4 rows, got 9"):
        buffer.sample(9, view=VIEW, selector=Fresh(4))
    batch = buffer.sample(8, view=VIEW, selector=Fresh(4), indices=True)
    seen += batch["indices"][batch["indices"] != 2**64 - 1].tolist()
    assert len(set(seen)) == len(seen)
    assert set(seen) <= set(buffer.indices().tolist())
    with pytest.raises(ValueError, match="at most 0"):
        buffer.sample(1, view=VIEW, selector=Fresh(4))
    stream(buffer, 5)
    assert len(buffer.sample(2, view=VIEW, selector=Fresh(4))["obs"]) == 2


def test_single_steps_come_in_the_order_of_their_pushes() -> None:
    buffer = stream(ReplayBuffer(50, fields=FIELDS, n_envs=2), 6)
    batch = buffer.sample(12, selector=Fresh(1), indices=True)
    assert batch["obs"].tolist() == [t // 2 for t in range(12)]
    assert sorted(first_ids(batch)) == sorted(buffer.indices().tolist())


def test_the_rest_of_a_batch_is_drawn_by_what_follows() -> None:
    buffer = stream(ReplayBuffer(200, fields=FIELDS, n_envs=1), 30)
    n_fresh = len(buffer._take_fresh(VIEW, 4, 1000))
    again = stream(ReplayBuffer(200, fields=FIELDS, n_envs=1), 30)
    expected = again.sample(5, 7, view=VIEW, selector=Uniform(), indices=True)
    batch = again.sample(n_fresh + 5, 7, view=VIEW, selector=Fresh(4, then=Uniform()), indices=True)
    assert first_ids(batch)[n_fresh:] == first_ids(expected)
    newest = again.sample(6, view=VIEW, selector=Fresh(4, then=Recent(6)), indices=True)
    assert set(first_ids(newest)) <= set(again.indices()[-6:].tolist())


def test_one_of_r_windows_is_fresh_at_ratio_r() -> None:
    buffer, ratio, batch_size, rows = ReplayBuffer(5000, fields=FIELDS, n_envs=1), 8, 2, 4
    replayed = 0
    for _ in range(200):
        stream(buffer, 8, episode=8)
        if len(buffer) < 20:
            continue
        for _ in range(ratio * 8 // (batch_size * rows)):
            buffer.sample(batch_size, view=VIEW, selector=Fresh(rows, then=Uniform()))
            replayed += batch_size
    ((_, places),) = dump_queues(buffer._engine)
    n_fresh = sum(taken for _, taken in places)
    assert abs(replayed / n_fresh - ratio) < 1.5


def test_mixtures_fill_up_what_is_not_fresh() -> None:
    buffer = stream(ReplayBuffer(200, fields=FIELDS, n_envs=1), 20)
    mixture = Mixture({Fresh(4): 0.5, Uniform(): 0.5})
    assert mixture == Mixture(((0.5, Fresh(4)), (0.5, Uniform())))
    n_fresh = len(pickle.loads(pickle.dumps(buffer))._take_fresh(VIEW, 4, 100))
    batch = buffer.sample(2 * n_fresh - 2, view=VIEW, selector=mixture, indices=True)
    assert len(set(first_ids(batch)[: n_fresh - 1])) == n_fresh - 1
    batch = buffer.sample(8, view=VIEW, selector=mixture, indices=True)
    assert len(batch["obs"]) == 8
    positive = Mixture({Fresh(4): 0.5, Where(lambda b: b["obs"] < 3): 0.5})
    batch = buffer.sample(6, view=VIEW, selector=positive)
    assert (batch["obs"][:, 0] < 3).all()


def test_fresh_windows_have_weights_where_the_rest_is_prioritized() -> None:
    buffer = stream(PrioritizedReplayBuffer(200, fields=FIELDS, n_envs=1), 20)
    batch = buffer.sample(6, view=VIEW, selector=Fresh(4, then=Prioritized()))
    np.testing.assert_array_equal(batch["weights"], 1.0)
    out = buffer.batch(6, view=VIEW, selector=Fresh(4, then=Prioritized()))
    assert buffer.sample(6, view=VIEW, selector=Fresh(4, then=Prioritized()), out=out) is out


def test_overwritten_windows_are_passed_over() -> None:
    buffer = ReplayBuffer(20, fields=FIELDS, n_envs=1)
    stream(buffer, 10, episode=100)
    assert len(buffer._take_fresh(VIEW, 4, 1)) == 1
    stream(buffer, 60, episode=100)
    ids = buffer._take_fresh(VIEW, 4, 100)
    assert set(ids.tolist()) <= set(buffer.indices(VIEW).tolist())
    assert len(ids) >= 3
    buffer.clear()
    assert len(buffer._take_fresh(VIEW, 4, 100)) == 0
    stream(buffer, 6)
    assert len(buffer._take_fresh(VIEW, 4, 100)) == 1


def test_windows_within_episodes_leave_the_rest_of_an_episode_out() -> None:
    buffer = stream(ReplayBuffer(100, fields=FIELDS, n_envs=1), 17, episode=5)
    got = buffer.gather(buffer._take_fresh(Sequence(3), 3, 10), view=Sequence(3))["obs"]
    assert got.tolist() == [[0, 1, 2], [5, 6, 7], [10, 11, 12]]
    arrivals = Sequence(6, arrivals=True)
    got = buffer.gather(buffer._take_fresh(arrivals, 6, 10), view=arrivals)["obs"]
    assert got.tolist() == [[t + i for i in range(5)] + [t + 4.5] for t in (0, 5, 10)]


def test_copies_go_on_with_the_queue(tmp_path: Path) -> None:
    buffer = stream(ReplayBuffer(200, fields=FIELDS, n_envs=2), 30)
    buffer.sample(5, view=VIEW, selector=Fresh(4))
    buffer.sample(7, selector=Fresh(1))
    buffer.save(tmp_path / "saved")
    copies = [ReplayBuffer.load(tmp_path / "saved"), pickle.loads(pickle.dumps(buffer))]
    for length, view in ((4, VIEW), (1, None)):
        expected = buffer._take_fresh(view, length, 1000).tolist()
        assert expected
        for copy in copies:
            assert copy._take_fresh(view, length, 1000).tolist() == expected


def test_a_folder_keeps_the_queue(tmp_path: Path) -> None:
    path = tmp_path / "a"
    options: dict[str, Any] = {"fields": FIELDS, "n_envs": 2}
    with MmapReplayBuffer(10, 300, cold_path=path, **options) as buffer:
        stream(buffer, 30)
        buffer.sample(5, view=VIEW, selector=Fresh(4))
        buffer.save(tmp_path / "copy")
        buffer.sample(2, view=VIEW, selector=Fresh(4))
    twin = stream(ReplayBuffer(300, **options), 30)
    twin.sample(5, view=VIEW, selector=Fresh(4))
    for folder in (tmp_path / "copy", path):
        with MmapReplayBuffer.open(folder) as buffer:
            assert buffer._take_fresh(VIEW, 4, 2).tolist() == twin._take_fresh(VIEW, 4, 2).tolist()
    (path / "fresh.json").write_text(json.dumps([[4, [[0, 0]]]]))
    with pytest.raises(SharpwaveIOError, match=r"fresh\.json is corrupt"):
        MmapReplayBuffer.open(path)
    (path / "fresh.json").unlink()
    MmapReplayBuffer.open(path).close(delete=True)
    assert not path.exists()


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Fresh(0), ValueError, "length must be from 1"),
        (lambda: Fresh(cast("Any", 2.0)), TypeError, "length must be an integer"),
        (lambda: Fresh(2, then=Fresh(2)), TypeError, "then must be"),
        (lambda: Fresh(2, then=cast("Any", 0.5)), TypeError, "then must be"),
    ],
)
def test_options_that_make_no_sense_are_refused(make: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize(
    ("view", "message"),
    [
        (Sequence(5), "of as many rows, got one of 5"),
        (None, "got one of 1"),
        (NStep(4), "got one of 1"),
        (Sequence(3, burn_in=1), "without burn_in, stride and pad"),
        (Sequence(4, stride=2), "without burn_in, stride and pad"),
        (Sequence(4, pad=True), "without burn_in, stride and pad"),
    ],
)
def test_views_of_other_windows_are_refused(view: Any, message: str) -> None:
    buffer = stream(ReplayBuffer(60, fields=FIELDS, n_envs=1), 20)
    with pytest.raises(ValueError, match=message):
        buffer.sample(1, view=view, selector=Fresh(4))
    with pytest.raises(ValueError, match=message):
        buffer.sample(2, view=view, selector=Mixture({Fresh(4): 0.5, Uniform(): 0.5}))
    with pytest.raises(ValueError, match="n_envs="):
        ReplayBuffer(10, 3, 1).sample(0, selector=Fresh(1))
