"""The live page of runs answers those who know its token."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from sharpwave.pages.serving import PageServer
from tests.unit.pages.watch.folders import served, write_run


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PageServer]:
    write_run(tmp_path / "a", [1.0, 2.0])
    with served(tmp_path) as made:
        yield made


def ask(server: PageServer, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    found = answer.status, dict(answer.getheaders()), answer.read()
    connection.close()
    return found


def known(server: PageServer) -> str:
    """The cookie of a browser that opened the address with the token."""
    status, headers, _ = ask(server, f"/?token={server.token}")
    assert (status, headers["Location"]) == (303, "/")
    cookie, *attributes = headers["Set-Cookie"].split("; ")
    assert {"HttpOnly", "SameSite=Strict"} <= set(attributes)
    return cookie


def test_the_address_with_the_token_opens_everything(server: PageServer) -> None:
    assert server.server_address[0] == "127.0.0.1"
    assert server.url == f"http://127.0.0.1:{server.server_port}/?token={server.token}"
    cookie = known(server)
    status, headers, page = ask(server, "/", Cookie=cookie)
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert server.token is not None
    assert server.token.encode() not in page
    runs = json.loads(ask(server, "/runs", Cookie=cookie)[2])
    assert [run["id"] for run in runs] == ["a"]
    status, _, content = ask(server, "/curve?run=a&metric=mean_return", Cookie=cookie)
    assert json.loads(content)["y"] == [1.0, 2.0]
    assert ask(server, "/curve?run=../a&metric=loss", Cookie=cookie)[0] == 404
    assert ask(server, "/other", Cookie=cookie)[0] == 404


@pytest.mark.parametrize("path", ["/", "/runs", "/curve?run=a&metric=loss", "/?token=", "/x"])
@pytest.mark.parametrize("cookie", [None, "", "sharpwave_{port}=wrong", "sharpwave_{port}", "\x01"])
def test_nobody_else_is_answered(server: PageServer, path: str, cookie: str | None) -> None:
    headers = {} if cookie is None else {"Cookie": cookie.format(port=server.server_port)}
    status, found, content = ask(server, path, **headers)
    assert status == 403
    assert "Set-Cookie" not in found
    assert b"CartPole" not in content


def test_a_wrong_token_is_refused(server: PageServer) -> None:
    assert server.token is not None
    for wrong in (server.token[:-1], server.token + "x", "ä"):
        assert ask(server, f"/?token={wrong.encode().hex()}")[0] == 403
    assert ask(server, f"/runs?token={server.token}")[0] == 403  # which only the page takes


def test_another_name_for_this_machine_is_refused(server: PageServer) -> None:
    assert ask(server, f"/?token={server.token}", Host="example.com")[0] == 403


def test_two_servers_have_two_tokens(server: PageServer, tmp_path: Path) -> None:
    with served(tmp_path) as other:
        assert ask(other, "/runs", Cookie=known(server))[0] == 403
