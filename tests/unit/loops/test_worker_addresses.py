"""Actors whose environments are at servers elsewhere."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("grpc")

import sharpwave as sw
from sharpwave.cli.main import main
from sharpwave.compat import rlox
from sharpwave.distributed import Access, EnvServer, workers
from sharpwave.errors import WireError
from sharpwave.loops.source import EnvSource
from sharpwave.storage.checkpoints import read_header
from sharpwave.storage.run_folder import RunFolder

OPTIONS: dict[str, Any] = {"n_steps": 8, "hidden": (8,), "seed": 1, "actors": "threads"}
TOKEN = "a-token-of-the-tests"


@contextmanager
def serving(*sizes: int, env: Any = "CartPole-v1", **options: Any) -> Iterator[list[str]]:
    """The addresses of servers with so many environments."""
    with ExitStack() as stack:
        servers = [
            stack.enter_context(EnvServer(env, n_envs=n, mode="sync", **options)) for n in sizes
        ]
        yield [server.address for server in servers]


def weights(agent: Any) -> Any:
    found: Any = agent.learner.weights().copy()
    agent.close()
    return found


@pytest.mark.long(but=["IMPALA-threads"])
@pytest.mark.parametrize("actors", ["threads", "processes"])
@pytest.mark.parametrize("algorithm", ["IMPALA", "APPO"])
def test_a_run_at_servers_is_one_of_here_bit_for_bit(algorithm: str, actors: str) -> None:
    options = {**OPTIONS, "deterministic": True, "actors": actors}
    made = getattr(sw, algorithm)
    with serving(4, 4) as addresses:
        agent = made("CartPole-v1", worker_addresses=addresses, **options)
        metrics = agent.train(256)
        there = weights(agent)
    assert metrics["actors_alive"] == 2
    agent = made("CartPole-v1", n_envs=4, env_mode="sync", **options)
    first = agent.learner.weights().copy()
    agent.train(256)
    assert (there != first).any()
    np.testing.assert_array_equal(there, weights(agent))


def test_each_actor_has_its_share_of_the_servers() -> None:
    """Three servers for two actors: the first one has two of them."""
    with serving(2, 1, 2) as addresses:
        agent: Any = sw.IMPALA("CartPole-v1", worker_addresses=addresses, **OPTIONS)
        assert agent.config.n_envs == 3
        agent.train(2 * 8 * 5)
        seen: dict[int, int] = {}
        agent.loop.fleet.start(agent.learner.weights(), agent.learner.updates)
        while len(seen) < 2:
            unroll = agent.loop.fleet.receive(120.0)
            seen[unroll.actor] = unroll.rollout.rewards.shape[1]
        assert seen == {0: 3, 1: 2}
        agent.close()


def test_servers_that_need_a_token_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SHARPWAVE_TOKEN", raising=False)
    with serving(2, 2, token=TOKEN) as addresses:
        for token in (None, "another-token-of-the-tests"):
            with pytest.raises(PermissionError, match=addresses[0]):
                sw.IMPALA("CartPole-v1", worker_addresses=addresses, token=token, **OPTIONS)
        agent = sw.IMPALA("CartPole-v1", worker_addresses=addresses, token=TOKEN, **OPTIONS)
        assert agent.train(64)["actors_alive"] == 2
        agent.close()


def test_a_checkpoint_needs_no_servers(tmp_path: Path) -> None:
    with serving(2, 2) as addresses:
        agent = sw.IMPALA("CartPole-v1", worker_addresses=addresses, **OPTIONS)
        agent.train(64)
        agent.save(tmp_path / "saved")
        before = weights(agent)
        again = sw.IMPALA.from_checkpoint(tmp_path / "saved", worker_addresses=addresses[::-1])
        assert again.config.worker_addresses == tuple(addresses[::-1])
        again.train(64)
        again.close()
    assert read_header(tmp_path / "saved")["config"]["worker_addresses"] == addresses
    here = sw.IMPALA.from_checkpoint(tmp_path / "saved")
    assert here.config.worker_addresses is None
    assert here.evaluate(2).mean_length > 0
    assert here.train(64)["actors_alive"] == 2
    assert (here.learner.weights() != before).any()
    here.close()


@pytest.mark.long
def test_the_command_line_trains_there_and_resumes_elsewhere(tmp_path: Path) -> None:
    run = tmp_path / "run"
    arguments = ["--n-steps", "8", "--hidden", "8", "--actors", "threads", "--quiet"]
    with serving(2, 2) as addresses:
        given = ["--worker-addresses", ",".join(addresses), "--total-timesteps", "64"]
        command = ["train", "impala", "CartPole-v1", "--run-dir", str(run), "--no-preset"]
        assert main([*command, *given, *arguments]) == 0
    resume = ["resume", str(run), "--total-timesteps", "128", "--quiet"]
    with serving(2, 2) as others:
        assert main([*resume, "--worker-addresses", ",".join(others)]) == 0
    header = read_header(RunFolder(run).latest_checkpoint)
    assert header["config"]["worker_addresses"] == others
    assert main(["eval", str(run), "--episodes", "1"]) == 0


def test_the_name_of_rlox_takes_them() -> None:
    with serving(2, 2, 2) as addresses:
        agent: Any = rlox.IMPALA(
            "CartPole-v1", n_actors=3, worker_addresses=addresses, actors="threads"
        )
        assert agent.config.n_envs == 2
        assert agent.train(3 * 2 * 32)["mean_return"] > 0
        agent.close()
        with pytest.raises(ValueError, match="worker_addresses must name a server or more"):
            rlox.IMPALA("CartPole-v1", n_actors=4, worker_addresses=addresses)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"worker_addresses": ["a:1"]}, "a server or more for each of 2 actors, got 1"),
        ({"worker_addresses": []}, "addresses must name at least one server"),
        ({"worker_addresses": ["a:1", "b:1", "a:1"]}, "got a:1 twice"),
        ({"worker_addresses": ["a:1", "b"]}, "address must be host:port, got 'b'"),
        ({"worker_addresses": ["a:1", "b:1"], "actors": "grpc"}, "for actors of this machine"),
    ],
)
def test_addresses_that_cannot_be_are_named(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        sw.IMPALA("CartPole-v1", **{**OPTIONS, **options})


def test_an_address_where_nobody_is_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "TIMEOUT", 6.0)
    with serving(2) as (address,), socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # and does not listen
        nobody = f"127.0.0.1:{held.getsockname()[1]}"
        with pytest.raises(ConnectionError, match=nobody):
            sw.IMPALA("CartPole-v1", worker_addresses=[address, nobody], **OPTIONS)


def test_one_server_by_two_names_is_named() -> None:
    with serving(2) as (address,):
        other = address.replace("127.0.0.1", "localhost")
        with pytest.raises(ValueError, match=f"{address} and {other} are the same"):
            sw.IMPALA("CartPole-v1", worker_addresses=[address, other], **OPTIONS)


class Wide(gym.Env[Any, Any]):
    """Has as many numbers in an observation as it is told."""

    action_space = gym.spaces.Discrete(2)

    def __init__(self, size: int = 3, **_: Any) -> None:
        self.observation_space = gym.spaces.Box(-1, 1, (size,))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        return self.observation_space.sample(), {}


@pytest.fixture
def wide() -> Iterator[str]:
    gym.register("Wide-v0", entry_point=Wide)
    yield "Wide-v0"
    del gym.registry["Wide-v0"]


def refused(env: str, addresses: list[str], says: str, **options: Any) -> None:
    with pytest.raises(ValueError, match=says):
        sw.IMPALA(env, worker_addresses=addresses, **OPTIONS, **options)


def test_servers_of_another_environment_are_named(wide: str) -> None:
    with serving(2, 2, env="Acrobot-v1") as both:
        refused("CartPole-v1", both, f"environments CartPole-v1: {both[0]} has Acrobot-v1")
    with serving(2) as (one,), serving(2, env="Acrobot-v1") as (other,):
        refused("CartPole-v1", [one, other], f"{other} has Acrobot-v1, {one} has CartPole-v1")
    four: dict[str, Any] = {"env": wide, "env_kwargs": {"size": 4}}
    with serving(2, env=wide) as (one,), serving(2, **four) as (other,):
        refused(wide, [one, other], f"the same observation_space: {other}")
    with serving(2, 2, **four) as both:
        refused(wide, both, "env_kwargs must be those of the servers", env_kwargs={"size": 5})


def test_a_server_of_another_version_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(2, 2) as addresses:
        monkeypatch.setattr("sharpwave.distributed.envs.description.VERSION", 9)
        with pytest.raises(WireError, match=f"{addresses[0]} must speak version 9"):
            sw.IMPALA("CartPole-v1", worker_addresses=addresses, **OPTIONS)


class StartAgain(sw.Callback):
    """Ends a server in the midst of a run, and starts another at its address."""

    def __init__(self, server: EnvServer, stack: ExitStack) -> None:
        self.server, self.stack = server, stack
        self.is_done = False

    def on_train_batch(self, **_: Any) -> None:
        if not self.is_done:
            self.is_done, address = True, self.server.address
            self.server.close()
            self.stack.enter_context(EnvServer("CartPole-v1", address, n_envs=2, mode="sync"))


@pytest.mark.long
def test_an_actor_whose_server_was_started_again_goes_on() -> None:
    """Its environments are lost, and the loss is counted."""
    with ExitStack() as stack, serving(2) as (other,):
        server = stack.enter_context(EnvServer("CartPole-v1", n_envs=2, mode="sync"))
        again = StartAgain(server, stack)
        options = {**OPTIONS, "deterministic": True}
        agent = sw.IMPALA("CartPole-v1", worker_addresses=[server.address, other], **options)
        metrics = agent.train(64 * 20, callbacks=again)
        assert again.is_done
        assert metrics["restarts"] >= 1
        assert metrics["lost_unrolls"] >= 1
        assert metrics["actors_alive"] == 2
        agent.close()


def test_learners_divide_what_all_actors_have_alike() -> None:
    source = EnvSource("CartPole-v1")
    with serving(2, 1) as addresses:
        config = sw.IMPALAConfig(worker_addresses=tuple(addresses))
        two = SimpleNamespace(is_alone=False, size=2, rank=1)
        with pytest.raises(ValueError, match=r"as many environments .*, got \[2, 1\]"):
            source.use_workers(config, Access(), two)  # type: ignore[arg-type]
    with serving(1, 1) as addresses:
        config = sw.IMPALAConfig(worker_addresses=tuple(addresses))
        assert source.use_workers(config, Access(), two) == 1  # type: ignore[arg-type]
        env = source.make(1, "auto")
        assert env.addresses == addresses[1:]
        env.close()


def test_as_many_environments_as_the_servers_have() -> None:
    with serving(2, 2) as addresses:
        with pytest.raises(ValueError, match="n_envs must be 2, as many as an actor's servers"):
            sw.IMPALA("CartPole-v1", n_envs=4, worker_addresses=addresses, **OPTIONS)
        with pytest.raises(TypeError, match="env_id must be an id where worker_addresses"):
            sw.IMPALA(lambda: gym.make("CartPole-v1"), worker_addresses=addresses, **OPTIONS)
