"""Environments of servers are those of this process, whatever their spaces."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("grpc")

from sharpwave.core.tree import leaves
from sharpwave.distributed import EnvServer, RemoteVectorEnv
from sharpwave.distributed.envs import server as server_module
from sharpwave.envs import PythonVectorEnv, make_vec_env
from sharpwave.envs.autoreset import with_final_obs
from sharpwave.envs.masks import action_masks
from sharpwave.errors import EnvironmentFailed, WireError
from sharpwave.testing import check_env
from tests import envs
from tests.unit.distributed.certificates import make_authority, make_tls
from tests.waiting import LONG, wait_for

MAKERS: dict[str, Any] = {
    "native": "CartPole-v1",
    "box actions": "Pendulum-v1",
    "python": envs.CountingEnv,
    "truncated": partial(envs.CountingEnv, (2, 3), 0, "alternating"),
    "nested": envs.NestedEnv,
    "frames": envs.FramesEnv,
    "discrete": envs.DiscreteObsEnv,
    "own memory": envs.ReusingEnv,
    "masked": envs.MaskedEnv,
}


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        thread.join(LONG)
        assert not thread.is_alive(), thread


def joined(stack: ExitStack, env: Any, *sizes: int, **options: Any) -> RemoteVectorEnv:
    """The environments of as many servers as there are sizes."""
    servers = [stack.enter_context(EnvServer(env, n_envs=n)) for n in sizes]
    remote = RemoteVectorEnv([one.address for one in servers], **options)
    stack.callback(remote.close)
    return remote


def same(one: Any, other: Any) -> None:
    """Both are the same nest of arrays, bit by bit."""
    assert dict(leaves(one)).keys() == dict(leaves(other)).keys()
    for (path, left), (_, right) in zip(leaves(one), leaves(other), strict=True):
        assert np.asarray(left).dtype == np.asarray(right).dtype, path
        np.testing.assert_array_equal(left, right, err_msg=path)


@pytest.mark.long(but=["native"])
@pytest.mark.parametrize("name", MAKERS)
def test_steps_are_those_of_local_environments(name: str) -> None:
    with ExitStack() as stack:
        remote = joined(stack, MAKERS[name], 1, 3)
        local = make_vec_env(MAKERS[name], 4)
        assert remote.single_observation_space == local.single_observation_space
        assert remote.action_space == local.action_space
        remote.action_space.seed(1)
        obs, infos = remote.reset(seed=5)
        same(obs, local.reset(seed=5)[0])
        masks = action_masks(remote, infos) if name == "masked" else None
        n_ended = 0
        for _ in range(12):
            actions = remote.action_space.sample()
            if masks is not None:
                actions = masks.argmax(1)
            *found, infos = remote.step(actions)
            *wanted, local_infos = local.step(actions)
            for one, other in zip(found, wanted, strict=True):
                same(one, other)
            masks = action_masks(remote, infos) if name == "masked" else None
            if masks is not None:
                same(masks, action_masks(local, local_infos))
            ended = found[2] | found[3]
            if ended.any():
                last = with_final_obs(found[0], ended, infos)
                same(last, with_final_obs(wanted[0], ended, local_infos))
                n_ended += 1
        assert n_ended > 0 or isinstance(MAKERS[name], str)


@pytest.mark.long
def test_environments_keep_the_contract_of_vector_environments() -> None:
    with ExitStack() as stack:
        servers = [stack.enter_context(EnvServer("CartPole-v1", n_envs=n)) for n in (2, 1)]
        addresses = [one.address for one in servers]
        check_env(lambda: RemoteVectorEnv(addresses))


def test_infos_of_some_servers_get_a_mask() -> None:
    class Telling(envs.CountingEnv):
        def step(self, action: Any) -> Any:
            *step, info = super().step(action)
            told = {"speed": 2.5, "words": "no", "inner": {"flag": True}} if action else {}
            return (*step, {**info, **told})

    with ExitStack() as stack:
        remote = joined(stack, Telling, 1, 2)
        remote.reset(seed=0)
        infos = remote.step(np.array([0, 1, 0]))[-1]
    assert infos["speed"].tolist() == [0.0, 2.5, 0.0]
    assert infos["_speed"].tolist() == [False, True, False]
    assert infos["inner"]["flag"].tolist() == [False, True, False]
    assert "words" not in infos
    assert "_words" not in infos


def test_some_environments_are_reset() -> None:
    with ExitStack() as stack:
        remote = joined(stack, partial(envs.CountingEnv, (9,)), 2, 1)
        remote.reset(seed=0)
        remote.step(np.zeros(3, np.int64))
        mask = np.array([False, True, True])
        obs, _ = remote.reset(options={"reset_mask": mask})
        assert obs[:, 2].tolist() == [1, 0, 0]
        assert obs[:, 1].tolist() == [0, 1, 1]


def test_seeds_and_options_reach_each_environment() -> None:
    with ExitStack() as stack:
        remote = joined(stack, "CartPole-v1", 1, 2)
        local = make_vec_env("CartPole-v1", 3)
        bounds = {"low": np.float32(0.25), "high": 0.5}
        for arguments in ({"seed": [7, None, 2]}, {"seed": 3, "options": bounds}):
            same(remote.reset(**arguments)[0], local.reset(**arguments)[0])
        with pytest.raises(TypeError, match="options must be what JSON holds"):
            remote.reset(options={"low": object()})
        with pytest.raises(ValueError, match="low"):
            remote.reset(options={"low": 3.0, "high": 1.0})
        remote.reset(seed=1)


def test_sessions_have_environments_of_their_own() -> None:
    with EnvServer("CartPole-v1", n_envs=2, max_sessions=2) as server:
        one, other = (RemoteVectorEnv(server.address) for _ in range(2))
        first, _ = one.reset(seed=1)
        other.reset(seed=2)
        other.step(np.ones(2, np.int64))
        same(one.reset(seed=1)[0], first)
        with pytest.raises(ConnectionError, match="all 2 sessions are taken"):
            RemoteVectorEnv(server.address)
        one.close()
        assert server.n_sessions == 1
        third = RemoteVectorEnv(server.address)
        third.close()
        other.close()
        assert server.n_sessions == 0


def test_an_environment_that_is_made_is_played_again_and_again() -> None:
    env = PythonVectorEnv([envs.CountingEnv] * 2)
    with EnvServer(env) as server:
        for episode in range(2):
            remote = RemoteVectorEnv(server.address)
            assert remote.reset(seed=0)[0][:, 1].tolist() == [episode] * 2
            remote.close()
        assert [one.is_closed for one in env.envs] == [False] * 2  # type: ignore[attr-defined]
    assert [one.is_closed for one in env.envs] == [True] * 2  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="max_sessions must be at least 1, and 1 with"):
        EnvServer(PythonVectorEnv([envs.CountingEnv]), max_sessions=2)


def test_an_environment_that_raises_is_named_and_the_next_session_has_new_ones() -> None:
    with ExitStack() as stack:
        remote = joined(stack, partial(envs.FailingEnv, fail_step=2), 1, 2)
        remote.reset(seed=0)
        remote.step(np.zeros(3, np.int64))
        with pytest.raises(EnvironmentFailed, match=r"environment 0 failed in .* at 127") as caught:
            remote.step(np.zeros(3, np.int64))
        assert "Traceback" in str(caught.value)
        with pytest.raises(gym.error.ResetNeeded, match=r"reset\(\) must be called again"):
            remote.step(np.zeros(3, np.int64))
        remote.reset(seed=0)


def test_wrong_actions_are_refused_here_and_nothing_happens() -> None:
    with ExitStack() as stack:
        remote = joined(stack, "CartPole-v1", 2)
        with pytest.raises(gym.error.ResetNeeded, match="before the first step"):
            remote.step(np.zeros(2, np.int64))
        remote.reset(seed=0)
        cases: list[tuple[Any, type[Exception], str]] = [
            (np.zeros(3, np.int64), ValueError, r"actions must have shape \(2,\), got \(3,\)"),
            (np.zeros(2), TypeError, "actions must be int64, got float64"),
            (np.array([0, 2]), ValueError, r"actions must be in Discrete\(2\), got 2 for env"),
        ]
        for actions, kind, said in cases:
            with pytest.raises(kind, match=said):
                remote.step(actions)
        local = make_vec_env("CartPole-v1", 2)
        local.reset(seed=0)
        same(remote.step(np.array([0, 1]))[0], local.step(np.array([0, 1]))[0])


def test_servers_that_do_not_fit_together_are_named() -> None:
    class Wider(envs.CountingEnv):
        def __init__(self) -> None:
            super().__init__()
            self.observation_space = gym.spaces.Box(-1, 1, (3,), np.float32)

    Wider.__name__ = "CountingEnv"
    with ExitStack() as stack:

        def serve(env: Any) -> str:
            return stack.enter_context(EnvServer(env)).address

        cart, pole, pendulum = serve("CartPole-v1"), serve("CartPole-v1"), serve("Pendulum-v1")
        counting, wider = serve(envs.CountingEnv), serve(Wider)
        port = cart.rpartition(":")[2]
        cases: list[tuple[list[str], str]] = [
            ([], "addresses must name at least one server, got none"),
            ([cart, cart], f"addresses must name each server once, got {cart} twice"),
            ([cart, f"localhost:{port}"], "are the same"),
            ([cart, pendulum], f"{pendulum} has Pendulum-v1, {cart} has CartPole-v1"),
            ([counting, wider], "servers must have the same observation_space"),
            (["nowhere"], "address must be host:port, got 'nowhere'"),
        ]
        for addresses, said in cases:
            with pytest.raises(ValueError, match=said):
                RemoteVectorEnv(addresses)
        with pytest.raises(ConnectionError, match=r"127.0.0.1:1 cannot be reached"):
            RemoteVectorEnv([pole, "127.0.0.1:1"], timeout=8.0)


def test_a_server_of_another_version_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "VERSION", 2)
    server = EnvServer("CartPole-v1").start()
    monkeypatch.undo()
    with server, pytest.raises(WireError, match=r"must speak version 1, it speaks version 2"):
        RemoteVectorEnv(server.address)


def test_tokens_must_be_the_same() -> None:
    with EnvServer("CartPole-v1", token="a-token-of-the-tests") as server:
        for token in (None, "another-token-than-that"):
            with pytest.raises(PermissionError, match="token is missing or wrong"):
                RemoteVectorEnv(server.address, token=token)
        RemoteVectorEnv(server.address, token="a-token-of-the-tests").close()
    with pytest.raises(PermissionError, match="token or mutual TLS is needed"):
        EnvServer("CartPole-v1", "0.0.0.0:0").start()


@pytest.mark.long
def test_certificates_let_in_who_has_one(tmp_path: Path) -> None:
    authority = make_authority(tmp_path)
    tls = make_tls(authority)
    with EnvServer("CartPole-v1", "127.0.0.1:0", tls=tls) as server:
        env = RemoteVectorEnv(server.address, tls=make_tls(authority, "other"))
        assert env.reset(seed=0)[0].shape == (1, 4)
        env.close()
        for stranger in (None, make_tls(make_authority(tmp_path, "another"))):
            with pytest.raises(ConnectionError, match="cannot be reached"):
                RemoteVectorEnv(server.address, tls=stranger, timeout=4)


def test_sessions_are_freed_when_their_clients_are_silent() -> None:
    with EnvServer("CartPole-v1", silence=6.0, patience=0.1) as server:
        remote = RemoteVectorEnv(server.address, timeout=LONG)
        remote.reset(seed=0)
        wait_for(lambda: server.n_sessions == 0)
        with pytest.raises(ConnectionError, match="no session of ours any more"):
            remote.step(np.zeros(1, np.int64))
        assert remote.reset(seed=0)[0].shape == (1, 4)
        remote.close()
