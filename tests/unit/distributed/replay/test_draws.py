"""All shards together are one distribution, with the weights of one buffer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sharpwave import NStep, PrioritizedReplayBuffer, Sequence
from sharpwave.distributed.replay import LocalShard, ShardedReplay
from sharpwave.distributed.replay.draws import importance_weights, join_ids, split_ids
from sharpwave.distributed.replay.members import Member
from tests.unit.distributed.replay.shards import FIELDS, chi_square_of, local, numbers_of, steps


def filled(n: int, sizes: list[int], **options: Any) -> ShardedReplay:
    """A replay whose streams have these numbers of steps, numbered from 0 on."""
    replay = local(n, len(sizes), **options)
    first = 0
    for stream, size in enumerate(sizes):
        replay.push_batch(**steps(range(first, first + size)), streams=np.full(size, stream))
        first += size
    return replay


def believe(member: Member, total: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a shard chosen by another sum than the one that it draws by."""
    true = member.shard.state
    monkeypatch.setattr(member.shard, "state", lambda: true()._replace(total=total))


def counts_of(replay: ShardedReplay, draws: int) -> Any:
    """The number of draws of each step, in batches of as many as there are."""
    n = len(replay)
    found = [numbers_of(replay.sample(n)) for _ in range(draws)]
    return np.bincount(np.concatenate(found), minlength=n)


def test_every_step_of_shards_of_other_sizes_is_equally_likely() -> None:
    replay = filled(3, [300, 20, 80, 100], seed=3)
    assert [member.state.size for member in replay._group.members] == [400, 20, 80]
    counts = counts_of(replay, 100)
    assert counts.sum() == 50_000
    assert abs(chi_square_of(counts, np.full(500, 100.0))) < 5


def test_a_choice_of_shards_that_ignores_their_size_would_be_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    replay = filled(2, [300, 100], seed=3)
    for member in replay._group.members:  # as if both were as large
        believe(member, 1.0, monkeypatch)
    assert chi_square_of(counts_of(replay, 100), np.full(400, 100.0)) > 100


@pytest.mark.long
def test_steps_are_drawn_by_their_priority_whatever_their_shard() -> None:
    replay = filled(3, [60, 10, 30], prioritized=True, seed=1)
    priorities = np.linspace(0.1, 9.0, 100)
    ids = np.concatenate(
        [
            join_ids(member.number, 0, member.shard.buffer.indices())  # type: ignore[attr-defined]
            for member in replay._group.members
        ]
    )
    assert replay.update_priorities(ids, priorities) == 0
    counts = counts_of(replay, 400)
    leaves = priorities**0.6
    assert abs(chi_square_of(counts, counts.sum() * leaves / leaves.sum())) < 5


@pytest.mark.parametrize("norm", ["buffer", "batch"])
def test_weights_are_those_of_one_buffer_with_all_steps(norm: Any) -> None:
    sizes = [60, 10, 30]
    replay = filled(3, sizes, prioritized=True, seed=1, weight_norm=norm, beta=0.7)
    whole = PrioritizedReplayBuffer(1000, fields=FIELDS, n_envs=1, beta=0.7, weight_norm=norm)
    whole.push_batch(**steps(range(100)))
    priorities = np.random.default_rng(0).uniform(0.01, 5.0, 100).astype(np.float32)
    known = whole.gather(whole.indices())["obs"]["count"]
    whole.update_priorities(whole.indices(), priorities[known])
    for _ in range(3):
        batch = replay.sample(100)
        replay.update_priorities(batch["indices"], priorities[numbers_of(batch)])
    for member in replay._group.members:
        buffer: Any = member.shard.buffer  # type: ignore[attr-defined]
        ids = buffer.indices()
        buffer.update_priorities(ids, priorities[buffer.gather(ids)["obs"]["count"]])
    batch = replay.sample(64)
    leaves = priorities[numbers_of(batch)].astype(np.float64) ** 0.6
    smallest = leaves.min() if norm == "batch" else (priorities.astype(np.float64) ** 0.6).min()
    np.testing.assert_allclose(batch["weights"], (smallest / leaves) ** 0.7, rtol=1e-5)
    alone = whole.sample(64, seed=1)
    same = priorities[numbers_of(alone)].astype(np.float64) ** 0.6
    smallest = same.min() if norm == "batch" else smallest
    np.testing.assert_allclose(alone["weights"], (smallest / same) ** 0.7, rtol=1e-4)


def test_weights_correct_for_sums_that_were_old() -> None:
    """A shard that was believed to be twice as likely has steps that weigh half as much."""
    weights = importance_weights(
        [np.array([1.0, 2.0]), np.array([1.0])], [2.0, 1.0], 1.0, 1.0, by_batch=False
    )
    np.testing.assert_allclose(weights, [0.5, 0.25, 1.0])


def test_expectations_are_unbiased_although_others_push_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    replay = filled(2, [50, 50], prioritized=True, seed=5, beta=1.0)
    first = replay._group.members[0]
    believe(first, first.shard.state().total, monkeypatch)
    other: Any = first.shard.buffer  # type: ignore[attr-defined]
    other.push_batch(**steps(range(100, 200)), priorities=np.full(100, 4.0, np.float32))
    totals = np.zeros(200)
    for _ in range(200):
        batch = replay.sample(100)
        np.add.at(totals, numbers_of(batch), batch["weights"])
    # Each of the 200 steps has the same expectation, as if they were drawn uniformly.
    parts = [totals[:50].mean(), totals[50:100].mean(), totals[100:].mean()]
    np.testing.assert_allclose(parts, np.mean(parts), rtol=0.06)


def test_ids_carry_the_shard_and_its_epoch() -> None:
    rows = np.array([0, 1, 2**44 - 1], np.uint64)
    for shard, epoch in [(0, 0), (1, 5), (255, 4095), (7, 4096 + 3)]:
        shards, epochs, found = split_ids(join_ids(shard, epoch, rows))
        assert shards.tolist() == [shard] * 3
        assert epochs.tolist() == [epoch % 4096] * 3
        assert found.tolist() == rows.tolist()


def test_priorities_of_replaced_steps_are_ignored_and_counted() -> None:
    replay = filled(2, [8, 8], prioritized=True, capacity=10)
    drawn = replay.sample(16)
    replay.push_batch(**steps(range(100, 140)))
    assert replay.update_priorities(drawn["indices"], np.full(16, 50.0)) == 16
    stats = replay.stats()
    assert stats["ignored_updates"] == 16
    assert stats["stale_updates"] == 16
    weights = replay.sample(8)["weights"]
    np.testing.assert_array_equal(weights, np.ones(8, np.float32))


def test_one_draw_may_have_more_steps_of_a_shard_than_it_holds() -> None:
    replay = filled(2, [1, 31], seed=0)
    for _ in range(200):
        assert set(numbers_of(replay.sample(32)).tolist()) <= set(range(32))


def test_the_same_seed_draws_the_same() -> None:
    one, other = filled(3, [20, 30, 40], seed=5), filled(3, [20, 30, 40], seed=5)
    for _ in range(3):
        np.testing.assert_array_equal(numbers_of(one.sample(16)), numbers_of(other.sample(16)))
    first = numbers_of(one.sample(16, seed=9))
    np.testing.assert_array_equal(first, numbers_of(other.sample(16, seed=9)))
    np.testing.assert_array_equal(numbers_of(one.sample(16)), numbers_of(other.sample(16)))
    assert first.tolist() != numbers_of(one.sample(16, seed=10)).tolist()
    one.load_state_dict(other.state_dict())
    other.load_state_dict(other.state_dict())
    np.testing.assert_array_equal(numbers_of(one.sample(16)), numbers_of(other.sample(16)))


def test_streams_stay_whole_for_n_steps_and_windows() -> None:
    replay = local(2, 4)
    for t in range(30):  # stream e counts from 100 e on
        replay.push_batch(**steps([t + 100 * e for e in range(4)]))
    batch = replay.sample(64, view=NStep(3, 1.0))
    first = numbers_of(batch, n_step=3)
    left = np.minimum(3, 30 - first % 100)
    np.testing.assert_array_equal(batch["next_obs"]["count"], first + left)
    windows = replay.sample(8, view=Sequence(5))["obs"]["count"]
    assert windows.shape == (8, 5)
    assert (np.diff(windows, axis=1) == 1).all()


def test_a_shard_without_a_window_that_fits_is_passed_over() -> None:
    replay = filled(2, [30, 3])
    windows = replay.sample(16, view=Sequence(5))["obs"]["count"]
    assert windows.max() < 30
    with pytest.raises(ValueError, match="no step in the buffer fits the view"):
        replay.sample(2, view=Sequence(31))


def test_shards_that_draw_by_rank_are_refused() -> None:
    buffer = PrioritizedReplayBuffer(10, 1, 1, kind="rank")
    with pytest.raises(ValueError, match='"proportional", got "rank"'):
        LocalShard(buffer)
