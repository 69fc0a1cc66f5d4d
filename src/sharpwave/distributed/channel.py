"""Messages between a learner and its actor processes (sockets), and flags in shared memory."""

from __future__ import annotations

import os
import pickle
import socket
import struct
from typing import Any, NamedTuple

import numpy as np

from sharpwave.buffers.shared_memory import SharedArrays, unnamed_file

__all__ = ["Channel", "Message", "Signals", "read_pickle", "write_pickle"]

NUMBERS = struct.Struct("<c5q")
FILE = struct.Struct("@i")
FILE_SPACE = socket.CMSG_LEN(FILE.size)


class Message(NamedTuple):
    """A kind, numbers whose meaning follows from it, and perhaps a file."""

    kind: bytes
    """Of the learner: go, rest, tell, load, stop. Of the actor: form, done, unused, rested, told,
    error. Their first letters, an actor's in capitals."""
    numbers: tuple[int, ...]
    descriptor: int | None
    """File descriptor, with data too long for a message; the receiver closes it."""


class Channel:
    """One end of a connection that keeps messages whole.

    Args:
        end: A socket of kind SOCK_SEQPACKET; it is taken over.
    """

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    @classmethod
    def pair(cls) -> tuple[Channel, Channel]:
        """Both ends of a new connection."""
        ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return cls(ends[0]), cls(ends[1])

    def fileno(self) -> int:
        """The descriptor of this end."""
        return self._end.fileno()

    def send(self, kind: bytes, *numbers: int, file: int | None = None) -> None:
        """Send a message; nothing where nobody listens any more.

        Args:
            kind: See `Message`.
            *numbers: At most five.
            file: A descriptor, of which the other process gets one of its own.
        """
        packed = NUMBERS.pack(kind, *numbers, *(0,) * (5 - len(numbers)))
        try:
            if file is None:
                self._end.send(packed)
            else:
                socket.send_fds(self._end, [packed], [file])
        except (BrokenPipeError, ConnectionResetError):
            pass

    def receive(self, *, waits: bool = True) -> Message | None:
        """The next message; None where nobody is left to send one.

        Args:
            waits: Wait for it; otherwise None where there is none yet.
        """
        flags = 0 if waits else socket.MSG_DONTWAIT
        try:
            packed, files = self._next(flags)
        except ConnectionResetError:
            # The other end was closed with messages that nobody read. This is said once, before
            # what it had sent itself, such as why it ends.
            try:
                packed, files = self._next(flags)
            except (BlockingIOError, ConnectionResetError):
                return None
        except BlockingIOError:
            return None
        if not packed:
            return None
        kind, *numbers = NUMBERS.unpack(packed)
        descriptors = [FILE.unpack(data[: FILE.size])[0] for _, _, data in files]
        return Message(kind, tuple(numbers), descriptors[0] if descriptors else None)

    def close(self) -> None:
        """Close this end."""
        self._end.close()

    def _next(self, flags: int) -> tuple[bytes, Any]:
        # `socket.recv_fds` leaves the flags out.
        packed, files, _, _ = self._end.recvmsg(NUMBERS.size, FILE_SPACE, flags)
        return packed, files


class Signals:
    """Flags and counters in shared memory, by which a learner and its actors see each other.

    Args:
        n_actors: Number of actors.
        descriptor: File descriptor of the memory of signals that exist; it is taken over.

    Attributes:
        beats: [n_actors] counts up while the process of an actor runs.
        waits: [n_actors] true while an actor waits for environments, which may stop its count.
        descriptor: File descriptor of the memory, for other processes.
    """

    def __init__(self, n_actors: int, descriptor: int | None = None) -> None:
        forms = [(np.bool_, (2,)), (np.int64, (n_actors,)), (np.bool_, (n_actors,))]
        self._shared = SharedArrays(forms, descriptor)
        self._flags, self.beats, self.waits = self._shared.arrays
        self.descriptor = self._shared.descriptor

    @property
    def rests(self) -> bool:
        """No unroll should begin."""
        return bool(self._flags[0])

    @rests.setter
    def rests(self, value: bool) -> None:
        self._flags[0] = value

    @property
    def stops(self) -> bool:
        """Unrolls should be given up."""
        return bool(self._flags[1])

    @stops.setter
    def stops(self, value: bool) -> None:
        self._flags[1] = value


def write_pickle(value: Any) -> int:
    """The descriptor of a new file in memory with a value in it."""
    data = pickle.dumps(value)
    descriptor = unnamed_file(len(data))
    os.pwrite(descriptor, data, 0)
    return descriptor


def read_pickle(descriptor: int) -> Any:
    """The value of a file that this library wrote in another of its processes."""
    return pickle.loads(os.pread(descriptor, os.fstat(descriptor).st_size, 0))
