"""The group of shards of a replay: common schema, shards that answer, and concurrent requests."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from sharpwave.buffers.replay import check_count
from sharpwave.buffers.schema import Schema
from sharpwave.core.notice import notice
from sharpwave.distributed.replay.draws import MAX_SHARDS
from sharpwave.distributed.replay.local import FolderShard, check_same
from sharpwave.distributed.replay.members import Member, Watch
from sharpwave.distributed.replay.rate import RateLimit
from sharpwave.distributed.replay.shard import Answer, Description, Shard
from sharpwave.distributed.security import Access
from sharpwave.errors import ShardGone

__all__ = ["Group"]

T = TypeVar("T")
LOOK_EVERY = 0.5
"""Seconds after which a distant shard is asked where it stands, or whether it is back."""
TELL_EVERY = 30.0
"""Seconds after which a wait is told of."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 0.05
_ADDRESS = re.compile(r"[^/\\]+:\d+")


class Group:
    """The shards of a replay.

    Args:
        shards: Addresses, folders, or shards.
        access: Credentials for the servers.
        timeout: Seconds that a server has to answer.
        rate: Limit of steps drawn per step pushed; None for no limit.
        patience: Seconds that it may be waited for.

    Attributes:
        members: The shards, in the order given.
        schema: The fields of a step; None while nobody has said them.
        n_envs: Streams that are kept in order; None for none.
        capacity: Steps that all keep together.
        alpha: Exponent of the priorities; None without priorities.
        waiting: Why a request waits at this moment; empty when none does.
        waited: Seconds waited for rate limits.
    """

    def __init__(
        self,
        shards: Sequence[Any],
        access: Access,
        *,
        timeout: float,
        rate: RateLimit | None,
        patience: float,
    ) -> None:
        _check_shards(shards)
        if not timeout > 0:
            raise ValueError(f"timeout must be positive, got {timeout}")
        if not patience >= 0:
            raise ValueError(f"patience must be at least 0, got {patience}")
        self._timeout, self._rate, self._patience = timeout, rate, patience
        self.schema: Schema | None = None
        self.n_envs: int | None = None
        self.waiting, self.waited = "", 0.0
        self.members: list[Member] = []
        self._watch: Watch | None = None
        self._closing = threading.Event()
        try:
            for number, shard in enumerate(shards):
                self.members.append(Member(number, _connected(shard, access, timeout)))
            self._describe()
        except BaseException:
            self.close()
            raise
        if not all(member.shard.is_near for member in self.members):
            self._watch = Watch(self._look, LOOK_EVERY)

    def stop_waiting(self) -> None:
        """Let nobody wait for the rate limit any more."""
        self._closing.set()

    def close(self) -> None:
        """Leave the shards as they are."""
        self.stop_waiting()
        if self._watch is not None:
            self._watch.stop()
        for member in self.members:
            member.shard.close()

    # What they hold

    def _describe(self) -> None:
        """Learn what the shards hold, which must be the same in all of them."""
        held = [member.shard.describe() for member in self.members]
        if len({one.alpha for one in held}) > 1:
            pairs = zip(self.members, held, strict=True)
            said = ", ".join(f"{member.shard.name}: {one.alpha}" for member, one in pairs)
            raise ValueError(f"all shards must have the same alpha, None without, got {said}")
        folders = [m.shard.name for m in self.members if isinstance(m.shard, FolderShard)]
        if self._rate is not None and folders:
            raise ValueError(f"rate must be None for the folder {folders[0]}")
        self.alpha = held[0].alpha
        self.capacity = sum(one.capacity for one in held)
        schema = next((one.schema for one in held if one.schema is not None), None)
        if schema is not None:  # shards that are new shall hold what the others do
            self.create(schema, self._streams_of(held))

    def _streams_of(self, held: Sequence[Description]) -> int | None:
        """The streams of all shards together, by those that know theirs."""
        known = {i: one.n_envs for i, one in enumerate(held) if one.schema is not None}
        counts = [count for count in known.values() if count is not None]
        if not counts:
            return None
        n = len(held)
        for total in range(n * min(counts), n * min(counts) + n):
            if all(self._share(total, i) == count for i, count in known.items()):
                return total
        said = ", ".join(f"{self.members[i].shard.name}: {count}" for i, count in known.items())
        raise ValueError(f"the shards must keep as many streams each, in this order, got {said}")

    def _share(self, n_envs: int | None, number: int) -> int | None:
        """Streams of a shard."""
        return None if n_envs is None else len(range(number, n_envs, len(self.members)))

    def create(self, schema: Schema, n_envs: int | None) -> None:
        """Have the shards hold such steps, where they hold none.

        Args:
            schema: The fields of a step.
            n_envs: Streams that are kept in order; None for steps in no order.

        Raises:
            ValueError: They hold others, or there are fewer streams than shards.
        """
        if n_envs is not None and check_count("n_envs", n_envs, 1) < len(self.members):
            raise ValueError(
                f"n_envs must be at least {len(self.members)}, a stream for each shard, "
                f"got {n_envs}"
            )
        for member in self.members:
            share = self._share(n_envs, member.number)
            held = member.shard.create(schema, share)
            check_same(member.shard.name, held, schema, share)
            self.schema = held.schema
            member.hear(member.shard.state())
        self.n_envs = n_envs

    # Which of them answer

    def alive(self) -> list[Member]:
        """The shards that answer; of near ones it is known where they stand now."""
        for member in self.members:
            if member.shard.is_near:
                member.look(None, None)
        return [member for member in self.members if member.is_alive]

    def _look(self) -> None:
        for member in self.members:
            if not member.shard.is_near:
                member.look(self.schema, self._share(self.n_envs, member.number))

    def wait_for_some(self) -> list[Member]:
        """The shards that answer, once at least one does.

        Raises:
            ShardGone: None does in time.
        """
        alive = self.alive()
        if not alive and self._watch is not None:
            self._watch.wait_for(lambda: any(m.is_alive for m in self.members), self._timeout)
            alive = self.alive()
        if not alive:
            said = "; ".join(member.reason for member in self.members)
            raise ShardGone(f"no shard answers: {said}")
        return alive

    # Asking them

    def ask_all(
        self, asked: Sequence[tuple[Member, T, Callable[[], Answer[Any]]]]
    ) -> list[tuple[Member, T, Any]]:
        """Ask all before any answer is awaited; an error is an answer too.

        Args:
            asked: Shards, what comes back with the answer, and what asks.
        """
        under_way = [(member, what, _tried(ask)) for member, what, ask in asked]
        found = []
        for member, what, answer in under_way:
            result = answer if isinstance(answer, Exception) else _tried(answer)
            if isinstance(result, ShardGone):
                member.lose(result)
            found.append((member, what, result))
        return found

    def wait_for_rate(self, batch: int, rows: int) -> None:
        """Wait until a batch may be drawn, or rows may be pushed.

        Args:
            batch: Steps to draw.
            rows: Steps to push.

        Raises:
            TimeoutError: It has taken more than `patience`; the reason is told.
            ValueError: The slack is less than one batch or push needs, or the replay is closed.
        """
        if self._rate is None:
            return
        self._rate.check(batch, rows)
        began = told = time.monotonic()
        pause = _FIRST_PAUSE
        try:
            while reason := self._why_wait(self._rate, batch, rows):
                now = time.monotonic()
                self.waiting = reason
                if now - began >= self._patience:
                    raise TimeoutError(f"waited {now - began:.1f} s: {reason}")
                if now - told >= TELL_EVERY:
                    told = now
                    notice(f"replay has waited {now - began:.0f} s: {reason}")
                if self._closing.wait(pause):
                    raise ValueError(f"the replay is closed: {reason}")
                pause = min(2 * pause, _LONGEST_PAUSE)
                self._look()
        finally:
            if self.waiting:
                self.waiting = ""
                self.waited += time.monotonic() - began

    def _why_wait(self, rate: RateLimit, batch: int, rows: int) -> str | None:
        """Reason why a draw or a push must wait for the other side, by all shards together."""
        states = [member.state for member in self.alive()]
        pushed, sampled = sum(s.pushed for s in states), sum(s.sampled for s in states)
        if rows:
            return rate.why_not_push(rows, pushed, sampled)
        return rate.why_not_draw(batch, pushed, sampled)


def _connected(shard: Any, access: Access, timeout: float) -> Shard:
    if isinstance(shard, str) and _ADDRESS.fullmatch(shard):
        from sharpwave.distributed.replay.remote import RemoteShard

        return RemoteShard(shard, access, timeout=timeout)
    found: Shard = FolderShard(shard) if isinstance(shard, str | os.PathLike) else shard
    return found


def _check_shards(shards: Any) -> None:
    if isinstance(shards, str | os.PathLike) or not isinstance(shards, Sequence):
        raise TypeError(f"shards must be a list of addresses or folders, got {shards!r}")
    if not 1 <= len(shards) <= MAX_SHARDS:
        raise ValueError(f"shards must be 1 to {MAX_SHARDS}, got {len(shards)}")
    seen: set[Any] = set()
    for shard in shards:
        one: Any = shard
        if isinstance(shard, str | os.PathLike):
            is_address = isinstance(shard, str) and _ADDRESS.fullmatch(shard)
            one = shard if is_address else os.path.realpath(shard)
        elif not hasattr(shard, "draw"):
            raise TypeError(f"shards must be addresses, folders or shards, got {shard!r}")
        if one in seen:
            raise ValueError(f"shards must differ, got {shard} twice")
        seen.add(one)


def _tried(ask: Callable[[], T]) -> T | Exception:
    try:
        return ask()
    except Exception as error:
        return error
