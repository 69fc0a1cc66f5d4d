"""Client connection to an environment server, whose session survives reconnects."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Sequence
from typing import Any

from sharpwave.distributed.answers import Answers
from sharpwave.distributed.codec import LIMIT
from sharpwave.distributed.envs.arrays import messages
from sharpwave.distributed.envs.server import SERVICE, VERSION
from sharpwave.distributed.security import Access
from sharpwave.distributed.wire import connect, grpc, named, naming
from sharpwave.errors import EnvironmentFailed, WireError

__all__ = ["Connection", "Deadlines", "spaces_at"]

_PASSING = ("UNAVAILABLE", "CANCELLED", "UNKNOWN")
"""Status codes of a call whose connection is lost, or whose server is going."""
_GOODBYE = 2.0
"""Seconds that a server has to let go of a client that leaves."""


def spaces_at(address: str, access: Access, timeout: float) -> tuple[Any, Any]:
    """Open a channel to a server, and ask for its spaces and environments.

    Raises:
        ConnectionError: Nothing answers there, or something that has no environments.
        PermissionError: The server takes another token.
    """
    known = messages()
    channel = connect(address, access, timeout=timeout, max_message=LIMIT)
    try:
        ask = channel.unary_unary(
            f"/{SERVICE}/GetSpaces",
            request_serializer=known.Empty.SerializeToString,
            response_deserializer=known.SpacesResponse.FromString,
        )
        with naming(address):
            return channel, ask(known.Empty(), timeout=timeout)
    except WireError as error:
        channel.close()
        raise ConnectionError(f"{address} has no environments: {error}") from None
    except BaseException:
        channel.close()
        raise


class Deadlines:
    """Ends the calls of connections whose answers are late.

    A call that streams cannot be asked for its next message with a timeout.
    """

    def __init__(self, connections: Sequence[Connection]) -> None:
        self._connections = connections
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sharpwave late", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._over.set()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(0.05):
            now = time.monotonic()
            for connection in self._connections:
                if connection.deadline < now:
                    connection.drop()


class Connection:
    """Asks one server for resets and steps.

    Where the connection is lost before an answer has come, the same is asked over the next one; the
    server does it once.

    Args:
        address: Address of the server.
        channel: Channel to it.
        timeout: Seconds that it has for an answer.

    Attributes:
        deadline: Time until which an answer is awaited, in seconds of `time.monotonic`.
        is_sound: True if the last request has been answered.
    """

    def __init__(self, address: str, channel: Any, timeout: float) -> None:
        known = messages()
        self.address, self.channel, self.timeout = address, channel, timeout
        self.deadline = float("inf")
        self.is_sound = False
        self._play = channel.stream_stream(
            f"/{SERVICE}/Play",
            request_serializer=known.PlayRequest.SerializeToString,
            response_deserializer=known.PlayResponse.FromString,
        )
        self._session, self._last_id = "", 0
        self._asked: Any = None
        self._outbox: Any = None
        self._answers: Answers | None = None

    def join(self, *, or_new: bool) -> None:
        """Open a stream and go on with the session, or begin one.

        Args:
            or_new: Begin a new session where the old one is gone.

        Raises:
            ConnectionError: The session is gone, all are taken, or the server is not there.
            TimeoutError: There is no answer in time.
        """
        self.deadline = time.monotonic() + self.timeout
        self._connect_again(or_new)
        self.deadline = float("inf")
        self.is_sound = True

    def request(self) -> Any:
        """Next PlayRequest, whose reset or step is to be filled in."""
        return messages().PlayRequest(id=self._last_id + 1)

    def ask(self, request: Any) -> None:
        """Send a request; `answer` waits for what comes of it."""
        self.is_sound = False
        self._asked = request
        self.deadline = time.monotonic() + self.timeout
        self._outbox.put(request)

    def answer(self, first_env: int = 0) -> Any:
        """Wait for the answer to the last request: the ResetResponse or StepResponse.

        Args:
            first_env: The number of the server's first environment, for errors.

        Raises:
            ConnectionError: The connection was lost and does not come back, or the environments are
                gone.
            TimeoutError: There is no answer in time.
            EnvironmentFailed: An environment raised.
            ValueError: The server refuses what was asked.
            WireError: The answer is to something else.
        """
        while (response := self._next()) is None:
            self._connect_again(or_new=False)
            self._outbox.put(self._asked)
        self.deadline = float("inf")
        if response.id != self._asked.id:
            raise WireError(
                f"{self.address}: the answer must be to {self._asked.id}, got {response.id}"
            )
        self._last_id = response.id
        kind = response.WhichOneof("answer")
        if kind == "failure":
            raise self._failure(response.failure, first_env)
        if kind != self._asked.WhichOneof("ask"):
            raise WireError(f"{self.address}: the answer must be to a request, got {kind}")
        self.is_sound = True
        return getattr(response, kind)

    def drop(self) -> None:
        """End the stream; the server keeps the session for a while."""
        if self._answers is not None:
            self._answers.cancel()
            self._outbox.put(None)

    def leave(self) -> None:
        """Tell the server that the session is over."""
        self.deadline = time.monotonic() + _GOODBYE
        if self._outbox is not None:
            known = messages()
            self._outbox.put(known.PlayRequest(goodbye=known.Empty()))
            self._outbox.put(None)

    def close(self) -> None:
        """Wait until the server has let go, and close the channel."""
        if self._answers is not None:
            self._answers.finish(_GOODBYE)
        self.channel.close()

    def _next(self) -> Any:
        """The next message of the server; None where the connection was lost."""
        assert self._answers is not None
        try:
            response = self._answers.next()
        except grpc().RpcError as error:
            if time.monotonic() < self.deadline and error.code().name not in _PASSING:
                raise named(error, self.address) from None
            response = None
        if response is None and time.monotonic() >= self.deadline:
            self.deadline = float("inf")
            raise TimeoutError(
                f"{self.address} did not answer within {self.timeout:g} s: reset() begins anew"
            )
        return response

    def _connect_again(self, or_new: bool) -> None:
        """Open streams until one is answered."""
        known = messages()
        while True:
            self.drop()
            self._outbox = queue.SimpleQueue()
            hello = known.Hello(version=VERSION, session=self._session, or_new=or_new)
            self._outbox.put(known.PlayRequest(hello=hello))
            # A server that comes back before the deadline is waited for.
            call = self._play(iter(self._outbox.get, None), wait_for_ready=True)
            self._answers = Answers(call)
            response = self._next()
            if response is not None:
                break
            time.sleep(0.05)
        kind = response.WhichOneof("answer")
        if kind == "failure":
            self.deadline = float("inf")
            raise self._failure(response.failure, 0)
        if kind != "welcome":
            raise WireError(f"{self.address} must answer hello with a welcome, got {kind}")
        self._session, self._last_id = response.welcome.session, response.welcome.last_id

    def _failure(self, failure: Any, first_env: int) -> Exception:
        kind = messages().Failure.Kind.Name(failure.kind)
        if kind == "ENVIRONMENT":
            doing = f"{failure.doing} at {self.address}"
            self._session = ""
            return EnvironmentFailed(first_env + failure.env_index, doing, failure.message)
        if kind == "GONE":
            self._session = ""
            return ConnectionError(
                f"{self.address} has no session of ours any more (it was started again, or waited "
                "too long): its environments are lost, reset() begins anew"
            )
        if kind == "INPUT":
            self.is_sound = True  # nothing changed there
            return ValueError(f"{self.address} refuses: {failure.message}")
        return ConnectionError(f"{self.address} refuses: {failure.message}")
