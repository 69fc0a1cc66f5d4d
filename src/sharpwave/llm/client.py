"""Requests to a server that samples: JSON over HTTP, with timeouts and retries."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar
from urllib.parse import urlsplit

__all__ = ["Client", "SamplerFailed", "Unanswered"]

_Found = TypeVar("_Found")

MAX_ANSWER = 1 << 30
"""Bytes of an answer."""
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 30.0
"""Seconds before the second try, and before any."""


class SamplerFailed(RuntimeError):  # noqa: N818 - says what happened
    """A server that samples did not answer, or with something that cannot be learned from."""


class Unanswered(Exception):  # noqa: N818
    """One try that failed for a reason that may pass."""


class Client:
    """Asks one server.

    Args:
        url: Address of the server, such as `http://127.0.0.1:8000`.
        token: Bearer token of requests; None sends none.
        timeout: Seconds for one request, from the connection to the last byte of the answer.
        retries: Number of retries, with exponential backoff.

    Raises:
        ValueError: `url` is not an address, or a number is impossible.
    """

    def __init__(self, url: str, token: str | None, timeout: float, retries: int) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
            raise ValueError(f"url must be like 'http://127.0.0.1:8000', got {url!r}")
        if not timeout > 0:
            raise ValueError(f"timeout must be positive, got {timeout}")
        if retries < 0:
            raise ValueError(f"retries must be at least 0, got {retries}")
        self.url = url.rstrip("/")
        self.timeout, self.retries = timeout, retries
        self._token = token

    def insist(self, action: Callable[[], _Found]) -> _Found:
        """The result of an action, which is retried where it raises `Unanswered`.

        Raises:
            SamplerFailed: All tries failed.
        """
        pause = FIRST_PAUSE
        for left in range(self.retries, -1, -1):
            try:
                return action()
            except Unanswered as error:
                if left == 0:
                    raise SamplerFailed(
                        f"{self.url} failed {self.retries + 1} times, at last: {error}"
                    ) from error
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
        raise AssertionError  # the last try returns or raises

    def get(self, path: str) -> Any:
        """The answer of the server to GET at a path."""
        return self._ask("GET", path, None)

    def post(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """The answer of the server to POST of a JSON object."""
        return self._ask("POST", path, {} if body is None else body)

    def _ask(self, method: str, path: str, body: dict[str, Any] | None) -> Any:
        """One try.

        Raises:
            SamplerFailed: The server refuses, and would refuse again.
            Unanswered: It may answer another time.
        """
        content = None if body is None else json.dumps(body, allow_nan=False).encode()
        headers = {"Accept": "application/json"}
        if content is not None:
            headers["Content-Type"] = "application/json"
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        with self._connection() as (connection, prefix):
            connection.request(method, prefix + path, content, headers)
            answer = connection.getresponse()
            found = answer.read(MAX_ANSWER + 1)
            if len(found) > MAX_ANSWER:
                raise SamplerFailed(f"{self.url}{path} answered with more than {MAX_ANSWER} bytes")
            if answer.length:  # a read of so many bytes at most does not say that some are missing
                raise http.client.IncompleteRead(found, answer.length)
        return self._checked(path, answer.status, found)

    @contextlib.contextmanager
    def _connection(self) -> Iterator[tuple[http.client.HTTPConnection, str]]:
        """A connection that ends when the time is up, whatever it waits for then."""
        parts = urlsplit(self.url)
        kind = (
            http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        )
        connection = kind(str(parts.hostname), parts.port, timeout=self.timeout)
        is_late = threading.Event()

        def end() -> None:
            is_late.set()
            with contextlib.suppress(OSError, AttributeError):  # not connected, or closed by now
                connection.sock.shutdown(socket.SHUT_RDWR)

        clock = threading.Timer(self.timeout, end)
        clock.daemon = True
        clock.start()
        try:
            yield connection, parts.path
        except (OSError, http.client.HTTPException) as error:
            if is_late.is_set() or isinstance(error, TimeoutError):
                raise Unanswered(f"no whole answer within {self.timeout:g} seconds") from error
            raise Unanswered(f"the connection failed: {error!r}") from error
        finally:
            clock.cancel()
            connection.close()

    def _checked(self, path: str, status: int, content: bytes) -> Any:
        try:
            found = json.loads(content or b"null")
        except (ValueError, RecursionError):
            found = content.decode(errors="replace")
        if status == 200:
            return found
        said = f"{path} answered {status}: {_message(found)}"
        # Too many requests, and errors of the server's own, may pass; others come again.
        if status == 429 or status >= 500:
            raise Unanswered(said)
        raise SamplerFailed(f"{self.url}{said}")


def _message(found: Any) -> str:
    """Message of an error answer, in the forms that servers use."""
    if isinstance(found, dict):
        inner = found.get("error", found.get("detail", found))
        found = inner.get("message", inner) if isinstance(inner, dict) else inner
    return " ".join(str(found).split())[:500]
