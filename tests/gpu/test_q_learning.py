"""Q-learning on a CUDA device."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

import sharpwave as sw
from sharpwave.core.tree import map_leaves
from tests.gpu.host_sync import no_host_sync
from tests.gpu.test_training import Picture
from tests.learning import probes

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

OPTIONS: dict[str, Any] = {
    "n_envs": 8,
    "hidden": (32, 32),
    "learning_starts": 200,
    "learning_rate": 5e-3,
    "target_update_freq": 80,
    "exploration_fraction": 0.5,
    "gamma": 0.8,
    "seed": 1,
}
KINDS: dict[str, Any] = {
    "dqn": sw.DQN,
    "dueling": partial(sw.DQN, dueling=True, prioritized=True, n_step=3),
    "noisy": partial(sw.DQN, noisy=True),
    "c51": partial(sw.C51, v_min=-2.0, v_max=6.0),
    "qr_dqn": partial(sw.QRDQN, n_quantiles=20),
}
every_kind = pytest.mark.parametrize("kind", KINDS)


@every_kind
@pytest.mark.parametrize("cuda_graph", [False, True], ids=["", "graph"])
def test_identity(kind: str, cuda_graph: bool) -> None:
    algo = KINDS[kind](probes.Identity, device="cuda", cuda_graph=cuda_graph, **OPTIONS)
    algo.train(3000)
    assert [algo.predict(np.array([sign], np.float32)) for sign in (-1, 1)] == [0, 1]


@every_kind
@pytest.mark.parametrize("env", [probes.Identity, probes.MultiIdentity, probes.OnlyAllowed])
def test_a_gradient_step_does_what_it_does_on_the_cpu(kind: str, env: Any) -> None:
    if kind == "noisy":
        pytest.skip("each device has random numbers of its own")
    options = {**OPTIONS, "learning_starts": 10_000, "backend": "torch"}
    here, there = (KINDS[kind](env, device=device, **options) for device in ("cpu", "cuda"))
    here.train(400)
    batch = here.sampler.sample()
    for algo in (here, there):
        algo.learner.follow(1.0)
    columns = {k: v for k, v in vars(batch).items() if k != "indices" and v is not None}
    copied = type(batch)(**{k: map_leaves(lambda t: t.cuda(), v) for k, v in columns.items()})
    found, expected = there.learner.update(copied), here.learner.update(batch)
    for name, value in expected.items():
        torch.testing.assert_close(found[name].cpu(), value, rtol=1e-3, atol=1e-4)
    grads = (algo.flats["q_network"].grad.cpu() for algo in (there, here))
    torch.testing.assert_close(*grads, rtol=1e-3, atol=1e-4)


@every_kind
def test_a_gradient_step_does_not_wait(kind: str) -> None:
    algo = KINDS[kind](probes.Identity, device="cuda", **OPTIONS)
    algo.train(400)
    batch = algo.sampler.sample()
    algo.learner.update(batch)
    with no_host_sync():
        algo.learner.update(batch)


def test_pictures() -> None:
    algo = sw.DQN(Picture, device="cuda", **{**OPTIONS, "hidden": (), "learning_rate": 1e-3})
    algo.train(2000)
    pictures = [np.full((1, 36, 36), value, np.uint8) for value in (0, 255)]
    assert [algo.predict(picture) for picture in pictures] == [0, 1]
