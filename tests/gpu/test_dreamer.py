"""DreamerV3 on a CUDA device: graphs, buffers there, and no waiting."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import sharpwave as sw
from tests.gpu.host_sync import no_host_sync

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

SMALL: dict[str, Any] = {
    "deter": 32,
    "hidden": 16,
    "latents": 4,
    "classes": 4,
    "units": 16,
    "blocks": 4,
    "batch_size": 4,
    "sequence_length": 8,
    "imag_last": 4,
    "warmup": 0,
    "seed": 0,
}


def made(**options: Any) -> Any:
    return sw.DreamerV3("CartPole-v1", device="cuda", **{**SMALL, **options})


def losses_over(agent: Any, batches: list[Any]) -> np.ndarray[Any, Any]:
    found = []
    for batch in batches:
        metrics = agent.learner.update(batch)
        found.append([metrics[k].item() for k in sorted(metrics) if metrics[k].ndim == 0])
    return np.array(found)


def batches_of(agent: Any, n: int) -> list[Any]:
    from dataclasses import fields

    found = []
    for _ in range(n):
        batch = agent.loop.sample()
        columns = {field.name: getattr(batch, field.name) for field in fields(batch)}
        copies = {k: x.clone() if isinstance(x, torch.Tensor) else x for k, x in columns.items()}
        found.append(type(batch)(**copies))
    return found


def test_a_graph_gives_the_losses_of_single_operations() -> None:
    eager, graph = made(), made(cuda_graph=True)
    eager.train(60)
    graph.learner.load_state_dict(eager.learner.state_dict())
    batches = batches_of(eager, 50)
    one, other = (losses_over(agent, batches) for agent in (eager, graph))
    np.testing.assert_allclose(one[:10], other[:10], rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(one.mean(0), other.mean(0), rtol=0.05, atol=0.02)


@pytest.mark.parametrize("buffer", ["memory", "device"])
def test_it_trains_with_graphs_wherever_the_buffer_is(buffer: str) -> None:
    agent = made(cuda_graph=True, buffer=buffer, n_envs=4)
    before = agent.learner.flats["policy"].data.clone()
    metrics = agent.train(100)
    assert agent.learner.updates > 10
    assert all(np.isfinite(value) for value in metrics.values())
    assert not torch.equal(before, agent.learner.flats["policy"].data)
    assert agent.predict([0.0, 0.1, 0.0, -0.1]) in (0, 1)


def test_a_gradient_step_with_its_draw_never_waits_for_the_device() -> None:
    agent = made(buffer="device")
    agent.train(100)
    loop = agent.loop
    loop.report(*(lambda batch: (batch, agent.learner.update(batch)))(loop.sample()))
    with no_host_sync():
        batch = loop.sample()
        loop.report(batch, agent.learner.update(batch))
