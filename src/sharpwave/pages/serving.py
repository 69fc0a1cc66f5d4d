"""Pages over HTTP, for this machine only."""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from typing import Any, TypeAlias
from urllib.parse import parse_qs, urlsplit

from sharpwave.core.serving import PatientHandler, PatientServer

__all__ = ["Answer", "PageServer", "Question", "json_answer"]

ADDRESS = "127.0.0.1"

Answer: TypeAlias = tuple[str, bytes]
"""Type of the content, and the content."""
Question: TypeAlias = Callable[[Mapping[str, str]], Answer]
"""Answers a path, from the arguments behind it."""

_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class PageServer(PatientServer):
    """Answers questions by their path, and nothing else.

    It listens on the loopback interface, and answers only to a browser that believes to talk to
    it: a page from elsewhere cannot reach it by a name that points here. Clients that stay silent,
    ask or read slowly, or are many, do not keep others from their answers.

    Args:
        questions: The answer to each path. A KeyError or IndexError says that there is no such
            thing, a ValueError that the question was wrong.
        port: Port to listen on; 0 takes a free one.
        with_token: Answer only those who know the token in `url`, so that other users of this
            machine see nothing.

    Raises:
        OSError: The port is taken.
        ValueError: There is no such port.
    """

    def __init__(
        self, questions: Mapping[str, Question], port: int = 0, *, with_token: bool = False
    ) -> None:
        self.questions = questions
        self.token = secrets.token_urlsafe(24) if with_token else None
        super().__init__(ADDRESS, port, _Handler)
        self.names = {f"{name}:{self.server_port}" for name in (ADDRESS, "localhost")}
        self.cookie = f"sharpwave_{self.server_port}"

    @property
    def url(self) -> str:
        """URL of the page, with the token if there is one."""
        query = f"?token={self.token}" if self.token else ""
        return f"http://{ADDRESS}:{self.server_port}/{query}"

    def is_token(self, given: str | None) -> bool:
        """Return whether a text is the token, or none is needed."""
        if self.token is None:
            return True
        return hmac.compare_digest((given or "").encode(), self.token.encode())


class _Handler(PatientHandler):
    server: PageServer

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
            arguments = {name: values[-1] for name, values in parse_qs(address.query).items()}
            if not self._is_welcome(address.path, arguments):
                return
            question = self.server.questions.get(address.path)
            if question is None:
                self._answer(HTTPStatus.NOT_FOUND, "text/plain", b"there is no such page\n")
                return
            kind, content = question(arguments)
            self._answer(HTTPStatus.OK, kind, content)
        except (KeyError, IndexError) as error:
            self._answer(HTTPStatus.NOT_FOUND, "text/plain", f"{error.args[0]}\n".encode())
        except ValueError as error:
            self._answer(HTTPStatus.BAD_REQUEST, "text/plain", f"{error}\n".encode())
        except (ConnectionError, TimeoutError):
            self.close_connection = True  # the browser has gone elsewhere
        except OSError as error:
            self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, "text/plain", f"{error}\n".encode())

    def _is_welcome(self, path: str, arguments: Mapping[str, str]) -> bool:
        """Answer those who do not know the token, and those who say it, who get a cookie."""
        server = self.server
        if server.token is None or server.is_token(self._cookie()):
            return True
        if path == "/" and server.is_token(arguments.get("token")):
            cookie = f"{server.cookie}={server.token}; Path=/; HttpOnly; SameSite=Strict"
            moved = {"Location": "/", "Set-Cookie": cookie}
            self._answer(HTTPStatus.SEE_OTHER, "text/plain", b"", moved)
        else:
            self._answer(HTTPStatus.FORBIDDEN, "text/plain", b"the token is missing or wrong\n")
        return False

    def _cookie(self) -> str | None:
        try:
            found = SimpleCookie(self.headers.get("Cookie", "")).get(self.server.cookie)
        except CookieError:
            return None
        return None if found is None else found.value

    def _answer(
        self, status: HTTPStatus, kind: str, content: bytes, more: Mapping[str, str] | None = None
    ) -> None:
        self.send_response(status)
        for name, value in {**_HEADERS, **(more or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Type", f"{kind}; charset=utf-8" if "/png" not in kind else kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def json_answer(value: Any) -> Answer:
    """An answer of numbers and texts."""
    return "application/json", json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
