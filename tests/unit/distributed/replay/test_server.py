"""Shards in other processes: what is asked over the wire is what a buffer here would answer."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sharpwave as sw
from sharpwave import NStep, ReplayBuffer
from sharpwave.cli import main
from sharpwave.distributed.codec import pack, unpack
from sharpwave.distributed.replay import (
    LocalShard,
    RateLimit,
    ReplayServer,
    ShardedReplay,
    ShardOptions,
)
from sharpwave.distributed.security import Access
from sharpwave.errors import ShardGone, WireError
from tests.reference.nests import assert_same
from tests.unit.distributed.certificates import make_authority, make_tls
from tests.unit.distributed.envs.servers import Proxy
from tests.unit.distributed.replay.shards import (
    FIELDS,
    local,
    no_thread_left,
    numbers_of,
    served,
    steps,
)
from tests.waiting import LONG, wait_for


@pytest.fixture
def servers() -> Iterator[list[ReplayServer]]:
    """Two servers in this process."""
    with no_thread_left():
        made = [ReplayServer(ShardOptions(capacity=1000, prioritized=True)) for _ in range(2)]
        yield made
        for server in made:
            server.stop()


def addresses(servers: list[ReplayServer]) -> list[str]:
    return [server.address for server in servers]


@pytest.mark.parametrize("prefetch", [0, 3])
def test_a_remote_shard_answers_what_a_local_one_does(
    servers: list[ReplayServer], prefetch: int
) -> None:
    here = local(2, 3, prioritized=True, seed=4)
    options: dict[str, Any] = {"fields": FIELDS, "n_envs": 3, "seed": 4, "prefetch": prefetch}
    with ShardedReplay(addresses(servers), **options) as there:
        for replay in (here, there):
            replay.push_batch(**steps(range(60)), priorities=np.linspace(0.1, 3, 60))
        for view in (None, NStep(3, 0.9), sw.Sequence(4, pad=True)):
            assert_same(there.sample(16, seed=5, view=view), here.sample(16, seed=5, view=view))
        drawn = here.sample(16, seed=5)
        for replay in (here, there):
            replay.update_priorities(drawn["indices"], np.arange(16.0))
        if prefetch:
            there.update_priorities([], [])  # hears of the ones before
        assert_same(there.sample(16, seed=6), here.sample(16, seed=6))
        batch = there.sample(8)
        assert all(leaf.flags.writeable for leaf in (batch["rewards"], batch["obs"]["body"]))
        stats = there.stats()
        assert (stats["size"], stats["pushed"], stats["shards_alive"]) == (60, 60, 2)


def test_two_clients_share_the_shards(servers: list[ReplayServer]) -> None:
    where = addresses(servers)
    with ShardedReplay(where, fields=FIELDS, n_envs=4) as actor, ShardedReplay(where) as learner:
        assert learner.n_envs == 4
        actor.push_batch(**steps(range(40)))
        drawn = learner.sample(20, seed=1) if len(learner) >= 20 else None
        if drawn is None:  # it hears of others' pushes when it looks
            learner._group._look()
            drawn = learner.sample(20, seed=1)
        assert len(numbers_of(drawn)) == 20
        with pytest.raises(ValueError, match="action"):
            ShardedReplay(where, fields={**FIELDS, "action": "int64"}, n_envs=4)
        with pytest.raises(ValueError, match="must keep 3 streams in order, got 2"):
            ShardedReplay(where, fields=FIELDS, n_envs=6)


def test_who_may_not_connect_is_told(tmp_path: Path) -> None:
    options = ShardOptions(capacity=10)
    token = "a token of both sides"
    with ReplayServer(options, access=Access(token)) as server:
        with pytest.raises(PermissionError, match="token is missing or wrong"):
            ShardedReplay([server.address])
        with pytest.raises(PermissionError, match=server.address):
            ShardedReplay([server.address], token="another token of 16")
        with ShardedReplay([server.address], token=token, fields=FIELDS, n_envs=1) as replay:
            replay.push_batch(**steps(range(3)))
            assert len(replay) == 3
        with pytest.raises(OSError, match=f"cannot listen at {server.address}"):
            ReplayServer(options, port=int(server.address.split(":")[1]))
    with pytest.raises(PermissionError, match=r"0\.0\.0\.0.*token or mutual TLS"):
        ReplayServer(options, host="0.0.0.0")
    tls = make_tls(make_authority(tmp_path))
    with ReplayServer(options, host="localhost", access=Access(tls=tls)) as server:
        with ShardedReplay([server.address], tls=tls, fields=FIELDS, n_envs=1) as replay:
            replay.push_batch(**steps(range(3)))
        with pytest.raises(ConnectionError, match=server.address):
            ShardedReplay([server.address], timeout=3.0)


def test_addresses_that_nobody_answers_are_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConnectionError, match=address):
            ShardedReplay([address], timeout=3.0)
    with pytest.raises(ValueError, match=r"shards must differ, got 127\.0\.0\.1:9 twice"):
        ShardedReplay(["127.0.0.1:9", "127.0.0.1:9"])


def test_a_shard_that_is_gone_is_left_out_and_comes_back(capfd: Any) -> None:
    with no_thread_left():
        options = ShardOptions(capacity=1000, prioritized=True)
        servers = [ReplayServer(options) for _ in range(2)]
        replay = ShardedReplay(addresses(servers), fields=FIELDS, n_envs=2, timeout=LONG, beta=1.0)
        replay.push_batch(**steps(range(40)), priorities=np.repeat([1.0, 4.0], 20))
        before = replay.sample(16)
        port = int(servers[1].address.split(":")[1])
        servers[1].stop()
        for _ in range(3):  # draws go on from the others
            batch = replay.sample(16)
            numbers = numbers_of(batch)
            assert (numbers % 2 == 0).all()
            leaves = np.where(numbers < 20, 1.0, 4.0) ** 0.6
            np.testing.assert_allclose(batch["weights"], 1 / leaves, rtol=1e-5)
        replay.push_batch(**steps(range(40, 44)))
        lost = replay.update_priorities(before["indices"], np.ones(16))
        assert lost == (numbers_of(before) % 2).sum()
        stats = replay.stats()
        assert (stats["shards_alive"], stats["shards_lost"], stats["lost_rows"]) == (1, 1, 2)
        servers[1] = ReplayServer(options, port=port)  # without the rows, which were in memory
        wait_for(lambda: replay.stats()["shards_alive"] == 2)
        replay.push_batch(**steps(range(44, 84)))
        assert len(replay) == 22 + 20 + 20
        ignored = replay.update_priorities(before["indices"], np.full(16, 1e6))
        assert ignored == lost  # its epoch is over
        assert servers[1].shard.state().max_priority == 1.0
        replay.close()
        for server in servers:
            server.stop()
    said = capfd.readouterr().err
    assert "goes on without a shard" in said
    assert "again, with 0 steps" in said


def test_torn_answers_cost_a_shard_for_a_while_and_give_no_wrong_step(
    servers: list[ReplayServer],
) -> None:
    where = addresses(servers)
    proxy = Proxy(where[1])
    try:
        options: dict[str, Any] = {"fields": FIELDS, "n_envs": 2, "timeout": LONG / 4}
        with ShardedReplay([where[0], proxy.address], **options) as replay:
            member = replay._group.members[1]
            for number in range(0, 24, 4):
                wait_for(lambda: member.is_alive)
                proxy.to_tear_answers += 1
                replay.push_batch(**steps(range(number, number + 4)))
                while proxy.torn_answers < proxy.to_tear_answers:
                    assert numbers_of(replay.sample(16)).max() < number + 4
                wait_for(lambda: not member.is_alive or member.losses > number // 4)  # noqa: B023
                assert numbers_of(replay.sample(16)).max() < number + 4
            stats = replay.stats()
            assert 1 <= stats["shards_lost"] <= proxy.torn_answers == 6
            assert proxy.address in member.reason or member.is_alive
        buffer: Any = servers[1].shard.buffer  # a push is never sent twice
        held = numbers_of(buffer.gather(buffer.indices())).tolist()
        assert len(held) == len(set(held)) >= 12 - stats["lost_rows"]
    finally:
        proxy.close()


def test_a_clock_that_jumps_changes_nothing(
    servers: list[ReplayServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    now, draw = time.time, np.random.default_rng(0)
    rate = RateLimit(samples_per_insert=1, slack=16)
    options: dict[str, Any] = {"fields": FIELDS, "n_envs": 2, "timeout": LONG / 4}
    with ShardedReplay(addresses(servers), rate=rate, **options) as replay:
        monkeypatch.setattr(time, "time", lambda: now() + draw.normal() * 1e8)
        for number in range(0, 160, 8):
            replay.push_batch(**steps(range(number, number + 8)))
            assert numbers_of(replay.sample(8)).max() < number + 8
        stats = replay.stats()
        assert (stats["pushed"], stats["sampled"]) == (160, 160)
        assert (stats["shards_alive"], stats["shards_lost"], stats["lost_rows"]) == (2, 0, 0)


@pytest.mark.long
def test_without_any_shard_there_is_an_error_in_time() -> None:
    server = ReplayServer(ShardOptions(capacity=10))
    with ShardedReplay([server.address], fields=FIELDS, n_envs=1, timeout=3.0) as replay:
        replay.push_batch(**steps(range(4)))
        server.stop()
        with pytest.raises(ShardGone, match=f"no shard answers: {server.address}"):
            replay.sample(2)
        with pytest.raises(ShardGone, match="no shard answers"):
            replay.push_batch(**steps(range(4)))


def test_a_rate_limit_holds_between_clients(servers: list[ReplayServer]) -> None:
    options: dict[str, Any] = {"rate": RateLimit(samples_per_insert=1, slack=8), "patience": 4.0}
    where = addresses(servers)
    with (
        ShardedReplay(where, fields=FIELDS, n_envs=2, **options) as actor,
        ShardedReplay(where, **options) as learner,
    ):
        actor.push_batch(**steps(range(8)))
        with pytest.raises(TimeoutError, match="pushes wait for draws: 0 steps are drawn of 8"):
            actor.push_batch(**steps(range(8)))
        learner._group._look()
        learner.sample(8)
        actor.push_batch(**steps(range(8)))
        assert actor.stats()["waited_seconds"] >= 0.05
        assert len(actor) == 16


def test_requests_that_make_no_sense_are_answered_with_their_error() -> None:
    with ReplayServer(ShardOptions(capacity=100), max_message=100_000) as server:
        schema = LocalShard(ReplayBuffer(10, fields=FIELDS, n_envs=1)).describe().schema
        assert schema is not None
        for request, error, said in [
            (b"", "WireError", "a message must have at least"),
            (pack("dance"), "WireError", "a request must be one of describe, create"),
            (pack("draw", meta={"count": 1, "seed": 0, "view": "null"}), "ValueError", "nothing"),
            (pack("create", meta={"schema": "{}"}), "ValueError", "field"),
            (pack("create", meta={"schema": "[" * 9000}), "WireError", "schema"),
            (pack("create", meta={"schema": '{"obs": 3}'}), "WireError", "schema"),
        ]:
            answer = unpack(server.answer(request))
            assert answer.kind == "error"
            assert (answer.meta["error"], said in str(answer.meta["said"])) == (error, True), answer
        huge = json.dumps(sw.Schema({"obs": ("float32", (2_000_000_000,))}).to_json())
        answer = unpack(server.answer(pack("create", meta={"schema": huge, "n_envs": 1})))
        assert "at most 100000 bytes" in str(answer.meta["said"])
        with ShardedReplay([server.address], fields=FIELDS, n_envs=1) as replay:
            replay.push_batch(**steps(range(50)))
            for request, said in [
                (pack("draw", meta={"count": 10**9, "seed": 0, "view": "null"}), "batch_size"),
                (pack("draw", meta={"count": -1, "seed": 0, "view": "null"}), "batch_size"),
                (pack("draw", meta={"count": 1, "seed": 0, "view": '["os", {}]'}), "view"),
                (pack("draw", meta={"count": 1, "seed": 0}), "view"),
                (pack("push", {"rewards": np.zeros(3)}), "obs"),
                (pack("update", {"indices": np.zeros(1)}, {"life": 1}), "indices"),
            ]:
                assert said in str(unpack(server.answer(request)).meta["said"])
            assert len(replay.sample(50)["rewards"]) == 50


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"capacity": 0}, ValueError, "capacity must be at least 1, got 0"),
        ({"capacity": 1e6}, TypeError, "capacity must be an integer"),
        ({"prioritized": True, "alpha": -1.0}, ValueError, "alpha must be finite and at least 0"),
        ({"alpha": 0.7}, ValueError, "alpha must be None without prioritized: .* got 0.7"),
    ],
)
def test_options_that_cannot_be_are_refused_before_anybody_pushes(
    options: dict[str, Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        ShardOptions(**options)


def test_priorities_count_as_much_as_the_server_is_told() -> None:
    for alpha, exponent in ((None, 0.6), (1.0, 1.0)):
        with (
            ReplayServer(ShardOptions(capacity=10, prioritized=True, alpha=alpha)) as server,
            ShardedReplay([server.address], fields=FIELDS, n_envs=1) as replay,
        ):
            replay.push_batch(**steps(range(2)), priorities=[1.0, 4.0])
            assert server.shard.state().total == pytest.approx(1 + 4**exponent)


def test_memory_for_more_steps_than_fit_is_refused() -> None:
    with (
        ReplayServer(ShardOptions(capacity=10**12)) as server,
        pytest.raises(ValueError, match="must fit into memory"),
    ):
        ShardedReplay([server.address], fields=FIELDS, n_envs=1)


def test_answers_of_something_else_are_no_steps(
    servers: list[ReplayServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    with ShardedReplay(addresses(servers), fields=FIELDS, n_envs=2, timeout=LONG / 4) as replay:
        replay.push_batch(**steps(range(20)))
        monkeypatch.setattr(servers[0], "answer", lambda _: b"half an answer")
        assert (numbers_of(replay.sample(10)) % 2 == 1).all()
        monkeypatch.setattr(servers[1], "answer", lambda _: pack("another kind"))
        with pytest.raises(WireError, match="must answer steps or none"):
            replay.sample(5)


@pytest.mark.long
def test_the_command_serves_a_folder_until_it_is_told_to_stop(tmp_path: Path, capsys: Any) -> None:
    folder = tmp_path / "shard"
    with served((folder, "--capacity", "1000")) as (one,):
        with ShardedReplay([one.address], fields=FIELDS, n_envs=2, timeout=LONG / 4) as replay:
            replay.push_batch(**steps(range(100)))
        one.process.terminate()
        assert one.process.wait(LONG) == 0
    with (
        served((folder, "--capacity", "1000")) as (one,),
        ShardedReplay([one.address], timeout=LONG / 4) as replay,
    ):
        assert set(numbers_of(replay.sample(100)).tolist()) <= set(range(100))
        assert len(replay) == 100
    for wrong, said in (
        ([str(folder), "--capacity", "999"], "capacity 1000, not 999"),
        ([str(folder), "--capacity", "1000", "--prioritized"], "no priorities"),
        (["--tls-key", "x"], "must be given together"),
        (["--alpha", "0.5"], "alpha must be None without prioritized"),
        (["--host", "0.0.0.0"], "token or mutual TLS"),
        (["--token-file", str(tmp_path / "none")], "none"),
    ):
        assert main(["serve-replay", "--port", "0", *wrong]) == 2
        assert said in capsys.readouterr().err
