"""A link between two machines that goes down: a network namespace with a pair of interfaces."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np
import pytest

pytest.importorskip("grpc")

from sharpwave.distributed import RemoteVectorEnv
from sharpwave.envs import make_vec_env
from tests.unit.distributed.link import Link, link
from tests.waiting import LONG

__all__ = ["link"]

TOKEN = "a-token-of-the-tests"


@pytest.fixture
def address(link: Link) -> Iterator[str]:
    """Of a server on the other side, which waits for clients that are cut off."""
    arguments = ["serve-envs", "CartPole-v1", "--n-envs", "2", "--host", link.there, "--port", "0"]
    arguments += ["--patience", "600"]
    with subprocess.Popen(
        link.inside(sys.executable, "-m", "sharpwave", *arguments),
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "SHARPWAVE_TOKEN": TOKEN},
    ) as server:
        assert server.stdout is not None
        yield server.stdout.readline().split()[0]
        server.kill()


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("ignore:the token travels:UserWarning")
@pytest.mark.parametrize("seconds", [1.0, 5.0, pytest.param(60.0, marks=pytest.mark.slow)])
def test_a_link_that_was_down_changes_nothing(link: Link, address: str, seconds: float) -> None:
    env = RemoteVectorEnv(address, token=TOKEN, timeout=2 * LONG)
    local = make_vec_env("CartPole-v1", 2)
    np.testing.assert_array_equal(env.reset(seed=0)[0], local.reset(seed=0)[0])
    began = time.monotonic()
    waiting = link.down_for(seconds)
    for _ in range(3):
        found, wanted = (one.step(np.array([0, 1])) for one in (env, local))
        for left, right in zip(found[:4], wanted[:4], strict=True):
            np.testing.assert_array_equal(left, right)
    assert time.monotonic() - began > seconds
    waiting.join()
    env.close()


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:the token travels:UserWarning")
def test_a_link_that_stays_down_is_named_and_the_session_is_there_again(
    link: Link, address: str
) -> None:
    env = RemoteVectorEnv(address, token=TOKEN, timeout=6.0)
    first, _ = env.reset(seed=0)
    link.set("down")
    with pytest.raises(TimeoutError, match="did not answer within 6 s"):
        env.step(np.array([0, 1]))
    link.set("up")
    deadline = time.monotonic() + LONG
    while True:  # the system waits longer and longer before it sends again
        try:
            again, _ = env.reset(seed=0)
            break
        except TimeoutError:
            assert time.monotonic() < deadline
    np.testing.assert_array_equal(first, again)
    env.close()


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:the token travels:UserWarning")
def test_a_link_that_grows_narrow_changes_nothing(link: Link, address: str) -> None:
    env, local = RemoteVectorEnv(address, token=TOKEN), make_vec_env("CartPole-v1", 2)
    np.testing.assert_array_equal(env.reset(seed=0)[0], local.reset(seed=0)[0])
    link.narrow("64kbit")
    for _ in range(20):
        found, wanted = (one.step(np.array([0, 1])) for one in (env, local))
        for left, right in zip(found[:4], wanted[:4], strict=True):
            np.testing.assert_array_equal(left, right)
    link.widen()
    env.close()
