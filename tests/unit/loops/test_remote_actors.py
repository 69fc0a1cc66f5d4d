"""Agents whose actors are elsewhere: options, secrets, and where they listen."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

pytest.importorskip("grpc")

import sharpwave as sw
from sharpwave.cli.main import main
from sharpwave.distributed import TLS, Access
from sharpwave.distributed.security import TOKEN_VARIABLE
from tests.unit.distributed.certificates import make_authority, make_tls
from tests.unit.distributed.remote import Acting
from tests.waiting import LONG

TOKEN = "a-token-of-the-tests"
OPTIONS: dict[str, Any] = {"n_envs": 4, "n_steps": 8, "hidden": (8,), "seed": 1, "actors": "grpc"}


def listening(agent: Any) -> str:
    """Let the fleet of an agent listen; where."""
    agent.loop.fleet.start(agent.learner.weights(), 0)
    address: str = agent.loop.fleet.address
    return address


@pytest.mark.parametrize("algorithm", ["IMPALA", "APPO"])
def test_an_agent_learns_from_actors_that_join(algorithm: str) -> None:
    agent: Any = getattr(sw, algorithm)("CartPole-v1", token=TOKEN, **OPTIONS)
    before = agent.learner.weights().copy()
    address = listening(agent)
    stranger = Acting(address)
    assert isinstance(stranger.wait(), PermissionError)
    node = Acting(address, access=Access(TOKEN), n_actors=2)
    metrics = agent.train(512)
    assert metrics["actors_alive"] == 2
    assert metrics["bytes_per_s"] > 0
    assert (agent.learner.weights() != before).any()
    agent.train(256)  # which goes on with the actors that are there
    assert agent.timesteps >= 768
    agent.close()
    assert node.wait() is None


@pytest.mark.long
def test_a_token_is_written_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    agent = sw.IMPALA("CartPole-v1", token=TOKEN, **OPTIONS)
    agent.save(tmp_path / "saved")
    assert TOKEN.encode() not in (tmp_path / "saved").read_bytes()
    assert TOKEN.encode() not in pickle.dumps(agent)
    assert TOKEN not in repr(agent.config) + str(agent.config.to_dict()) + str(agent.facts())
    node = Acting(listening(agent), access=Access(TOKEN), n_actors=2)
    agent.train(256, run_dir=tmp_path / "run")
    agent.close()
    assert node.wait() is None
    for file in (tmp_path / "run").rglob("*"):
        assert not file.is_file() or TOKEN.encode() not in file.read_bytes()
    again: Any = sw.IMPALA.from_checkpoint(tmp_path / "saved", token=TOKEN)
    stranger = Acting(listening(again))
    assert isinstance(stranger.wait(), PermissionError)
    again.close()


def test_the_token_of_the_environment_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    agent: Any = sw.IMPALA("CartPole-v1", **OPTIONS)
    stranger = Acting(listening(agent), access=Access())
    assert isinstance(stranger.wait(), PermissionError)
    agent.close()


@pytest.mark.long
def test_the_command_takes_the_token_of_a_file(tmp_path: Path) -> None:
    """The file was an option of whoever joins, and not of the learner."""
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    command = [sys.executable, "-m", "sharpwave"]
    own = ["--token-file", str(tmp_path / "token")]
    train = [
        "train",
        "impala",
        "CartPole-v1",
        "--actors",
        "grpc",
        "--n-envs",
        "4",
        "--n-steps",
        "8",
    ]
    train += ["--hidden", "8", "--eval-freq", "0", "--no-preset", "--quiet", *own]
    run = str(tmp_path / "run")

    def learn(*arguments: str) -> None:
        learner = subprocess.Popen([*command, *arguments], stderr=subprocess.PIPE, text=True)
        try:
            assert learner.stderr is not None
            address = learner.stderr.readline().rpartition("--learner ")[2].strip("`\n")
            stranger = Acting(address)
            assert isinstance(stranger.wait(), PermissionError)
            node = Acting(address, access=Access(TOKEN), n_actors=2)
            _, said = learner.communicate(timeout=LONG)
            assert learner.returncode == 0, said
            assert node.wait() is None
        finally:
            learner.kill()
            learner.communicate()

    learn(*train, "--total-timesteps", "512", "--run-dir", run)
    learn("resume", run, "--total-timesteps", "1024", "--quiet", *own)
    assert main(["train", "ppo", "CartPole-v1", *own]) == 2  # nobody would be asked for it


def test_certificates_are_asked_for(tmp_path: Path) -> None:
    authority = make_authority(tmp_path)
    files = TLS(*map(str, make_tls(authority)))
    agent: Any = sw.IMPALA("CartPole-v1", tls=files, **OPTIONS)
    address = listening(agent)
    node = Acting(address, access=Access(tls=make_tls(authority, "two")), n_actors=2)
    agent.train(256)
    agent.close()
    assert node.wait() is None
    assert sw.IMPALA.Config.from_dict(agent.config.to_dict()).tls == tuple(files)


def test_other_machines_are_not_listened_to_without_a_token(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    agent = sw.IMPALA("CartPole-v1", address="0.0.0.0:0", **OPTIONS)
    with pytest.raises(PermissionError, match="a token or mutual TLS is needed"):
        agent.train(256)
    agent.close()


def test_a_port_in_use_is_named() -> None:
    first: Any = sw.IMPALA("CartPole-v1", **OPTIONS)
    second = sw.IMPALA("CartPole-v1", address=listening(first), **OPTIONS)
    with pytest.raises(OSError, match=r"cannot listen at .* in use"):
        second.train(256)
    first.close()
    second.close()


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"address": "no port"}, ValueError, "address must be host:port, got 'no port'"),
        ({"tls": ("a", "b")}, ValueError, "tls must be certificate, key and authority"),
        ({"actors": "threads", "address": "host:1"}, ValueError, "address is for actors='grpc'"),
        ({"actors": "ssh"}, ValueError, "actors must be one of"),
        ({"token": "short"}, ValueError, "token must be at least 16"),
        ({"actors": "threads", "token": TOKEN}, ValueError, "token is for actors='grpc' and work"),
        ({"actors": "ray", "token": TOKEN}, ValueError, "token is for .*, got actors='ray'"),
    ],
)
def test_what_cannot_be_is_refused(options: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        sw.IMPALA("CartPole-v1", **{**OPTIONS, **options})


def test_an_environment_without_an_id_is_not_sent() -> None:
    with pytest.raises(TypeError, match="env must be an id for actors elsewhere"):
        sw.IMPALA(lambda: gym.make("CartPole-v1"), **OPTIONS)


def test_other_algorithms_take_no_token() -> None:
    with pytest.raises(TypeError, match="token"):
        sw.PPO("CartPole-v1", token=TOKEN)
