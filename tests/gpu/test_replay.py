"""Learning from replay on a CUDA device."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import sharpwave as sw
from sharpwave.learners.replay import ReplayBatch
from sharpwave.nn.custom_replay import CustomCritics
from sharpwave.tensors.staging import Staging
from tests.envs import BitFlipEnv, BoxActionEnv, CountingEnv, MaskedEnv, ReachEnv
from tests.gpu.alike import assert_learned_alike
from tests.gpu.host_sync import no_host_sync
from tests.learning import probes

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

OPTIONS: dict[str, Any] = {
    "hidden": (32, 32),
    "batch_size": 32,
    "learning_starts": 64,
    "buffer_size": 2000,
    "log_interval": 50,
    "device": "cuda",
    "seed": 7,
}


class Picture(probes.Identity):
    """The probe whose observation is a picture."""

    observation_space = spaces.Box(0, 255, (1, 36, 36), np.uint8)

    def observe(self) -> Any:
        return np.full((1, 36, 36), 255 if self.sign > 0 else 0, np.uint8)


CASES: dict[str, Callable[..., Any]] = {
    "sac": partial(sw.SAC, BoxActionEnv),
    "sac-slow-targets": partial(sw.SAC, BoxActionEnv, target_update_interval=3),
    "sac-n-step": partial(sw.SAC, BoxActionEnv, n_step=3, n_envs=2),
    "sac-prioritized": partial(sw.SAC, BoxActionEnv, prioritized=True),
    "sac-normalized": partial(sw.SAC, BoxActionEnv, normalize_obs=True, normalize_rewards=True),
    "sac-goals": partial(sw.SAC, ReachEnv, her_goals=4),
    "sac-device": partial(sw.SAC, "Pendulum-v1", buffer="device"),
    "sac-device-prioritized": partial(sw.SAC, "Pendulum-v1", buffer="device", prioritized=True),
    "dqn-device": partial(sw.DQN, "CartPole-v1", buffer="device"),
    "td3": partial(sw.TD3, BoxActionEnv),
    "tqc": partial(sw.TQC, BoxActionEnv),
    "crossq": partial(sw.CrossQ, BoxActionEnv),
    "dqn": partial(sw.DQN, CountingEnv, target_update_freq=30),
    "dqn-soft": partial(sw.DQN, CountingEnv, tau=0.01),
    "dqn-noisy": partial(sw.DQN, CountingEnv, noisy=True, dueling=True),
    "dqn-masked": partial(sw.DQN, partial(MaskedEnv, (4,))),
    "dqn-goals-prioritized": partial(sw.DQN, BitFlipEnv, her_goals=4, prioritized=True),
    "c51": partial(sw.C51, CountingEnv),
    "qr-dqn": partial(sw.QRDQN, CountingEnv),
    "discrete-sac": partial(sw.DiscreteSAC, CountingEnv),
}

cases = pytest.mark.parametrize("case", CASES)


def flat_weights(algorithm: Any) -> torch.Tensor:
    networks = algorithm.networks.values()
    return torch.cat([p.detach().flatten() for net in networks for p in net.parameters()])


@cases
def test_gradient_steps_never_wait_for_the_device(case: str) -> None:
    algorithm = CASES[case](**OPTIONS)
    algorithm.train(200)
    prioritized = algorithm.config.prioritized
    sampler = algorithm.sampler
    torch.cuda.synchronize()
    for _ in range(4):
        with no_host_sync():
            batch = sampler.as_batch(sampler.draw())
            measured = algorithm.learner.update(batch)
        algorithm.loop.report(batch, measured)  # only priorities come back
        assert all(value.device.type == "cuda" for value in measured.values())
        assert (batch.indices is not None) == prioritized


@cases
def test_graphs_learn_the_same(case: str) -> None:
    plain, graphed = (CASES[case](cuda_graph=graph, **OPTIONS) for graph in (False, True))
    first = flat_weights(plain)
    plain.train(250)
    graphed.train(250)
    assert graphed.learner.update.__self__._graphs._graphs
    assert_learned_alike(flat_weights(graphed), flat_weights(plain), first)


@pytest.mark.parametrize("case", ["dqn", "c51", "qr-dqn"])  # which draw no noise to learn
def test_a_gradient_step_equals_that_on_the_cpu(case: str) -> None:
    on_gpu = CASES[case](**OPTIONS)
    on_cpu = CASES[case](**{**OPTIONS, "device": "cpu", "backend": "torch"})
    on_cpu.train(80)
    for name, network in on_cpu.networks.items():
        on_gpu.networks[name].load_state_dict(network.state_dict())
    for name, optimizer in on_cpu.optimizers.items():
        on_gpu.optimizers[name].load_arrays(optimizer.arrays())
    batch = on_cpu.sampler.sample()
    columns: dict[str, Any] = {
        name: value.to("cuda") if isinstance(value, torch.Tensor) else value
        for name, value in vars(batch).items()
    }
    before = flat_weights(on_cpu)
    on_gpu.learner.updates = on_cpu.learner.updates
    on_gpu.learner.load_extra_state(on_cpu.learner.extra_state())
    cpu_metrics = on_cpu.learner.update(batch)
    gpu_metrics = on_gpu.learner.update(ReplayBatch(**columns))
    for name, value in cpu_metrics.items():
        torch.testing.assert_close(gpu_metrics[name].cpu(), value, rtol=1e-3, atol=1e-4)
    moved = (flat_weights(on_cpu) - before).norm()
    assert (flat_weights(on_gpu).cpu() - flat_weights(on_cpu)).norm() < 1e-2 * moved


@pytest.mark.parametrize("graph", [False, True])
def test_overlapping_runs_are_the_same_twice(graph: bool) -> None:
    runs = [
        sw.SAC(BoxActionEnv, overlap=True, train_freq=2, cuda_graph=graph, **OPTIONS)
        for _ in range(2)
    ]
    first = flat_weights(runs[0])
    for run in runs:
        run.train(250)
    assert_learned_alike(flat_weights(runs[0]), flat_weights(runs[1]), first)


@pytest.mark.parametrize("graph", [False, True])
def test_learns_the_identity(graph: bool) -> None:
    options = {**OPTIONS, "learning_rate": 3e-3, "cuda_graph": graph}
    dqn = sw.DQN(probes.Identity, **options)
    dqn.train(1_500)
    assert [dqn.predict(np.array([sign], np.float32)) for sign in (-1, 1)] == [0, 1]
    sac = sw.SAC(probes.ContinuousIdentity, **options)
    sac.train(1_500)
    for sign in (-1, 1):
        action = sac.predict(np.array([sign], np.float32))
        assert action == pytest.approx(sign / 2, abs=0.35)


def test_learns_from_pictures() -> None:
    dqn = sw.DQN(Picture, cuda_graph=True, **{**OPTIONS, "learning_rate": 1e-3})
    dqn.train(1_000)
    assert dqn.evaluate(20).mean == 1.0


def test_a_checkpoint_moves_between_devices(tmp_path: Any) -> None:
    on_gpu = sw.SAC(BoxActionEnv, save_buffer=True, **OPTIONS)
    on_gpu.train(200)
    on_gpu.save(tmp_path / "a")
    options = {"device": "cpu", "backend": "torch"}
    on_cpu = sw.SAC.from_checkpoint(tmp_path / "a", BoxActionEnv, **options)
    torch.testing.assert_close(flat_weights(on_cpu), flat_weights(on_gpu).cpu(), rtol=0, atol=0)
    on_cpu.train(50)
    assert len(on_cpu.buffer) == 250


@pytest.mark.filterwarnings("ignore")  # of the compiler
@pytest.mark.parametrize("graph", [False, True])
def test_compiled_losses_learn(graph: bool) -> None:
    sac = sw.SAC(BoxActionEnv, compile=True, cuda_graph=graph, **OPTIONS)
    metrics = sac.train(150)
    assert np.isfinite(metrics["critic_loss"])


def test_batches_are_copied_while_the_next_one_is_written() -> None:
    example = {"obs": np.zeros((64, 1000), np.float32), "flags": np.zeros(64, np.bool_)}
    staging = Staging(example, torch.device("cuda"))
    found = []
    for value in range(50):
        memory = staging.memory()
        memory["obs"][:] = value
        memory["flags"][:] = value % 2
        tensors = staging.send()
        found.append((tensors["obs"].sum(), tensors["flags"].sum()))
    for value, (total, flags) in enumerate(found):
        assert total.item() == value * 64_000
        assert flags.item() == 64 * (value % 2)


class Critic(torch.nn.Module):
    """A critic of a user's."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Linear(4, 1)

    def forward(self, obs: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        values: torch.Tensor = self.net(torch.cat((obs, actions), -1))
        return values


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_weights_of_copied_critics_leave_the_global_generators_alone(device: str) -> None:
    module = Critic().to(device)
    before = torch.get_rng_state(), torch.cuda.get_rng_state()
    copies = [CustomCritics(module, 2, np.random.default_rng(seed)) for seed in (0, 0, 1)]
    assert torch.equal(before[0], torch.get_rng_state())
    assert torch.equal(before[1], torch.cuda.get_rng_state())
    first, same, other = (critics.state_dict()["members.1.net.weight"] for critics in copies)
    assert torch.equal(first, same)
    assert not torch.equal(first, other)
    assert not torch.equal(first, module.net.weight)


def test_runs_are_the_same_twice() -> None:
    runs = [sw.SAC(BoxActionEnv, prioritized=True, **OPTIONS) for _ in range(2)]
    first = flat_weights(runs[0])
    for run in runs:
        run.train(150)
    assert_learned_alike(flat_weights(runs[0]), flat_weights(runs[1]), first)


@pytest.mark.parametrize("options", [{}, {"prioritized": True}, {"cuda_graph": True}])
@pytest.mark.parametrize(("cls", "env"), [(sw.DQN, "CartPole-v1"), (sw.SAC, "Pendulum-v1")])
def test_replay_on_the_device(cls: Any, env: str, options: dict[str, Any]) -> None:
    agent = cls(env, device="cuda", buffer="device", learning_starts=200, batch_size=64, **options)
    metrics = agent.train(600)
    learned = agent.learner.update(agent.sample()).keys() - {"td_errors"}
    assert agent.buffer.gather([0]).observations.device.type == "cuda"
    assert all(torch.isfinite(torch.as_tensor(metrics[name])) for name in learned)
