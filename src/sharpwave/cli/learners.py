"""The processes of `--learners`: started together, watched, and ended together."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from sharpwave.algorithms.registry import algorithm_class, algorithm_names, is_of_language
from sharpwave.cli.run_plan import Plan
from sharpwave.cli.terminal import complain
from sharpwave.core.ranks import MEETING, n_started
from sharpwave.learners.devices import n_cores

GRACE_SECONDS = 60.0
"""Time for the other processes to end by themselves, with a report, once one has failed."""
KILL_SECONDS = 5.0
"""Time for a process that was terminated to end, before it is killed."""
POLL_SECONDS = 0.05


def check_learners(plan: Plan) -> None:
    """Raise where so many processes cannot carry out a plan.

    Raises:
        ValueError: The algorithm learns in one process, the number does not divide environments or
            batches, or another number of processes was started.
    """
    started = n_started()
    if started > 1 and plan.learners not in (1, started):
        raise ValueError(
            f"--learners must be {started}, as many processes as were started, got {plan.learners}"
        )
    learners = max(started, plan.learners)
    algorithm: Any = algorithm_class(plan.algorithm)
    if learners == 1 or is_of_language(algorithm):
        return
    if not _learns_together(algorithm):
        several = [name for name in algorithm_names() if _learns_together(algorithm_class(name))]
        raise ValueError(
            f"{plan.algorithm} learns in one process: --learners must be 1, got {learners} "
            f"({', '.join(several)} learn in several)"
        )
    algorithm.Config.from_dict(plan.config).share(learners)


def _learns_together(algorithm: Any) -> bool:
    return bool(getattr(algorithm, "learns_together", False))


def has_to_launch(plan: Plan) -> bool:
    """Return whether the processes of a plan must be started yet; a started one ends with us."""
    if MEETING in os.environ:
        threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()
    return plan.learners > n_started()


def launch(learners: int, program: Sequence[str]) -> int:
    """Run a program in several processes that learn together.

    A signal goes to all of them. Where one fails, the others end too.

    Args:
        learners: Number of processes.
        program: Arguments of Python, such as `-m sharpwave train ...`.

    Returns:
        The exit status of the first that did not end well, or 0.
    """
    with tempfile.TemporaryDirectory(prefix="sharpwave-") as folder:
        shared = _environment(learners, Path(folder))
        processes: list[subprocess.Popen[bytes]] = []
        with _forwarding(processes):
            try:
                for rank in range(learners):
                    own = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
                    processes.append(
                        subprocess.Popen(
                            [sys.executable, *program],
                            env={**shared, **own},
                            stdin=subprocess.PIPE,  # which ends when this process does
                            start_new_session=True,  # signals reach them through us, once
                        )
                    )
                return _wait(processes)
            finally:
                _end(processes)


def _environment(learners: int, folder: Path) -> dict[str, str]:
    """Variables that all processes have. They talk on the loopback interface alone."""
    names = [name for _, name in socket.if_nameindex()]
    loopback = next((name for name in names if name.startswith("lo")), None)
    threads = max(1, n_cores() // learners)
    found = {"OMP_NUM_THREADS": str(threads), **os.environ}
    if loopback is not None:
        found |= {"GLOO_SOCKET_IFNAME": loopback, "NCCL_SOCKET_IFNAME": loopback}
    return {**found, "WORLD_SIZE": str(learners), MEETING: f"file://{folder / 'meeting'}"}


@contextlib.contextmanager
def _forwarding(processes: Sequence[subprocess.Popen[bytes]]) -> Iterator[None]:
    """Inside, SIGTERM and Ctrl-C go to the processes, each of which saves and ends."""

    def forward(number: int, frame: FrameType | None) -> None:
        del frame
        for process in processes:
            process.send_signal(number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = {x: signal.signal(x, forward) for x in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _wait(processes: Sequence[subprocess.Popen[bytes]]) -> int:
    """Wait until all have ended, or one has failed and the others had time to."""
    deadline = float("inf")
    status = 0
    told: set[int] = set()
    while len(told) < len(processes) and time.monotonic() < deadline:
        for rank, process in enumerate(processes):
            code = process.poll()
            if code is None or rank in told:
                continue
            told.add(rank)
            if code < 0:
                complain(f"learner {rank} of {len(processes)} {_ended_by(code)}")
            if code and not status:
                status = code if code > 0 else 1
                deadline = time.monotonic() + GRACE_SECONDS
        time.sleep(POLL_SECONDS)
    return status


def _ended_by(code: int) -> str:
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """End all that still run."""
    for process in processes:
        if process.poll() is None:
            process.terminate()
    for process in processes:
        try:
            process.wait(KILL_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdin is not None:
            process.stdin.close()


def _end_with_parent() -> None:
    """End once the process is gone that started this one, whose end of the pipe closes then."""
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_SECONDS)
    os._exit(1)
