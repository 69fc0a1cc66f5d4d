"""Servers in processes of their own, and a way to them that loses what it is told to."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

ARGUMENTS = ("CartPole-v1", "--n-envs", "2")


class Process:
    """A `sharpwave serve-envs` in another process."""

    def __init__(self, *arguments: str, port: int = 0, **variables: str) -> None:
        options = [*(arguments or ARGUMENTS), "--port", str(port)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "sharpwave", "serve-envs", *options],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **variables},
        )
        assert self.process.stdout is not None
        self.said = self.process.stdout.readline()
        self.address = self.said.split()[0] if self.said else ""

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextlib.contextmanager
def serving(*arguments: str, **options: Any) -> Iterator[Process]:
    """A server until the end of the block."""
    server = Process(*arguments, **options)
    try:
        yield server
    finally:
        server.end()


class Proxy:
    """Carries bytes to a server and back.

    Attributes:
        to_lose: So many answers of the server are thrown away, and their connections cut.
        to_tear: So many messages to the server are carried half, and their connections cut.
        to_tear_answers: So many answers of the server are, that are longer than words about the
            connection.
        delay: Seconds that everything takes in addition.
        lost: Answers that were thrown away.
        torn: Messages that were carried half.
        torn_answers: Answers that were.
    """

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._server = (host, int(port))
        self.to_lose = self.to_tear = self.to_tear_answers = 0
        self.delay = 0.0
        self.lost = self.torn = self.torn_answers = 0
        self._lock = threading.Lock()  # connections lose and tear no more than they are told to
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def close(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _counts(self, name: str, most: int) -> bool:
        """Count one more, unless there are as many as there should be; whether it did."""
        with self._lock:
            is_due: bool = getattr(self, name) < most
            setattr(self, name, getattr(self, name) + is_due)
            return is_due

    def _accept(self) -> None:
        while not self._over.is_set():
            if not select.select([self._listener], [], [], 0.05)[0]:
                continue
            client, _ = self._listener.accept()
            try:
                server = socket.create_connection(self._server, timeout=5)
            except OSError:
                client.close()
                continue
            thread = threading.Thread(target=self._carry, args=(client, server))
            self._threads.append(thread)
            thread.start()

    def _carry(self, client: socket.socket, server: socket.socket) -> None:
        with client, server:
            while not self._over.is_set():
                for here in select.select([client, server], [], [], 0.05)[0]:
                    try:
                        data = here.recv(2**16)
                        # An answer, and not a word about the connection.
                        is_answer = here is server and len(data) > 60
                        if is_answer and self._counts("lost", self.to_lose):
                            return
                        if is_answer and self._counts("torn_answers", self.to_tear_answers):
                            client.sendall(data[: len(data) // 2])
                            return
                        is_request = here is client and len(data) > 1000
                        if is_request and self._counts("torn", self.to_tear):
                            server.sendall(data[: len(data) // 2])
                            return
                        time.sleep(self.delay)
                        (server if here is client else client).sendall(data)
                    except OSError:
                        return
                    if not data:
                        return
