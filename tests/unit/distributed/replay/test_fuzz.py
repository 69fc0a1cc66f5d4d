"""Broken messages are answered with named errors, and cost a server nothing."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sharpwave.distributed.codec import pack, unpack
from sharpwave.distributed.replay import ShardedReplay
from sharpwave.distributed.wire import connect, grpc
from sharpwave.types import Array
from tests.unit.distributed.replay.shards import FIELDS, numbers_of, served, steps
from tests.waiting import LONG

MESSAGES = 10_000
TALK = "/sharpwave.Replay/Talk"


def whole(random: random.Random) -> bytes:
    """A message that is well formed, and says what it likes."""
    views = ["null", '["NStep", {"n": 3}]', '["NStep", {"n": -1}]', '["Sequence", {"length": 9}]']
    odd: list[int | float | str | bool | None]
    odd = [0, -1, 3, 2**63 - 1, 1e300, float("nan"), None, True, "x", "null", "[" * 50, *views]
    names = ("count", "seed", "view", "life", "n_envs", "schema")
    kinds = ("describe", "create", "state", "push", "draw", "update", "", "état", "x" * 150)
    arrays: list[Array] = [
        np.zeros(0),
        np.zeros(3, np.float32),
        np.full(3, np.nan, np.float32),
        np.zeros((2, 5), np.int8),
        np.arange(4, dtype=np.uint64) << np.uint64(60),
        np.zeros(3, bool),
        np.array(7.0),
    ]
    columns = ["obs.body", "obs.count", "actions", "rewards", "next_obs.body", "indices"]
    columns += ["priorities", "streams", "obs", "weights", "obs.body.deep"]
    return pack(
        random.choice(kinds) or "draw",
        {random.choice(columns): random.choice(arrays) for _ in range(random.randrange(4))},
        {random.choice(names): random.choice(odd) for _ in range(random.randrange(5))},
    )


def broken(random: random.Random) -> bytes:
    """A message that was cut, changed, made up, or means nothing."""
    message = bytearray(whole(random))
    how = random.randrange(5)
    if how == 0:
        return bytes(message[: random.randrange(len(message))])
    if how == 1:
        for _ in range(random.randrange(1, 9)):
            message[random.randrange(len(message))] = random.randrange(256)
    elif how == 2:
        return random.randbytes(random.randrange(200))
    elif how == 3:
        place = random.randrange(len(message))
        message[place:place] = random.randbytes(random.randrange(1, 50))
    return bytes(message)


def memory_of(pid: int) -> int:
    """Resident bytes of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


@pytest.mark.long
@pytest.mark.timeout(300)
def test_ten_thousand_broken_messages_leave_a_server_as_it_was() -> None:
    source = random.Random(11)
    with (
        served(("--capacity", "1000", "--prioritized")) as (shard,),
        ShardedReplay([shard.address], fields=FIELDS, n_envs=1, timeout=LONG / 4) as replay,
    ):
        replay.push_batch(**steps(range(500)))
        channel = connect(shard.address)
        talk = channel.stream_stream(TALK)
        said: Counter[str] = Counter()
        memory = []
        for _ in range(10):
            requests = [broken(source) for _ in range(MESSAGES // 10)]
            for answer in talk(iter(requests), timeout=60):
                found = unpack(answer)
                said[str(found.meta.get("error", found.kind))] += 1
            memory.append(memory_of(shard.process.pid))
        assert sum(said.values()) == MESSAGES  # each has its answer
        assert said["WireError"] > MESSAGES / 2
        assert set(said) <= {
            *("WireError", "ValueError", "TypeError", "description", "state", "updated"),
            *("IndexError", "OverflowError", "steps", "none"),
        }, said
        assert memory[-1] - memory[1] < 32 << 20, memory
        # Methods and services that there are not.
        for name in ("/sharpwave.Replay/Dance", "/other/Talk"):
            with pytest.raises(grpc().RpcError, match="UNIMPLEMENTED"):
                channel.unary_unary(name)(b"", timeout=10)
        channel.close()
        assert set(numbers_of(replay.sample(500)).tolist()) <= set(range(500))
        assert replay.stats()["shards_lost"] == 0


@pytest.mark.long
def test_a_message_that_is_too_large_is_refused_before_it_is_read() -> None:
    with served(("--capacity", "1000")) as (shard,):
        before = memory_of(shard.process.pid)
        channel = connect(shard.address, max_message=1 << 30)
        with pytest.raises(grpc().RpcError, match="RESOURCE_EXHAUSTED"):
            list(channel.stream_stream(TALK)(iter([bytes(200 << 20)]), timeout=60))
        assert memory_of(shard.process.pid) - before < 64 << 20
        schema: dict[str, Any] = {"obs": {"dict": {}}}
        talk = channel.stream_stream(TALK)
        answer = next(talk(iter([pack("create", meta={"schema": json.dumps(schema)})])))
        assert unpack(answer).meta["error"] == "WireError"
        channel.close()
