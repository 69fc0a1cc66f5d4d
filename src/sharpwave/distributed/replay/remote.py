"""Client of a replay shard in another process or on another machine, over gRPC."""

from __future__ import annotations

import contextlib
import json
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from sharpwave.buffers.schema import Schema
from sharpwave.buffers.views import View
from sharpwave.distributed.codec import LIMIT, Packed, Plain, pack, unpack
from sharpwave.distributed.replay.columns import text_of_view
from sharpwave.distributed.replay.drawn_schema import DrawnSchema
from sharpwave.distributed.replay.messages import (
    IDS,
    PRIORITIES,
    SERVICE,
    STREAMS,
    TALK,
    description_of,
    error_of,
    number,
    state_of,
    text,
)
from sharpwave.distributed.replay.shard import NO_IDS, Answer, Description, Drawn, State
from sharpwave.distributed.security import Access
from sharpwave.distributed.wire import connect, grpc, named
from sharpwave.errors import ShardGone, WireError
from sharpwave.types import Array, Ids

__all__ = ["RemoteShard"]

T = TypeVar("T")


class RemoteShard:
    """A shard that a `ReplayServer` serves.

    Requests go out over one stream and are answered in order, so that many can be under way.

    Args:
        address: Such as "10.0.0.3:50052".
        access: Token and certificates, as the server has them.
        timeout: Seconds that the server has for an answer; it is gone then, until it answers
            `state` again.
        max_message: Bytes of a request or an answer.

    Raises:
        ConnectionError: Nothing answers.
        PermissionError: The server takes another token.
    """

    is_near = False

    def __init__(
        self,
        address: str,
        access: Access | None = None,
        *,
        timeout: float = 5.0,
        max_message: int = LIMIT,
    ) -> None:
        self.name = address
        self._timeout, self._limit = timeout, max_message
        self._channel = connect(address, access, timeout=timeout, max_message=max_message)
        self._open = self._channel.stream_stream(f"/{SERVICE}/{TALK}")
        self._drawn: DrawnSchema | None = None
        self._lock = threading.Lock()
        self._stream: _Stream | None = None

    def describe(self) -> Description:
        """Description of the steps that it holds."""
        return self._described(pack("describe"), again=True)

    def create(self, schema: Schema, n_envs: int | None) -> Description:
        """Have it hold such steps, if it holds none."""
        meta = {"schema": json.dumps(schema.to_json()), "n_envs": n_envs}
        return self._described(pack("create", meta=meta))

    def _described(self, request: bytes, *, again: bool = False) -> Description:
        held = self._ask(request, {"description": description_of}, again=again)()
        self._drawn = None if held.schema is None else DrawnSchema(held)
        return held

    def state(self) -> State:
        """State of the shard; one that was gone is asked too."""
        return self._ask(pack("state"), {"state": state_of}, again=True)()

    def push(
        self, columns: Mapping[str, Array], streams: Array | None, priorities: Array | None
    ) -> Answer[State]:
        """Push steps to streams of the shard's own."""
        more = {STREAMS: streams, PRIORITIES: priorities}
        given = {**columns, **{name: x for name, x in more.items() if x is not None}}
        return self._ask(pack("push", given), {"state": state_of})

    def draw(self, count: int, seed: int, view: View | None) -> Answer[Drawn]:
        """Draw steps, with their ids."""
        meta: dict[str, Plain] = {"count": count, "seed": seed, "view": text_of_view(view)}

        def steps(packed: Packed) -> Drawn:
            if self._drawn is None:
                raise WireError("steps must come from a shard that holds some, got them")
            return self._drawn.drawn(packed, count, view)

        def none(packed: Packed) -> Drawn:
            return Drawn(state_of(packed), None, NO_IDS, None, text(packed, "reason"))

        return self._ask(pack("draw", meta=meta), {"steps": steps, "none": none})

    def update(self, ids: Ids, priorities: Array, life: int) -> Answer[tuple[int, State]]:
        """Set priorities of steps of this life; the number that came too late is returned."""
        columns = {IDS: ids, PRIORITIES: priorities}

        def updated(packed: Packed) -> tuple[int, State]:
            ignored = number(packed, "ignored")
            if not 0 <= ignored <= len(ids):
                raise WireError(f"ignored must be from 0 to {len(ids)}, got {ignored}")
            return int(ignored), state_of(packed)

        return self._ask(pack("update", columns, {"life": life}), {"updated": updated})

    def close(self) -> None:
        """Leave it as it is."""
        with self._lock:
            stream, self._stream = self._stream, None
        if stream is not None:
            stream.end("the replay is closed")
        self._channel.close()

    def _ask(
        self, request: bytes, readers: Mapping[str, Callable[[Packed], T]], *, again: bool = False
    ) -> Answer[T]:
        """Send a request; return a function that waits for its answer and reads it.

        Args:
            request: The request.
            readers: Reader of each kind of answer that there may be.
            again: Open a stream that has ended anew.
        """
        with self._lock:
            stream = self._stream
            if stream is None or (stream.reason and again):
                stream = self._stream = _Stream(self._open, self.name)
        answer = stream.send(request)

        def read() -> T:
            try:
                found = unpack(answer(self._timeout), limit=self._limit)
                if found.kind in readers:
                    return readers[found.kind](found)
            except queue.Empty:
                said = f"{self.name} did not answer within {self._timeout} s"
                stream.end(said)
                raise ShardGone(said) from None
            except WireError as error:  # nothing of a server that says such things is taken
                stream.end(f"{self.name}: {error}")
                raise ShardGone(f"{self.name}: {error}") from None
            if found.kind == "error":
                raise error_of(found, self.name)
            wanted = " or ".join(readers)
            raise WireError(f"{self.name} must answer {wanted}, got {found.kind!r}")

        return read


class _Stream:
    """A stream of requests and answers, until either side ends it.

    Args:
        open_call: Opens it, with an iterator of requests.
        name: Name of the server.

    Attributes:
        reason: Why it has ended; empty before.
    """

    def __init__(self, open_call: Callable[[Iterator[bytes]], Any], name: str) -> None:
        self.reason = ""
        self._name = name
        self._requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._waiting: deque[queue.SimpleQueue[bytes | None]] = deque()
        self._call = open_call(iter(self._requests.get, None))
        self._reader = threading.Thread(target=self._read, name="sharpwave shard", daemon=True)
        self._reader.start()

    def send(self, request: bytes) -> Callable[[float], bytes]:
        """Send a request; return a function that waits so many seconds for its answer.

        Raises:
            ShardGone: The stream has ended.
        """
        place: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        with self._lock:
            if self.reason:
                raise ShardGone(self.reason)
            self._waiting.append(place)
            self._requests.put(request)

        def answer(timeout: float) -> bytes:
            data = place.get(timeout=timeout)
            if data is None:
                raise ShardGone(self.reason)
            return data

        return answer

    def _read(self) -> None:
        said = f"{self._name} ended the stream"
        try:
            for data in self._call:
                with self._lock:
                    place = self._waiting.popleft() if self._waiting else None
                if place is None:
                    said = f"{self._name} answered what nobody asked"
                    break
                place.put(data)
        except grpc().RpcError as error:
            said = str(named(error, self._name))
        self._end(said)

    def _end(self, reason: str) -> None:
        with self._lock:
            self.reason = self.reason or reason
            waiting, self._waiting = self._waiting, deque()
        self._requests.put(None)
        with contextlib.suppress(Exception):
            self._call.cancel()
        for place in waiting:
            place.put(None)

    def end(self, reason: str) -> None:
        """End it from this side, and its thread."""
        self._end(reason)
        self._reader.join(timeout=5.0)
