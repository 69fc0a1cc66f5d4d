"""Replay shards as Ray actors, which Ray places on a cluster, starts and restarts."""

from __future__ import annotations

import socket
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from sharpwave.distributed.ray_cluster import RayCluster
from sharpwave.distributed.replay.server import ReplayServer, ShardOptions
from sharpwave.distributed.replay.sharded import ShardedReplay
from sharpwave.distributed.security import Access
from sharpwave.distributed.wire import connect

__all__ = ["RayShards"]

START = 120.0
"""Seconds that Ray has to start a shard."""


class RayShards:
    """Shards of a replay buffer as actors of Ray, which serve as `sharpwave serve-replay` does.

    Ray has nothing to do with steps: those who push and draw are connected over gRPC. A shard whose
    process ends is started again at its address: with its steps where they lie in a folder, empty
    where they were in memory. The steps of a machine that is lost are lost.

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
        ConnectionError: There is no such cluster, or a shard does not start.
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
        try:
            self.addresses = self._start(n, options, cpus)
        except BaseException:
            self.close()
            raise

    def replay(self, **options: Any) -> ShardedReplay:
        """The buffer of all shards; with options of `ShardedReplay`."""
        return ShardedReplay(self.addresses, token=self.access.token, **options)

    def close(self) -> None:
        """End the shards, and the Ray that was started for them."""
        self._cluster.leave()

    def __enter__(self) -> RayShards:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, n: int, options: ShardOptions, cpus: float) -> list[str]:
        ray, is_here = self._cluster.ray, self._cluster.is_here
        shards = self._cluster.place(_RayShard, n, cpus)
        found = ray.get([shard.free_address.remote(is_here) for shard in shards])
        for number, (shard, where) in enumerate(zip(shards, found, strict=True)):
            folder = None if options.folder is None else Path(options.folder) / str(number)
            # Ray calls it again in a process that took the place of one.
            shard.serve.remote(replace(options, folder=folder), *where, self.access.token)
        addresses = [f"{host}:{port}" for host, port in found]
        for address in addresses:
            connect(address, self.access, timeout=START).close()
        return addresses


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
        """Serve until the process ends."""
        with ReplayServer(options, host, port, Access(token=token)):
            while True:
                time.sleep(60)
