"""Fleets of actors: threads, processes, and what moves between them.

Where processes compete for cores, seconds are those of the processor: of this process and of its
actors.
"""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from harness import OURS, AtMost, Operation, Ratio, Result, Row, collect

N_ENVS, N_STEPS = 16, 64
NATIVE_STEPS, PYTHON_STEPS = 400_000, 16_384
RLOX_STEPS, RLLIB_SECONDS = 60_000, 60
ROUNDS = 7
N_NODES, N_TAKEN = 8, 2_000
"""Nodes that send unrolls to a learner, and the unrolls that are timed."""
N_WEIGHTS = 150_000
"""0.6 MB of float32."""
TICK = os.sysconf("SC_CLK_TCK")


def rows() -> Iterator[Row | Result]:
    yield from native_actors()
    yield python_actors()
    yield from publication()
    yield unrolls()
    yield unrolls_over_wires()
    yield unrolls_into_a_learner()
    yield from start()


def native_actors() -> Iterator[Result]:
    yield collect(
        "IMPALA in CartPole, 2 actors in threads x 16 environments, unrolls of 64",
        "CPU-s/step",
        {
            OURS: partial(trained, "threads", NATIVE_STEPS),
            "bare loop": partial(bare_loop, NATIVE_STEPS),
            "rlox": partial(trained_by_rlox, RLOX_STEPS),
        },
        [Ratio("bare loop", 0.9), Ratio("rlox", 15)],
        note="native environments; the bare loop has two native collectors, V-trace and the native"
        " update, and nothing else; rlox has its own defaults",
        rounds=ROUNDS,
    )
    yield collect(
        "IMPALA in CartPole, 2 actors x 16 environments, beside Ray",
        "CPU-s/step",
        {OURS: partial(trained, "threads", NATIVE_STEPS), "RLlib": trained_by_rllib},
        [Ratio("RLlib", 300)],
        note="seconds of all processes; RLlib trains for a minute once its first update is over,"
        " with two runners and batches of 500",
    )
    yield collect(
        "IMPALA in CartPole, 2 actors in processes x 16 environments, unrolls of 64",
        "CPU-s/step",
        {
            OURS: partial(trained, "processes", NATIVE_STEPS),
            "threads": partial(trained, "threads", NATIVE_STEPS),
        },
        [Ratio("threads", 0.7)],
        note="native environments; seconds of the learner and of its actors",
        rounds=ROUNDS,
    )


def python_actors() -> Result:
    return collect(
        "IMPALA in CartPole of Python, 2 actors x 16 environments, unrolls of 64",
        "s/step",
        {
            OURS: partial(trained, "processes", PYTHON_STEPS, mode="sync", clock=time.perf_counter),
            "threads": partial(
                trained, "threads", PYTHON_STEPS, mode="sync", clock=time.perf_counter
            ),
            "SubprocessVectorEnv": partial(
                trained, "threads", PYTHON_STEPS, mode="async", clock=time.perf_counter
            ),
        },
        [Ratio("SubprocessVectorEnv", 1.5)],
        note="sharpwave with actors in processes; SubprocessVectorEnv has each environment in a"
        " process of its own, and actors in threads",
        rounds=ROUNDS,
    )


def publication() -> Iterator[Row]:
    from sharpwave.distributed.board import Board

    weights = np.random.default_rng(0).normal(size=N_WEIGHTS).astype(np.float32)

    def write() -> Operation:
        return partial(Board(N_WEIGHTS).write, weights, 1)

    def read() -> Operation:
        board = Board(N_WEIGHTS)
        board.write(weights, 1)
        return partial(board.read, np.empty_like(weights))

    def copy() -> Operation:
        return partial(np.copyto, np.empty_like(weights), weights)

    for name, operation in {"published": write, "read by an actor": read}.items():
        yield Row(
            f"0.6 MB of weights {name}, processes",
            {OURS: operation, "memcpy": copy},
            [Ratio("memcpy", 1 / 3)],
        )


def unrolls() -> Row:
    """From the arrays of an actor to those of the learner, without the message between."""
    from sharpwave.distributed.ring import UnrollReader, UnrollWriter

    unroll = one_unroll()

    def move() -> Operation:
        writer = UnrollWriter(1)
        writer.write(0, unroll)
        assert writer.form is not None
        reader = UnrollReader(writer.form, os.dup(writer.descriptor))

        def write_and_read() -> None:
            counts, _ = writer.write(0, unroll)
            reader.read(0, counts, 0, 0)

        return write_and_read

    def copy() -> Operation:
        block = np.zeros(unroll.nbytes, np.uint8)
        there, back = np.empty_like(block), np.empty_like(block)

        def copy_twice() -> None:
            np.copyto(there, block)
            np.copyto(back, there)

        return copy_twice

    return Row(
        f"unroll of {unroll.nbytes / 1000:.0f} kB through shared memory, written and read",
        {OURS: move, "memcpy": copy},
        note="memcpy copies as many bytes twice",
    )


def unrolls_over_wires() -> Row:
    """The message of an unroll there, and a short answer back, within this process."""
    from sharpwave.distributed.unroll_codec import unroll_to_bytes
    from sharpwave.distributed.wire import Method, connect, serve, service

    data = unroll_to_bytes(one_unroll())

    def over_grpc() -> Operation:
        def answer(messages: Iterator[bytes], _: Any) -> Iterator[bytes]:
            for message in messages:
                yield message[:1]

        method = Method("Send", answer, stream_in=True, stream_out=True)
        server = serve([service("bench.Wire", [method])])
        outbox: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        stream = connect(server.address).stream_stream("/bench.Wire/Send")
        answers = stream(iter(outbox.get, None))

        def send(_server: Any = server) -> None:
            outbox.put(data)
            next(answers)

        return send

    def over_tcp() -> Operation:
        listener = socket.create_server(("127.0.0.1", 0))
        client = socket.create_connection(listener.getsockname())
        there, _ = listener.accept()
        for one in (client, there):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def answer() -> None:
            block = bytearray(len(data))
            while there.recv_into(block, len(block), socket.MSG_WAITALL):
                there.sendall(b"x")

        threading.Thread(target=answer, daemon=True).start()

        def send() -> None:
            client.sendall(data)
            client.recv(1)

        return send

    return Row(
        f"unroll of {len(data) / 1000:.0f} kB to another thread and an answer, loopback",
        {OURS: over_grpc, "raw TCP": over_tcp},
        [Ratio("raw TCP", 0.125)],
        note="a gRPC stream, without packing and checking; TCP has neither lengths nor names",
    )


def unrolls_into_a_learner() -> Result:
    """Steps of unrolls that a learner takes over gRPC and checks, from nodes that do not act."""

    def taken() -> float:
        from sharpwave.distributed.stand_ins import StandIns

        agent, unroll = made("grpc", n_actors=N_NODES), one_unroll()
        fleet = agent.loop.fleet
        fleet.start(agent.learner.weights(), 0)
        with StandIns(fleet.address, unroll, N_NODES, 1):
            take(fleet, N_TAKEN // 4)
            began = time.perf_counter()
            take(fleet, N_TAKEN)
            seconds = time.perf_counter() - began
            agent.close()
        return seconds / (N_TAKEN * N_ENVS * N_STEPS)

    def take(fleet: Any, count: int) -> None:
        while count:
            count -= fleet.receive(10.0) is not None

    return collect(
        f"step of unrolls of 64 x 16 over gRPC into one learner, {N_NODES} nodes",
        "s/step",
        {OURS: taken},
        [AtMost(1e-6, "s/step")],
        note="the fleet of a learner that does not learn; two processes beside it send",
        rounds=ROUNDS,
    )


def start() -> Iterator[Result]:
    def started(measure: Callable[[Any, float], float]) -> float:
        agent = made("processes", n_actors=1)
        fleet = agent.loop.fleet
        began = time.perf_counter()
        fleet.start(agent.learner.weights(), 0)
        while fleet.receive(1.0) is None:
            pass
        value = measure(fleet._living()[0].process.pid, time.perf_counter() - began)
        agent.close()
        return value

    yield collect(
        "process of an actor, from its start to its first unroll",
        "s",
        {OURS: partial(started, lambda _, seconds: seconds)},
        [AtMost(0.5, "s")],
        rounds=ROUNDS,
    )
    yield collect(
        "process of an actor, from its start to its first unroll, processor",
        "CPU-s",
        {OURS: partial(started, lambda pid, _: cpu_seconds_of(pid))},
        rounds=ROUNDS,
    )
    yield collect(
        "process of an actor, most memory",
        "MB",
        {OURS: partial(started, lambda pid, _: peak_megabytes(pid))},
        [AtMost(60, "MB")],
        note="without torch; about half are NumPy and Gymnasium",
    )


def made(actors: str, *, mode: str = "auto", **options: Any) -> Any:
    import sharpwave as sw

    world: dict[str, Any] = {"env_mode": mode, "n_envs": N_ENVS, "n_steps": N_STEPS}
    return sw.IMPALA("CartPole-v1", actors=actors, seed=0, **{**world, **options})


def trained(
    actors: str, steps: int, mode: str = "auto", clock: Callable[[], float] | None = None
) -> float:
    """Seconds per step of training, once everything has started; of the processor unless told."""
    agent = made(actors, mode=mode)
    agent.train(2 * 2 * N_ENVS * N_STEPS)
    clock = partial(cpu_seconds, agent.loop.fleet) if clock is None else clock
    before, began = clock(), agent.timesteps
    agent.train(steps)
    seconds = (clock() - before) / (agent.timesteps - began)
    agent.close()
    return seconds


def trained_by_rlox(steps: int) -> float:
    """Seconds of the processor per step that rlox trains for."""
    from rlox.algorithms.impala import IMPALA

    agent = IMPALA("CartPole-v1", n_actors=2, n_envs=N_ENVS, seed=0)
    began = time.process_time()
    agent.train(steps)
    return (time.process_time() - began) / steps


def trained_by_rllib() -> float:
    """Seconds of the processor per step of RLlib, of all processes that Ray has started."""
    import ray
    from ray.rllib.algorithms.impala import IMPALAConfig

    quiet: dict[str, Any] = {"include_dashboard": False, "log_to_driver": False}
    ray.init("local", num_cpus=4, logging_level="ERROR", _node_ip_address="127.0.0.1", **quiet)
    config = IMPALAConfig().environment("CartPole-v1").learners(num_learners=0)
    config = config.env_runners(num_env_runners=2, num_envs_per_env_runner=N_ENVS)
    settings = {"lr": 0.0005, "vf_loss_coeff": 0.05, "grad_clip": 20.0}
    agent = config.training(train_batch_size_per_learner=500, **settings).build_algo()

    def taken() -> float:
        # It says nothing where nothing was sampled.
        return float(agent.train()["env_runners"].get("num_env_steps_sampled_lifetime", 0.0))

    try:
        first, before = taken(), cpu_seconds_of_all()
        end, last = time.monotonic() + RLLIB_SECONDS, first
        while time.monotonic() < end:
            last = max(last, taken())
        return (cpu_seconds_of_all() - before) / (last - first)
    finally:
        agent.stop()
        ray.shutdown()


def cpu_seconds_of_all() -> float:
    """Of this process and all that it has started, and those in turn."""
    found, left = time.process_time(), children(os.getpid())
    while left:
        pid = left.pop()
        with contextlib.suppress(OSError):  # it has ended meanwhile
            found += cpu_seconds_of(pid)
            left += children(pid)
    return found


def children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):  # a thread that has ended meanwhile
            found += map(int, (task / "children").read_text().split())
    return found


def bare_loop(steps: int) -> float:
    """Seconds of the processor per step of collectors, V-trace and updates alone."""
    from sharpwave.collect import NativeCollector, Rollout
    from sharpwave.collect.native_rollouts import ARRAYS
    from sharpwave.learners.unrolls import UnrollBatch

    learner = made("threads", n_actors=2).learner
    form: dict[str, Any] = {"n_steps": N_STEPS, "hidden": (64, 64), "values": False}
    collectors = [
        NativeCollector("CartPole-v1", N_ENVS, seed=seed, capacity=1, **form) for seed in (0, 1)
    ]
    valid = np.ones((N_STEPS, N_ENVS), np.bool_)
    before, taken = time.process_time(), 0
    while taken < steps:
        rollouts = []
        for collector in collectors:
            batch = collector.recv()
            ends = {name: batch[name] for name in ("last_obs", "final_obs")}
            columns = {name: batch[name] for name in ARRAYS}
            columns |= {"obs": batch["observations"], "valid": valid, **ends}
            rollouts.append(Rollout.without_values(**columns))
        learner.update(UnrollBatch.of(rollouts, learner.own))
        for collector in collectors:
            collector.sync_weights(learner.block)
        taken += 2 * N_ENVS * N_STEPS
    seconds = (time.process_time() - before) / taken
    for collector in collectors:
        collector.stop()
    return seconds


def one_unroll() -> Any:
    agent = made("threads", n_actors=1)
    agent.loop.fleet.start(agent.learner.weights(), 0)
    unroll = agent.loop.fleet.receive(10.0)
    agent.close()
    return unroll


def cpu_seconds(fleet: Any) -> float:
    """Of this process and of the processes of a fleet."""
    living = getattr(fleet, "_living", list)()
    return time.process_time() + sum(cpu_seconds_of(actor.process.pid) for actor in living)


def cpu_seconds_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def peak_megabytes(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    peak = next(line for line in lines if line.startswith("VmHWM"))
    return int(peak.split()[1]) / 1024
