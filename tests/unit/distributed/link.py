"""A link between two machines that goes down or grows narrow: a network namespace of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator

import pytest


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


class Link:
    """Another namespace, and the way to it.

    Attributes:
        here: The address of this side.
        there: That of the other.
    """

    def __init__(self) -> None:
        self.name = f"sw{os.getpid() % 100_000}"
        self.device, self._peer = f"{self.name}a", f"{self.name}b"
        # Tests run beside each other: each process has four addresses of its own.
        first = 4 * (os.getpid() % 2**14)
        self.here, self.there = (f"10.213.{(first + i) >> 8}.{(first + i) & 255}" for i in (1, 2))

    def inside(self, *command: str) -> list[str]:
        """A command on the other side."""
        return ["ip", "netns", "exec", self.name, *command]

    def make(self) -> None:
        ip("netns", "add", self.name)
        peer = self._peer
        ip("link", "add", self.device, "type", "veth", "peer", "name", peer, "netns", self.name)
        ip("addr", "add", f"{self.here}/30", "dev", self.device)
        ip("netns", "exec", self.name, "ip", "addr", "add", f"{self.there}/30", "dev", peer)
        ip("netns", "exec", self.name, "ip", "link", "set", peer, "up")
        ip("netns", "exec", self.name, "ip", "link", "set", "lo", "up")
        self.set("up")

    def set(self, state: str) -> None:
        ip("link", "set", self.device, state)

    def down_for(self, seconds: float) -> threading.Thread:
        """Take it down now, and up again later."""

        def wait() -> None:
            time.sleep(seconds)
            self.set("up")

        self.set("down")
        thread = threading.Thread(target=wait)
        thread.start()
        return thread

    def narrow(self, rate: str) -> None:
        """Let no more through, in either direction, than so many bits per second."""
        bucket = ["root", "tbf", "rate", rate, "burst", "8kb", "latency", "500ms"]
        here = ["tc", "qdisc", "add", "dev", self.device, *bucket]
        there = self.inside("tc", "qdisc", "add", "dev", self._peer, *bucket)
        for command in (here, there):
            done = subprocess.run(command, check=False, capture_output=True, text=True)
            if done.returncode:
                pytest.skip(f"links cannot be made narrow here: {done.stderr.strip()}")

    def widen(self) -> None:
        """Let everything through again."""
        subprocess.run(["tc", "qdisc", "del", "dev", self.device, "root"], check=True)
        subprocess.run(self.inside("tc", "qdisc", "del", "dev", self._peer, "root"), check=True)

    def remove(self) -> None:
        subprocess.run(["ip", "link", "del", self.device], check=False, capture_output=True)
        subprocess.run(["ip", "netns", "del", self.name], check=False, capture_output=True)


@pytest.fixture
def link() -> Iterator[Link]:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and iproute2")
    link = Link()
    try:
        link.make()
    except subprocess.CalledProcessError as error:
        link.remove()
        pytest.skip(f"there are no network namespaces here: {error.stderr.decode().strip()}")
    yield link
    link.remove()
