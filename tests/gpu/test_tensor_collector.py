"""Rollouts that stay on a CUDA device."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import sharpwave as sw
from sharpwave.tensors import HostSteps, TensorCollector, TensorSteps
from tests.gpu.host_sync import no_host_sync
from tests.unit.envs.tensor_envs import NamedPoints, Points

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize("make", [Points, NamedPoints])
@pytest.mark.parametrize("tells_final", [True, False])
def test_steps_never_wait_for_the_device(make: Any, tells_final: bool) -> None:
    env = make(64, "cuda", tells_final=tells_final)
    ppo = sw.PPO(env, device="cuda", n_steps=32, batch_size=512)
    assert isinstance(ppo.collector, TensorCollector)
    assert isinstance(ppo.collector.steps, TensorSteps)
    ppo.collector.collect(0.99, 0.95)  # the first one makes the buffer
    ppo.collector.buffer.reset()  # type: ignore[union-attr]
    with no_host_sync():
        for _ in range(32):
            ppo.collector.step()
        ppo.collector.compute_advantages()
    assert ppo.collector.buffer is not None
    columns = ppo.collector.columns(ppo.collector.buffer, sequences=False)
    assert columns["advantages"].device.type == "cuda"


def test_an_agent_learns_without_leaving_the_device() -> None:
    ppo = sw.PPO(
        Points(512, "cuda"),
        device="cuda",
        n_steps=16,
        batch_size=2048,
        gamma=0.9,
        learning_rate=3e-3,
        hidden=(32,),
    )
    before = ppo.evaluate(64, env=Points(64, "cuda")).mean
    ppo.train(200_000)
    assert ppo.evaluate(64, env=Points(64, "cuda")).mean > before / 3


def test_experience_of_the_host_is_kept_on_the_device() -> None:
    ppo = sw.PPO("CartPole-v1", device="cuda", n_envs=8, n_steps=32)
    assert isinstance(ppo.collector, TensorCollector)
    assert isinstance(ppo.collector.steps, HostSteps)
    ppo.train(512)
    assert ppo.collector.buffer is not None
    assert ppo.collector.buffer.stored("obs").device.type == "cuda"
    assert ppo.episodes.count > 0
