"""A model over HTTP: the interface of vLLM, tokens in and out, never text."""

from __future__ import annotations

import hmac
import ipaddress
import itertools
import json
import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from sharpwave.core.serving import PatientHandler, PatientServer
from sharpwave.errors import SharpwaveIOError
from sharpwave.llm.engine import Completion, Engine, EngineClosed
from sharpwave.llm.requests import parse_question, pop_log_probs

__all__ = ["ModelServer"]

_PICKLED = "ipc_handles", "ipc_handles_pickled", "serialized_named_tensors", "zmq_handles"
"""Ways of handing over weights that would run code of whoever sends them."""


class ModelServer(PatientServer):
    """Answers `POST /v1/completions` and what weight updates need, as vLLM does.

    Prompts are lists of tokens, completions too: `prompt: [[...], ...]` with `return_token_ids`.
    Every answer says the version of the weights that wrote it. Requests that wait at the same time
    are answered together.

    Args:
        model: The model, as `CausalModel.of` takes it.
        name: Name of the model in requests.
        host: Address to listen on; one that others can reach needs a token.
        port: Port to listen on; 0 takes a free one.
        token: Token that requests must carry, as `Authorization: Bearer TOKEN`; None asks for none.
        weights: Folder that new weights are taken from; without one they never change.
        seed: Seed of the draws of requests that have none.
        max_rows: Maximum number of completions at a time (batch size).
        cache_tokens: Capacity of the key-value cache in tokens; unbounded when None.

    Raises:
        OSError: The port is taken.
        TypeError: `model` is no language model.
        ValueError: `host` can be reached from outside and there is no token.

    Example:
        >>> with ModelServer(sw.nn.Transformer(vocab_size=8), "tiny") as server, server.running():
        ...     sampler = sw.llm.RemoteSampler(server.url, "tiny")
        ...     sampler.generate([[1, 2], [3]], n=2, max_new_tokens=4).lengths.tolist()
        [4, 4, 4, 4]
    """

    max_body = 64 << 20
    """Bytes of a request."""
    patience = 60.0

    def __init__(
        self,
        model: Any,
        name: str,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str | None = None,
        weights: Path | str | None = None,
        seed: int = 0,
        max_rows: int = 256,
        cache_tokens: int | None = None,
    ) -> None:
        if token == "":
            raise ValueError("token must not be empty")
        if token is None and not _is_loopback(host):
            raise ValueError(f"token must be given for host {host!r}, which others can reach")
        self.name, self.token, self.seed = name, token, seed
        self.weights = None if weights is None else Path(weights).resolve()
        self.drawn = itertools.count()
        self.engine = Engine(model, max_rows=max_rows, cache_tokens=cache_tokens)
        self._counting = threading.Lock()
        try:
            super().__init__(host, port, _Handler)
        except BaseException:
            self.engine.close()
            raise
        self.host = f"[{host}]" if ":" in host else host
        names = {self.host, "localhost", "127.0.0.1", "[::1]"}
        self.names = {f"{one}:{self.server_port}" for one in names}

    @property
    def url(self) -> str:
        """Address that requests go to."""
        return f"http://{self.host}:{self.server_port}"

    def server_close(self) -> None:
        """Stop answering: what was begun is finished, what waits is turned away."""
        super().server_close()
        self.engine.close()

    def running(self) -> _Running:
        """Inside, it answers, in a thread of its own."""
        return _Running(self)

    def keys(self, count: int) -> list[int]:
        """Numbers of prompts that bring none: each is given once."""
        with self._counting:
            return [next(self.drawn) for _ in range(count)]


class _Running:
    def __init__(self, server: ModelServer) -> None:
        self._server = server
        self._thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> ModelServer:
        self._thread.start()
        return self._server

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()


class _Refused(Exception):  # noqa: N818 - says what happened
    """A request that gets another answer than it asked for."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


def _bad(message: str) -> _Refused:
    return _Refused(HTTPStatus.BAD_REQUEST, message)


class _Handler(PatientHandler):
    server: ModelServer

    def do_GET(self) -> None:  # noqa: N802 - the name that http.server calls
        """Answer a question."""
        self._respond(_GET)

    def do_POST(self) -> None:  # noqa: N802
        """Do what is asked."""
        self._respond(_POST)

    def _respond(self, known: Mapping[str, Callable[[ModelServer, _Request], Any]]) -> None:
        try:
            self._check()
            request = _Request(self.path, self._body())
            answer = known.get(request.path, _unknown)
            with self.server.answering(self.request):
                self._send(HTTPStatus.OK, answer(self.server, request))
        except _Refused as error:
            self._complain(error.status, error)
        except EngineClosed as error:
            self.close_connection = True
            self._complain(HTTPStatus.SERVICE_UNAVAILABLE, error)
        except (ConnectionError, TimeoutError):
            self.close_connection = True  # the client has gone
        except (TypeError, ValueError, SharpwaveIOError) as error:
            self._complain(HTTPStatus.BAD_REQUEST, error)
        except Exception as error:
            self._complain(HTTPStatus.INTERNAL_SERVER_ERROR, repr(error))

    def _check(self) -> None:
        """Refuse whoever may not ask.

        A page in a browser can send requests to this machine, under a name of its own that points
        here, or with its origin: clients of this interface do neither.
        """
        server, given = self.server, self.headers.get("Authorization", "")
        if server.is_closed:
            raise EngineClosed("the server is going down")
        if server.token is not None:
            right = f"Bearer {server.token}".encode()
            if not hmac.compare_digest(given.encode(), right):
                self.close_connection = True  # its body is not read
                raise _Refused(HTTPStatus.UNAUTHORIZED, "a bearer token is needed, another came")
        elif self.headers.get("Host") not in server.names or "Origin" in self.headers:
            self.close_connection = True
            raise _Refused(HTTPStatus.FORBIDDEN, "requests of other pages are not answered")

    def _body(self) -> Any:
        """The JSON object that came with a request; empty where nothing came."""
        said = self.headers.get("Content-Length", "0")
        if "Transfer-Encoding" in self.headers or not (said.isascii() and said.isdigit()):
            self.close_connection = True
            raise _Refused(HTTPStatus.LENGTH_REQUIRED, "a request must say its length")
        if len(said) > 18 or int(said) > self.server.max_body:
            self.close_connection = True
            raise _Refused(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"a request must have at most {self.server.max_body} bytes, got {said:.20}",
            )
        content = self.rfile.read(int(said))
        if len(content) < int(said):
            raise ConnectionError("the client has gone")
        try:
            body = json.loads(content or b"{}")
        except (ValueError, RecursionError) as error:
            raise _bad(f"a request must be JSON: {error}") from None
        if not isinstance(body, dict):
            raise _bad(f"a request must be a JSON object, got {type(body).__name__}")
        return body

    def _complain(self, status: HTTPStatus, error: object) -> None:
        said = {"message": str(error), "type": status.phrase, "code": int(status)}
        try:
            self._send(status, {"error": said})
        except OSError:
            self.close_connection = True

    def _send(self, status: HTTPStatus, answer: Any) -> None:
        content = json.dumps(answer, allow_nan=False, separators=(",", ":")).encode()
        self.send_response(status)
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


class _Request:
    """Path, query and body of a request."""

    def __init__(self, address: str, body: dict[str, Any]) -> None:
        parts = urlsplit(address)
        self.path = parts.path
        self.query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        self.body = body


# Completions


def _completions(server: ModelServer, request: _Request) -> dict[str, Any]:
    body = {name: value for name, value in request.body.items() if value is not None}
    model = body.pop("model", server.name)
    if model != server.name:
        raise _Refused(HTTPStatus.NOT_FOUND, f"there is no model {model!r:.80}: {server.name!r} is")
    wants_log_probs = pop_log_probs(body)
    question = parse_question(body, server.seed, server.keys)
    written, version = server.engine.complete(question)
    n_prompt = sum(map(len, question.prompts)) * question.n
    n_written = sum(len(one.tokens) for one in written)
    return {
        "object": "text_completion",
        "model": server.name,
        "weight_version": str(version),
        "choices": [
            _choice(index, one, wants_log_probs=wants_log_probs)
            for index, one in enumerate(written)
        ],
        "usage": {
            "prompt_tokens": n_prompt,
            "completion_tokens": n_written,
            "total_tokens": n_prompt + n_written,
        },
    }


def _choice(index: int, one: Completion, *, wants_log_probs: bool) -> dict[str, Any]:
    log_probs = {"token_logprobs": one.log_probs, "plain_token_logprobs": one.plain_log_probs}
    return {
        "index": index,
        "text": "",
        "token_ids": one.tokens,
        "logprobs": log_probs if wants_log_probs else None,
        "finish_reason": "stop" if one.finished else "length",
        "stop_reason": one.tokens[-1] if one.finished else None,
    }


# Weights


def _pause(server: ModelServer, request: _Request) -> dict[str, Any]:
    mode = request.query.get("mode", "wait")
    if mode not in ("wait", "keep"):
        raise _bad(f"mode must be 'wait' or 'keep', got {mode!r:.40}: nothing is thrown away here")
    server.engine.pause()
    return {"status": "paused"}


def _resume(server: ModelServer, request: _Request) -> dict[str, Any]:  # noqa: ARG001
    server.engine.resume()
    return {"status": "resumed"}


def _init(server: ModelServer, request: _Request) -> dict[str, Any]:
    _weights_folder(server)
    if request.body.get("init_info"):
        raise _bad("init_info must be empty: weights come by the path of a folder")
    return {"message": "Weight transfer initialized"}


def _start(server: ModelServer, request: _Request) -> dict[str, Any]:  # noqa: ARG001
    _weights_folder(server)
    return {"message": "Weight update started"}


def _update(server: ModelServer, request: _Request) -> dict[str, Any]:
    folder = _weights_folder(server)
    info = request.body.get("update_info")
    if not isinstance(info, dict):
        raise _bad("update_info must be an object with the path of a folder")
    pickled = info.keys() & set(_PICKLED)
    if pickled:
        raise _bad(f"{min(pickled)} is refused: it is unpickled, which runs code of its sender")
    path = info.get("path")
    if not isinstance(path, str) or info.keys() != {"path"}:
        raise _bad(f"update_info must have a path and nothing else, got {sorted(info)!s:.100}")
    found = Path(path)
    if not found.is_absolute() or not found.resolve().is_relative_to(folder):
        raise _Refused(HTTPStatus.FORBIDDEN, f"path must lie in {folder}, got {path!r:.200}")
    server.engine.stage(found.resolve())
    return {"message": "Weights updated"}


def _finish(server: ModelServer, request: _Request) -> dict[str, Any]:
    _weights_folder(server)
    said = request.body.get("weight_version")
    is_count = isinstance(said, str) and said.isascii() and said.isdigit() and len(said) < 19
    if said is not None and not is_count:
        raise _bad(f"weight_version must be a number in a string, got {said!r:.60}")
    version = server.engine.adopt(None if said is None else int(said))
    return {"message": "Weight update finished", "weight_version": str(version)}


def _weights_folder(server: ModelServer) -> Path:
    if server.weights is None:
        raise _Refused(HTTPStatus.FORBIDDEN, "this server was given no folder for weights")
    return server.weights


# What there is


def _models(server: ModelServer, request: _Request) -> dict[str, Any]:  # noqa: ARG001
    room = server.engine.model.max_positions
    model = {"id": server.name, "object": "model", "owned_by": "sharpwave", "max_model_len": room}
    return {"object": "list", "data": [model]}


def _health(server: ModelServer, request: _Request) -> dict[str, Any]:  # noqa: ARG001
    return {}


def _weight_info(server: ModelServer, request: _Request) -> dict[str, Any]:  # noqa: ARG001
    return {"weight_version": str(server.engine.version)}


def _paused(server: ModelServer, request: _Request) -> dict[str, Any]:  # noqa: ARG001
    return {"is_paused": server.engine.is_paused}


def _unknown(server: ModelServer, request: _Request) -> Any:  # noqa: ARG001
    raise _Refused(HTTPStatus.NOT_FOUND, f"there is nothing at {request.path!r:.80}")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


_GET = {
    "/health": _health,
    "/is_paused": _paused,
    "/v1/models": _models,
    "/weight_info": _weight_info,
}
_POST = {
    "/v1/completions": _completions,
    "/pause": _pause,
    "/resume": _resume,
    "/init_weight_transfer_engine": _init,
    "/start_weight_update": _start,
    "/update_weights": _update,
    "/finish_weight_update": _finish,
}
