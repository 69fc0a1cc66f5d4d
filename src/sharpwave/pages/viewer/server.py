"""The page over HTTP, for this machine only, while a writer may append to the folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs, urlsplit

from sharpwave.core.serving import PatientHandler, PatientServer
from sharpwave.pages.viewer.page import viewer_page
from sharpwave.pages.viewer.watched import Watched

ADDRESS = "127.0.0.1"

_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class ViewerServer(PatientServer):
    """Answers questions about one folder: `/`, `/state`, `/episode` and `/frame`, nothing else.

    It listens on the loopback interface, and answers only to a browser that believes to talk to
    it: a page from elsewhere cannot reach it by a name that points here. Clients that stay silent,
    ask or read slowly, or are many, do not keep others from their answers.

    Args:
        watched: The folder.
        port: Port to listen on; 0 takes a free one.

    Raises:
        OSError: The port is taken.
        ValueError: There is no such port.
    """

    def __init__(self, watched: Watched, port: int = 0) -> None:
        self.watched = watched
        super().__init__(ADDRESS, port, _Handler)
        self.names = {f"{name}:{self.server_port}" for name in (ADDRESS, "localhost")}

    @property
    def url(self) -> str:
        """URL of the page."""
        return f"http://{ADDRESS}:{self.server_port}/"


class _Handler(PatientHandler):
    server: ViewerServer

    def do_GET(self) -> None:  # noqa: N802 - the name that http.server calls
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
