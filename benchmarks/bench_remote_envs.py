"""A step of environments at other processes, beside a plain gRPC call that carries the same bytes.

`python benchmarks/bench_remote_envs.py` is that plain server.
"""

from __future__ import annotations

import atexit
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import grpc
import numpy as np
from harness import OURS, Operation, Ratio, Row

from sharpwave.distributed import RemoteVectorEnv
from sharpwave.envs import NativeVectorEnv

N = 16
PLAIN = "gRPC unary, bytes"
STEP = "/plain.Environments/Step"
ACTIONS = np.arange(N) % 2


def rows() -> Iterator[Row]:
    yield Row(
        f"step of {N} CartPole-v1 at one server",
        {OURS: remote(1), PLAIN: plain},
        [Ratio(PLAIN, 1 / 1.1)],
        patience=3,
    )
    yield Row(
        f"step of {N} CartPole-v1 at four servers",
        {OURS: remote(4), "one server": remote(1), f"four of {PLAIN}": four_plain},
        [Ratio("one server", 1 / 1.4)],
        note="all processes share the cores of this machine",
        patience=3,
    )


def remote(n_servers: int) -> Any:
    def build() -> Operation:
        options = ["serve-envs", "CartPole-v1", "--n-envs", str(N // n_servers), "--port", "0"]
        addresses = [
            started("-m", "sharpwave", *options).partition(" ")[0] for _ in range(n_servers)
        ]
        env = RemoteVectorEnv(addresses)
        env.reset(seed=0)
        return lambda: env.step(ACTIONS)

    return build


def plain() -> Operation:
    """One call there and back, without a word on what the bytes are."""
    step = grpc.insecure_channel(started(__file__, str(N)).strip()).unary_unary(STEP)
    return lambda: unpacked(step(ACTIONS.tobytes()), N)


def four_plain() -> Operation:
    """Four calls at the same time."""
    steps = [
        grpc.insecure_channel(started(__file__, str(N // 4)).strip()).unary_unary(STEP)
        for _ in range(4)
    ]

    def step() -> Any:
        calls = [one.future(ACTIONS[: N // 4].tobytes()) for one in steps]
        return [unpacked(call.result(), N // 4) for call in calls]

    return step


def unpacked(data: bytes, n: int) -> tuple[Any, ...]:
    obs = np.frombuffer(data, np.float32, 4 * n).reshape(n, 4).copy()
    rewards = np.frombuffer(data, np.float64, n, 16 * n).copy()
    flags = np.frombuffer(data, np.bool_, 2 * n, 24 * n)
    return obs, rewards, flags[:n].copy(), flags[n:].copy()


@cache
def _processes() -> list[subprocess.Popen[str]]:
    processes: list[subprocess.Popen[str]] = []
    atexit.register(end, processes)
    return processes


def end(processes: list[subprocess.Popen[str]]) -> None:
    for process in processes:
        process.kill()


def started(*arguments: str) -> str:
    """The first line of a process, which goes on until the end of this one."""
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, text=True)
    _processes().append(process)
    assert process.stdout is not None
    return process.stdout.readline()


def serve(n: int) -> None:
    env = NativeVectorEnv("CartPole-v1", n)
    env.reset(seed=0)

    def step(data: bytes, _: Any) -> bytes:
        stepped = env.step(np.frombuffer(data, np.int64))
        return b"".join(part.tobytes() for part in stepped[:4])

    handler = grpc.unary_unary_rpc_method_handler(step)
    service, _, method = STEP[1:].partition("/")
    server = grpc.server(ThreadPoolExecutor(2))
    handlers = grpc.method_handlers_generic_handler(service, {method: handler})
    server.add_generic_rpc_handlers((handlers,))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(f"127.0.0.1:{port}", flush=True)
    server.wait_for_termination()


if __name__ == "__main__":
    serve(int(sys.argv[1]))
