"""Simulated actor nodes, to benchmark a learner: processes that send one unroll again and again.

They speak the protocol of `sharpwave actor` and take no time to act, so that a learner that takes
all they send shows how much it can take.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import threading
from typing import Any

from sharpwave.distributed.codec import Packed, pack, unpack
from sharpwave.distributed.fleet import Unroll
from sharpwave.distributed.grpc_fleet import PROTOCOL, SERVICE
from sharpwave.distributed.unroll_codec import unroll_of_bytes, unroll_to_bytes
from sharpwave.distributed.wire import OVERHEAD, grpc

__all__ = ["StandIns"]

N_PROCESSES = 2
"""They share the nodes, so that the learner is slower than they are."""
LIMIT = 2**30
"""Bytes of the largest message."""
BEAT = 2.0
"""Seconds between two signs of life."""
PATIENCE = 60.0
"""Seconds in which the learner must be there."""
GRACE = 10.0
"""Seconds in which processes end that were sent home."""


class StandIns:
    """Stand-ins for nodes, until the learner sends them home or the block ends.

    Args:
        address: Address of the learner, on this machine.
        unroll: Unroll that they send.
        n_nodes: Number of nodes, each with a connection of its own.
        node_actors: Number of actors of each node.
    """

    def __init__(self, address: str, unroll: Unroll, n_nodes: int, node_actors: int) -> None:
        shares = [len(range(first, n_nodes, N_PROCESSES)) for first in range(N_PROCESSES)]
        self._commands = [
            [sys.executable, "-c", _BEGIN, address, str(share), str(node_actors), *sys.path]
            for share in shares
            if share
        ]
        self._data = unroll_to_bytes(unroll)
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> StandIns:
        for command in self._commands:
            one = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                env={"OMP_NUM_THREADS": "1", **os.environ},
                start_new_session=True,  # what a terminal says is for the learner
            )
            self._processes.append(one)
            assert one.stdin is not None
            # It stays open: its end says that the learner's process is gone.
            with contextlib.suppress(BrokenPipeError):
                one.stdin.write(len(self._data).to_bytes(8, "little") + self._data)
                one.stdin.flush()
        return self

    def __exit__(self, *_: object) -> None:
        for one in self._processes:
            assert one.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                one.stdin.close()
        for one in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                one.wait(GRACE)
            one.kill()  # which does nothing to those that have ended
            one.wait()

    def check(self) -> None:
        """Raise where one of them has ended.

        Raises:
            RuntimeError: One has.
        """
        for one in self._processes:
            if one.poll() is not None:
                raise RuntimeError(f"a process that stands in for nodes ended: {one.returncode}")


_BEGIN = """
import sys
address, n_nodes, node_actors, *sys.path[:] = sys.argv[1:]
from sharpwave.distributed.stand_ins import run
run(address, int(n_nodes), int(node_actors))
"""


def run(address: str, n_nodes: int, node_actors: int) -> None:
    """Be some nodes until the learner sends them home, or standard input ends."""
    length = int.from_bytes(sys.stdin.buffer.read(8), "little")
    unroll = unroll_of_bytes(sys.stdin.buffer.read(length), limit=LIMIT)

    def end_with_parent() -> None:
        os.read(sys.stdin.fileno(), 1)  # whose end needs no lock that Python's exit wants
        os._exit(0)

    threading.Thread(target=end_with_parent, daemon=True).start()
    asyncio.run(_act(address, n_nodes, node_actors, unroll))


async def _act(address: str, n_nodes: int, node_actors: int, unroll: Unroll) -> None:
    aio = grpc().aio
    limits = [(f"grpc.max_{way}_message_length", LIMIT + OVERHEAD) for way in ("send", "receive")]
    # Each node has a connection of its own, as on machines of their own.
    options = [*limits, ("grpc.use_local_subchannel_pool", 1)]
    channels = [aio.insecure_channel(address, options=options) for _ in range(n_nodes)]
    nodes = [_Node(channel, node_actors, unroll) for channel in channels]
    # A learner that has what it wants leaves in the midst of what is sent.
    with contextlib.suppress(aio.AioRpcError, asyncio.InvalidStateError):
        await asyncio.gather(*(node.act() for node in nodes))
    await asyncio.gather(*(channel.close() for channel in channels))


class _Node:
    """One connection, with some actors."""

    def __init__(self, channel: Any, n_actors: int, unroll: Unroll) -> None:
        self._channel, self._n_actors, self._unroll = channel, n_actors, unroll
        self._serials: dict[int, int] = {}
        self._turn = asyncio.Lock()  # one writes at a time
        self._stream: Any = None

    async def act(self) -> None:
        """Join, and send an unroll whenever one is asked for, until the end."""
        await asyncio.wait_for(self._channel.channel_ready(), PATIENCE)
        self._stream = self._channel.stream_stream(f"/{SERVICE}/Join")()
        await self._say(pack("join", meta={"protocol": PROTOCOL, "actors": self._n_actors}))
        beating = asyncio.create_task(self._beat())
        try:
            while (asked := await self._heard()) is not None:
                await self._say(self._answer(asked))
        finally:
            beating.cancel()

    async def _heard(self) -> Packed | None:
        """Next unroll request of the learner; None at the end."""
        while (data := await self._stream.read()) is not grpc().aio.EOF:
            packed = unpack(data, limit=LIMIT)
            if packed.kind == "ask":
                return packed
            if packed.kind in ("end", "full"):
                break
        return None

    def _answer(self, asked: Packed) -> bytes:
        actor, version = asked.meta["actor"], asked.meta["version"]
        assert isinstance(actor, int)
        serial = self._serials.get(actor, 0)
        self._serials[actor] = serial + 1
        return unroll_to_bytes(self._unroll, actor=actor, version=version, serial=serial)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT)
            await self._say(pack("beat"))

    async def _say(self, data: bytes) -> None:
        async with self._turn:
            await self._stream.write(data)
