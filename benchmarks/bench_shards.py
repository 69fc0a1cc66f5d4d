"""Replay shards: batches of another process, drawn ahead, and of a folder beside its writer."""

from __future__ import annotations

import contextlib
import multiprocessing
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from harness import OURS, AtMost, Operation, Ratio, Result, Row, collect

import sharpwave as sw

BATCH, CAPACITY = 256, 100_000
FIELDS: dict[str, Any] = {  # 166 bytes
    "obs": ("float32", (17,)),
    "next_obs": ("float32", (17,)),
    "action": ("float32", (6,)),
    "reward": "float32",
    "terminated": "bool",
    "truncated": "bool",
}
WORK_S = 1e-3
"""The work of a learner between two batches."""


def rows() -> Iterator[Row | Result]:
    with served() as address, sw.ShardedReplay([address], fields=FIELDS) as replay:
        fill(replay)
        yield Row(
            f"sample {BATCH} of a shard in another process, one call",
            {
                OURS: lambda: partial(replay.sample, BATCH),
                "Ray actor call": ray_actor,
                "gRPC unary with bytes": grpc_unary,
            },
            [Ratio("Ray actor call", 2.0)],
        )
        yield collect(
            f"wait for a prefetched batch of {BATCH}, 1 ms of work between",
            "us",
            {OURS: partial(prefetched_wait, address)},
            [AtMost(50, "us")],
            rounds=3,
        )
    yield from beside_a_writer()


def fill(buffer: Any) -> None:
    """Push as many steps as it keeps."""
    for _ in range(CAPACITY // 2500):
        buffer.push_batch(**steps(2500))


def steps(n: int) -> dict[str, Any]:
    """Steps of a robot."""
    generator = np.random.default_rng(n)
    obs = generator.random((n, 17), np.float32)
    flags = np.zeros(n, bool)
    return {
        "obs": obs,
        "next_obs": obs,
        "actions": generator.random((n, 6), np.float32),
        "rewards": np.zeros(n, np.float32),
        "terminated": flags,
        "truncated": flags,
    }


@contextlib.contextmanager
def served() -> Iterator[str]:
    """The address of a shard in a process of its own."""
    command = [sys.executable, "-m", "sharpwave", "serve-replay", "--port", "0"]
    command += ["--capacity", str(CAPACITY)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split()[0]
        finally:
            process.terminate()


def prefetched_wait(address: str) -> float:
    """Median microseconds that a learner waits, which computes between two batches."""
    waits = []
    matrix = np.ones((64, 64), np.float32)
    with sw.ShardedReplay([address], prefetch=4) as replay:
        for _ in range(500):
            end = time.perf_counter() + WORK_S
            while time.perf_counter() < end:
                matrix @ matrix
            began = time.perf_counter()
            replay.sample(BATCH)
            waits.append(time.perf_counter() - began)
    return statistics.median(waits[50:]) * 1e6


def ray_actor() -> Operation:
    """The same batch of a buffer in a Ray actor."""
    import ray

    ray.init(
        "local", num_cpus=2, include_dashboard=False, log_to_driver=False, ignore_reinit_error=True
    )

    @ray.remote
    class Shard:
        def __init__(self) -> None:
            self.buffer = sw.ReplayBuffer(CAPACITY, fields=FIELDS)
            fill(self.buffer)

        def sample(self, n: int) -> Any:
            return self.buffer.sample(n)

    shard = Shard.remote()
    return lambda: ray.get(shard.sample.remote(BATCH))


def grpc_unary() -> Operation:
    """As many bytes, and nothing done with them."""
    import grpc

    port = multiprocessing.get_context("spawn").Value("i", 0)
    server = multiprocessing.get_context("spawn").Process(
        target=serve_bytes, args=(port,), daemon=True
    )
    server.start()
    while not port.value:
        time.sleep(0.05)
    call = grpc.insecure_channel(f"127.0.0.1:{port.value}").unary_unary("/bytes/get")
    return partial(call, b"x" * 100, timeout=10)


def serve_bytes(port: Any) -> None:
    from concurrent.futures import ThreadPoolExecutor

    import grpc

    data = bytes(BATCH * 166)
    handler = grpc.unary_unary_rpc_method_handler(lambda *_: data)
    server = grpc.server(ThreadPoolExecutor(2))
    generic = grpc.method_handlers_generic_handler("bytes", {"get": handler})
    server.add_generic_rpc_handlers((generic,))
    port.value = server.add_insecure_port("127.0.0.1:0")
    server.start()
    server.wait_for_termination()


def beside_a_writer() -> Iterator[Result]:
    """Another process writes what this one reads."""
    context = multiprocessing.get_context("spawn")
    begin, end = context.Event(), context.Event()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        path = Path(folder) / "replay"
        writer = context.Process(target=write, args=(path, begin, end), daemon=True)
        writer.start()
        begin.wait()
        own = sw.MmapReplayBuffer(
            CAPACITY, CAPACITY, fields=FIELDS, cold_path=Path(folder) / "own", n_envs=None
        )
        fill(own)
        with (
            sw.ShardedReplay([path]) as replay,
            sw.MmapReplayBuffer.open(path, read_only=True) as read,
        ):
            yield collect(
                f"sample {BATCH} of a folder beside a writer in another process, CPU time",
                "us",
                {
                    OURS: partial(cpu_of, replay),
                    "without ShardedReplay": partial(cpu_of, read),
                    "in process": partial(cpu_of, own),
                },
                [Ratio("in process", 1 / 1.2)],
                rounds=200,
            )
        end.set()
        writer.join()
        own.close()


def cpu_of(buffer: Any) -> float:
    """Microseconds that a batch takes of this thread's processor."""
    began = time.thread_time()
    for _ in range(20):
        buffer.sample(BATCH)
    return (time.thread_time() - began) / 20 * 1e6


def write(path: Path, begin: Any, end: Any) -> None:
    """Fill a folder, and go on pushing a little now and then."""
    buffer = sw.MmapReplayBuffer(CAPACITY, CAPACITY, fields=FIELDS, cold_path=path)
    fill(buffer)
    begin.set()
    few = steps(16)
    while not end.wait(0.01):
        buffer.push_batch(**few)
    buffer.close()
