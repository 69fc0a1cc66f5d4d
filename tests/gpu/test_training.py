"""Training on a CUDA device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import sharpwave as sw
from sharpwave.learners.batch import OnPolicyBatch
from tests.gpu.alike import assert_learned_alike
from tests.gpu.host_sync import no_host_sync
from tests.learning import probes

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


class Picture(probes.Identity):
    """The probe whose observation is a picture."""

    observation_space = spaces.Box(0, 255, (1, 36, 36), np.uint8)

    def observe(self) -> Any:
        return np.full((1, 36, 36), 255 if self.sign > 0 else 0, np.uint8)


def collected(algorithm: Any) -> OnPolicyBatch:
    algorithm.learner.follow(1.0)
    batch: OnPolicyBatch = algorithm.loop.collect()
    return batch


OPTIONS: dict[str, Any] = {"n_envs": 8, "n_steps": 32, "batch_size": 64, "n_epochs": 4}
VARIANTS: dict[str, dict[str, Any]] = {
    "mlp": {},
    "target-kl": {"target_kl": 0.01},
    "relu": {"activation": "relu", "clip_vloss": True},
    "gsde": {"use_gsde": True, "log_std_init": -2.0},
    "squash": {"squash_actions": True},
}


def env_of(variant: str) -> Any:
    return probes.ContinuousIdentity if variant in ("gsde", "squash") else probes.Identity


OF_ROBOTS: dict[str, dict[str, Any]] = {
    **VARIANTS,
    "adaptive": {"learning_rate": "adaptive", "target_kl": 0.02},
    "normalized": {"normalize_obs": "policy"},
}


@pytest.mark.parametrize("variant", OF_ROBOTS)
def test_an_update_never_waits_for_the_device(variant: str) -> None:
    ppo = sw.PPO(env_of(variant), device="cuda", **OPTIONS, **OF_ROBOTS[variant])
    ppo.update(collected(ppo))  # the first one lays out its constants
    batch = collected(ppo)
    with no_host_sync():
        metrics = ppo.update(batch)
    assert all(value.device.type == "cuda" for value in metrics.values())


@pytest.mark.parametrize("variant", VARIANTS)
def test_an_update_equals_that_on_the_cpu(variant: str) -> None:
    options = {**OPTIONS, **VARIANTS[variant], "batch_size": 256, "n_epochs": 3}
    on_cpu = sw.PPO(env_of(variant), backend="torch", **options)
    on_gpu = sw.PPO(env_of(variant), device="cuda", **options)
    on_gpu.policy.load_state_dict(on_cpu.policy.state_dict())
    batch = collected(on_cpu)
    on_gpu.learner.follow(1.0)
    columns: dict[str, Any] = {
        name: None if column is None else column.to("cuda") for name, column in vars(batch).items()
    }
    before = on_cpu.flat.data.clone()
    cpu_metrics, gpu_metrics = on_cpu.update(batch), on_gpu.update(OnPolicyBatch(**columns))
    for name, value in cpu_metrics.items():
        torch.testing.assert_close(gpu_metrics[name].cpu(), value, rtol=1e-3, atol=1e-4)
    moved = (on_cpu.flat.data - before).norm()
    assert (on_gpu.flat.data.cpu() - on_cpu.flat.data).norm() < 1e-2 * moved


@pytest.mark.parametrize("variant", OF_ROBOTS)
def test_graphs_learn_the_same(variant: str) -> None:
    options = {**OPTIONS, **OF_ROBOTS[variant], "device": "cuda", "seed": 7}
    plain, graphed = (
        sw.PPO(env_of(variant), cuda_graph=graph, **options) for graph in (False, True)
    )
    first = plain.flat.data.clone()
    plain.train(8 * 32 * 6)
    graphed.train(8 * 32 * 6)
    assert_learned_alike(graphed.flat.data, plain.flat.data, first)


@pytest.mark.parametrize("options", [{}, {"recurrent": "lstm"}], ids=["plain", "recurrent"])
def test_learns_the_identity(options: dict[str, Any]) -> None:
    ppo = sw.PPO(probes.Identity, device="cuda", learning_rate=3e-3, **OPTIONS, **options)
    ppo.train(4_000)
    assert [ppo.predict(np.array([sign], np.float32)) for sign in (-1, 1)] == [0, 1]


def test_learns_from_pictures() -> None:
    ppo = sw.PPO(Picture, device="cuda", learning_rate=3e-4, cuda_graph=True, seed=0, **OPTIONS)
    ppo.train(3_000)
    assert ppo.evaluate(20).mean == 1.0


def test_a2c_learns_the_identity() -> None:
    a2c = sw.A2C(probes.Identity, device="cuda", learning_rate=5e-3)
    a2c.train(6_000)
    assert a2c.evaluate(20).mean == 1.0


def test_a_checkpoint_moves_between_devices(tmp_path: Any) -> None:
    on_gpu = sw.PPO(probes.Identity, device="cuda", **OPTIONS)
    on_gpu.train(600)
    on_gpu.save(tmp_path / "a")
    on_cpu = sw.PPO.from_checkpoint(tmp_path / "a", probes.Identity, device="cpu")
    weights = on_gpu.flat.data.cpu()
    torch.testing.assert_close(torch.from_numpy(on_cpu.block), weights, rtol=0, atol=0)
    on_cpu.train(300)
