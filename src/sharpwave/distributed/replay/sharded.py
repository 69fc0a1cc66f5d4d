"""A replay buffer sharded over several processes or machines, sampled as one."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np

from sharpwave.buffers.prioritized import check_exponent, check_weight_norm
from sharpwave.buffers.replay import check_count
from sharpwave.buffers.schema import BATCH_NAMES, FieldSpec, Schema
from sharpwave.buffers.views import View
from sharpwave.core.tree import map_leaves
from sharpwave.distributed.replay.columns import steps_of, text_of_view
from sharpwave.distributed.replay.draws import (
    importance_weights,
    join_ids,
    nothing_to_draw,
    same_epoch,
    seed_of,
    split_counts,
    split_ids,
)
from sharpwave.distributed.replay.group import Group
from sharpwave.distributed.replay.local import LocalShard
from sharpwave.distributed.replay.members import Member
from sharpwave.distributed.replay.prefetch import Prefetch
from sharpwave.distributed.replay.rate import RateLimit
from sharpwave.distributed.replay.shard import Answer, Drawn, Shard, State
from sharpwave.distributed.security import TLS, Access
from sharpwave.errors import ShardGone
from sharpwave.types import Array, BatchDict, Nested

__all__ = ["ShardedReplay"]

Piece = tuple[Member, int, float, Drawn]
"""Steps of a shard, the epoch of its rows, and the sum that it was chosen by."""


class ShardedReplay:
    """A buffer whose steps lie in shards: servers, folders, or buffers of this process.

    A shard is drawn by its size, or by its sum of priorities, and then a step of it, so that all
    shards together are one distribution; weights are those of the whole. The steps of an
    environment all go to one shard: stream e to shard e modulo the number of shards.

    A server that dies, hangs or is cut off is left out, and draws go on from the others. It is
    back, with the steps that it still has, as soon as it answers again. Rows for a shard that is
    gone are dropped and counted.

    Args:
        shards: Addresses such as "10.0.0.3:50052" of `sharpwave serve-replay`, folders that
            another process writes, or `LocalShard`s. Everybody names them in the same order.
        seed: Seed of the draws.
        token: Token that the servers ask for; by default the variable `SHARPWAVE_TOKEN`.
        tls: Certificates, where the servers ask for them.
        fields: Fields of a step, if servers hold nothing yet; otherwise the algorithm says it.
        n_envs: Streams that are kept in order, with `fields`.
        beta: Exponent of the importance weights, which correct for priorities.
        weight_norm: The maximum in the weights is over the "buffer" or the "batch".
        prefetch: Batches that are asked for before they are needed, in a thread.
        timeout: Seconds that a server has to answer.
        rate: Limit of steps drawn per step pushed, in all shards together; None for no limit.
            Everybody who pushes or draws passes the same.
        patience: Seconds that the rate limit may be waited for.

    Raises:
        ConnectionError: A server does not answer at the start.
        PermissionError: It takes another token.
        ValueError: A shard is given twice, or holds other steps than the others.

    Example:
        >>> from sharpwave import ReplayBuffer
        >>> from sharpwave.distributed.replay import LocalShard
        >>> replay = ShardedReplay([LocalShard(ReplayBuffer(100, 1, 1)) for _ in range(2)])
        >>> x = np.arange(6, dtype=np.float32)
        >>> flags = {"terminated": x > 9, "truncated": x > 9}
        >>> replay.push_batch(obs=x[:, None], next_obs=x[:, None], actions=x, rewards=x, **flags)
        >>> len(replay), len(replay.sample(3, seed=1)["rewards"])
        (6, 3)
    """

    def __init__(
        self,
        shards: Sequence[str | os.PathLike[str] | Shard],
        *,
        seed: int = 0,
        token: str | None = None,
        tls: TLS | None = None,
        fields: Mapping[str, FieldSpec] | Schema | None = None,
        n_envs: int | None = None,
        beta: float = 0.4,
        weight_norm: Literal["buffer", "batch"] = "buffer",
        prefetch: int = 0,
        timeout: float = 5.0,
        rate: RateLimit | None = None,
        patience: float = 600.0,
    ) -> None:
        self.seed = check_count("seed", seed, 0, 2**63 - 1)
        self._beta = check_exponent("beta", beta)
        self._by_batch = check_weight_norm(weight_norm) == "batch"
        check_count("prefetch", prefetch, 0)
        self._generator = np.random.Generator(np.random.PCG64(self.seed))
        self._ignored = self._next_shard = self._draws = 0
        self._updates: list[tuple[Member, int, Answer[tuple[int, State]]]] = []
        self._group = Group(
            shards, Access.of(token, tls), timeout=timeout, rate=rate, patience=patience
        )
        only = self._group.members[0].shard if len(self._group.members) == 1 else None
        self._lone = only if rate is None and isinstance(only, LocalShard) else None
        self._prefetch = Prefetch(self._draw, prefetch) if prefetch else None
        if fields is not None:
            try:
                self.create(fields if isinstance(fields, Schema) else Schema(fields), n_envs)
            except BaseException:
                self.close()
                raise

    # What it holds

    def create(self, schema: Schema, n_envs: int | None) -> None:
        """Have the shards hold such steps, where they hold none.

        Args:
            schema: The fields of a step.
            n_envs: Streams that are kept in order, at least one for each shard; None for steps in
                no order.

        Raises:
            ValueError: They hold others, or there are fewer streams than shards.
        """
        self._group.create(schema, n_envs)

    @property
    def is_created(self) -> bool:
        """True if the shards know the fields of a step."""
        return self._group.schema is not None

    @property
    def schema(self) -> Schema:
        """The fields of a step.

        Raises:
            ValueError: Nobody has said them yet.
        """
        if self._group.schema is None:
            raise ValueError("the shards hold nothing yet: pass fields, or let an algorithm push")
        return self._group.schema

    @property
    def n_envs(self) -> int | None:
        """Streams that are kept in order, or None."""
        return self._group.n_envs

    @property
    def capacity(self) -> int:
        """Maximum number of steps that all shards keep together."""
        return self._group.capacity

    @property
    def is_prioritized(self) -> bool:
        """True if steps are drawn by priority."""
        return self._group.alpha is not None

    @property
    def beta(self) -> float:
        """Exponent of the importance weights."""
        return self._beta

    def set_beta(self, beta: float) -> None:
        """Set the exponent of the importance weights; annealed towards 1 in training."""
        self._beta = check_exponent("beta", beta)

    @property
    def is_full(self) -> bool:
        """True if every shard overwrites its oldest steps."""
        return all(member.state.is_full for member in self._group.alive())

    def __len__(self) -> int:
        return sum(member.state.size for member in self._group.alive())

    # Pushing

    def push(
        self, *args: Any, stream: int = 0, priority: float | None = None, **given: Nested
    ) -> None:
        """Push one step, its fields in the order of the schema or by name."""
        names = [name for name in self.schema.fields if name not in given]
        if len(args) > len(names):
            raise TypeError(f"push takes {', '.join(names)}, got {len(args)} positional arguments")
        row = {**dict(zip(names, args, strict=False)), **given}
        self.push_batch(
            streams=None if self.n_envs is None else [stream],
            priorities=None if priority is None else [priority],
            **{BATCH_NAMES.get(k, k): map_leaves(_with_axis, nest) for k, nest in row.items()},
        )

    def push_batch(self, *, streams: Any = None, priorities: Any = None, **given: Nested) -> None:
        """Push steps, [N, ...] each, to the shards of their streams.

        Args:
            streams: The stream of each step; step i belongs to stream i modulo `n_envs` when None.
            priorities: Priority of each step; the highest of its shard so far when None.
            **given: The fields, as `ReplayBuffer.push_batch` takes them.

        Raises:
            TypeError, ValueError: A field is missing or malformed. Nothing is pushed then.
            ShardGone: No shard answers.
            SharpwaveIOError: The disk of a shard is full.
            TimeoutError: A rate limit has not let it through.
        """
        n, columns = steps_of(self.schema, given)
        owners, own_streams = self._owners(n, streams)
        urgent = None if priorities is None else self._checked_priorities(priorities, n)
        self._group.wait_for_some()
        self._group.wait_for_rate(0, n)
        asked: list[tuple[Member, int, Callable[[], Answer[State]]]] = []
        for member in self._group.members:
            rows: Any = slice(n) if owners is None else np.flatnonzero(owners == member.number)
            count = n if owners is None else len(rows)
            if not member.is_alive:
                member.lost_rows += count
            elif count:
                part = columns if owners is None else {k: x[rows] for k, x in columns.items()}
                own = None if own_streams is None else own_streams[rows]
                of = None if urgent is None else urgent[rows]
                asked.append((member, count, partial(member.shard.push, part, own, of)))
        failures = []
        for member, count, answer in self._group.ask_all(asked):
            if isinstance(answer, State):
                member.hear(answer)
            elif isinstance(answer, ShardGone):
                member.lost_rows += count
            else:
                failures.append(answer)
        if failures:
            raise failures[0]

    def _owners(self, n: int, streams: Any) -> tuple[Array | None, Array | None]:
        """The shard of each step and its stream there; None where there is only one."""
        count, n_envs = len(self._group.members), self.n_envs
        if n_envs is None:
            if streams is not None:
                raise TypeError("streams needs a replay with n_envs")
            first, self._next_shard = self._next_shard, (self._next_shard + n) % count
            return None if count == 1 else (first + np.arange(n)) % count, None
        given = np.arange(n) % n_envs if streams is None else np.asarray(streams)
        if given.shape != (n,) or given.dtype.kind not in "iu":
            raise ValueError(f"streams must be {n} integers, got {given.dtype} {given.shape}")
        if n and not 0 <= int(given.min()) <= int(given.max()) < n_envs:
            raise ValueError(f"streams must be from 0 to {n_envs - 1}, got {given}")
        given = given.astype(np.int64)
        return None if count == 1 else given % count, given // count

    def _checked_priorities(self, priorities: Any, n: int) -> Array:
        if not self.is_prioritized:
            raise ValueError("the shards have no priorities")
        given = np.abs(np.asarray(priorities, np.float32))
        if given.shape != (n,) or not np.isfinite(given).all():
            raise ValueError(f"priorities must be {n} finite numbers, got {given}")
        return given

    # Drawing

    def sample(
        self,
        batch_size: int,
        seed: int | None = None,
        *,
        view: View | None = None,
        indices: bool = False,
    ) -> BatchDict:
        """A batch of all shards, as `ReplayBuffer.sample` gives it.

        With `prefetch` it was drawn some batches ago, unless a seed is given. Windows
        (`Sequence`) come from shards by their steps, not by the windows in them.

        Args:
            batch_size: Steps of the batch, at most those that there are while all shards answer.
            seed: Seed of the draw; the next one of the replay's own when None.
            view: View of the steps: `Transition`, `NStep` or `Sequence`.
            indices: Add the ids of the steps, which prioritized batches have anyway; of windows
                those of their first or drawn steps.

        Raises:
            ShardGone: No shard answers.
            TimeoutError: A rate limit has not let it through.
            ValueError: There are not so many steps, or the view calls a function.
        """
        if seed is None and self._prefetch is not None:
            return self._prefetch.take(batch_size, view, indices)
        if seed is None and self._lone is not None and not indices:
            self._draws += 1
            batch = self._lone.sample(batch_size, seed_of(self._generator), view)
            if batch is not None:
                return batch
        return self._draw(batch_size, view, indices, seed)

    def _draw(
        self, batch_size: int, view: View | None, indices: bool, seed: int | None = None
    ) -> BatchDict:
        check_count("batch_size", batch_size, 0)
        text_of_view(view)  # refuses those that are not for shards
        generator = self._generator
        if seed is None:
            self._draws += 1
        else:
            key = check_count("seed", seed, 0, 2**64 - 1)
            generator = np.random.Generator(np.random.PCG64(key))
        self._group.wait_for_rate(batch_size, 0)
        pieces: list[Piece] = []
        passed: dict[Member, str] = {}  # shards without a step that fits, and why
        lost: set[Member] = set()
        left = batch_size
        while left or not pieces:
            alive = self._group.wait_for_some()
            there = sum(member.state.size for member in alive)
            members = [member for member in alive if member not in passed]
            totals = [member.state.total for member in members]
            is_whole = len(alive) == len(self._group.members)
            if (there < batch_size and is_whole) or not sum(totals) > 0:
                raise nothing_to_draw(batch_size, there, list(passed.values()))
            asked: list[tuple[Member, float, Callable[[], Answer[Drawn]]]] = []
            for member, count in zip(members, split_counts(generator, left, totals), strict=True):
                if count or not (left or asked):
                    ask = partial(member.shard.draw, count, seed_of(generator), view)
                    asked.append((member, member.state.total, ask))
            for member, total, answer in self._group.ask_all(asked):
                if isinstance(answer, Drawn):
                    epoch = member.hear(answer.state)
                    if answer.batch is None:
                        passed[member] = f"{member.shard.name}: {answer.reason}"
                    else:
                        pieces.append((member, epoch, total, answer))
                        left -= len(answer.ids)
                elif not isinstance(answer, ShardGone) or member in lost:
                    raise answer  # one that comes back to fail again would be asked for ever
                else:
                    lost.add(member)
        return self._joined(pieces, indices)

    def _joined(self, pieces: Sequence[Piece], indices: bool) -> BatchDict:
        """One batch of the steps of several shards."""
        batches: list[Any] = [drawn.batch for *_, drawn in pieces]
        batch: BatchDict = batches[0]
        if len(batches) > 1:
            batch = map_leaves(lambda *arrays: np.concatenate(arrays), *batches)
        if self.is_prioritized:
            batch["weights"] = self._weights(pieces)
        if self.is_prioritized or indices:
            batch["indices"] = np.concatenate(
                [join_ids(member.number, epoch, drawn.ids) for member, epoch, _, drawn in pieces]
            )
        return batch

    def _weights(self, pieces: Sequence[Piece]) -> Array:
        factors = [total / drawn.state.total for _, _, total, drawn in pieces]
        smallest = [
            drawn.state.smallest * f for (*_, drawn), f in zip(pieces, factors, strict=True)
        ]
        drawn_from = {member for member, *_ in pieces}
        smallest += [
            member.state.smallest
            for member in self._group.members
            if member.is_alive and member not in drawn_from
        ]
        leaves = [drawn.leaves for *_, drawn in pieces if drawn.leaves is not None]
        return importance_weights(
            leaves, factors, min(smallest), self._beta, by_batch=self._by_batch
        )

    def update_priorities(self, indices: Any, priorities: Any) -> int:
        """Set the priorities of drawn steps, by their errors of either sign.

        Steps that were replaced since, or whose shard lost its rows or is gone, are left out.

        Args:
            indices: Ids that `sample` gave.
            priorities: New priority of each.

        Returns:
            How many were left out; with `prefetch`, of the calls before this one.
        """
        ids = np.ascontiguousarray(indices, np.uint64)
        given = self._checked_priorities(priorities, len(ids))
        ignored = self._collect_updates()
        numbers, epochs, rows = split_ids(ids)
        for member in self._group.members:
            mine = numbers == member.number
            of_now = mine & same_epoch(epochs, member.epoch) & member.is_alive
            kept = int(of_now.sum())
            ignored += int(mine.sum()) - kept
            if kept:
                try:
                    answer = member.shard.update(rows[of_now], given[of_now], member.state.life)
                except ShardGone as error:
                    member.lose(error)
                    ignored += kept
                else:
                    self._updates.append((member, kept, answer))
        if self._prefetch is None:
            ignored += self._collect_updates()
        self._ignored += ignored
        return ignored

    def _collect_updates(self) -> int:
        """Take the answers about priorities that were sent; return how many were left out."""
        ignored, updates, self._updates = 0, self._updates, []
        asked = [(member, count, partial(_known, answer)) for member, count, answer in updates]
        for member, count, found in self._group.ask_all(asked):
            if isinstance(found, ShardGone):
                ignored += count
            elif isinstance(found, Exception):
                raise found
            else:
                stale, state = found
                member.hear(state)
                ignored += stale
        return ignored

    # About it

    @property
    def waiting(self) -> str:
        """Reason why a push or a draw waits at this moment; empty when none does."""
        return self._group.waiting

    def stats(self) -> dict[str, Any]:
        """Numbers about the shards together.

        Returns:
            size, capacity, fill, pushed, sampled, replay_ratio and stale_updates, as of
            `ReplayBuffer.stats`, of the shards that answer; ignored_updates, the priorities that
            this replay could not set; shards and shards_alive; shards_lost, times that one stopped
            answering; lost_rows, those pushed while their shard was gone; waited_seconds for rate
            limits.
        """
        alive, members = self._group.alive(), self._group.members
        states = [member.state for member in alive]
        size = sum(state.size for state in states)
        pushed, sampled = sum(s.pushed for s in states), sum(s.sampled for s in states)
        return {
            "size": size,
            "capacity": self.capacity,
            "fill": size / max(self.capacity, 1),
            "pushed": pushed,
            "sampled": sampled,
            "replay_ratio": sampled / pushed if pushed else 0.0,
            "stale_updates": sum(state.stale for state in states),
            "ignored_updates": self._ignored,
            "shards": len(members),
            "shards_alive": len(alive),
            "shards_lost": sum(member.losses for member in members),
            "lost_rows": sum(member.lost_rows for member in members),
            "waited_seconds": self._group.waited,
        }

    def state_dict(self) -> dict[str, Any]:
        """Number of batches that were drawn; the steps stay in the shards."""
        return {"draws": self._draws}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Draw on from `state_dict`, and not as at the beginning."""
        self._draws = int(state["draws"])
        self._generator = np.random.Generator(np.random.PCG64([self.seed, self._draws]))

    def close(self) -> None:
        """Leave the shards as they are, and end the threads."""
        self._group.stop_waiting()
        if self._prefetch is not None:
            self._prefetch.stop()
        self._group.close()

    def __enter__(self) -> ShardedReplay:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        names = ", ".join(member.shard.name for member in self._group.members)
        return f"ShardedReplay({len(self)} of {self.capacity} steps: {names})"


def _known(answer: Answer[Any]) -> Answer[Any]:
    """Return the answer itself, which was asked for already."""
    return answer


def _with_axis(leaf: Any) -> Array:
    return np.asarray(leaf)[None]
