"""Replay shards as Ray actors, which Ray places on a cluster, starts and restarts."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from sharpwave.core.notice import notice
from sharpwave.distributed.ray_cluster import RayCluster
from sharpwave.distributed.replay.server import ReplayServer, ShardOptions
from sharpwave.distributed.replay.sharded import ShardedReplay
from sharpwave.distributed.security import Access
from sharpwave.distributed.wire import connect

__all__ = ["RayShards"]

START = 120.0
"""Seconds that Ray has to start a shard."""
LOOK = 1.0
"""Seconds after which shards are looked for that are gone for good."""


class RayShards:
    """Shards of a replay buffer as actors of Ray, which serve as `sharpwave serve-replay` does.

    Ray has nothing to do with steps: those who push and draw are connected over gRPC. A shard whose
    process ends is started again at its address: with its steps where they lie in a folder, empty
    where they were in memory. The steps of a machine that is lost are lost. A shard that cannot
    serve at its address any more is gone for good: it is told of once, draws go on from the others,
    and `check` raises the reason.

    Args:
        n: Number of shards.
        options: Options of each. Of a folder, shard i has `folder/i`, on the machine where it
            is placed.
        cluster: The address of a Ray cluster, or "auto"; None starts a Ray on this machine.
        cpus: CPUs of Ray for each shard.

    Attributes:
        addresses: Addresses at which they serve, in order.
        access: Credentials to connect with.

    Raises:
        ConnectionError: There is no such cluster, it has no room for the shards, or one of them
            does not start.
        PermissionError: The cluster takes everybody.
        ValueError: `n` is less than 1.

    Example:
        >>> with RayShards(2, ShardOptions(capacity=10_000)) as shards:  # doctest: +SKIP
        ...     with shards.replay(seed=0) as replay:
        ...         dqn = sw.DQN("CartPole-v1", n_envs=2, buffer=replay)
        ...         dqn.train(10_000)
    """

    def __init__(
        self,
        n: int,
        options: ShardOptions | None = None,
        *,
        cluster: str | None = None,
        cpus: float = 1.0,
    ) -> None:
        if n < 1:
            raise ValueError(f"n must be at least 1, got {n}")
        options = options or ShardOptions()
        self._cluster = RayCluster(cluster)
        self.access = self._cluster.access
        self.addresses: list[str] = []
        self._serving: dict[Any, str] = {}  # addresses by what ends only where nobody serves there
        self._gone: list[str] = []
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._watch = threading.Thread(target=self._look, name="sharpwave ray shards", daemon=True)
        try:
            self._start(n, options, cpus)
        except BaseException:
            self.close()
            raise
        self._watch.start()

    def check(self) -> None:
        """Look for shards that are gone for good.

        Raises:
            ConnectionError: One is; the reason is told.
        """
        with self._lock:
            self._check_handles()
        if self._gone:
            raise ConnectionError(f"replay shards are gone for good: {'; '.join(self._gone)}")

    def replay(self, **options: Any) -> ShardedReplay:
        """The buffer of all shards; with options of `ShardedReplay`.

        Raises:
            ConnectionError: One of them is gone for good.
        """
        self.check()
        return ShardedReplay(self.addresses, token=self.access.token, **options)

    def close(self) -> None:
        """End the shards, and the Ray that was started for them."""
        self._over.set()
        if self._watch.is_alive():
            self._watch.join()
        self._cluster.leave()

    def __enter__(self) -> RayShards:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, n: int, options: ShardOptions, cpus: float) -> None:
        ray, is_here = self._cluster.ray, self._cluster.is_here
        shards = self._cluster.place(_RayShard, n, cpus)
        try:
            asked = [shard.free_address.remote(is_here) for shard in shards]
            found = ray.get(asked, timeout=START)
        except ray.exceptions.GetTimeoutError:
            raise ConnectionError(f"Ray has not started {n} shards within {START:g} s") from None
        for number, (shard, where) in enumerate(zip(shards, found, strict=True)):
            folder = None if options.folder is None else Path(options.folder) / str(number)
            # Ray calls it again in a process that took the place of one.
            handle = shard.serve.remote(replace(options, folder=folder), *where, self.access.token)
            address = f"{where[0]}:{where[1]}"
            self.addresses.append(address)
            self._serving[handle] = address
        for address in self.addresses:
            self._wait_for(address)

    def _wait_for(self, address: str) -> None:
        """Wait until a shard serves, or cannot."""
        deadline = time.monotonic() + START
        while True:
            self.check()
            try:
                connect(address, self.access, timeout=LOOK).close()
            except ConnectionError:
                if time.monotonic() > deadline:
                    raise
            else:
                return

    def _check_handles(self) -> None:
        ray, handles = self._cluster.ray, list(self._serving)
        ended = ray.wait(handles, num_returns=len(handles), timeout=0)[0] if handles else []
        for handle in ended:
            address, said = self._serving.pop(handle), "it has ended"
            try:
                ray.get(handle)
            except Exception as error:
                said = str(error)
            self._gone.append(f"{address}: {said}")

    def _look(self) -> None:
        """Tell of shards that are gone for good."""
        known = 0
        while not self._over.wait(LOOK):
            with contextlib.suppress(Exception):  # Ray itself may be gone
                try:
                    self.check()
                except ConnectionError as error:
                    if len(self._gone) > known:
                        notice(str(error))
                    known = len(self._gone)


class _RayShard:
    """A shard in a process of Ray."""

    def free_address(self, is_here: bool) -> tuple[str, int]:
        """A host and a port that nobody listens at, for this machine alone or for others."""
        import ray

        host = "127.0.0.1" if is_here else str(ray.util.get_node_ip_address())
        with socket.socket() as probe:
            probe.bind((host, 0))
            return host, int(probe.getsockname()[1])

    def serve(self, options: ShardOptions, host: str, port: int, token: str | None) -> None:
        """Serve until the process ends.

        Raises:
            OSError: The port is taken, or the host is not one of the machine that Ray chose now.
        """
        with ReplayServer(options, host, port, Access(token=token)):
            while True:
                time.sleep(60)
