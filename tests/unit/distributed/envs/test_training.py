"""Algorithms learn in remote environments what they learn in local ones."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

pytest.importorskip("grpc")

import sharpwave as sw
from sharpwave.distributed import EnvServer, RemoteVectorEnv
from sharpwave.envs import make_vec_env


class Counted(RemoteVectorEnv):
    """Counts its steps."""

    steps = 0

    def step(self, actions: Any) -> Any:
        self.steps += 1
        return super().step(actions)


def weights(agent: Any) -> dict[str, Any]:
    return {name: value.numpy(force=True) for name, value in agent.policy.state_dict().items()}


def trained(env: Any, backend: str) -> dict[str, Any]:
    agent = sw.PPO(env, n_steps=32, n_epochs=2, batch_size=64, seed=3, backend=backend)
    agent.train(3 * 32 * 4)
    return weights(agent)


@pytest.mark.long
# A native learner in native environments of its own process draws its actions in native code.
@pytest.mark.parametrize(
    ("mode", "backend"), [("native", "torch"), ("sync", "torch"), ("sync", "native")]
)
def test_ppo_over_two_servers_is_ppo_here_bit_for_bit(mode: str, backend: str) -> None:
    local = trained(make_vec_env("CartPole-v1", 4, mode=mode), backend)
    with ExitStack() as stack:
        servers = [
            stack.enter_context(EnvServer("CartPole-v1", n_envs=n, mode=mode)) for n in (1, 3)
        ]
        env = RemoteVectorEnv([server.address for server in servers])
        remote = trained(env, backend)
        env.close()
    assert local.keys() == remote.keys()
    for name, value in local.items():
        np.testing.assert_array_equal(value, remote[name], err_msg=name)


@pytest.mark.long
@pytest.mark.parametrize("name", ["SAC", "TD3", "A2C"])
def test_other_algorithms_take_remote_environments(name: str) -> None:
    with EnvServer("Pendulum-v1", n_envs=2) as server:
        env = Counted(server.address)
        options = {} if name == "A2C" else {"learning_starts": 32, "buffer_size": 1000}
        agent = getattr(sw, name)(env, seed=0, **options)
        agent.train(100)
        assert env.steps >= 50
        assert agent.evaluate(n_episodes=1) is not None  # in an environment of its own, by the id
        env.close()
