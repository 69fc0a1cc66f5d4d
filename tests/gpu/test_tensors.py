"""Tensor buffers on a CUDA device: what never waits, and what a graph can replay."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import sharpwave as sw
from tests.gpu.host_sync import no_host_sync

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

N = 64


def on_device(shape: tuple[int, ...]) -> torch.Tensor:
    return torch.randn(shape, device="cuda")


def tracker() -> sw.StatsTracker:
    return sw.StatsTracker(N, extra_metrics_keys=["score"], done_reason_keys=["fell"])


def replay_step() -> dict[str, Any]:
    done = on_device((N,)) > 0
    return {
        "obs": {"a": on_device((N, 3)), "b": on_device((N,))},
        "action": on_device((N, 2)),
        "reward": on_device((N,)),
        "done": done,
        "next_obs": {"a": on_device((N, 3)), "b": on_device((N,))},
        "truncated": done & (on_device((N,)) > 0),
        "infos": {"score": on_device((N,))},
        "done_reasons": {"fell": done},
    }


@pytest.mark.parametrize("store", ["cuda", "cpu"])
@pytest.mark.parametrize("cls", [sw.TensorReplayBuffer, sw.TensorPrioritizedReplayBuffer])
def test_replay_never_waits_for_the_device(cls: Any, store: str) -> None:
    buffer = cls(8, N, {"a": (3,), "b": ()}, (2,), tracker(), device="cuda", store_device=store)
    for _ in range(3):
        buffer.add(**replay_step())
        buffer.get(4)
    with no_host_sync():
        for _ in range(20):
            buffer.add(**replay_step())
            batch = buffer.get(32)
            if store == "cuda" and hasattr(batch, "indices"):
                buffer.update_priorities(batch.indices, batch.rewards)
    assert buffer.stats_tracker.episode_count > 0
    assert batch.observations["a"].is_cuda


@pytest.mark.parametrize("store", ["cuda", "cpu"])
def test_rollouts_never_wait_for_the_device(store: str) -> None:
    buffer = sw.RolloutBuffer(6, N, (3,), (2,), tracker(), device="cuda", store_device=store)
    for round_ in range(3):
        with no_host_sync() if round_ else torch.no_grad():
            for _ in range(6):
                row = on_device((N,))
                done = row > 0
                buffer.add(on_device((N, 3)), on_device((N, 2)), row, done, row, row, done, row)
            if store == "cuda":
                buffer.compute_returns_and_advantages(row, done)
                buffer.normalize_advantages()
                for batch in buffer.get(100):
                    assert batch.observations.is_cuda
                for batch in buffer.get(7, sequences=True):
                    assert batch.returns.is_cuda
        buffer.reset()


def test_batches_from_host_memory_are_whole_while_the_device_is_busy() -> None:
    buffer = sw.TensorReplayBuffer(64, N, (256,), (), device="cuda", store_device="cpu")
    for t in range(64):
        row = torch.arange(N, device="cuda") + t * N
        wide = row[:, None].float().expand(N, 256)
        buffer.add(wide, row, row, row * 0, wide)
    weights = on_device((2048, 2048))
    found = []
    for _ in range(30):
        weights = torch.tanh(weights @ weights)
        batch = buffer.get(2048)
        found.append((batch.observations == batch.rewards[:, None]).all())
    assert torch.stack(found).all()


def test_statistics_equal_those_of_the_cpu() -> None:
    on_gpu, on_cpu = tracker(), tracker()
    for _ in range(50):
        step = replay_step()
        rows = (step["done"], step["reward"], step["infos"], step["done_reasons"])
        on_gpu.update(*rows)
        infos = {"score": step["infos"]["score"].cpu()}
        on_cpu.update(step["done"].cpu(), step["reward"].cpu(), infos, {"fell": step["done"].cpu()})
    assert on_gpu.get_statistics() == pytest.approx(on_cpu.get_statistics())
    assert on_gpu.get_statistics().detailed == pytest.approx(on_cpu.get_statistics().detailed)
