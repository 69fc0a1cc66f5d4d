"""The contract of every replay buffer holds in shards too, here and across the wire."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from sharpwave.distributed.replay import LocalShard, ReplayServer, ShardedReplay, ShardOptions
from tests.contract.cases import CASES, Case
from tests.reference.nests import assert_same, leaves, same, transform
from tests.reference.steps import as_batch

CAPACITY = 30

each_case = pytest.mark.parametrize(
    "case",
    [case for case in CASES if "rank" not in case.name],  # ranks are not for shards
    ids=lambda case: case.name,
)


@pytest.fixture(scope="module")
def server() -> Iterator[ReplayServer]:
    with ReplayServer(ShardOptions(capacity=CAPACITY)) as server:
        yield server


@pytest.fixture(params=["here", "served"])
def wrap(request: Any) -> Any:
    """Maker of a sharded replay of a buffer."""
    made: list[ShardedReplay] = []

    def wrap(buffer: Any, **options: Any) -> ShardedReplay:
        shard: Any = LocalShard(buffer)
        if request.param == "served":
            server = request.getfixturevalue("server")
            server.shard = shard
            shard = server.address
        made.append(ShardedReplay([shard], **options))
        return made[-1]

    yield wrap
    for replay in made:
        replay.close()


@pytest.mark.long(only=["served"])
@each_case
def test_every_step_comes_back_as_it_was_pushed(case: Case, wrap: Any) -> None:
    buffer, plain = (case.make(capacity=CAPACITY, seed=0) for _ in range(2))
    replay, oracle = wrap(buffer), case.oracle(CAPACITY)
    rows = case.steps().take(72)
    for begin in range(0, 72, 18):
        replay.push_batch(**as_batch(rows[begin : begin + 18]))
    plain.push_batch(**as_batch(rows))
    oracle.push_batch(rows)
    assert_same(buffer.gather(buffer.indices()), plain.gather(plain.indices()))
    assert len(replay) == len(oracle)
    assert replay.is_full
    seen: set[int] = set()
    for seed in range(12):
        batch = replay.sample(13, seed=seed, indices=True)
        oracle.check_batch(batch)
        seen.update(batch["indices"].tolist())
    assert seen <= set(oracle.ids())
    assert len(seen) > len(oracle) / 2
    stats = replay.stats()
    assert (stats["pushed"], stats["sampled"]) == (72, 12 * 13)
    assert (stats["size"], stats["capacity"], stats["fill"]) == (
        len(oracle),
        CAPACITY,
        len(oracle) / CAPACITY,
    )


@pytest.mark.long(only=["served"])
@each_case
def test_a_batch_has_the_keys_dtypes_and_shapes_of_a_buffer(case: Case, wrap: Any) -> None:
    buffer = case.make(capacity=CAPACITY, seed=0)
    replay = wrap(buffer)
    replay.push_batch(**as_batch(case.steps().take(36)))
    found = replay.sample(7, seed=1)
    wanted = buffer.sample(7, seed=1)
    assert list(found) == list(wanted)
    for (name, one), (_, other) in zip(leaves(found), leaves(wanted), strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape), name
        assert one.flags.c_contiguous
        assert one.flags.writeable
    assert same(replay.sample(9, seed=7), replay.sample(9, seed=7))
    assert not same(replay.sample(9, seed=7), replay.sample(9, seed=8))


@each_case
def test_inputs_of_any_form_store_the_same(case: Case) -> None:
    batch = as_batch(case.steps().take(18))
    forms: dict[str, Any] = {
        "lists": lambda a: a if a.dtype == np.uint64 else a.tolist(),
        "torch": torch.from_numpy,
        "strided": lambda a: np.repeat(a, 2, axis=0)[::2],
        "swapped bytes": lambda a: a.astype(a.dtype.newbyteorder()),
        "float64": lambda a: a.astype(np.float64) if a.dtype.kind == "f" else a,
    }
    expected = case.make(capacity=CAPACITY, seed=0)
    expected.push_batch(**batch)
    for name, form in forms.items():
        buffer = case.make(capacity=CAPACITY, seed=0)
        ShardedReplay([LocalShard(buffer)]).push_batch(**transform(form, batch))
        assert same(buffer.gather(buffer.indices()), expected.gather(expected.indices())), name
