"""The live page: answers about one folder, to this machine only."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sharpwave.pages.serving import PageServer
from sharpwave.pages.viewer import Viewer
from tests.unit.pages.viewer.folders import add_episode, image, new_buffer, served, write_folder
from tests.unit.pages.viewer.test_pictures import decoded


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PageServer]:
    with served(write_folder(tmp_path / "data")) as made:
        yield made


def ask(server: PageServer, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    found = answer.status, dict(answer.getheaders()), answer.read()
    connection.close()
    return found


def value(server: PageServer, path: str) -> Any:
    status, _, content = ask(server, path)
    assert status == 200, content
    return json.loads(content)


def test_it_listens_on_the_loopback_only(server: PageServer) -> None:
    assert server.server_address[0] == "127.0.0.1"
    assert server.url == f"http://127.0.0.1:{server.server_port}/"


def test_questions_are_answered(server: PageServer) -> None:
    status, headers, page = ask(server, "/")
    assert status == 200
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert b"connect-src 'self'" in page
    assert value(server, "/state")["episodes"]["return"] == [3, 10, 6, 16]
    assert value(server, "/state?since=2")["episodes"]["episode"] == [2, 3]
    assert value(server, "/episode?id=3")["length"] == 4
    status, headers, png = ask(server, "/frame?id=1&field=obs.image&step=4")
    assert (status, headers["Content-Type"]) == (200, "image/png")
    assert (decoded(png) == image(1, 4)).all()


@pytest.mark.parametrize(
    ("path", "status", "reason"),
    [
        ("/header.json", 404, "no such page"),
        ("/../../etc/passwd", 404, "no such page"),
        ("//etc/passwd", 404, "no such page"),
        ("/%2e%2e/%2e%2e/etc/passwd", 404, "no such page"),
        ("/episode", 400, "id must be an integer, got None"),
        ("/episode?id=x", 400, "id must be an integer, got 'x'"),
        ("/episode?id=99", 404, "there is no episode 99"),
        ("/episode?id=-1", 404, "there is no episode -1"),
        ("/frame?id=0&field=reward&step=0", 404, "there is no image field reward"),
        ("/frame?id=0&field=../state&step=0", 404, "there is no image field ../state"),
        ("/frame?id=0&field=obs.image&step=3", 404, "step must be from 0 to 2, got 3"),
        ("/frame?id=0&field=obs.image", 400, "step must be an integer"),
    ],
)
def test_other_questions_are_refused(
    server: PageServer, path: str, status: int, reason: str
) -> None:
    found, _, content = ask(server, path)
    assert found == status
    assert reason in content.decode()


@pytest.mark.parametrize("name", ["evil.example", "127.0.0.1", "127.0.0.1:1", "localhost"])
def test_another_name_for_this_machine_is_refused(server: PageServer, name: str) -> None:
    assert ask(server, "/state", Host=name)[0] == 403


def test_localhost_is_a_name_of_this_machine(server: PageServer) -> None:
    assert ask(server, "/state", Host=f"localhost:{server.server_port}")[0] == 200


def test_a_taken_port_is_an_error(server: PageServer, tmp_path: Path) -> None:
    with Viewer(tmp_path / "data") as viewer, pytest.raises(OSError, match="in use"):
        viewer.server(server.server_port)


def test_what_a_writer_appends_is_in_the_next_answer(tmp_path: Path) -> None:
    buffer = new_buffer(tmp_path / "data")
    with served(tmp_path / "data") as server:
        first = value(server, "/state")
        assert first["episodes"]["episode"] == []
        add_episode(buffer, 0, 3)
        second = value(server, f"/state?since={first['settled']}")
        assert second["episodes"]["return"] == [3]
        assert second["version"] > first["version"]
        add_episode(buffer, 1, 2)
        third = value(server, f"/state?since={second['settled']}")
        assert third["episodes"]["episode"] == [1]
        assert third["summary"]["counts"]["complete"] == 2
        assert value(server, "/state")["version"] == third["version"]
    buffer.close()


def test_a_closed_server_does_not_answer_on_an_open_connection(tmp_path: Path) -> None:
    with served(write_folder(tmp_path / "data")) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
        connection.request("GET", "/state")
        connection.getresponse().read()
        server.server_close()
        connection.request("GET", "/state")
        with pytest.raises((http.client.RemoteDisconnected, ConnectionError)):
            connection.getresponse()
        connection.close()


def connected(server: PageServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.server_port), timeout=20)


def is_hung_up(client: socket.socket) -> bool:
    """Wait for the end of a connection, or for the patience of this test."""
    try:
        return client.recv(1) == b""
    except ConnectionError:
        return True
    except TimeoutError:
        return False


def test_many_silent_connections_do_not_keep_others_out(
    server: PageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There was no limit of connections: each silent one kept a thread for ever."""
    monkeypatch.setattr(PageServer, "max_connections", 8)
    silent = [connected(server) for _ in range(40)]
    assert value(server, "/state")["episodes"]["episode"] == [0, 1, 2, 3]
    assert len(server._waiting_since) + len(server._answering) <= 8
    assert is_hung_up(silent[0])
    handlers = [one for one in threading.enumerate() if "process_request_thread" in one.name]
    for client in silent:
        client.close()
    for handler in handlers:
        handler.join(20)
    assert not any(handler.is_alive() for handler in handlers)


@pytest.mark.parametrize("said", [b"", b"GET /sta", b"GET /state HTTP/1.1\r\nHost: x"])
def test_a_slow_client_is_hung_up_on(
    said: bytes, server: PageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There was no time-out: a client that dribbled its question was listened to for ever."""
    monkeypatch.setattr(PageServer, "patience", 0.3)
    client = connected(server)
    client.sendall(said)
    dribbling = threading.Event()

    def dribble() -> None:
        while not dribbling.wait(0.05):
            with contextlib.suppress(OSError):
                client.sendall(b"x")

    thread = threading.Thread(target=dribble if said else lambda: None)
    thread.start()
    assert is_hung_up(client)
    dribbling.set()
    thread.join()
    client.close()
    assert ask(server, "/state")[0] == 200


def test_a_client_that_does_not_read_is_hung_up_on(
    server: PageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PageServer, "patience", 0.3)
    client = connected(server)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    question = f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{server.server_port}\r\n\r\n".encode()
    with contextlib.suppress(OSError):  # once the server has hung up
        for _ in range(2000):
            client.sendall(question)
    client.close()
    assert ask(server, "/state")[0] == 200


def test_a_browser_that_asks_again_and_again_is_answered(server: PageServer) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    for _ in range(5):
        connection.request("GET", "/state")
        assert connection.getresponse().read()
    connection.close()
