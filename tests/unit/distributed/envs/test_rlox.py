"""rlox's clients play at our servers, and our pool plays at servers that have its calls alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import pytest

grpc = pytest.importorskip("grpc")
pytest.importorskip("grpc_tools")

from sharpwave.compat import rlox
from sharpwave.distributed import EnvServer, RemoteEnvPool, RemoteVectorEnv
from sharpwave.envs import make_vec_env
from sharpwave.errors import WireError
from tests import envs
from tests.unit.distributed.envs.rlox_stubs import rlox_stubs


class ThreeCalls:
    """A server that has rlox's three calls and nothing else, as it has."""

    def __init__(self, env_id: str, n_envs: int) -> None:
        self.env = make_vec_env(env_id, n_envs)
        self.said: list[Any] = []

    def StepBatch(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.said.append(request)
        n = self.env.num_envs
        dtype = np.int64 if request.discrete else np.float32
        actions = np.array(request.actions, dtype).reshape(n, -1)
        stepped = self.env.step(actions[:, 0] if request.discrete else actions)
        obs, rewards, terminated, truncated, _ = stepped
        return rlox_stubs()[0].StepResponse(
            obs=obs.ravel(),
            rewards=rewards,
            terminated=terminated,
            truncated=truncated,
            obs_dim=obs.shape[1],
            num_envs=n,
        )

    def ResetBatch(self, request: Any, context: Any) -> Any:  # noqa: N802
        obs, _ = self.env.reset(seed=request.seed if request.has_seed else None)
        shape = {"obs_dim": obs.shape[1], "num_envs": len(obs)}
        return rlox_stubs()[0].ResetResponse(obs=obs.ravel(), **shape)

    def GetSpaces(self, request: Any, context: Any) -> Any:  # noqa: N802
        action_space: Any = self.env.single_action_space
        action = {"Discrete": 2}
        if action_space.dtype.kind == "f":
            bounds = {"low": action_space.low.tolist(), "high": action_space.high.tolist()}
            action = {"Box": {**bounds, "shape": list(action_space.shape)}}  # type: ignore[dict-item]
        size = self.env.single_observation_space.shape[0]  # type: ignore[index]
        obs = {"Box": {"low": [None] * size, "high": [None] * size, "shape": [size]}}
        return rlox_stubs()[0].SpacesResponse(
            action_space_json=json.dumps(action),
            obs_space_json=json.dumps(obs),
            num_envs=self.env.num_envs,
        )


@contextmanager
def three_calls(env_id: str, n_envs: int) -> Iterator[tuple[str, ThreeCalls]]:
    servicer = ThreeCalls(env_id, n_envs)
    server = grpc.server(ThreadPoolExecutor(4))
    rlox_stubs()[1].add_EnvServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}", servicer
    finally:
        server.stop(0).wait()


@contextmanager
def rlox_client(address: str) -> Iterator[Any]:
    with grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        yield rlox_stubs()[1].EnvServiceStub(channel)


def test_a_client_of_rlox_plays_here() -> None:
    pb, _ = rlox_stubs()
    local = make_vec_env("CartPole-v1", 3)
    with EnvServer("CartPole-v1", n_envs=3) as server, rlox_client(server.address) as stub:
        told = stub.GetSpaces(pb.Empty())
        assert told.num_envs == 3
        assert json.loads(told.action_space_json) == {"Discrete": 2}
        box = json.loads(told.obs_space_json)["Box"]
        assert box["shape"] == [4]
        assert np.isfinite(np.array(box["high"], np.float32)).all()
        first = stub.ResetBatch(pb.ResetRequest(seed=4, has_seed=True))
        assert (first.obs_dim, first.num_envs) == (4, 3)
        wanted, _ = local.reset(seed=4)
        np.testing.assert_array_equal(np.array(first.obs, "f").reshape(3, 4), wanted)
        ended = 0
        for i in range(60):
            actions = np.array([i % 2, 1, 0])
            request = pb.StepRequest(actions=actions, discrete=True, act_dim=1)
            found, step = stub.StepBatch(request), local.step(actions)
            np.testing.assert_array_equal(np.array(found.obs, "f").reshape(3, 4), step[0])
            assert found.rewards == step[1].tolist()
            assert found.terminated == step[2].tolist()
            assert found.truncated == step[3].tolist()
            ended += sum(found.terminated)
        assert ended > 0


def test_nested_observations_and_continuous_actions_are_rows_of_floats() -> None:
    pb, _ = rlox_stubs()
    with EnvServer(envs.NestedEnv, n_envs=2) as server, rlox_client(server.address) as stub:
        assert json.loads(stub.GetSpaces(pb.Empty()).obs_space_json)["Box"]["shape"] == [8]
        assert stub.ResetBatch(pb.ResetRequest()).obs_dim == 8
    with EnvServer("Pendulum-v1", n_envs=2) as server, rlox_client(server.address) as stub:
        stub.ResetBatch(pb.ResetRequest(seed=1, has_seed=True))
        found = stub.StepBatch(pb.StepRequest(actions=[0.5, -1], act_dim=1))
        local = make_vec_env("Pendulum-v1", 2, seed=1)
        local.reset(seed=1)
        assert found.rewards == local.step(np.array([[0.5], [-1]], "f"))[1].tolist()


def test_what_clients_of_rlox_may_not_do_is_named() -> None:
    pb, _ = rlox_stubs()
    with ExitStack() as stack:
        server = stack.enter_context(EnvServer("CartPole-v1", n_envs=2))
        one, other = (stack.enter_context(rlox_client(server.address)) for _ in range(2))
        step = pb.StepRequest(actions=[0, 1], discrete=True, act_dim=1)

        def refused(ask: Any, request: Any) -> str:
            with pytest.raises(grpc.RpcError) as caught:
                ask(request)
            return str(caught.value.details())

        assert "must be reset by this client first: there are none yet" in refused(
            one.StepBatch, step
        )
        one.ResetBatch(pb.ResetRequest())
        one.StepBatch(step)
        assert "another one has reset them" in refused(other.StepBatch, step)
        other.ResetBatch(pb.ResetRequest())
        assert "another one has reset them" in refused(one.StepBatch, step)
        for actions, said in {
            (0.0,): "actions must be 2 numbers",
            (0.0, 0.5): "actions must be integers",
            (0.0, 7.0): "actions must be in Discrete(2)",
            (0.0, float("nan")): "actions must be finite",
        }.items():
            assert said in refused(other.StepBatch, pb.StepRequest(actions=actions, discrete=True))
        other.StepBatch(step)
        assert server.n_sessions == 1


@pytest.mark.long
@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
def test_the_pool_plays_at_servers_that_have_three_calls(env_id: str) -> None:
    with three_calls(env_id, 1) as (one, servicer), three_calls(env_id, 2) as (other, _):
        pool = rlox.distributed.RemoteEnvPool([one, other], timeout=30.0)
        pool.connect()
        local = rlox.VecEnv(3, env_id=env_id)
        np.testing.assert_array_equal(pool.reset_all(seed=3), local.reset_all(seed=3))
        rng = np.random.default_rng(0)
        for _ in range(40):
            actions = rng.integers(0, 2, 3)
            found, wanted = pool.step_all(actions), local.step_all(actions)
            for name in ("obs", "rewards", "terminated", "truncated"):
                np.testing.assert_array_equal(found[name], wanted[name])
                assert found[name].dtype == wanted[name].dtype
            assert found["terminal_obs"] == [None] * 3
        assert servicer.said[-1].discrete == (env_id == "CartPole-v1")
        with pytest.raises(WireError, match="it speaks rlox's calls alone: RemoteEnvPool plays"):
            RemoteVectorEnv(one)
        pool.close()


def test_the_pool_plays_at_our_servers() -> None:
    with EnvServer("CartPole-v1", n_envs=2) as one, EnvServer("CartPole-v1") as other:
        pool = rlox.RemoteEnvPool([one.address, other.address])
        assert pool.worker_addresses == [one.address, other.address]
        with pytest.raises(ConnectionError, match=r"call connect\(\) first"):
            pool.reset_all(seed=0)
        pool.connect()
        assert pool.num_envs == 3
        local = rlox.VecEnv(3)
        np.testing.assert_array_equal(pool.reset_all(seed=3), local.reset_all(seed=3))
        n_ended = 0
        for _ in range(40):
            found, wanted = pool.step_all([0, 1, 1]), local.step_all([0, 1, 1])
            for last, true in zip(found["terminal_obs"], wanted["terminal_obs"], strict=True):
                assert (last is None) == (true is None)
                if last is not None:
                    np.testing.assert_array_equal(last, true)
                    n_ended += 1
        assert n_ended > 0
        with pytest.raises(ValueError, match="actions must be integers"):
            pool.step_all([0, 1, 0.5])
        pool.close()
        assert one.n_sessions == 0
        with pytest.raises(ConnectionError, match=r"call connect\(\) first"):
            pool.step_all([0, 1, 1])


def test_servers_of_two_kinds_are_not_one_pool() -> None:
    with three_calls("CartPole-v1", 1) as (theirs, _), EnvServer("CartPole-v1") as ours:
        with pytest.raises(ValueError, match="must have the same spaces and speak alike"):
            RemoteEnvPool([theirs, ours.address]).connect()
        with pytest.raises(ValueError, match="it speaks rlox's calls alone"):
            RemoteEnvPool([ours.address, theirs]).connect()
