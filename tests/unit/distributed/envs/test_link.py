"""A link between two machines that goes down: a network namespace with a pair of interfaces."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

pytest.importorskip("grpc")

from sharpwave.distributed import RemoteVectorEnv
from sharpwave.envs import make_vec_env

TOKEN = "a-token-of-the-tests"
HERE, THERE = "10.213.7.1", "10.213.7.2"


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


class Link:
    """Another namespace, and the way to it."""

    def __init__(self) -> None:
        self.name = f"sw{os.getpid() % 100_000}"
        self.device = f"{self.name}a"

    def make(self) -> None:
        ip("netns", "add", self.name)
        peer = f"{self.name}b"
        ip("link", "add", self.device, "type", "veth", "peer", "name", peer, "netns", self.name)
        ip("addr", "add", f"{HERE}/30", "dev", self.device)
        ip("netns", "exec", self.name, "ip", "addr", "add", f"{THERE}/30", "dev", peer)
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


@pytest.fixture
def address(link: Link) -> Iterator[str]:
    """Of a server on the other side."""
    arguments = ["serve-envs", "CartPole-v1", "--n-envs", "2", "--host", THERE, "--port", "0"]
    with subprocess.Popen(
        ["ip", "netns", "exec", link.name, sys.executable, "-m", "sharpwave", *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "SHARPWAVE_TOKEN": TOKEN},
    ) as server:
        assert server.stdout is not None
        yield server.stdout.readline().split()[0]
        server.kill()


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:the token travels:UserWarning")
def test_a_link_that_was_down_changes_nothing(link: Link, address: str) -> None:
    env, local = RemoteVectorEnv(address, token=TOKEN), make_vec_env("CartPole-v1", 2)
    np.testing.assert_array_equal(env.reset(seed=0)[0], local.reset(seed=0)[0])
    for seconds in (1.0, 5.0):
        waiting = link.down_for(seconds)
        began = time.monotonic()
        for _ in range(3):
            found, wanted = (one.step(np.array([0, 1])) for one in (env, local))
            for left, right in zip(found[:4], wanted[:4], strict=True):
                np.testing.assert_array_equal(left, right)
        assert time.monotonic() - began > seconds - 0.2
        waiting.join()
    env.close()


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:the token travels:UserWarning")
def test_a_link_that_stays_down_is_named_and_the_session_is_there_again(
    link: Link, address: str
) -> None:
    env = RemoteVectorEnv(address, token=TOKEN, timeout=3.0)
    first, _ = env.reset(seed=0)
    link.set("down")
    with pytest.raises(TimeoutError, match="did not answer within 3 s"):
        env.step(np.array([0, 1]))
    link.set("up")
    deadline = time.monotonic() + 40
    while True:  # the system waits longer and longer before it sends again
        try:
            again, _ = env.reset(seed=0)
            break
        except TimeoutError:
            assert time.monotonic() < deadline
    np.testing.assert_array_equal(first, again)
    env.close()
