"""Environments on a CUDA device: the tests of the CPU, graphs, no waiting, and training."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import sharpwave as sw
from sharpwave.envs import DeviceVectorEnv, TensorVectorEnv, make_vec_env
from sharpwave.envs.on_device import plain
from sharpwave.tensors import TensorCollector, TensorSteps, TensorTransitionCollector
from tests.gpu.host_sync import no_host_sync
from tests.unit.envs.native_runs import IDS
from tests.unit.envs.on_device.test_steps import *  # noqa: F403

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

MANY = 4096


@pytest.fixture
def device() -> torch.device:
    return torch.device("cuda", torch.cuda.current_device())


def random_actions(env: DeviceVectorEnv) -> torch.Tensor:
    """Actions [N, ...], drawn on the device."""
    space = env.single_action_space
    if hasattr(space, "n"):
        return torch.randint(int(space.n), (env.num_envs,), device=env.device)
    return 2 * torch.rand(env.num_envs, *space.shape, device=env.device) - 1


def memory(env: DeviceVectorEnv) -> list[torch.Tensor]:
    """Copies of all tensors of environments."""
    return [tensor.clone() for tensor in env._memory]


@pytest.mark.parametrize("n_envs", [1, 31, 4096, 40_000])
@pytest.mark.parametrize("env_id", IDS)
def test_a_kernel_does_what_torch_does(env_id: str, n_envs: int, device: torch.device) -> None:
    env, twin = (DeviceVectorEnv(env_id, n_envs, device, max_episode_steps=50) for _ in range(2))
    assert env._step is not plain.step
    twin._step = plain.step
    env.reset(seed=3)
    twin.reset(seed=3)
    for _ in range(200):
        actions = random_actions(env)
        env.step(actions)
        twin.step(actions)
    for name, one, other in zip(env._memory._fields, env._memory, twin._memory, strict=True):
        close = torch.isclose(one.double(), other.double(), rtol=1e-5, atol=1e-5)
        # A bound that a rounding crosses, once in a great many steps, changes a whole episode.
        assert close.double().mean() > 0.9999, name


@pytest.mark.parametrize("in_torch", [False, True])
@pytest.mark.parametrize("env_id", IDS)
def test_replayed_steps_are_eager_ones(env_id: str, in_torch: bool, device: torch.device) -> None:
    env, eager = (DeviceVectorEnv(env_id, 300, device, max_episode_steps=7) for _ in range(2))
    if in_torch:
        env._step = eager._step = plain.step
    env.reset(seed=3)
    eager.reset(seed=3)
    actions = random_actions(env)
    for each in (env, eager):  # compiles the kernel
        each.step(actions)
    state = env.get_state()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(4):
            env.step(actions)
    env.set_state(state)  # a capture computes nothing, and the memory is the same
    for _ in range(10):
        actions.copy_(random_actions(env))
        graph.replay()
        for _ in range(4):
            eager.step(actions)
        assert all(map(torch.equal, memory(env), memory(eager)))
    assert env.get_state()["resets"].min() >= 5  # every replay drew first states of its own


@pytest.mark.parametrize("env_id", IDS)
def test_steps_never_wait_and_allocate_nothing(env_id: str, device: torch.device) -> None:
    env = DeviceVectorEnv(env_id, MANY, device)
    env.reset(seed=0)
    actions = random_actions(env)
    for _ in range(2):
        env.step(actions)
    torch.cuda.synchronize()
    before = torch.cuda.memory_stats()["allocation.all.allocated"]
    with no_host_sync():
        for _ in range(20):
            env.step(actions)
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == before


def test_a_state_moves_between_the_devices(device: torch.device) -> None:
    env: Any = make_vec_env("Acrobot-v1", 8, device=device)
    host: Any = make_vec_env("Acrobot-v1", 8)
    env.reset(seed=0)
    actions = torch.zeros(8, dtype=torch.int64, device=device)
    for _ in range(5):
        env.step_tensors(actions)
    host.set_state(env.get_state())
    obs, *_ = host.step(actions.cpu().numpy())
    torch.testing.assert_close(env.step_tensors(actions).obs.cpu(), torch.from_numpy(obs))


def test_actions_of_another_device_are_refused(device: torch.device) -> None:
    env = DeviceVectorEnv("CartPole-v1", 4, device)
    env.reset(seed=0)
    with pytest.raises(ValueError, match="actions must be on cuda:0, got cpu"):
        env.step(torch.zeros(4, dtype=torch.int64))


@pytest.mark.parametrize("given", ["instance", "mode"])
def test_networks_go_where_environments_are(given: str) -> None:
    if given == "instance":
        ppo = sw.PPO(make_vec_env("CartPole-v1", 64, device="cuda"), n_steps=16, batch_size=256)
    else:
        ppo = sw.PPO("CartPole-v1", n_envs=64, n_steps=16, batch_size=256, env_mode="device")
    assert isinstance(ppo.env, TensorVectorEnv)
    assert ppo.env.capturable
    assert ppo.learner.device.type == ppo.env.device.type == "cuda"
    assert isinstance(ppo.collector, TensorCollector)
    assert isinstance(ppo.collector.steps, TensorSteps)
    ppo.train(2048)
    assert "environments step tensors there" in ppo.backend_reason


def test_ppo_solves_cartpole_without_leaving_the_device() -> None:
    options: dict[str, Any] = {"n_steps": 32, "batch_size": 16_384, "n_epochs": 8}
    options |= {"learning_rate": 3e-3, "anneal_lr": True, "ent_coef": 0.0, "gamma": 0.99}
    env = make_vec_env("CartPole-v1", 2048, device="cuda")
    ppo = sw.PPO(env, seed=1, total_timesteps=6_000_000, **options)
    ppo.train()
    assert ppo.evaluate(20).mean >= 475


def test_sac_swings_a_pendulum_up_without_leaving_the_device() -> None:
    options: dict[str, Any] = {"hidden": (64, 64), "learning_rate": 2e-3, "batch_size": 512}
    env = make_vec_env("Pendulum-v1", 64, device="cuda")
    sac = sw.SAC(env, seed=1, buffer="device", gradient_steps=16, learning_starts=2000, **options)
    assert isinstance(sac.collector, TensorTransitionCollector)
    sac.train(32_000)
    assert sac.evaluate(10).mean >= -600
