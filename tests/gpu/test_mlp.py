"""Multi-layer perceptrons as one operation, in Triton on a GPU."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import sharpwave as sw
from sharpwave.nn import FlatParameters
from sharpwave.nn import mlp as module
from sharpwave.nn.mlp import make_mlp
from sharpwave.nn.optimizers import Adam
from tests.gpu.host_sync import no_host_sync
from tests.unit.envs.tensor_envs import Points
from tests.unit.primitives.test_mlp import *  # noqa: F403

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.fixture
def device() -> torch.device:
    return torch.device("cuda", torch.cuda.current_device())


def learner(sizes: tuple[int, ...], seed: int = 0) -> tuple[Any, FlatParameters, Adam]:
    """A network, its parameters and their optimizer."""
    generator = np.random.default_rng(seed)
    net = make_mlp(sizes[0], sizes[1:-1], sizes[-1], "elu", generator)
    flat = FlatParameters(net, "cuda")
    return net, flat, Adam(flat, 1e-3)


def descend(net: Any, flat: FlatParameters, optimizer: Adam, x: Any, target: Any) -> Any:
    flat.backward((net.with_latent(x)[0] - target).square().mean())
    return optimizer.clip_and_step(0.5)


@pytest.mark.parametrize("sizes", [(48, 512, 256, 128, 12), (4, 64, 64, 2), (13, 33, 1)], ids=str)
def test_fifty_steps_are_those_of_the_plain_network(
    sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    x, target = torch.randn(5000, sizes[0]).cuda(), torch.randn(5000, sizes[-1]).cuda()
    found = []
    for as_one in (True, False):
        with monkeypatch.context() as patch:
            if not as_one:
                patch.setattr(module, "uses_triton", lambda _: False)
            parts = learner(sizes)
            norms = [float(descend(*parts, x, target)) for _ in range(50)]
            found.append((parts[1].data.clone(), norms))
    (one, norms), (other, plain_norms) = found
    assert (one - other).norm() < 1e-4 * other.norm()
    assert norms == pytest.approx(plain_norms, rel=1e-3)


@pytest.mark.parametrize("autocast", [False, True])
def test_a_step_never_waits_and_replays_in_a_graph(autocast: bool) -> None:
    net, flat, optimizer = learner((48, 128, 64, 12))
    x, target = torch.randn(5000, 48).cuda(), torch.randn(5000, 12).cuda()

    def step() -> Any:
        with torch.autocast("cuda", torch.bfloat16, enabled=autocast, cache_enabled=False):
            return descend(net, flat, optimizer, x, target)

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        step()
    torch.cuda.synchronize()
    with no_host_sync(), torch.cuda.stream(stream):
        step()
    torch.cuda.synchronize()
    before = flat.data.clone()
    state = {name: value.clone() for name, value in optimizer.arrays().items()}
    expected = float(step())
    after = flat.data.clone()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        norm = step()
    flat.data.copy_(before)
    optimizer.load_arrays(state)
    graph.replay()
    torch.testing.assert_close(flat.data, after, rtol=1e-5, atol=1e-6)
    assert float(norm) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("options", [{}, {"use_gsde": True}, {"cuda_graph": True}], ids=str)
def test_updates_of_ppo_are_those_of_plain_networks(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for as_one in (True, False):
        with monkeypatch.context() as patch:
            if not as_one:
                patch.setattr(module, "uses_triton", lambda _: False)
            ppo = sw.PPO(
                Points(256, "cuda"),
                device="cuda",
                n_steps=16,
                batch_size=2048,
                activation="elu",
                matmul="fp32",
                seed=0,
                **{"cuda_graph": False, **options},
            )
            ppo.learner.follow(1.0)
            batch = ppo.loop.collect()
            metrics = [ppo.learner.update(batch) for _ in range(5)]
            found.append((ppo.flat.data.clone(), [float(one["loss"]) for one in metrics]))
    (one, losses), (other, plain_losses) = found
    assert (one - other).norm() < 1e-4 * other.norm()
    assert losses == pytest.approx(plain_losses, rel=1e-3, abs=1e-5)


def test_large_networks_in_every_precision_are_near_float64(device: torch.device) -> None:
    torch.manual_seed(0)
    layers = [nn.Linear(48, 512), nn.ELU(), nn.Linear(512, 256), nn.ELU(), nn.Linear(256, 12)]
    exact = nn.Sequential(*layers).double().to(device)
    x, grad = torch.randn(24_576, 48, device=device), torch.randn(24_576, 12, device=device)
    zeros = torch.zeros(24_576, 256, dtype=torch.float64, device=device)
    correct = wanted(exact, x.double(), grad.double(), zeros)  # noqa: F405
    single = copy.deepcopy(exact).float()
    for matmul, bound in (("fp32", 1e-5), ("tf32", 3e-3), ("bf16", 3e-2)):
        with torch.autocast("cuda", torch.bfloat16, enabled=matmul == "bf16", cache_enabled=False):
            torch.backends.cuda.matmul.allow_tf32 = matmul == "tf32"
            found = as_one(single, x, grad, None)  # noqa: F405
            torch.backends.cuda.matmul.allow_tf32 = False
        for one, other in zip(found, correct, strict=True):
            assert (one.double() - other).norm() < bound * other.norm(), matmul
