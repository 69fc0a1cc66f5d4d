"""Replay server over gRPC: a shard that other processes push to and sample from."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sharpwave.buffers import MmapReplayBuffer, PrioritizedReplayBuffer, ReplayBuffer
from sharpwave.buffers.prioritized import check_exponent
from sharpwave.buffers.replay import check_count
from sharpwave.buffers.schema import Schema
from sharpwave.buffers.views import Sequence
from sharpwave.distributed.codec import LIMIT, Packed, unpack
from sharpwave.distributed.replay.columns import row_bytes, view_of_text
from sharpwave.distributed.replay.local import LocalShard
from sharpwave.distributed.replay.messages import (
    IDS,
    PRIORITIES,
    SERVICE,
    STREAMS,
    TALK,
    answer_of,
    failed,
    number,
    schema_of,
    text,
    vector,
    without,
)
from sharpwave.distributed.security import Access
from sharpwave.distributed.wire import Method, Server, serve, service
from sharpwave.errors import WireError
from sharpwave.storage.folder import is_store

__all__ = ["ReplayServer", "ShardOptions"]

HOT_SHARE = 0.1
"""Of a folder, the share of the newest steps that stays in memory."""
ALPHA = 0.6
"""Exponent of priorities where none is given."""
MAX_STREAMS = 65536
"""Streams that a client may ask a shard to keep in order."""


@dataclass(frozen=True)
class ShardOptions:
    """Options of the buffer that a server makes, once the fields of a step are known.

    Attributes:
        folder: Folder of the steps; in memory when None.
        capacity: Maximum number of steps to keep.
        prioritized: Draw by priority.
        alpha: Exponent of the priorities; 0.6 when None.
        seed: Seed of the buffer.

    Raises:
        ValueError: An option is out of its range, or `alpha` is given without priorities.
    """

    folder: Path | None = None
    capacity: int = 1_000_000
    prioritized: bool = False
    alpha: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        check_count("capacity", self.capacity, 1)
        check_count("seed", self.seed, 0, 2**64 - 1)
        if self.alpha is not None:
            check_exponent("alpha", self.alpha)
            if not self.prioritized:
                raise ValueError(
                    f"alpha must be None without prioritized: all steps count alike, got "
                    f"{self.alpha}"
                )

    @property
    def exponent(self) -> float | None:
        """Exponent of the priorities; None where steps have none."""
        if not self.prioritized:
            return None
        return ALPHA if self.alpha is None else self.alpha

    def open(self) -> ReplayBuffer | None:
        """The buffer that is in the folder already; None where there is none.

        Raises:
            SharpwaveIOError: The folder holds something else, or another process writes it.
            ValueError: It holds another buffer than is asked for.
        """
        if self.folder is None or not is_store(self.folder):
            return None
        buffer = MmapReplayBuffer.open(self.folder, continue_episodes=True)
        priorities = buffer._options["priorities"]
        other = []
        if buffer.capacity != self.capacity:
            other.append(f"capacity {buffer.capacity}, not {self.capacity}")
        if (priorities is not None) != self.prioritized:
            other.append(f"{'no ' if priorities is None else ''}priorities")
        elif priorities is not None and priorities[1] != self.exponent:
            other.append(f"alpha {priorities[1]}, not {self.exponent}")
        if other:
            buffer.close()
            raise ValueError(f"{self.folder} holds a buffer with {', '.join(other)}")
        return buffer

    def make(self, schema: Schema, n_envs: int | None) -> ReplayBuffer:
        """A buffer of such steps.

        Raises:
            ValueError: There is no room for it.
        """
        self._check_room(schema, n_envs)
        given: dict[str, Any] = {"fields": schema, "n_envs": n_envs, "seed": self.seed}
        if self.folder is not None:
            return MmapReplayBuffer(
                max(1, int(self.capacity * HOT_SHARE)),
                self.capacity,
                cold_path=self.folder,
                prioritized={"alpha": self.exponent} if self.prioritized else False,
                **given,
            )
        if self.exponent is not None:
            return PrioritizedReplayBuffer(self.capacity, alpha=self.exponent, **given)
        return ReplayBuffer(self.capacity, **given)

    def _check_room(self, schema: Schema, n_envs: int | None) -> None:
        """Refuse steps that would take more than there is: a client says how large they are."""
        if n_envs is not None and not 1 <= n_envs <= min(MAX_STREAMS, self.capacity):
            raise ValueError(
                f"n_envs must be from 1 to {min(MAX_STREAMS, self.capacity)}, got {n_envs}"
            )
        stored = [leaf for leaf in schema.leaves if n_envs is None or leaf.argument != "next_obs"]
        each = sum(
            np.dtype(leaf.field.dtype).itemsize
            * int(np.prod(leaf.field.shape, dtype=object))
            // max(leaf.field.stack, 1)
            for leaf in stored
        )
        if self.folder is None:
            room = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
        else:
            above = next(path for path in self.folder.absolute().parents if path.exists())
            room = shutil.disk_usage(above).free
        if each * self.capacity > room:
            where = "memory" if self.folder is None else f"the disk of {self.folder}"
            raise ValueError(
                f"{self.capacity} steps of {each} bytes must fit into {where}, which has "
                f"{room / 2**30:.1f} GiB"
            )


class ReplayServer:
    """Answers what sharded replays of other processes ask of a shard.

    Args:
        options: Options of the shard.
        host: Host to listen at.
        port: Port to listen at; 0 takes a free one.
        access: Credentials that clients must show.
        max_message: Bytes of a request or an answer.
        max_clients: Replays that are served at a time.

    Raises:
        OSError: The port is taken.
        PermissionError: Other machines could connect without token or certificate.
        SharpwaveIOError: The folder cannot be used.
        ValueError: It holds another buffer.
    """

    def __init__(
        self,
        options: ShardOptions,
        host: str = "127.0.0.1",
        port: int = 0,
        access: Access | None = None,
        *,
        max_message: int = LIMIT,
        max_clients: int = 64,
    ) -> None:
        self.shard = LocalShard(
            options.open(),
            make=options.make,
            plan=(options.capacity, options.exponent),
            name="the shard",
        )
        self._max_message = max_message
        self._counted: tuple[Schema | None, int] = (None, 0)
        self._requests: dict[str, Callable[[Packed], Any]] = {
            "describe": lambda _: self.shard.describe(),
            "create": self._create,
            "state": lambda _: self.shard.state(),
            "push": self._push,
            "draw": self._draw,
            "update": self._update,
        }
        methods = [Method(TALK, self._talk, stream_in=True, stream_out=True)]
        try:
            self._server: Server = serve(
                [service(SERVICE, methods)],
                host,
                port,
                access,
                max_message=max_message,
                max_calls=max_clients,
            )
        except BaseException:
            self.shard.close()
            raise

    @property
    def address(self) -> str:
        """The host and the port."""
        return self._server.address

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the server has stopped, or so many seconds; return True if it still runs."""
        return self._server.wait(timeout)

    def stop(self) -> None:
        """Answer no more, and leave the folder as it is."""
        self._server.stop()
        self.shard.close()

    def __enter__(self) -> ReplayServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _talk(self, requests: Iterator[bytes], _: Any) -> Iterator[bytes]:
        for request in requests:
            yield self.answer(request)

    def answer(self, request: bytes) -> bytes:
        """The answer to a request; a request that makes no sense is answered with an error."""
        try:
            packed = unpack(request, limit=self._max_message)
            answer = self._requests.get(packed.kind, self._refuse)
            return answer_of(answer(packed))
        except Exception as error:
            return failed(error)

    def _refuse(self, packed: Packed) -> Any:
        known = ", ".join(self._requests)
        raise WireError(f"a request must be one of {known}, got {packed.kind!r}")

    def _create(self, packed: Packed) -> Any:
        n_envs = packed.meta.get("n_envs")
        streams = None if n_envs is None else int(number(packed, "n_envs"))
        schema = schema_of(text(packed, "schema"))
        if row_bytes(schema) > self._max_message:
            raise ValueError(
                f"a step must have at most {self._max_message} bytes, got {row_bytes(schema)}"
            )
        return self.shard.create(schema, streams)

    def _push(self, packed: Packed) -> Any:
        columns = without(packed.columns, STREAMS, PRIORITIES)
        streams = priorities = None
        if STREAMS in packed.columns:
            streams = vector(packed, STREAMS, "iu", np.int64)
        if PRIORITIES in packed.columns:
            priorities = vector(packed, PRIORITIES, "f", np.float32)
        try:
            return self.shard.push(columns, streams, priorities)()
        except KeyError as error:
            raise WireError(f"push must have the column {error}") from None

    def _draw(self, packed: Packed) -> Any:
        count, seed = int(number(packed, "count")), int(number(packed, "seed"))
        view = view_of_text(text(packed, "view"))
        window = view.rows if isinstance(view, Sequence) else 1
        each = self._row_bytes(self.shard.buffer.schema) * window
        if not 0 <= count * each <= self._max_message:
            raise ValueError(
                f"batch_size must be from 0 to {self._max_message // each} for messages of "
                f"{self._max_message} bytes, got {count}"
            )
        return self.shard.draw(count, seed, view)()

    def _row_bytes(self, schema: Schema) -> int:
        """Bytes of a step, which are counted once."""
        if self._counted[0] is not schema:
            self._counted = (schema, row_bytes(schema))
        return self._counted[1]

    def _update(self, packed: Packed) -> Any:
        ids = vector(packed, IDS, "u", np.uint64)
        priorities = vector(packed, PRIORITIES, "f", np.float32)
        if len(ids) != len(priorities):
            raise WireError(f"priorities must be {len(ids)}, got {len(priorities)}")
        return self.shard.update(ids, priorities, int(number(packed, "life")))()
