"""The live page: answers about one folder, to this machine only."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sharpwave.episodes.viewer import Viewer
from sharpwave.episodes.viewer.server import ViewerServer
from tests.unit.episodes.viewer.folders import add_episode, image, new_buffer, served, write_folder
from tests.unit.episodes.viewer.test_pictures import decoded


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ViewerServer]:
    with served(write_folder(tmp_path / "data")) as made:
        yield made


def ask(server: ViewerServer, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    found = answer.status, dict(answer.getheaders()), answer.read()
    connection.close()
    return found


def value(server: ViewerServer, path: str) -> Any:
    status, _, content = ask(server, path)
    assert status == 200, content
    return json.loads(content)


def test_it_listens_on_the_loopback_only(server: ViewerServer) -> None:
    assert server.server_address[0] == "127.0.0.1"
    assert server.url == f"http://127.0.0.1:{server.server_port}/"


def test_questions_are_answered(server: ViewerServer) -> None:
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
    server: ViewerServer, path: str, status: int, reason: str
) -> None:
    found, _, content = ask(server, path)
    assert found == status
    assert reason in content.decode()


@pytest.mark.parametrize("name", ["evil.example", "127.0.0.1", "127.0.0.1:1", "localhost"])
def test_another_name_for_this_machine_is_refused(server: ViewerServer, name: str) -> None:
    assert ask(server, "/state", Host=name)[0] == 403


def test_localhost_is_a_name_of_this_machine(server: ViewerServer) -> None:
    assert ask(server, "/state", Host=f"localhost:{server.server_port}")[0] == 200


def test_a_taken_port_is_an_error(server: ViewerServer, tmp_path: Path) -> None:
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
