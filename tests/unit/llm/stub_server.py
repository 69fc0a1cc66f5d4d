"""A server that samples nothing: it checks every field of what it is asked, and answers as told."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Change = Callable[[dict[str, Any]], Any]

FIELDS: dict[str, type | tuple[type, ...]] = {
    "model": str,
    "prompt": list,
    "n": int,
    "max_tokens": int,
    "temperature": float,
    "top_p": float,
    "top_k": int,
    "min_p": float,
    "repetition_penalty": float,
    "min_tokens": int,
    "stop_token_ids": list,
    "logprobs": int,
    "return_token_ids": bool,
    "seed": int,
    "vllm_xargs": dict,
}
"""The fields of a request, as vLLM declares it."""


class StubServer(ThreadingHTTPServer):
    """Answers with tokens 3, 4, 5 and log-probabilities -1, -2, -3 to whatever is well asked.

    Attributes:
        change: Changes an answer before it is sent.
        behave: Called before each answer with the path; may delay, or raise `ConnectionError`.
        asked: Paths, in order.
        version: Of the weights, as `finish_weight_update` said; a number that a restart forgets.
        is_vllm: Whether answers leave out what only our own server says.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.change: Change = lambda answer: answer
        self.behave: Callable[[str], None] = lambda _: None
        self.asked: list[str] = []
        self.questions: list[dict[str, Any]] = []
        self.version = "default"
        self.is_vllm = False
        self.problems: list[str] = []
        self.given: Path | None = None

    @property
    def url(self) -> str:
        """The address that it listens at."""
        return f"http://127.0.0.1:{self.server_port}"


@contextlib.contextmanager
def stub() -> Iterator[StubServer]:
    """A stub that answers; at the end nothing may have been asked wrongly."""
    with StubServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
    assert not server.problems, server.problems


class _Handler(BaseHTTPRequestHandler):
    server: StubServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer a question."""
        self._respond({})

    def do_POST(self) -> None:
        """Do what is asked."""
        length = int(self.headers["Content-Length"])
        if self.headers["Content-Type"] != "application/json":
            self.server.problems.append(f"Content-Type is {self.headers['Content-Type']}")
        self._respond(json.loads(self.rfile.read(length)))

    def _respond(self, body: dict[str, Any]) -> None:
        server = self.server
        server.asked.append(self.path)
        try:
            server.behave(self.path)
        except ConnectionError:
            self.close_connection = True
            return
        found: Any = _answer(server, self.path, body)
        content = found if isinstance(found, bytes) else json.dumps(found).encode()
        self.send_response(found.pop("status", 200) if isinstance(found, dict) else 200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


def _answer(server: StubServer, path: str, body: dict[str, Any]) -> Any:
    if path == "/v1/completions":
        return server.change(_completions(server, body))
    if path == "/weight_info":
        return {"weight_version": server.version}
    if path == "/update_weights":
        folder = Path(body["update_info"]["path"])
        if not (folder.is_absolute() and (folder / "model.safetensors").is_file()):
            server.problems.append(f"no weights in {folder}")
        server.given = folder
    if path == "/finish_weight_update":
        server.version = body["weight_version"]
    return {"message": "done"}


def _completions(server: StubServer, body: dict[str, Any]) -> dict[str, Any]:
    server.questions.append(body)
    for name, kind in FIELDS.items():
        if name not in body or not isinstance(body[name], kind):
            server.problems.append(f"{name} must be {kind}, got {body.get(name)!r}")
    if body.keys() - FIELDS.keys() - {"logit_bias"}:
        server.problems.append(f"unknown fields {sorted(body.keys() - FIELDS.keys())}")
    if not all(type(token) is int for row in body["prompt"] for token in row):
        server.problems.append(f"prompt must be tokens, got {body['prompt']}")
    if not (-(2**63) <= body["seed"] < 2**63) or body["return_token_ids"] is not True:
        server.problems.append(f"seed {body['seed']}")
    tokens = [3, 4, 5][: body["max_tokens"]]
    log_probs = [-1.0, -2.0, -3.0][: len(tokens)]
    choices = [
        {
            "index": index,
            "text": "text",
            "token_ids": list(tokens),
            "logprobs": {"token_logprobs": list(log_probs)},
            "finish_reason": "length",
            "prompt_token_ids": body["prompt"][index // body["n"]],
        }
        for index in range(len(body["prompt"]) * body["n"])
    ]
    answer = {"object": "text_completion", "model": body["model"], "choices": choices, "usage": {}}
    return answer if server.is_vllm else {**answer, "weight_version": server.version}


def late(seconds: float) -> Callable[[str], None]:
    """A behavior: every answer takes so long."""
    return lambda _: time.sleep(seconds)
