"""The page over HTTP, for this machine only, while a writer may append to the folder."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from sharpwave.episodes.viewer.page import viewer_page
from sharpwave.episodes.viewer.watched import Watched

ADDRESS = "127.0.0.1"

_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class ViewerServer(ThreadingHTTPServer):
    """Answers questions about one folder: `/`, `/state`, `/episode` and `/frame`, nothing else.

    It listens on the loopback interface, and answers only to a browser that believes to talk to
    it: a page from elsewhere cannot reach it by a name that points here. Clients that stay silent,
    ask or read slowly, or are many, do not keep others from their answers.

    Args:
        watched: The folder.
        port: Where to listen; 0 takes a free one.

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

    def __init__(self, watched: Watched, port: int = 0) -> None:
        if not 0 <= port < 2**16:
            raise ValueError(f"port must be from 0 to 65535, got {port}")
        self.watched = watched
        self._waiting_since: dict[socket.socket, float] = {}
        self._answering: set[socket.socket] = set()
        self._lock = threading.Lock()
        super().__init__((ADDRESS, port), _Handler)
        self.is_closed = False
        self.names = {f"{name}:{self.server_port}" for name in (ADDRESS, "localhost")}

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://{ADDRESS}:{self.server_port}/"

    def server_close(self) -> None:
        """Stop answering, also on connections that a browser keeps."""
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


def _hang_up(request: socket.socket) -> None:
    """End a connection; the thread that reads from it sees its end and closes it."""
    with contextlib.suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    server: ViewerServer
    protocol_version = "HTTP/1.1"
    server_version = "sharpwave"
    sys_version = ""

    def setup(self) -> None:
        """Let no read or write of this connection take for ever."""
        super().setup()
        self.connection.settimeout(self.server.patience)

    def do_GET(self) -> None:
        """Answer a question."""
        with self.server.answering(self.request):
            self._answer_question()

    def _answer_question(self) -> None:
        try:
            if self.server.is_closed:
                self.close_connection = True
                return
            if self.headers.get("Host") not in self.server.names:
                self._answer(HTTPStatus.FORBIDDEN, "text/plain", b"this is not my name\n")
                return
            address = urlsplit(self.path)
            question = _QUESTIONS.get(address.path)
            if question is None:
                self._answer(HTTPStatus.NOT_FOUND, "text/plain", b"there is no such page\n")
                return
            kind, content = question(self.server.watched, _arguments(address.query))
            self._answer(HTTPStatus.OK, kind, content)
        except (KeyError, IndexError) as error:
            self._answer(HTTPStatus.NOT_FOUND, "text/plain", f"{error.args[0]}\n".encode())
        except ValueError as error:
            self._answer(HTTPStatus.BAD_REQUEST, "text/plain", f"{error}\n".encode())
        except (ConnectionError, TimeoutError):
            self.close_connection = True  # the browser has gone elsewhere
        except OSError as error:
            self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, "text/plain", f"{error}\n".encode())

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: a page asks every second."""

    def _answer(self, status: HTTPStatus, kind: str, content: bytes) -> None:
        self.send_response(status)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", f"{kind}; charset=utf-8" if "/png" not in kind else kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def _arguments(query: str) -> Mapping[str, str]:
    return {name: values[-1] for name, values in parse_qs(query).items()}


def _integer(arguments: Mapping[str, str], name: str, default: int | None = None) -> int:
    text = arguments.get(name)
    if text is None and default is not None:
        return default
    try:
        return int(text or "")
    except ValueError:
        raise ValueError(f"{name} must be an integer, got {text!r}") from None


def _json(value: Any) -> tuple[str, bytes]:
    return "application/json", json.dumps(value, allow_nan=False, separators=(",", ":")).encode()


def _page(watched: Watched, _: Mapping[str, str]) -> tuple[str, bytes]:
    return "text/html", viewer_page(watched.state(), None).encode()


def _state(watched: Watched, arguments: Mapping[str, str]) -> tuple[str, bytes]:
    return _json(watched.state(_integer(arguments, "since", -1)))


def _episode(watched: Watched, arguments: Mapping[str, str]) -> tuple[str, bytes]:
    return _json(watched.detail(_integer(arguments, "id")))


def _frame(watched: Watched, arguments: Mapping[str, str]) -> tuple[str, bytes]:
    field = arguments.get("field", "")
    image = watched.frame(_integer(arguments, "id"), field, _integer(arguments, "step"))
    return "image/png", image


_QUESTIONS: dict[str, Callable[[Watched, Mapping[str, str]], tuple[str, bytes]]] = {
    "/": _page,
    "/state": _state,
    "/episode": _episode,
    "/frame": _frame,
}
