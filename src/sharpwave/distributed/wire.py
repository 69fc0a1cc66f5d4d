"""gRPC servers and channels with authentication, message limits, keepalive and timeouts."""

from __future__ import annotations

import atexit
import contextlib
import errno
import os
import socket
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from sharpwave.core.optional import require
from sharpwave.distributed.call_threads import CallThreads
from sharpwave.distributed.codec import LIMIT
from sharpwave.distributed.security import Access, check_listening, is_loopback
from sharpwave.distributed.silence import SilenceWatch
from sharpwave.errors import ServerBusy, WireError

__all__ = ["Method", "Server", "Service", "connect", "grpc", "named", "naming", "serve", "service"]


SILENCE = 30.0
"""Seconds that a client may take for its next message, or to read an answer."""
PING_EVERY, PING_PATIENCE = 10.0, 10.0
"""Seconds between two signs of life of a connection, and until one is missed."""
OVERHEAD = 2**16
"""Bytes of a message beside what was asked for: headers, and the padding of columns."""

Service = Callable[[Any], None]
"""Adds its methods to a grpc.Server, as the generated `add_..._to_server` do."""


def grpc() -> Any:
    """Import the gRPC library and return it.

    Raises:
        ImportError: It is not installed.
    """
    # It would print what is raised as an error here.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    return require("grpc", extra="distributed")


class Method(NamedTuple):
    """A method whose messages are bytes.

    Attributes:
        name: Its name.
        function: Takes a message, or an iterator of them, and the context of the call; returns a
            message, or yields them.
        stream_in: True if it takes several messages.
        stream_out: True if it yields several.
    """

    name: str
    function: Callable[[Any, Any], Any]
    stream_in: bool = False
    stream_out: bool = False


def service(name: str, methods: Sequence[Method]) -> Service:
    """A service of methods whose messages are bytes.

    Args:
        name: Such as "sharpwave.Fleet".
        methods: Its methods.
    """
    library = grpc()
    kinds = {(False, False): "unary_unary", (False, True): "unary_stream"}
    kinds |= {(True, False): "stream_unary", (True, True): "stream_stream"}
    handlers = {
        one.name: getattr(library, f"{kinds[one.stream_in, one.stream_out]}_rpc_method_handler")(
            one.function
        )
        for one in methods
    }
    generic = library.method_handlers_generic_handler(name, handlers)
    return lambda server: server.add_generic_rpc_handlers((generic,))


def serve(
    services: Iterable[Service],
    host: str = "127.0.0.1",
    port: int = 0,
    access: Access | None = None,
    *,
    max_message: int = LIMIT,
    max_calls: int = 64,
    silence: float = SILENCE,
) -> Server:
    """Answer calls, each in a thread.

    A function of a service that raises ends its call with the error's name and words: `WireError`
    and ValueError as the client's fault, everything else as the server's.

    Args:
        services: Services to serve.
        host: Host to listen at.
        port: Port to listen at; 0 takes a free one.
        access: Credentials that clients must show.
        max_message: Bytes of a message; larger ones are refused before they are read.
        max_calls: Calls at a time, streams among them; more are refused.
        silence: Seconds that a client may take for its next message, or to read an answer; its
            call is ended then.

    Raises:
        OSError: The port is taken, or the host is not one of this machine.
        PermissionError: Other machines could call without token or certificate.
        ValueError: There is no such port, or the certificate is no good.
    """
    access = access or Access()
    check_listening(host, access)
    _check_free(host, port)
    library = grpc()
    watch = SilenceWatch(silence)
    options = {
        **_common_options(max_message),
        "grpc.so_reuseport": 0,
        "grpc.server_handshake_timeout_ms": int(1000 * silence),
        "grpc.http2.min_ping_interval_without_data_ms": int(500 * PING_EVERY),
        "grpc.http2.max_ping_strikes": 0,
    }
    pool = CallThreads(max_calls, "sharpwave wire")
    server = library.server(
        pool,
        interceptors=[_gate(access, watch)],
        options=list(options.items()),
        maximum_concurrent_rpcs=max_calls,
    )
    for add in services:
        add(server)
    where = f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"
    try:
        if access.tls is None:
            port = server.add_insecure_port(where)
        else:
            certificate, key, authority = access.tls.read(server=True)
            credentials = library.ssl_server_credentials([(key, certificate)], authority, True)
            port = server.add_secure_port(where, credentials)
    except RuntimeError as error:
        raise OSError(errno.EADDRINUSE, f"cannot listen at {where}: {error}") from error
    server.start()
    return Server(server, pool, watch, host, port)


class Server:
    """A server at work, until `stop`; as a context manager, until the end of the block.

    One that is left to itself stops where the program ends.

    Attributes:
        host: Host at which it listens.
        port: Port at which it listens.
    """

    def __init__(self, server: Any, pool: Any, watch: SilenceWatch, host: str, port: int) -> None:
        self.host, self.port = host, port
        self._server, self._pool, self._watch = server, pool, watch
        self._pid = os.getpid()
        atexit.register(self._at_exit)

    @property
    def address(self) -> str:
        """The host and the port."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the server has stopped, or so many seconds; return True if it still runs."""
        still_runs: bool = self._server.wait_for_termination(timeout)
        return still_runs

    def stop(self, grace: float = 0.5) -> None:
        """Take no more calls, and end those that are left after so many seconds."""
        atexit.unregister(self._at_exit)
        self._server.stop(grace).wait()
        self._watch.stop()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _at_exit(self) -> None:
        if os.getpid() == self._pid:  # a fork has no server
            self.stop()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def connect(
    address: str,
    access: Access | None = None,
    *,
    timeout: float = 10.0,
    max_message: int = LIMIT,
) -> Any:
    """A `grpc.Channel` to a server that answers, which connects again where it is cut.

    Args:
        address: Such as "10.0.0.3:50051".
        access: Token and certificates, as the server has them.
        timeout: Seconds that the server has to answer; it may be starting.
        max_message: Bytes of a message.

    Raises:
        ConnectionError: Nothing answers; `ServerBusy` where too many others are connected.
        PermissionError: The server takes another token.
        ValueError: The address has no port, or the certificate is no good.
    """
    access = access or Access()
    host, port = split_address(address)
    library = grpc()
    options = {
        **_common_options(max_message),
        "grpc.enable_http_proxy": 0,
        "grpc.initial_reconnect_backoff_ms": 200,
        "grpc.min_reconnect_backoff_ms": 2_000,
        "grpc.max_reconnect_backoff_ms": 2_000,
        "grpc.use_local_subchannel_pool": 1,
    }
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    if access.tls is None:
        if access.token is not None and not is_loopback(host):
            warnings.warn(
                f"the token travels to {address} in plain text: use TLS where others can listen",
                stacklevel=2,
            )
        channel = library.insecure_channel(where, list(options.items()))
    else:
        certificate, key, authority = access.tls.read(server=False)
        credentials = library.ssl_channel_credentials(authority, key, certificate)
        channel = library.secure_channel(where, credentials, list(options.items()))
    if access.token is not None:
        channel = library.intercept_channel(channel, _bearer(access.token))
    try:
        _wait_for(channel, address, timeout)
    except BaseException:
        channel.close()
        raise
    return channel


def split_address(address: str) -> tuple[str, int]:
    """Split an address into host and port.

    Raises:
        ValueError: It is no such address.

    Example:
        >>> split_address("[::1]:50051")
        ('::1', 50051)
    """
    host, colon, port = str(address).rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 <= int(port) < 2**16:
        raise ValueError(f"address must be host:port, got {address!r}")
    return host.strip("[]"), int(port)


def named(error: Exception, address: str) -> Exception:
    """A failed call as Python's exception of that kind, with the address.

    Args:
        error: A `grpc.RpcError`.
        address: Address of the server.
    """
    status = getattr(error, "code", lambda: None)()
    name = "" if status is None else status.name
    said = getattr(error, "details", lambda: None)() or str(error)
    if name in ("UNAUTHENTICATED", "PERMISSION_DENIED"):
        return PermissionError(f"{address} refuses the call: {said}")
    if name == "DEADLINE_EXCEEDED":
        return TimeoutError(f"{address} did not answer in time: {said}")
    if name == "RESOURCE_EXHAUSTED" and "Concurrent RPC limit" in said:
        return ServerBusy(f"{address} is busy: {said}")
    if name == "UNIMPLEMENTED":
        return WireError(f"{address} serves something else: {said}")
    if name in ("INVALID_ARGUMENT", "OUT_OF_RANGE", "RESOURCE_EXHAUSTED"):
        return WireError(f"{address}: {said}")
    if name == "INTERNAL":
        return RuntimeError(f"{address} failed: {said}")
    return ConnectionError(f"{address} cannot be reached: {said}")


@contextlib.contextmanager
def naming(address: str) -> Iterator[None]:
    """Inside, failed calls are raised as `named` says."""
    try:
        yield
    except grpc().RpcError as error:
        raise named(error, address) from None


_ALIVE = "/sharpwave.Wire/Alive"


def _wait_for(channel: Any, address: str, timeout: float) -> None:
    """Ask for a sign of life until there is one; of other servers, any answer is."""
    library, began = grpc(), time.monotonic()
    ask = channel.unary_unary(_ALIVE)
    known: Exception | None = None
    while True:
        left = timeout - (time.monotonic() - began)
        try:
            ask(b"", timeout=max(0.05, left))
        except library.RpcError as error:
            status = error.code()
            raised, late = named(error, address), status is library.StatusCode.DEADLINE_EXCEEDED
            if status is library.StatusCode.UNIMPLEMENTED:
                return
            passes = status is library.StatusCode.UNAVAILABLE or isinstance(raised, ServerBusy)
            if passes:
                known = raised
            elif late:  # the last question has little time: what was answered before says more
                raised = known or ConnectionError(str(raised))
            if not passes or left <= 0:
                raise raised from None
            time.sleep(min(0.1, max(0.0, left)))
        else:
            return


def _common_options(max_message: int) -> dict[str, int]:
    return {
        "grpc.max_receive_message_length": max_message + OVERHEAD,
        "grpc.max_send_message_length": max_message + OVERHEAD,
        "grpc.keepalive_time_ms": int(1000 * PING_EVERY),
        "grpc.keepalive_timeout_ms": int(1000 * PING_PATIENCE),
        "grpc.keepalive_permit_without_calls": 1,
        "grpc.http2.max_pings_without_data": 0,
    }


def _check_free(host: str, port: int) -> None:
    """Find out why one cannot listen there, which gRPC does not tell."""
    if not 0 <= port < 2**16:
        raise ValueError(f"port must be from 0 to 65535, got {port}")
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(
            host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(where)
            probe.listen(1)
    except OSError as error:
        raise OSError(error.errno, f"cannot listen at {host}:{port}: {error.strerror}") from None


def _gate(access: Access, watch: SilenceWatch) -> Any:
    """Interceptor of all calls: checks the token, ends silent calls, and reports errors."""
    library = grpc()

    def refuse(_: Any, context: Any) -> Any:
        context.abort(library.StatusCode.UNAUTHENTICATED, "the token is missing or wrong")

    def answer_alive(_: Any, __: Any) -> bytes:
        return b""

    refusal = library.stream_stream_rpc_method_handler(refuse)
    alive = library.unary_unary_rpc_method_handler(answer_alive)

    def intercept(_: Any, continuation: Any, details: Any) -> Any:
        given = dict(details.invocation_metadata).get("authorization")
        if not access.admits(_token_of(given)):
            return refusal
        handler = alive if details.method == _ALIVE else continuation(details)
        return None if handler is None else _watched(handler, watch)

    return type("Gate", (library.ServerInterceptor,), {"intercept_service": intercept})()


def _watched(handler: Any, watch: SilenceWatch) -> Any:
    """The handler, with its client watched and its errors named.

    A message of its own and a stream of one are the same on the wire. As a stream it is read while
    somebody watches.
    """
    library = grpc()
    function = next(
        one
        for one in (
            handler.unary_unary,
            handler.unary_stream,
            handler.stream_unary,
            handler.stream_stream,
        )
        if one is not None
    )

    def call(requests: Any, context: Any) -> Any:
        messages = watch.messages(context, requests)
        if handler.request_streaming:
            return function(messages, context)
        for message in messages:
            return function(message, context)
        raise WireError("the call must have a message, got none")

    def one_answer(requests: Any, context: Any) -> Any:
        with _named_to(context):
            return call(requests, context)

    def many_answers(requests: Any, context: Any) -> Any:
        with _named_to(context):
            yield from watch.answers(context, call(requests, context))

    streams = handler.response_streaming
    make = f"stream_{'stream' if streams else 'unary'}_rpc_method_handler"
    return getattr(library, make)(
        many_answers if streams else one_answer,
        request_deserializer=handler.request_deserializer,
        response_serializer=handler.response_serializer,
    )


@contextlib.contextmanager
def _named_to(context: Any) -> Iterator[None]:
    """Inside, errors end the call with their names and words."""
    codes = grpc().StatusCode
    try:
        yield
    except GeneratorExit:
        raise
    except Exception as error:
        # What `abort` raises has no words; and nobody hears of a call that has ended.
        if type(error) is Exception or not context.is_active():
            raise
        kinds: list[tuple[Any, Any]] = [
            (ValueError, codes.INVALID_ARGUMENT),
            (PermissionError, codes.PERMISSION_DENIED),
            (TimeoutError, codes.DEADLINE_EXCEEDED),
            (Exception, codes.INTERNAL),
        ]
        code = next(code for kind, code in kinds if isinstance(error, kind))
        context.abort(code, f"{type(error).__name__}: {error}"[:1000])


def _token_of(header: str | bytes | None) -> str | bytes | None:
    if isinstance(header, bytes):
        return header.removeprefix(b"Bearer ")
    return None if header is None else header.removeprefix("Bearer ")


def _bearer(token: str) -> Any:
    """Interceptor that adds the token to every call."""
    library = grpc()
    kinds = ("UnaryUnary", "UnaryStream", "StreamUnary", "StreamStream")

    def intercept(_: Any, continuation: Any, details: Any, request: Any) -> Any:
        metadata = [*(details.metadata or ()), ("authorization", f"Bearer {token}")]
        return continuation(_Details(details, metadata), request)

    bases = tuple(getattr(library, f"{kind}ClientInterceptor") for kind in kinds)
    names = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")
    return type("Bearer", bases, {f"intercept_{name}": intercept for name in names})()


class _Details:
    """The details of a call, with other metadata."""

    def __init__(self, details: Any, metadata: Any) -> None:
        self.method, self.timeout, self.metadata = details.method, details.timeout, metadata
        self.credentials = details.credentials
        self.wait_for_ready = getattr(details, "wait_for_ready", None)
        self.compression = getattr(details, "compression", None)
