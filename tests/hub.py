"""A server that speaks the interface of the Hugging Face Hub, as far as its client asks."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

TOKEN = "hf_" + "t" * 34


class Hub(ThreadingHTTPServer):
    """Repositories in memory: files by name, for each commit."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.commits: dict[str, dict[str, bytes]] = {}
        self.branches: dict[str, dict[str, str]] = {}
        self.private: dict[str, bool] = {}
        self.messages: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def files(self, repo: str, revision: str = "main") -> dict[str, bytes]:
        return self.commits[self.branches[repo].get(revision, revision)]

    def commit(self, repo: str, branch: str, lines: list[dict[str, Any]]) -> str:
        files = dict(self.commits.get(self.branches[repo].get(branch, ""), {}))
        for line in lines:
            value = line["value"]
            if line["key"] == "header":
                self.messages.append(value["summary"])
            elif line["key"] == "file":
                assert value["encoding"] == "base64"
                files[value["path"]] = base64.b64decode(value["content"])
            else:
                assert line["key"] == "deletedFile"
                del files[value["path"]]
        name = hashlib.sha1(repr((sorted(files), len(self.commits))).encode()).hexdigest()
        self.commits[name] = files
        self.branches[repo][branch] = name
        return name


class _Handler(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = unquote(urlsplit(self.path).path)
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._json({"error": "who are you?"}, 401)
        elif path == "/api/repos/create":
            asked = json.loads(body)
            repo = f"{asked['organization']}/{asked['name']}"
            known = repo in self.server.branches
            if not known:
                self.server.private[repo] = asked.get("visibility") == "private"
                self.server.branches[repo] = {}
                self.server.commit(repo, "main", [])
            self._json({"url": f"{self.server.url}/{repo}"}, 409 if known else 200)
        elif path == "/api/validate-yaml":
            self._json({"errors": [], "warnings": []})
        elif found := re.fullmatch(r"/api/models/(.+)/preupload/(.+)", path):
            files = json.loads(body)["files"]
            told = [
                {"path": one["path"], "uploadMode": "regular", "shouldIgnore": False}
                for one in files
            ]
            self._json({"files": told})
        elif found := re.fullmatch(r"/api/models/(.+)/branch/(.+)", path):
            branches = self.server.branches[found[1]]
            branches.setdefault(found[2], branches["main"])
            self._json({})
        elif found := re.fullmatch(r"/api/models/(.+)/commit/(.+)", path):
            lines = [json.loads(line) for line in body.splitlines()]
            name = self.server.commit(found[1], found[2], lines)
            url = f"{self.server.url}/{found[1]}/commit/{name}"
            self._json({"commitUrl": url, "commitOid": name})
        else:
            self._json({"error": path}, 404)

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def _answer(self) -> None:
        path = unquote(urlsplit(self.path).path)
        if found := re.fullmatch(r"/api/models/(\w+/[\w.-]+)(?:/(revision|tree)/([^/]+))?", path):
            repo, kind, revision = found[1], found[2], found[3] or "main"
            if repo not in self.server.branches:
                self._missing("RepoNotFound")
                return
            branches = self.server.branches[repo]
            name = branches.get(revision, revision)
            if name not in self.server.commits:
                self._missing("RevisionNotFound")
                return
            files = self.server.commits[name]
            listed = [
                {"type": "file", "path": one, "size": len(content), "oid": _id(content)}
                for one, content in files.items()
            ]
            siblings = [{"rfilename": one} for one in files]
            self._json(
                listed if kind == "tree" else {"id": repo, "sha": name, "siblings": siblings}
            )
        elif found := re.fullmatch(r"/(\w+/[\w.-]+)/resolve/([^/]+)/(.+)", path):
            content = self.server.files(found[1], found[2]).get(found[3])
            if content is None:
                self._missing("EntryNotFound")
                return
            name = self.server.branches[found[1]].get(found[2], found[2])
            self._send(200, content, {"ETag": f'"{_id(content)}"', "X-Repo-Commit": name})
        else:
            self._json({"error": path}, 404)

    def _missing(self, code: str) -> None:
        self._send(404, b"{}", {"X-Error-Code": code})

    def _json(self, value: Any, status: int = 200) -> None:
        self._send(status, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _send(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


def _id(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@contextmanager
def hub() -> Iterator[Hub]:
    """A hub that answers until the end of the block."""
    with Hub() as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield made
        finally:
            made.shutdown()
            thread.join()
