"""Actor processes as the learner sees them: launching, heartbeats, failures and termination."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from multiprocessing.spawn import get_executable
from typing import Any

import gymnasium as gym
from gymnasium.vector.utils import CloudpickleWrapper

from sharpwave.distributed.board import Board
from sharpwave.distributed.channel import Channel, Signals, read_pickle, write_pickle
from sharpwave.distributed.hanging import Silence
from sharpwave.distributed.process_actor import Job
from sharpwave.distributed.recipe import ActorRecipe
from sharpwave.distributed.ring import UnrollReader
from sharpwave.errors import ActorFailed

__all__ = ["ActorProcess", "Launcher", "end_all", "why_not_pickled"]

SILENCE = 5.0
"""Seconds without a sign of life after which a process is taken for dead."""
START = 60.0
"""The same for a process that has given none yet."""
GRACE = 0.5
"""Seconds in which a process ends that has closed its connection."""

BEGIN = """
import os, pickle, sys
job, parent, number, life, *descriptors = map(int, sys.argv[1:])
path, job = pickle.loads(os.pread(job, os.fstat(job).st_size, 0))
sys.path[:] = path
from sharpwave.distributed.process_actor import run
run(pickle.loads(job), parent, number, life, descriptors)
"""
"""Program of a new process, which knows nothing of the learner's main module."""


class Launcher:
    """Starts processes of actors.

    Args:
        recipe: Recipe that makes the actors.
        n_actors: Number of actors.
        n_weights: Number of weights.
        n_slots: Unrolls that an actor may have finished that the learner did not look at.

    Attributes:
        board: Weights in shared memory.
        signals: Flags and counters in shared memory.

    Raises:
        TypeError: A part of the recipe cannot be pickled.
    """

    def __init__(self, recipe: ActorRecipe, n_actors: int, n_weights: int, n_slots: int) -> None:
        self.n_slots = n_slots
        self.board, self.signals = Board(n_weights), Signals(n_actors)
        self.step_timeout = recipe.step_timeout
        job = Job(_pickled(recipe), n_weights, n_actors, n_slots, recipe.step_timeout)
        self._job = write_pickle((list(sys.path), pickle.dumps(job)))

    def start(self, number: int, life: int) -> ActorProcess:
        """A new process, which may still be starting.

        Raises:
            OSError: The system has no more of them.
        """
        here, there = Channel.pair()
        shared = [there.fileno(), self.board.descriptor, self.signals.descriptor]
        numbers = [self._job, os.getpid(), number, life, *shared]
        # One thread each: they compete with each other, and with the learner.
        environ = {"OMP_NUM_THREADS": "1", **os.environ}
        try:
            process = subprocess.Popen(
                [get_executable(), "-c", BEGIN, *map(str, numbers)],
                pass_fds=[self._job, *shared],
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # what a terminal says is for the learner
                env=environ,
            )
        except OSError:
            here.close()
            raise
        finally:
            there.close()
        return ActorProcess(
            number, process, here, self.signals, self.n_slots, step_timeout=self.step_timeout
        )

    def __del__(self) -> None:
        job = getattr(self, "_job", None)
        if job is not None:
            os.close(job)


class ActorProcess:
    """The process of an actor.

    Args:
        number: Index of the actor.
        process: The process.
        channel: The connection to it.
        signals: Flags and counters in shared memory.
        n_slots: Slots of its memory.
        step_timeout: Seconds that environments may take, in which there may be no sign of life.

    Attributes:
        free: Slots that nobody has written to, or that were read.
        given: Slots that it writes to, or will.
        reader: Reader of the unrolls in its memory; None before the first.
        rested: It has said that it rests, since it was last told to.
        told: State that it sent; None where it was not asked, or did not answer.
        error: Exception that it raised; None so far.
    """

    def __init__(
        self,
        number: int,
        process: subprocess.Popen[bytes],
        channel: Channel,
        signals: Signals,
        n_slots: int,
        *,
        step_timeout: float,
    ) -> None:
        self.number, self.process, self.channel = number, process, channel
        self.free = list(range(n_slots))
        self.given: list[int] = []
        self.reader: UnrollReader | None = None
        self.form: Any = None
        self.rested = False
        self.told: Any = None
        self.error: BaseException | None = None
        self.sentinel = _sentinel(process.pid)
        self._signals, self._step_timeout = signals, step_timeout
        self._first = int(signals.beats[number])
        self._silence = Silence()

    @property
    def is_starting(self) -> bool:
        """True if it has given no sign of life (heartbeat) yet."""
        return int(self._signals.beats[self.number]) == self._first

    @property
    def is_running(self) -> bool:
        """True if its process has not ended; the exit code of one that has is kept."""
        if self.process.returncode is not None:
            return False
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self.process.pid, flags) is None

    def go(self) -> None:
        """Ask for an unroll."""
        slot = self.free.pop(0)
        self.given.append(slot)
        self.channel.send(b"g", slot)

    def take_back(self, slot: int) -> None:
        """A slot is free again."""
        self.given.remove(slot)
        self.free.insert(0, slot)  # the memory of later ones may never be needed

    def load(self, state: Any, *, in_flight: bool) -> None:
        """Send a state that an actor told."""
        file = write_pickle((state, in_flight))
        self.channel.send(b"l", file=file)
        os.close(file)

    def why_dead(self) -> str | None:
        """Reason why it is taken for dead: no sign of life for too long; None otherwise."""
        seconds = self._silence.seconds(int(self._signals.beats[self.number]))
        most, where = START if self.is_starting else SILENCE, ""
        if self._signals.waits[self.number] and not self.is_starting:
            most += self._step_timeout
            where = ", in an environment that does not come back and lets no other thread run"
        return (
            f"its process gives no sign of life for {most:g} s{where}" if seconds > most else None
        )

    def failure(self) -> BaseException:
        """Exception that ended it; its process has ended, or is killed."""
        if self.error is not None:
            return self.error
        deadline = time.monotonic() + GRACE
        while self.is_running and time.monotonic() < deadline:
            time.sleep(0.005)
        code = self._kill()
        how = f"exit code {code}" if code >= 0 else signal.Signals(-code).name
        return ActorFailed(self.number, f"its process ended by {how}")

    def take_report(self, descriptor: int) -> None:
        """Read the exception that it raised."""
        pickled, trace = read_pickle(descriptor)
        os.close(descriptor)
        failed = ActorFailed(self.number, trace)
        self.error = failed
        with contextlib.suppress(Exception):  # it may be of a class that is not known here
            error = None if pickled is None else pickle.loads(pickled)
            if isinstance(error, BaseException):
                error.__cause__ = failed
                self.error = error

    def end(self) -> None:
        """Make sure that nothing is left of it, and of what its environments have started."""
        self._kill()
        self.channel.close()
        if self.sentinel is not None:
            os.close(self.sentinel)
            self.sentinel = None

    def _kill(self) -> int:
        """Kill its process and what its environments have started; its exit code."""
        if self.process.returncode is None:  # afterwards its number may be another's
            os.killpg(self.process.pid, signal.SIGKILL)
        return self.process.wait()


def end_all(
    pid: int, actors: Sequence[ActorProcess | None], signals: Signals, timeout: float
) -> None:
    """End processes: those that do not close within some seconds are killed.

    Args:
        pid: The process that started them; a fork of it leaves them alone.
        actors: The processes.
        signals: Their flags in shared memory.
        timeout: Seconds.
    """
    if os.getpid() != pid:
        return
    signals.stops = signals.rests = True
    deadline = time.monotonic() + timeout
    left = [actor for actor in actors if actor is not None]
    for actor in left:
        if actor.is_starting:  # it has nothing to close, and hears nothing
            actor.process.kill()
        actor.channel.send(b"s")
    while any(actor.is_running for actor in left) and time.monotonic() < deadline:
        time.sleep(0.005)
    for actor in left:
        actor.end()


def _specs(recipe: ActorRecipe) -> dict[str, Any]:
    """Spec that this process has registered under the id of the environment, if any."""
    env = None if recipe.env is None else recipe.env.env
    name = env.rpartition(":")[2] if isinstance(env, str) else None
    spec = gym.registry.get(name) if name is not None else None
    return {} if spec is None else {spec.id: spec}


def _pickled(recipe: ActorRecipe) -> bytes:
    try:
        return pickle.dumps(_wrapped((recipe, _specs(recipe))))
    except Exception as error:
        raise TypeError(f'{why_not_pickled(recipe)}, or set actors="threads"') from error


def why_not_pickled(recipe: ActorRecipe) -> str | None:
    """Reason why a recipe cannot be pickled for a process; None when it can."""
    env = None if recipe.env is None else recipe.env.env
    for name, part in {"env_id": env, "policy": recipe.policy}.items():
        try:
            pickle.dumps(_wrapped(part))
        except Exception as error:  # noqa: PERF203 - there are two of them
            return (
                f"{name} must be something that can be pickled for actors in processes, got "
                f"{part!r} ({error}): give it as an id, or as a function or class of a module"
            )
    return None


def _wrapped(part: Any) -> Any:
    """A part of a job, pickled by value where other processes could not import it."""
    return CloudpickleWrapper(part)


def _sentinel(pid: int) -> int | None:
    """A descriptor that can be read once the process has ended; None where systems have none."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):  # the end of its connection is noticed too
        return None
