"""A sharded replay's inputs and errors, with shards in this process and folders of others."""

from __future__ import annotations

import multiprocessing
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sharpwave import Hindsight, MmapReplayBuffer, ReplayBuffer
from sharpwave.distributed.replay import FolderShard, LocalShard, RateLimit, ShardedReplay
from sharpwave.errors import ShardGone
from tests.unit.distributed.replay.shards import FIELDS, WIDTH, local, numbers_of, steps
from tests.waiting import LONG, wait_for, without_hanging


def sizes_of(replay: ShardedReplay) -> list[int]:
    return [member.state.size for member in replay._group.alive()]


def test_rows_go_to_the_shard_of_their_stream() -> None:
    replay = local(2, 5)
    replay.push_batch(**steps(range(5)))
    replay.push_batch(**steps([5, 6, 7]), streams=[0, 2, 4])
    buffers: list[Any] = [member.shard.buffer for member in replay._group.members]  # type: ignore[attr-defined]
    held = [sorted(b.gather(b.indices())["obs"]["count"].tolist()) for b in buffers]
    assert held == [[0, 2, 4, 5, 6, 7], [1, 3]]
    assert (replay.n_envs, replay.capacity, len(replay)) == (5, 2000, 8)


def test_rows_in_no_order_are_dealt_out() -> None:
    replay = ShardedReplay([LocalShard(ReplayBuffer(100, WIDTH, 1)) for _ in range(3)])
    x = np.zeros((7, WIDTH), np.float32)
    flags = np.zeros(7, bool)
    for _ in range(3):
        replay.push_batch(
            obs=x, next_obs=x, actions=flags, rewards=flags, terminated=flags, truncated=flags
        )
    assert sizes_of(replay) == [7, 7, 7]


def test_one_step_is_pushed_as_a_batch_of_one() -> None:
    replay = local(2, 2, prioritized=True)
    for number in range(4):
        one = {k: v for k, v in steps([number]).items() if k not in ("actions", "rewards")}
        row: dict[str, Any] = {
            k: {n: x[0] for n, x in v.items()} if isinstance(v, dict) else v[0]
            for k, v in one.items()
        }
        replay.push(action=[number, -number], reward=number, **row, stream=number % 2, priority=2.0)
    assert sizes_of(replay) == [2, 2]
    assert set(numbers_of(replay.sample(4)).tolist()) <= {0, 1, 2, 3}
    assert replay._group.members[0].state.max_priority == 2.0


def test_a_refused_push_changes_no_shard() -> None:
    replay = local(2, 4)
    replay.push_batch(**steps(range(8)))
    good = steps(range(8, 16))
    bad_reward = good["rewards"].copy()
    bad_reward[7] = np.nan  # of the second shard
    for change, error in (
        ({"rewards": bad_reward}, ValueError),
        ({"rewards": good["rewards"].astype(np.float64) * 1e40}, ValueError),
        ({"actions": good["actions"][:5]}, ValueError),
        ({"obs": good["actions"]}, TypeError),
        ({"obs": {"body": good["obs"]["body"]}}, TypeError),
        ({"unknown": good["rewards"]}, TypeError),
        ({"streams": np.arange(8)}, ValueError),
        ({"streams": np.zeros(3, np.int64)}, ValueError),
        ({"streams": np.zeros(8)}, ValueError),
        ({"priorities": np.ones(8)}, ValueError),
        ({"rewards": np.array(["x"] * 8)}, TypeError),
    ):
        with pytest.raises(error):
            replay.push_batch(**{**good, **change})
    with pytest.raises(TypeError, match="rewards"):
        replay.push_batch(**{k: v for k, v in good.items() if k != "rewards"})
    assert sizes_of(replay) == [4, 4]


def test_wrong_draws_are_refused_by_name() -> None:
    replay = local(2, 2, prioritized=True)
    with pytest.raises(ValueError, match="batch_size must be at most 0"):
        replay.sample(1)
    replay.push_batch(**steps(range(10)))
    with pytest.raises(ValueError, match="batch_size must be at most 10"):
        replay.sample(11)
    with pytest.raises(ValueError, match="Transition, NStep, Sequence for a shard, got Hindsight"):
        replay.sample(2, view=Hindsight(lambda *_: np.zeros(1)))
    batch = replay.sample(0)
    assert batch["weights"].shape == batch["indices"].shape == (0,)
    with pytest.raises(ValueError, match="priorities must be 2 finite numbers"):
        replay.update_priorities(np.zeros(2, np.uint64), [1.0, np.nan])
    drawn = replay.sample(10, indices=True)["indices"]
    ids = np.concatenate([m.shard.buffer.indices() for m in replay._group.members])  # type: ignore[attr-defined]
    assert len(ids) == 10
    assert replay.update_priorities(drawn, np.zeros(10)) == 0


def test_shards_must_fit_together() -> None:
    def shard(n_envs: int | None = 2, **fields: Any) -> LocalShard:
        return LocalShard(ReplayBuffer(10, fields={**FIELDS, **fields}, n_envs=n_envs))

    same = shard()
    with pytest.raises(ValueError, match="shards must differ"):
        ShardedReplay([same, same])
    with pytest.raises(ValueError, match=r"action must be .*\(2,\).*, got .*\(3,\)"):
        ShardedReplay([shard(), shard(action=("float32", (3,)))])
    with pytest.raises(ValueError, match="as many streams each"):
        ShardedReplay([shard(2), shard(3)])
    with pytest.raises(ValueError, match="streams"):
        ShardedReplay([shard(2), shard(None)])
    with pytest.raises(ValueError, match="same alpha"):
        ShardedReplay([shard(), local(1, prioritized=True)._group.members[0].shard])
    with pytest.raises(ValueError, match="shards must be 1 to 256, got 0"):
        ShardedReplay([])
    with pytest.raises(TypeError, match="list of addresses"):
        ShardedReplay("localhost:1")
    with pytest.raises(TypeError, match="addresses, folders or shards"):
        ShardedReplay([3])  # type: ignore[list-item]


def test_new_shards_hold_what_the_others_do() -> None:
    def make(schema: Any, n_envs: int | None) -> ReplayBuffer:
        return ReplayBuffer(10, fields=schema, n_envs=n_envs)

    old = LocalShard(ReplayBuffer(10, fields=FIELDS, n_envs=2))
    replay = ShardedReplay([old, LocalShard(make=make, plan=(10, None))])
    assert replay.n_envs == 4
    empty = ShardedReplay([LocalShard(make=make, plan=(10, None)) for _ in range(2)])
    assert not empty.is_created
    with pytest.raises(ValueError, match="hold nothing yet"):
        empty.push_batch(**steps([1]))
    with pytest.raises(ValueError, match="n_envs must be at least 2"):
        empty.create(replay.schema, 1)
    empty.create(replay.schema, 3)
    empty.push_batch(**steps(range(3)))
    assert sizes_of(empty) == [2, 1]


# Folders


def write(folder: Path, begin: Any, end: Any) -> None:
    """Push to a folder from another process until told to stop."""
    buffer = MmapReplayBuffer(100, 1000, fields=FIELDS, n_envs=1, cold_path=folder)
    number = 0
    while not end.is_set():
        buffer.push_batch(**steps(range(number, number + 50)))
        number += 50
        begin.set()
        time.sleep(0.001)
    buffer.close()


@pytest.mark.long
def test_folders_are_read_while_another_process_writes_them(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    begin, end = context.Event(), context.Event()
    process = context.Process(target=write, args=(tmp_path / "a", begin, end))
    process.start()
    try:
        assert begin.wait(LONG)
        with ShardedReplay([tmp_path / "a"], seed=1) as replay:
            first = len(replay)
            newest = np.max(numbers_of(replay.sample(32)))
            wait_for(lambda: np.max(numbers_of(replay.sample(32))) > newest + 300)
            assert len(replay) > first
    finally:
        end.set()
        process.join(LONG)
    assert process.exitcode == 0


def test_folders_are_read_only_and_may_be_missing(tmp_path: Path) -> None:
    with pytest.raises(ShardGone, match="nowhere"):
        ShardedReplay([tmp_path / "nowhere"])
    writer = MmapReplayBuffer(10, 100, fields=FIELDS, n_envs=1, cold_path=tmp_path / "a")
    writer.push_batch(**steps(range(20)))
    with ShardedReplay([str(tmp_path / "a")]) as replay:
        assert len(replay) == 20
        writer.push_batch(**steps(range(20, 25)))
        assert set(numbers_of(replay.sample(25)).tolist()) <= set(range(25))
        assert len(replay) == 25
        with pytest.raises(PermissionError, match="read only"):
            replay.push_batch(**steps([1]))
    with pytest.raises(ValueError, match="shards must differ"):
        ShardedReplay([tmp_path / "a", str(tmp_path / "b" / ".." / "a")])
    writer.close()


def test_priorities_of_a_folder_are_its_writers(tmp_path: Path) -> None:
    options: dict[str, Any] = {"prioritized": True, "fields": FIELDS, "n_envs": 1}
    writers = [MmapReplayBuffer(10, 100, cold_path=tmp_path / str(i), **options) for i in range(2)]
    for i, writer in enumerate(writers):
        writer.push_batch(**steps(range(20 * i, 20 * i + 20)))
    shards = [FolderShard(writer.path) for writer in writers]
    with ShardedReplay(shards, seed=2) as replay:
        for writer in writers:
            ids = writer.indices()
            writer.update_priorities(ids, np.where(ids == ids[0], 1000.0, 0.0))
        batch = replay.sample(40)
        assert set(numbers_of(batch).tolist()) == {0, 20}
        np.testing.assert_array_equal(batch["weights"], np.ones(40, np.float32))
        with pytest.raises(PermissionError, match="read only"):
            replay.update_priorities(batch["indices"], np.ones(40))
    for writer in writers:
        writer.close()


# Rate limit


def test_a_rate_limit_lets_neither_side_run_away() -> None:
    rate = RateLimit(samples_per_insert=4, slack=40, min_size=8)
    replay = local(2, 2, rate=rate, patience=0.02)
    replay.push_batch(**steps(range(4)))
    with pytest.raises(TimeoutError, match="4 of the first 8 steps are there"):
        replay.sample(1)
    replay.push_batch(**steps(range(4, 8)))
    for _ in range(5):
        replay.sample(8)
    with pytest.raises(TimeoutError, match="draws wait for pushes: 40 steps are drawn of 8"):
        replay.sample(8)
    for number in range(8, 28, 4):
        replay.push_batch(**steps(range(number, number + 4)))
    with pytest.raises(TimeoutError, match="pushes wait for draws: 40 steps are drawn of 28"):
        replay.push_batch(**steps(range(4)))
    stats = replay.stats()
    assert 4 * (stats["pushed"] - 8) - stats["sampled"] <= 40
    assert stats["waited_seconds"] >= 0.06
    assert replay.waiting == ""


def test_a_rate_that_cannot_be_kept_is_refused(tmp_path: Path) -> None:
    replay = local(1, 1, rate=RateLimit(samples_per_insert=2, slack=16))
    replay.push_batch(**steps(range(8)))
    with pytest.raises(ValueError, match="slack must be at least 18 for 9 steps at a time"):
        replay.push_batch(**steps(range(9)))
    with pytest.raises(ValueError, match="slack must be at least 17 for 17 steps at a time"):
        replay.sample(17)
    assert len(replay) == 8
    MmapReplayBuffer(10, 100, fields=FIELDS, cold_path=tmp_path / "a").close()
    with pytest.raises(ValueError, match="rate must be None for the folder"):
        ShardedReplay([tmp_path / "a"], rate=RateLimit(1, 10))
    for wrong in ({"samples_per_insert": 0}, {"slack": 1.0}, {"min_size": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            RateLimit(**{"samples_per_insert": 2.0, "slack": 10, **wrong})  # type: ignore[arg-type]


def test_who_waits_says_why_and_goes_on() -> None:
    options: dict[str, Any] = {"rate": RateLimit(samples_per_insert=1, slack=16), "patience": LONG}
    shard = LocalShard(ReplayBuffer(100, fields=FIELDS, n_envs=1))
    replay = ShardedReplay([shard], **options)
    replay.push_batch(**steps(range(8)))
    replay.sample(8)
    replay.sample(8)
    drawn: list[Any] = []
    waiter = threading.Thread(target=lambda: drawn.append(replay.sample(8)))
    waiter.start()
    wait_for(lambda: "draws wait for pushes" in replay.waiting)
    ShardedReplay([shard], **options).push_batch(**steps(range(8, 16)))
    waiter.join(LONG)
    assert len(numbers_of(drawn[0])) == 8


def test_shards_that_are_drawn_unevenly_do_not_wait_for_each_other() -> None:
    """The rate is that of all shards: one that is hardly ever drawn blocks nobody."""
    replay = local(2, 2, prioritized=True, rate=RateLimit(4, 64), patience=0.05)
    for number in range(0, 400, 4):
        urgent = np.where(np.arange(4) % 2, 1e-6, 10.0)  # those of the second shard hardly matter
        replay.push_batch(**steps(range(number, number + 4)), priorities=urgent)
        if len(replay) >= 16:
            replay.sample(16)
    states = [member.state for member in replay._group.members]
    assert states[0].sampled > 20 * states[1].sampled
    assert replay.stats()["replay_ratio"] == pytest.approx(4, abs=0.3)


# Prefetch


def test_prefetched_batches_are_those_that_are_asked_for() -> None:
    replay = local(2, 2, prioritized=True, prefetch=2)
    with pytest.raises(ValueError, match="batch_size"):
        replay.sample(4)
    replay.push_batch(**steps(range(100)))
    for size in (4, 4, 9, 4):
        batch = replay.sample(size)
        assert len(numbers_of(batch)) == size
        replay.update_priorities(batch["indices"], np.ones(size))
    assert len(replay.sample(3, seed=1)["rewards"]) == 3
    replay.close()
    assert not any(thread.name == "sharpwave prefetch" for thread in threading.enumerate())
    with pytest.raises(ValueError, match="closed"):
        replay.sample(5)


@pytest.mark.parametrize("prefetch", [0, 1])
def test_a_replay_that_waits_for_its_rate_closes_at_once(prefetch: int) -> None:
    rate = RateLimit(samples_per_insert=1, slack=16, min_size=8)
    replay = local(2, 2, rate=rate, patience=600.0, prefetch=prefetch)
    replay.push_batch(**steps(range(4)))
    raised: list[BaseException] = []

    def draw() -> None:
        try:
            replay.sample(4)
        except ValueError as error:
            raised.append(error)

    waiter = threading.Thread(target=draw)
    waiter.start()
    wait_for(lambda: "draws wait for pushes" in replay.waiting)
    with without_hanging():
        replay.close()
        waiter.join()
    assert "the replay is closed" in str(raised[0])
    assert not any(thread.name == "sharpwave prefetch" for thread in threading.enumerate())


# Shards that answer with errors


@pytest.mark.parametrize("kind", [MemoryError, RuntimeError, TypeError, KeyError])
def test_a_shard_that_answers_with_any_error_is_lost_and_looked_for(kind: type[Exception]) -> None:
    class Failing(LocalShard):
        is_near = False
        fails = False

        def state(self) -> Any:
            if self.fails:
                raise kind("it broke")
            return super().state()

    shards = [Failing(ReplayBuffer(100, fields=FIELDS, n_envs=1)) for _ in range(2)]
    with ShardedReplay(shards) as replay:
        replay.push_batch(**steps(range(8)))
        bad = replay._group.members[1]
        for losses in (1, 2):  # the second time the watch must still be there
            shards[1].fails = True
            wait_for(lambda: not bad.is_alive)
            assert "it broke" in bad.reason
            assert bad.losses == losses
            assert set(numbers_of(replay.sample(16)).tolist()) <= {0, 2, 4, 6}
            shards[1].fails = False
            wait_for(lambda: bad.is_alive)
