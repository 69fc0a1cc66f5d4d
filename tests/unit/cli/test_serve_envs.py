"""`sharpwave serve-envs`: a process whose environments others play."""

from __future__ import annotations

import signal
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("grpc")

from sharpwave.cli import main
from sharpwave.distributed import RemoteVectorEnv
from sharpwave.envs import make_vec_env
from tests.unit.distributed.envs.servers import serving
from tests.waiting import LONG

TOKEN = "a-token-of-the-tests"


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_environments_are_served_until_it_is_told_to_stop(
    tmp_path: Path, number: signal.Signals
) -> None:
    (tmp_path / "token").write_text(TOKEN + "\n")
    arguments = ("Pendulum-v1", "--n-envs", "3", "--env-kwargs", "g=2.5", "--max-sessions", "1")
    with serving(*arguments, "--token-file", str(tmp_path / "token")) as server:
        assert server.said.endswith(" has 3 x Pendulum-v1 for 1 clients at a time, until Ctrl-C\n")
        with pytest.raises(PermissionError, match="token is missing or wrong"):
            RemoteVectorEnv(server.address)
        env = RemoteVectorEnv(server.address, token=TOKEN)
        local = make_vec_env("Pendulum-v1", 3, env_kwargs={"g": 2.5})
        env.reset(seed=0)
        local.reset(seed=0)
        actions = np.ones((3, 1), np.float32)
        for found, wanted in zip(env.step(actions)[:4], local.step(actions)[:4], strict=True):
            np.testing.assert_array_equal(found, wanted)
        assert env.spec is not None
        assert env.spec.kwargs["g"] == 2.5
        with pytest.raises(ConnectionError, match="all 1 sessions are taken"):
            RemoteVectorEnv(server.address, token=TOKEN)
        server.process.send_signal(number)
        assert server.process.stdout is not None
        assert server.process.stdout.read() == "stopped\n"
        assert server.process.wait(LONG) == 0
        env.close()


def test_what_cannot_be_served_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cases = {
        "did you mean": ["CartPol-v1"],
        "token or mutual TLS is needed": ["CartPole-v1", "--host", "0.0.0.0"],
        "address must be host:port": ["CartPole-v1", "--port", "70000"],
        "No such file": ["CartPole-v1", "--token-file", str(tmp_path / "none")],
        "silence must be a positive number": ["CartPole-v1", "--silence", "0"],
        "step_timeout must be a positive number": ["CartPole-v1", "--step-timeout", "-1"],
        "unknown mode 'fast'": ["CartPole-v1", "--mode", "fast"],
    }
    for said, arguments in cases.items():
        assert main(["serve-envs", *arguments]) == 2
        assert said in capsys.readouterr().err
