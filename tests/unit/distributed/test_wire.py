"""Servers and channels: who is let in, what is refused, and how it is said."""

import socket
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("grpc")

from sharpwave.distributed import wire
from sharpwave.distributed.security import Access
from sharpwave.distributed.wire import (
    OVERHEAD,
    Method,
    Server,
    Service,
    connect,
    grpc,
    naming,
    serve,
    service,
    split_address,
)
from sharpwave.errors import ServerBusy, WireError
from tests.unit.distributed.certificates import make_authority, make_tls
from tests.waiting import LONG, wait_for, without_hanging

TOKEN = "a-token-of-the-tests"


class Echo:
    """A service that gives back what it gets, and says what it has seen."""

    def __init__(self) -> None:
        self.calls = 0
        self.ended = threading.Event()

    def service(self) -> Service:
        return service(
            "test.Echo",
            [
                Method("One", self.one),
                Method("Many", self.many, stream_in=True, stream_out=True),
                Method("Count", self.count, stream_in=True),
                Method("Numbers", self.numbers, stream_out=True),
                Method("Fail", self.fail),
            ],
        )

    def one(self, message: bytes, _: Any) -> bytes:
        self.calls += 1
        return message

    def many(self, messages: Iterator[bytes], _: Any) -> Iterator[bytes]:
        try:
            for message in messages:
                self.calls += 1
                yield message
        finally:
            self.ended.set()

    def count(self, messages: Iterator[bytes], _: Any) -> bytes:
        return b"%d" % sum(len(message) for message in messages)

    def numbers(self, message: bytes, _: Any) -> Iterator[bytes]:
        try:
            for _ in range(int(message)):
                yield bytes(2**16)
        finally:
            self.ended.set()

    def fail(self, message: bytes, _: Any) -> bytes:
        kinds = {b"wire": WireError, b"value": ValueError, b"index": IndexError}
        raise kinds[message]("of the test")


@pytest.fixture
def echo() -> Echo:
    return Echo()


@pytest.fixture
def server(echo: Echo) -> Iterator[Server]:
    with serve([echo.service()], access=Access(TOKEN), max_message=1000) as server:
        yield server


@pytest.fixture
def channel(server: Server) -> Iterator[Any]:
    with connect(server.address, Access(TOKEN), max_message=10**7) as channel:
        yield channel


@pytest.fixture
def impatient(echo: Echo) -> Iterator[Any]:
    """A channel to a server that soon drops who is silent."""
    with (
        serve([echo.service()], access=Access(TOKEN), max_message=1000, silence=6.0) as server,
        connect(server.address, Access(TOKEN), max_message=10**7) as channel,
    ):
        yield channel


def test_messages_and_streams_go_both_ways(channel: Any) -> None:
    assert channel.unary_unary("/test.Echo/One")(b"message") == b"message"
    sent = [b"%d" % i for i in range(20)]
    assert list(channel.stream_stream("/test.Echo/Many")(iter(sent))) == sent
    assert channel.stream_unary("/test.Echo/Count")(iter(sent)) == b"30"
    assert len(list(channel.unary_stream("/test.Echo/Numbers")(b"3"))) == 3


@pytest.mark.parametrize(
    "access", [Access(), Access("another-token-of-tests")], ids=["missing", "wrong"]
)
def test_without_the_token_nothing_is_called(server: Server, echo: Echo, access: Access) -> None:
    with pytest.raises(PermissionError, match=rf"{server.address} refuses.*missing or wrong"):
        connect(server.address, access)
    # Nor by whoever does not ask first.
    with grpc().insecure_channel(server.address) as channel:
        for name in ("One", "Many", "None"):
            call = channel.stream_stream(f"/test.Echo/{name}")
            with pytest.raises(PermissionError, match="missing or wrong"), naming("the server"):
                list(call(iter([b"x"])))
        header = [("authorization", f"Basic {TOKEN}")]
        with pytest.raises(PermissionError), naming("the server"):
            channel.unary_unary("/test.Echo/One")(b"x", metadata=header)
    assert echo.calls == 0


def test_other_machines_are_not_listened_to_without_a_token(echo: Echo) -> None:
    with pytest.raises(PermissionError, match=r"'0.0.0.0' is not a loopback address"):
        serve([echo.service()], "0.0.0.0")
    with serve([echo.service()], "0.0.0.0", access=Access(TOKEN)) as server:
        connect(f"127.0.0.1:{server.port}", Access(TOKEN)).close()


def test_a_token_in_plain_text_to_another_machine_is_warned_about() -> None:
    with pytest.warns(UserWarning, match="travels to 192.0.2.1:9 in plain text"):  # noqa: SIM117
        with pytest.raises(ConnectionError, match=r"192.0.2.1:9 (cannot|did not)"):
            connect("192.0.2.1:9", Access(TOKEN), timeout=0.1)


def ask_with(credentials: Any, address: str) -> None:
    """Call without being careful first."""
    with grpc().secure_channel(address, credentials) as channel, naming(address):
        channel.unary_unary("/test.Echo/One")(b"message", timeout=LONG)


@pytest.mark.long
def test_mutual_tls_lets_in_whom_the_authority_signed(tmp_path: Path, echo: Echo) -> None:
    authority = make_authority(tmp_path)
    tls = make_tls(authority)
    with serve([echo.service()], "0.0.0.0", access=Access(tls=tls)) as server:
        where = f"localhost:{server.port}"
        with connect(where, Access(tls=make_tls(authority, "two"))) as channel:
            assert channel.unary_unary("/test.Echo/One")(b"message") == b"message"
        stranger = make_tls(make_authority(tmp_path, "stranger"))
        with pytest.raises(ConnectionError, match="cannot be reached"):
            connect(where, Access(tls=stranger), timeout=3.0)
        with pytest.raises(ConnectionError, match="cannot be reached"):
            connect(where, timeout=3.0)
        # The server is whom the client expects, and the client shows nothing.
        bare = grpc().ssl_channel_credentials(Path(tls.authority).read_bytes())
        with pytest.raises(ConnectionError):
            ask_with(bare, where)
    assert echo.calls == 1


def test_a_certificate_that_expired_is_named(tmp_path: Path, echo: Echo) -> None:
    authority = make_authority(tmp_path)
    old, new = make_tls(authority, "old", expired=True), make_tls(authority)
    with pytest.raises(ValueError, match=r"old.crt: certificate has expired"):
        serve([echo.service()], access=Access(tls=old))
    with serve([echo.service()], access=Access(tls=new)) as server:
        with pytest.raises(ValueError, match=r"old.crt: certificate has expired"):
            connect(server.address, Access(tls=old))
        # Sent all the same, it is not accepted.
        files = (Path(file).read_bytes() for file in (old.authority, old.key, old.certificate))
        with pytest.raises(ConnectionError):
            ask_with(grpc().ssl_channel_credentials(*files), server.address)
    assert echo.calls == 0


def test_a_port_in_use_and_a_foreign_host_are_named(server: Server, echo: Echo) -> None:
    with pytest.raises(
        OSError, match=rf"cannot listen at 127.0.0.1:{server.port}: Address already"
    ):
        serve([echo.service()], port=server.port)
    with pytest.raises(OSError, match=r"cannot listen at 192.0.2.1:0: Cannot assign"):
        serve([echo.service()], "192.0.2.1", access=Access(TOKEN))
    with pytest.raises(ValueError, match="port must be from 0 to 65535, got 65536"):
        serve([echo.service()], port=65536)


def test_a_message_that_is_too_large_is_refused(server: Server, channel: Any, echo: Echo) -> None:
    with pytest.raises(WireError, match=rf"{server.address}.*larger than max"):  # noqa: SIM117
        with naming(server.address):
            channel.unary_unary("/test.Echo/One")(bytes(1001 + OVERHEAD))
    assert echo.calls == 0
    assert channel.unary_unary("/test.Echo/One")(b"small") == b"small"


@pytest.mark.parametrize(
    ("kind", "error", "says"),
    [
        (b"wire", WireError, "WireError: of the test"),
        (b"value", WireError, "ValueError: of the test"),
        (b"index", RuntimeError, "IndexError: of the test"),
    ],
)
def test_an_error_of_the_server_is_named(
    server: Server, channel: Any, kind: bytes, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says) as caught, naming(server.address):
        channel.unary_unary("/test.Echo/Fail")(kind)
    assert server.address in str(caught.value)


def test_unknown_methods_are_named(server: Server, channel: Any) -> None:
    with pytest.raises(WireError, match="Method not found"), naming(server.address):
        channel.unary_unary("/test.Echo/None")(b"")


def test_a_client_that_falls_silent_is_dropped(impatient: Any, echo: Echo) -> None:
    over = threading.Event()

    def two_messages() -> Iterator[bytes]:
        yield b"one"
        yield b"two"
        over.wait(LONG)

    answers = impatient.stream_stream("/test.Echo/Many")(two_messages())
    assert [next(answers), next(answers)] == [b"one", b"two"]
    with pytest.raises(ConnectionError), naming("the server"):
        next(answers)
    over.set()
    assert echo.ended.wait(LONG)
    assert impatient.unary_unary("/test.Echo/One")(b"later") == b"later"


def test_a_client_that_never_sends_its_message_is_dropped(impatient: Any, echo: Echo) -> None:
    over = threading.Event()

    def nothing() -> Iterator[bytes]:
        over.wait(LONG)
        yield from ()

    # One message is a stream of one, so whoever opens a call may send none.
    call = impatient.stream_unary("/test.Echo/One").future(nothing())
    with pytest.raises(ConnectionError), naming("the server"):
        call.result(timeout=LONG / 2)
    over.set()
    assert echo.calls == 0


def test_a_client_that_does_not_read_is_dropped(impatient: Any, echo: Echo) -> None:
    answers = impatient.unary_stream("/test.Echo/Numbers")(b"1000")
    next(answers)
    assert echo.ended.wait(LONG)  # long before all were sent
    answers.cancel()


def test_more_calls_than_allowed_are_refused(echo: Echo) -> None:
    with serve([echo.service()], max_calls=2) as server, connect(server.address) as channel:
        over = threading.Event()

        def held() -> Iterator[bytes]:
            yield b"first"
            over.wait(LONG)

        streams = [channel.stream_stream("/test.Echo/Many")(held()) for _ in range(2)]
        assert [next(stream) for stream in streams] == [b"first", b"first"]
        with pytest.raises(ServerBusy, match="Concurrent RPC limit"), naming(server.address):
            channel.unary_unary("/test.Echo/One")(b"third")
        with pytest.raises(ServerBusy, match=f"{server.address} is busy"):
            connect(server.address, timeout=3.0)
        threading.Timer(0.3, over.set).start()
        connect(server.address, timeout=LONG).close()  # which waits for a place
        assert [list(stream) for stream in streams] == [[], []]


class Scripted:
    """A channel whose calls fail with one status after the other, and then with the last."""

    def __init__(self, *failures: tuple[str, str]) -> None:
        self._failures = list(failures)

    def unary_unary(self, _: str) -> Any:
        return self._fail

    def _fail(self, _: bytes, timeout: float) -> None:
        del timeout
        name, words = self._failures.pop(0) if len(self._failures) > 1 else self._failures[0]
        error = grpc().RpcError()
        error.code, error.details = lambda: getattr(grpc().StatusCode, name), lambda: words
        raise error


LATE = ("DEADLINE_EXCEEDED", "Deadline Exceeded")


@pytest.mark.parametrize(
    ("failures", "kind", "says"),
    [
        ((("RESOURCE_EXHAUSTED", "Concurrent RPC limit"), LATE), ServerBusy, "is busy"),
        ((("UNAVAILABLE", "refused"), LATE), ConnectionError, "cannot be reached: refused"),
        ((LATE,), ConnectionError, "did not answer in time"),
    ],
)
def test_what_was_answered_is_said_where_the_last_question_is_late(
    failures: Any, kind: type[Exception], says: str
) -> None:
    """A server that was full was taken for one that does not answer."""
    with pytest.raises(kind, match=f"there:1 {says}"):
        wire._wait_for(Scripted(*failures), "there:1", 0.2)


def test_nothing_answers_at_a_free_port(echo: Echo) -> None:
    with serve([echo.service()]) as server:
        pass
    with (
        without_hanging(),
        pytest.raises(ConnectionError, match=rf"{server.address} cannot be reached"),
    ):
        connect(server.address, timeout=3.0)


def test_what_takes_connections_and_says_nothing_is_no_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ConnectionError, match=address):
            connect(address, timeout=3.0)


def test_a_server_that_starts_later_is_waited_for(echo: Echo) -> None:
    with serve([echo.service()]) as server:
        pass
    servers: list[Server] = []

    def start() -> None:
        time.sleep(0.3)
        servers.append(serve([echo.service()], port=server.port))

    thread = threading.Thread(target=start)
    thread.start()
    try:
        with connect(server.address, timeout=LONG) as channel:
            assert channel.unary_unary("/test.Echo/One")(b"hello") == b"hello"
    finally:
        thread.join()
        servers[0].stop()


def test_stop_ends_streams_and_threads(echo: Echo) -> None:
    before = set(threading.enumerate())
    server = serve([echo.service()])
    over = threading.Event()

    def held() -> Iterator[bytes]:
        yield b"first"
        over.wait(LONG)

    with connect(server.address) as channel:
        answers = channel.stream_stream("/test.Echo/Many")(held())
        next(answers)
        server.stop(grace=0.1)
        with pytest.raises(ConnectionError), naming(server.address):
            next(answers)
        over.set()
    wait_for(lambda: set(threading.enumerate()) <= before)


@pytest.mark.parametrize("address", ["", "host", ":1", "host:", "host:x", "host:65536", "a:-1"])
def test_an_address_needs_a_host_and_a_port(address: str) -> None:
    with pytest.raises(ValueError, match="address must be host:port, got"):
        split_address(address)


def test_no_warning_for_a_token_to_this_machine(server: Server) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        connect(server.address, Access(TOKEN)).close()
