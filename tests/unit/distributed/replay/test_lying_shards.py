"""Shards that answer with something else than was asked for: they are left out, and named."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

pytest.importorskip("grpc")

from sharpwave import NStep, Sequence
from sharpwave.core.tree import map_leaves
from sharpwave.distributed.replay import ReplayServer, ShardedReplay, ShardOptions
from sharpwave.distributed.replay.shard import Drawn
from sharpwave.errors import ShardGone
from tests.unit.distributed.replay.shards import FIELDS, numbers_of, steps
from tests.waiting import LONG, without_hanging

Lie = Callable[[Drawn], Drawn]


def other(**columns: Any) -> Lie:
    """Other columns of a batch; None leaves one out."""

    def lie(drawn: Drawn) -> Drawn:
        batch = {**(drawn.batch or {}), **columns}
        return drawn._replace(batch={k: x for k, x in batch.items() if x is not None})

    return lie


def of_rows(take: Callable[[Any], Any], *, ids: bool = True) -> Lie:
    """Other rows of all columns, and the ids with them, or without."""

    def lie(drawn: Drawn) -> Drawn:
        batch: Any = map_leaves(take, drawn.batch or {})
        return drawn._replace(batch=batch, ids=take(drawn.ids) if ids else drawn.ids)

    return lie


def of_state(**numbers: Any) -> Lie:
    return lambda drawn: drawn._replace(state=drawn.state._replace(**numbers))


LIES: dict[str, tuple[Lie, str]] = {
    "none": (of_rows(lambda x: x[:0]), "steps must be 1 to 8, got 0"),
    "more": (of_rows(lambda x: np.concatenate([x, x])), "steps must be 1 to 8, got 16"),
    "uneven": (of_rows(lambda x: x[:1], ids=False), r"must be float32 \(8, 5\), got .* \(1, 5\)"),
    "missing": (other(rewards=None), "steps must have the columns .* got"),
    "unknown": (other(x=np.zeros(8)), "steps must have the columns .* got"),
    "dtype": (other(rewards=np.zeros(8)), r"rewards must be float32 \(8,\), got float64"),
    "shape": (other(actions=np.zeros((8, 3), np.float32)), r"actions must be float32 \(8, 2\)"),
    "nan": (other(rewards=np.full(8, np.nan, np.float32)), "rewards must be finite"),
    "ids": (lambda drawn: drawn._replace(ids=drawn.ids + np.uint64(2**56)), "of the shard's own"),
    "total": (of_state(total=0.0), "the total of a shard with steps must be positive, got 0.0"),
    "sums": (of_state(total=np.nan), "the state of a shard must be of sums"),
    "leaves": (lambda drawn: drawn._replace(leaves=None), "steps must have a column weights"),
    "few leaves": (lambda drawn: drawn._replace(leaves=np.ones(3)), "weights must be 8 finite"),
}


@contextmanager
def replay_of(n: int) -> Iterator[tuple[list[ReplayServer], ShardedReplay]]:
    """A replay of servers of this process, with 20 steps."""
    options = ShardOptions(capacity=100, prioritized=True)
    servers = [ReplayServer(options) for _ in range(n)]
    addresses = [server.address for server in servers]
    try:
        with ShardedReplay(addresses, fields=FIELDS, n_envs=n, timeout=LONG / 4) as replay:
            replay.push_batch(**steps(range(20)))
            yield servers, replay
    finally:
        for server in servers:
            server.stop()


def lie(server: ReplayServer, how: Lie) -> None:
    draw = server._draw
    server._requests["draw"] = lambda packed: how(draw(packed))


@pytest.mark.parametrize(("how", "says"), LIES.values(), ids=list(LIES))
def test_a_shard_that_lies_is_named_and_not_asked_for_ever(how: Lie, says: str) -> None:
    """It was asked again and again, or what it said was in batches."""
    with replay_of(1) as ((server,), replay):
        lie(server, how)
        with without_hanging(), pytest.raises(ShardGone, match=f"{server.address}: .*{says}"):
            replay.sample(8)


def test_draws_go_on_from_others() -> None:
    with replay_of(2) as ((liar, _), replay):
        lie(liar, LIES["nan"][0])
        lie(liar, other(rewards=None))
        for _ in range(20):
            assert (numbers_of(replay.sample(8)) % 2 == 1).all()
        assert replay.stats()["shards_lost"] >= 1


def test_counts_that_cannot_be_are_no_answer_to_an_update() -> None:
    with replay_of(1) as ((server,), replay):
        batch = replay.sample(8)
        server._requests["update"] = lambda _: (9, server.shard.state())
        assert replay.update_priorities(batch["indices"], np.ones(8)) == 8  # all of them
        assert replay.stats()["shards_lost"] == 1


def test_honest_shards_pass_in_every_view() -> None:
    with replay_of(2) as (_, replay):
        windows = Sequence(2, pad=True), Sequence(3, pad=True, arrivals=True, context=1)
        for view in (None, NStep(3), *windows):
            for count in (0, 1, 8, 20):
                assert len(replay.sample(count, view=view)["rewards"]) == count
        assert replay.stats()["shards_lost"] == 0
