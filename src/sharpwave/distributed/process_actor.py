"""Main loop of an actor process; it imports no torch for policies that native code knows."""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Iterator
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from sharpwave.distributed.board import Board
from sharpwave.distributed.channel import Channel, Message, Signals, read_pickle, write_pickle
from sharpwave.distributed.hanging import Pulse
from sharpwave.distributed.recipe import ActorRecipe, make_actor
from sharpwave.distributed.ring import UnrollWriter

__all__ = ["Job", "run"]

BEAT = 0.25
"""Seconds between two signs of life."""


class Job(NamedTuple):
    """Configuration of the actor processes of a fleet, which they get when they start."""

    pickled: bytes
    """A `CloudpickleWrapper` around the `ActorRecipe`, and what the learner's process has
    registered under the id of the environment."""
    n_weights: int
    n_actors: int
    n_slots: int
    """Unrolls that an actor may have finished that the learner did not look at."""
    step_timeout: float
    """Seconds that environments may take for a step, a reset, or to be made."""


def run(job: Job, parent: int, number: int, life: int, descriptors: list[int]) -> None:
    """Work until the learner says so, or is gone.

    Args:
        job: Configuration of the actor.
        parent: The process of the learner.
        number: Index of the actor.
        life: Number of times that it was made before.
        descriptors: File descriptors of the connection, the board and the signals.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the learner acts on it, and tells
    channel = Channel(socket.socket(fileno=descriptors[0]))
    board, signals = Board(job.n_weights, descriptors[1]), Signals(job.n_actors, descriptors[2])
    pulse = Pulse(job.step_timeout)
    signals.waits[number] = True  # for environments that are made
    signals.beats[number] += 1  # it has started
    watch = threading.Thread(
        target=_watch, args=(channel, signals, number, parent, pulse), daemon=True
    )
    watch.start()
    try:
        with pulse.waiting():
            recipe, specs = pickle.loads(job.pickled).fn
            for name, spec in specs.items():
                gym.registry.setdefault(name, spec)
            work = _Work(recipe, job, number, life, channel, board, signals, pulse)
        signals.waits[number] = False
        work.go_on()
    except BaseException as error:  # whatever it is, the learner hears of it
        channel.send(b"E", file=write_pickle(_report(error)))
        sys.exit(1)


def _watch(channel: Channel, signals: Signals, number: int, parent: int, pulse: Pulse) -> None:
    """Give signs of life, and end the process with that of the learner, or where it hangs."""
    poll = select.poll()
    poll.register(channel.fileno(), 0)  # nothing but the end of the connection
    while not poll.poll(1000 * BEAT) and os.getppid() == parent:
        signals.beats[number] += 1
        error = pulse.failure(number)
        if error is not None:
            channel.send(b"E", file=write_pickle(_report(error)))
            break
    os.killpg(os.getpid(), signal.SIGKILL)  # with what the environments started


class _Work:
    """An actor and its connection to the learner."""

    def __init__(
        self,
        recipe: ActorRecipe,
        job: Job,
        number: int,
        life: int,
        channel: Channel,
        board: Board,
        signals: Signals,
        pulse: Pulse,
    ) -> None:
        self.number, self.pulse = number, pulse
        self.channel, self.board, self.signals = channel, board, signals
        self.writer = UnrollWriter(job.n_slots)
        self.weights = np.zeros(job.n_weights, np.float32)
        self.actor = make_actor(recipe, number, life)

    def go_on(self) -> None:
        while (message := self.channel.receive()) is not None and message.kind != b"s":
            self.answer(message)
        self.actor.close()

    def answer(self, message: Message) -> None:
        kind, (slot, *_), descriptor = message
        if kind == b"g":
            self.collect(slot)
        elif kind == b"r":
            self.channel.send(b"R")
        elif kind == b"t":
            with self.waiting():
                state = self.actor.state_dict()
            self.send_file(b"T", state)
        elif kind == b"l" and descriptor is not None:
            state, in_flight = read_pickle(descriptor)
            os.close(descriptor)
            with self.waiting():
                self.actor.load_state_dict(state, in_flight=in_flight)

    def collect(self, slot: int) -> None:
        unroll = None
        if not self.signals.rests:
            version = self.board.read(self.weights)
            with self.waiting():
                unroll = self.actor.collect(self.weights, version, self.stops)
        if unroll is None:
            self.channel.send(b"U", slot)
            return
        counts, is_new = self.writer.write(slot, unroll)
        if is_new:
            form = write_pickle(self.writer.form)
            self.channel.send(b"F", file=form)
            os.close(form)
            self.channel.send(b"F", file=self.writer.descriptor)
        self.channel.send(b"D", slot, unroll.version, *counts)

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Inside, environments are waited for."""
        if not self.actor.may_hang:
            yield
            return
        # Where they let no other thread run, the learner has to know why there is no sign of life.
        self.signals.waits[self.number] = True
        with self.pulse.waiting():
            yield
        self.signals.waits[self.number] = False

    def stops(self) -> bool:
        """True if an unroll should be given up; asked after each of its steps."""
        self.pulse.beat()
        return self.signals.stops

    def send_file(self, kind: bytes, value: Any) -> None:
        descriptor = write_pickle(value)
        self.channel.send(kind, file=descriptor)
        os.close(descriptor)


def _report(error: BaseException) -> tuple[bytes | None, str]:
    """An exception, where it can be pickled, and its traceback."""
    trace = "".join(traceback.format_exception(error))
    try:
        pickled = pickle.dumps(error)
        pickle.loads(pickled)
    except Exception:
        return None, trace
    return pickled, trace
