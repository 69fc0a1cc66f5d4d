"""Training scripts for rsl_rl on a CUDA device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from sharpwave.compat.rsl_rl.runners import OnPolicyRunner
from sharpwave.tensors import TensorCollector
from tests.gpu.host_sync import no_host_sync
from tests.unit.compat.rsl_rl.robots import config, env_for
from tests.unit.compat.rsl_rl.test_extensions import curious

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize("make_config", [config, curious])
def test_steps_never_wait_for_the_device(make_config: Any) -> None:
    runner = OnPolicyRunner(env_for(5, 64, device="cuda:0"), make_config(5), device="cuda:0")
    collector = runner.agent.collector
    assert isinstance(collector, TensorCollector)
    runner.learn(1)  # which makes the buffer
    collector.buffer.reset()  # type: ignore[union-attr]
    with no_host_sync():
        for _ in range(8):
            collector.step()


def test_points_are_pushed_back(tmp_path: Path) -> None:
    env = env_for(5, 512, device="cuda:0")
    runner = OnPolicyRunner(env, config(5), str(tmp_path), device="cuda:0")
    runner.learn(60)
    assert runner.agent.episodes.mean_return > -0.3
    played = OnPolicyRunner(env_for(5), config(5))
    played.load(tmp_path / "model_59.pt")
    obs = dict(env.get_observations().items())
    here, there = runner.get_inference_policy("cpu"), played.get_inference_policy()
    on_host = {name: x.cpu() for name, x in obs.items()}
    assert here(on_host).device.type == "cpu"
    assert torch.allclose(here(on_host), there(on_host), atol=1e-6)
    assert torch.allclose(runner.get_inference_policy()(obs).cpu(), there(on_host), atol=1e-2)
