"""An HTTP server whose clients may be slow, silent or many without keeping others waiting."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["PatientHandler", "PatientServer"]


class PatientServer(ThreadingHTTPServer):
    """Answers each connection in a thread, as long as its client does its part.

    Args:
        host: Address to listen on.
        port: Port to listen on; 0 takes a free one.
        handler: Class that handles requests.

    Raises:
        OSError: The port is taken.
        ValueError: There is no such port.
    """

    daemon_threads = True
    request_queue_size = 64
    max_connections = 64
    """Connections at a time; for one more, the one that has been silent longest is closed."""
    patience = 15.0
    """Seconds that a client has for a whole question, or to take an answer."""

    def __init__(self, host: str, port: int, handler: type[PatientHandler]) -> None:
        if not 0 <= port < 2**16:
            raise ValueError(f"port must be from 0 to 65535, got {port}")
        self._waiting_since: dict[socket.socket, float] = {}
        self._answering: set[socket.socket] = set()
        self._lock = threading.Lock()
        if ":" in host:
            self.address_family = socket.AF_INET6
        super().__init__((host, port), handler)
        self.is_closed = False

    def server_close(self) -> None:
        """Stop answering, also on connections that a client keeps."""
        self.is_closed = True
        super().server_close()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Take a connection, in the place of another where there are too many."""
        with self._lock:
            n_open = len(self._waiting_since) + len(self._answering)
            if n_open >= self.max_connections:
                by_age = sorted(self._waiting_since, key=self._waiting_since.__getitem__)
                for silent in by_age[:1] or [request]:  # all others are being answered
                    _hang_up(silent)
                    self._waiting_since.pop(silent, None)
            self._waiting_since[request] = time.monotonic()
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Forget a connection that has ended."""
        with self._lock:
            self._waiting_since.pop(request, None)
            self._answering.discard(request)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Hang up on clients that have not asked a whole question for too long."""
        late = time.monotonic() - self.patience
        with self._lock:
            for request in [one for one, since in self._waiting_since.items() if since < late]:
                _hang_up(request)
                del self._waiting_since[request]

    @contextlib.contextmanager
    def answering(self, request: Any) -> Iterator[None]:
        """Inside, a connection has asked and waits itself."""
        with self._lock:
            self._waiting_since.pop(request, None)
            self._answering.add(request)
        try:
            yield
        finally:
            with self._lock:
                self._answering.discard(request)
                self._waiting_since[request] = time.monotonic()


class PatientHandler(BaseHTTPRequestHandler):
    """Answers the questions of one connection."""

    server: PatientServer
    protocol_version = "HTTP/1.1"
    server_version = "sharpwave"
    sys_version = ""

    def setup(self) -> None:
        """Let no read or write of this connection take for ever."""
        super().setup()
        self.connection.settimeout(self.server.patience)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: clients ask often."""


def _hang_up(request: socket.socket) -> None:
    """End a connection; the thread that reads from it sees its end and closes it."""
    with contextlib.suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)
