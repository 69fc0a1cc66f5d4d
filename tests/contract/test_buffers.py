"""The contract of every replay buffer, run over all of them."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sharpwave import ReplayBuffer
from tests.contract.cases import Case, each_case
from tests.reference.nests import assert_same, leaves, same, transform
from tests.reference.replay import ReplayOracle, in_batch
from tests.reference.steps import as_batch

CAPACITY = 30


def filled(case: Case, n: int = 72, seed: int = 0) -> tuple[Any, ReplayOracle]:
    """A buffer that has wrapped around, and what it should hold."""
    buffer = case.make(capacity=CAPACITY, seed=seed)
    oracle = case.oracle(CAPACITY)
    rows = case.steps().take(n)
    buffer.push_batch(**as_batch(rows))
    oracle.push_batch(rows)
    return buffer, oracle


def push_one(buffer: ReplayBuffer, row: dict[str, Any], env: int) -> None:
    where = {} if (buffer.n_envs or 1) == 1 else {"stream": env}
    buffer.push(**row, **where)


def life(buffer: ReplayBuffer) -> dict[str, float]:
    """The stats, without the memory in use: vectors may have grown in different steps."""
    return {key: value for key, value in buffer.stats().items() if "bytes" not in key}


def assert_filling(buffer: ReplayBuffer, *, full: bool) -> None:
    assert buffer.is_full is full


@each_case
def test_push_and_push_batch_store_the_same(case: Case) -> None:
    rows = case.steps().take(72)
    single, whole, parts = (case.make(capacity=CAPACITY, seed=0) for _ in range(3))
    n_envs = single.n_envs or 1
    for i, row in enumerate(rows):
        push_one(single, row, i % n_envs)
    whole.push_batch(**as_batch(rows))
    for begin in range(0, 72, 18):
        parts.push_batch(**as_batch(rows[begin : begin + 18]))
    for other in (whole, parts):
        assert_same(other.indices(), single.indices())
        assert_same(other.gather(other.indices()), single.gather(single.indices()))
        assert_same(other.sample(8, seed=5), single.sample(8, seed=5))
        assert_same(other.sample(8), copy.deepcopy(single).sample(8))


@each_case
def test_the_newest_steps_are_kept_in_order(case: Case) -> None:
    buffer = case.make(capacity=CAPACITY, seed=0)
    oracle = case.oracle(CAPACITY)
    n_envs = buffer.n_envs or 1
    assert buffer.capacity == CAPACITY
    assert len(buffer) == 0
    assert_filling(buffer, full=False)
    for i, row in enumerate(case.steps().take(72)):
        push_one(buffer, row, i % n_envs)
        oracle.push(row, i % n_envs)
        assert len(buffer) == len(oracle)
        assert buffer.indices().tolist() == oracle.ids()
    assert_filling(buffer, full=True)
    assert_same(buffer.indices(), np.array(oracle.ids(), np.uint64))
    oracle.check_batch({**buffer.gather(buffer.indices()), "indices": buffer.indices()})


@each_case
def test_a_batch_has_the_promised_keys_dtypes_and_shapes(case: Case) -> None:
    buffer, oracle = filled(case)
    expected = oracle.expected(oracle.ids()[0])
    batch = buffer.sample(7, seed=1)
    if case.prioritized:
        expected |= {"weights": np.float32(0), "indices": np.uint64(0)}
    order = ["obs", "next_obs", "actions", "rewards", "terminated", "truncated"]
    assert list(batch)[: len(order)] == order
    found, wanted = dict(leaves(batch)), dict(leaves(expected))
    assert set(found) == set(wanted)
    for path, array in found.items():
        assert array.dtype == wanted[path].dtype, path
        assert array.shape == (7, *wanted[path].shape), path
        assert array.flags.c_contiguous
        assert array.flags.writeable
        assert array.flags.aligned
    assert type(batch) is dict


@each_case
def test_every_sampled_row_is_the_pushed_row_of_its_index(case: Case) -> None:
    buffer, oracle = filled(case)
    seen: set[int] = set()
    for seed in range(30):
        batch = buffer.sample(13, seed=seed, indices=True)
        oracle.check_batch(batch)
        seen.update(batch["indices"].tolist())
    assert seen == set(oracle.ids())
    assert buffer.sample(0, seed=0, indices=True)["indices"].shape == (0,)


@pytest.mark.long(but=["dims"])
@each_case
def test_same_content_and_seed_give_the_same_batch(case: Case) -> None:
    first, _ = filled(case, seed=1)
    second, _ = filled(case, seed=2)
    second.sample(5)
    assert_same(first.sample(9, 77, indices=True), second.sample(9, seed=77, indices=True))
    assert not same(first.sample(9, 77), first.sample(9, 78))


@pytest.mark.long(but=["dims"])
@each_case
def test_unseeded_batches_differ_and_follow_the_seed_of_the_buffer(case: Case) -> None:
    first, _ = filled(case, seed=11)
    second, _ = filled(case, seed=11)
    other, _ = filled(case, seed=12)
    batches = [first.sample(9, indices=True) for _ in range(4)]
    for i, batch in enumerate(batches):
        second.sample(3, seed=5)  # a seeded draw does not move the buffer's own generator
        assert_same(second.sample(9, indices=True), batch)
        assert all(not same(batch, earlier) for earlier in batches[:i])
    assert not same(other.sample(9, indices=True), batches[0])


@each_case
def test_out_is_filled_with_what_sample_returns(case: Case) -> None:
    buffer, _ = filled(case)
    expected = buffer.sample(11, seed=3, indices=True)
    arrays = transform(lambda array: np.full_like(array, 1), expected)
    tensors = transform(lambda array: torch.from_numpy(np.full_like(array, 1)), expected)
    for out in (
        arrays,
        tensors,
        buffer.batch(11, indices=True),
        buffer.batch(11, indices=True, torch=True),
    ):
        assert buffer.sample(11, seed=3, out=out, indices=True) is out
        assert_same(dict(out), expected)
        before = [array.ctypes.data for _, array in leaves(dict(out))]
        buffer.sample(11, seed=4, out=out, indices=True)
        assert [array.ctypes.data for _, array in leaves(dict(out))] == before
        assert_same(dict(out), buffer.sample(11, seed=4, indices=True))


@each_case
def test_gather_reads_the_steps_of_indices(case: Case) -> None:
    buffer, oracle = filled(case)
    batch = buffer.sample(11, seed=3, indices=True)
    rows = {k: v for k, v in batch.items() if k not in ("indices", "weights")}
    for indices in (batch["indices"], batch["indices"].astype(np.int64), batch["indices"].tolist()):
        assert_same(buffer.gather(indices), rows)
    out = transform(np.empty_like, rows)
    assert buffer.gather(batch["indices"], out=out) is out
    assert_same(out, rows)
    for unknown in (max(oracle.ids()) + 1000, 0, -1):
        with pytest.raises(IndexError, match="indices"):
            buffer.gather([unknown])


@each_case
def test_sample_recent_draws_from_the_newest_steps_only(case: Case) -> None:
    buffer, oracle = filled(case)
    share = 6 // oracle.streams
    recent = {s.id for env in range(oracle.streams) for s in list(oracle.steps(env))[-share:]}
    seen: set[int] = set()
    for seed in range(40):
        batch = buffer.sample_recent(4, 6, seed, indices=True)
        oracle.check_batch(batch)
        seen.update(batch["indices"].tolist())
    assert seen == recent
    with pytest.raises(ValueError, match="batch_size"):
        buffer.sample_recent(7, 6)


@each_case
def test_an_epoch_visits_every_step_once(case: Case) -> None:
    buffer, oracle = filled(case)
    by_reward = {float(oracle.step(i).row["reward"]): i for i in oracle.ids()}
    assert len(by_reward) == len(oracle)
    batches = list(buffer.epoch(7, seed=1))
    visited = []
    for batch in batches:
        ids = [by_reward[float(reward)] for reward in batch["rewards"]]
        oracle.check_batch({**batch, "indices": np.array(ids)})
        visited += ids
    assert sorted(visited) == sorted(oracle.ids())
    assert visited != oracle.ids()
    assert [len(batch["rewards"]) for batch in batches[:-1]] == [7] * (len(batches) - 1)
    assert len(list(buffer.epoch(7, seed=1, drop_last=True))) == len(oracle) // 7
    for again, batch in zip(buffer.epoch(7, seed=1), batches, strict=True):
        assert_same(again, batch)
    first, second = next(buffer.epoch(7)), next(buffer.epoch(7))
    assert not same(first, second)


@pytest.mark.long(but=["dims"])
@each_case
def test_clear_forgets_the_steps_and_never_repeats_an_id(case: Case) -> None:
    buffer, oracle = filled(case)
    before = set(oracle.ids())
    steps = case.steps()
    buffer.clear()
    oracle.clear()
    assert len(buffer) == 0
    assert len(buffer.indices()) == 0
    assert_filling(buffer, full=False)
    with pytest.raises(ValueError, match="buffer is empty"):
        buffer.sample(1)
    for _ in range(6):
        rows = steps.take(6)
        buffer.push_batch(**as_batch(rows))
        oracle.push_batch(rows)
        assert buffer.indices().tolist() == oracle.ids()
        assert before.isdisjoint(oracle.ids())
        oracle.check_batch(buffer.sample(min(6, len(oracle)), seed=0, indices=True))


@each_case
def test_stats_count_what_happened(case: Case) -> None:
    buffer, oracle = filled(case)
    buffer.sample(5)
    buffer.sample(10, seed=1)
    stats = buffer.stats()
    assert stats["pushed"] == 72
    assert stats["sampled"] == 15
    assert stats["replay_ratio"] == 15 / 72
    assert stats["size"] == len(oracle)
    assert stats["capacity"] == CAPACITY
    assert stats["fill"] == len(oracle) / CAPACITY
    assert 0 < stats["sampled_age"] <= CAPACITY
    assert stats["bytes_per_step"] == stats["bytes"] / CAPACITY
    assert stats["stale_updates"] == 0


@each_case
def test_sampled_age_counts_the_steps_since(case: Case) -> None:
    buffer = case.make(capacity=CAPACITY, seed=0)
    steps = case.steps()
    for _ in range(4):
        push_one(buffer, steps.step(0), 0)
    ages = []
    for _ in range(20):
        reward = buffer.sample(1)["rewards"]
        ages.append(3 - buffer.gather(buffer.indices())["rewards"].tolist().index(reward))
    assert buffer.stats()["sampled_age"] == pytest.approx(np.mean(ages))


@pytest.mark.long(but=["dims"])
@each_case
def test_copies_go_on_exactly_as_the_original(case: Case, tmp_path: Path) -> None:
    buffer, _ = filled(case)
    if case.prioritized:
        drawn = buffer.sample(9)["indices"]
        buffer.update_priorities(drawn, np.linspace(0.0, 5.0, 9))
        buffer.set_beta(0.7)
    buffer.sample(3)
    buffer.save(tmp_path / "saved")
    copies = [type(buffer).load(tmp_path / "saved")]
    if not case.durable:
        copies += [pickle.loads(pickle.dumps(buffer)), copy.deepcopy(buffer)]
    for other in copies:
        assert type(other) is type(buffer)
        assert other.schema == buffer.schema
        assert other.n_envs == buffer.n_envs
        assert life(other) == life(buffer)
    more = case.steps().take(18)
    for round_ in range(3):
        expected = buffer.sample(8, indices=True)
        for other in copies:
            assert_same(other.sample(8, indices=True), expected)
            assert_same(other.indices(), buffer.indices())
        for one in (buffer, *copies):
            one.push_batch(**as_batch(more[round_ * 3 : round_ * 3 + 3] * 2))
    for other in copies:
        assert_same(other.gather(other.indices()), buffer.gather(buffer.indices()))
        assert life(other) == life(buffer)


@pytest.mark.long(but=["dims"])
@each_case
def test_inputs_of_any_form_store_the_same(case: Case) -> None:
    rows = case.steps().take(18)
    batch = as_batch(rows)
    forms: dict[str, Callable[[Any], Any]] = {
        # NumPy itself makes floats of lists that mix integers below and above 2**63.
        "lists": lambda a: a if a.dtype == np.uint64 else a.tolist(),
        "torch": torch.from_numpy,
        "strided": lambda a: np.repeat(a, 2, axis=0)[::2],
        "reversed": lambda a: a[::-1].copy()[::-1],
        "swapped bytes": lambda a: a.astype(a.dtype.newbyteorder()),
        "fortran": np.asfortranarray,
        "read-only": lambda a: np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape),
        "float64": lambda a: a.astype(np.float64) if a.dtype.kind == "f" else a,
        "flat": np.ravel,
    }
    expected = case.make(capacity=CAPACITY, seed=0)
    expected.push_batch(**batch)
    for name, form in forms.items():
        buffer = case.make(capacity=CAPACITY, seed=0)
        buffer.push_batch(**transform(form, batch))
        assert same(buffer.gather(buffer.indices()), expected.gather(expected.indices())), name
        if name != "flat":
            single = case.make(capacity=CAPACITY, seed=0)
            for i, row in enumerate(rows):
                plain = {k: transform(np.asarray, v) for k, v in row.items()}
                formed = transform(lambda a, f=form: f(a) if a.ndim else f(a[None])[0], plain)
                push_one(single, formed, i % (single.n_envs or 1))
            assert same(single.gather(single.indices()), expected.gather(expected.indices())), name


@each_case
def test_the_pushed_arrays_are_copied(case: Case) -> None:
    rows = case.steps().take(6)
    buffer = case.make(capacity=CAPACITY, seed=0)
    batch = as_batch(rows)
    expected = transform(np.copy, in_batch(batch))
    buffer.push_batch(**batch)
    for _, array in leaves(batch):
        array[...] = 0
    got = buffer.gather(buffer.indices())
    order = np.argsort([list(expected["rewards"]).index(reward) for reward in got["rewards"]])
    assert_same(transform(lambda array: array[order], got), expected)


@pytest.mark.long(but=["dims"])
@each_case
def test_a_refused_push_changes_nothing(case: Case) -> None:
    buffer, oracle = filled(case)
    before = pickle.dumps(buffer)
    batch = as_batch(case.steps().take(6))
    for name in batch:
        with pytest.raises(TypeError):
            buffer.push_batch(**{k: v for k, v in batch.items() if k != name})
    with pytest.raises(TypeError):
        buffer.push_batch(**batch, unknown=np.zeros(6))
    for bad in (np.nan, np.inf, -np.inf):
        rewards = batch["rewards"].copy()
        rewards[3] = bad
        with pytest.raises(ValueError, match="reward"):
            buffer.push_batch(**{**batch, "rewards": rewards})
    with pytest.raises(ValueError, match="reward"):
        buffer.push_batch(**{**batch, "rewards": batch["rewards"].astype(np.float64) * 1e40})
    with pytest.raises(ValueError, match="terminated"):
        buffer.push_batch(**{**batch, "terminated": batch["terminated"][:5]})
    doubled = transform(lambda array: np.concatenate([array, array]), batch["obs"])
    with pytest.raises(ValueError, match="must have shape"):
        buffer.push_batch(**{**batch, "obs": doubled})
    with pytest.raises((TypeError, ValueError)):
        buffer.push_batch(**{**batch, "obs": None})
    assert pickle.dumps(buffer) == before
    assert len(buffer) == len(oracle)
