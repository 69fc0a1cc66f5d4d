"""Rollouts that are replayed as CUDA graphs."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import sharpwave as sw
from tests.gpu.host_sync import no_host_sync
from tests.unit.envs.tensor_envs import NamedPoints, Points, ReusingPoints

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

OPTIONS: dict[str, Any] = {"n_steps": 7, "batch_size": 64, "device": "cuda", "seed": 3}


class InPlace(Points):
    """Points whose state stays in the same memory."""

    capturable = True

    def reset(self, *, seed: int | None = None) -> Any:
        if not hasattr(self, "state"):
            return super().reset(seed=seed)
        if seed is not None:
            self.generator.manual_seed(seed)
        self.state.copy_(self._first())
        self.time.zero_()
        return self.observe(self.state), {}

    def step(self, actions: Any) -> Any:
        state, time = self.state, self.time
        found = super().step(actions)
        state.copy_(self.state)
        time.copy_(self.time)
        self.state, self.time = state, time
        return found


class Rebound(Points):
    """One that says that it can be captured, and cannot."""

    capturable = True


def rollouts(env: Any, n: int, *, graphed: bool, **options: Any) -> tuple[Any, list[Any]]:
    ppo = sw.PPO(env, **{**OPTIONS, **options})
    assert (ppo.collector.graphs is not None) is not options.get("use_gsde", False)
    if not graphed:
        ppo.collector.graphs = None
    found = []
    for _ in range(n):
        batch = ppo.loop.collect()
        assert batch is not None
        found.append({k: _copy(v) for k, v in vars(batch).items() if v is not None})
        with torch.no_grad():  # other weights for the next
            ppo.flat.data.add_(0.01)
    return ppo, found


def _copy(tree: Any) -> Any:
    return {k: _copy(v) for k, v in tree.items()} if isinstance(tree, dict) else tree.clone()


CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "plain": (Points, {}),
    "dict": (NamedPoints, {}),
    "reused": (ReusingPoints, {}),
    "no-final": (lambda *args: Points(*args, tells_final=False), {}),
    "squashed": (Points, {"squash_actions": True}),
    "recurrent": (Points, {"recurrent": "gru"}),
    "captured": (InPlace, {}),
    "captured-recurrent": (InPlace, {"recurrent": "lstm"}),
}


@pytest.mark.parametrize("name", CASES)
def test_a_replayed_rollout_is_that_of_the_collector(name: str) -> None:
    make, options = CASES[name]
    if name == "reused":
        pytest.skip("its masks need discrete actions")
    _, plain = rollouts(make(64, "cuda"), 5, graphed=False, **options)
    ppo, graphed = rollouts(make(64, "cuda"), 5, graphed=True, **options)
    assert len(ppo.collector.graphs._graphs) == (1 if name.startswith("captured") else 8)
    assert ppo.timesteps == 5 * 64 * 7
    for expected, found in zip(plain, graphed, strict=True):
        for column, value in expected.items():
            torch.testing.assert_close(found[column], value, rtol=0, atol=0)


@pytest.mark.parametrize("make", [Points, InPlace])
def test_an_iteration_never_waits_for_the_device(make: Any) -> None:
    ppo = sw.PPO(make(64, "cuda"), **OPTIONS)
    ppo.train(64 * 7 * 6)
    with no_host_sync():
        steps = ppo.collector.steps
        steps.check = lambda _: None  # the one that reads
        metrics = ppo.learner.update(ppo.loop.collect())
    assert float(metrics["loss"]) == float(metrics["loss"])


def test_training_with_graphs_is_training_without() -> None:
    agents = []
    for graphed in (False, True):
        ppo = sw.PPO(InPlace(64, "cuda"), **OPTIONS, cuda_graph=graphed)
        assert (ppo.collector.graphs is not None) is graphed
        ppo.train(64 * 7 * 8)
        agents.append(ppo)
    plain, graphs = agents
    torch.testing.assert_close(graphs.flat.data, plain.flat.data, rtol=1e-3, atol=1e-4)
    assert graphs.episodes.count == plain.episodes.count > 0
    assert graphs.episodes.returns == pytest.approx(plain.episodes.returns, rel=1e-4)


def test_an_environment_that_moves_its_state_cannot_be_captured() -> None:
    ppo = sw.PPO(Rebound(64, "cuda"), **OPTIONS)
    with pytest.raises(ValueError, match=r"env must keep its state in the same memory.*state"):
        ppo.train(64 * 7 * 3)


@pytest.mark.parametrize("matmul", ["tf32", "bf16", "fp32", None])
def test_every_precision_learns(matmul: str | None) -> None:
    ppo = sw.PPO(
        InPlace(512, "cuda"),
        device="cuda",
        n_steps=16,
        batch_size=2048,
        gamma=0.9,
        learning_rate=3e-3,
        hidden=(32,),
        seed=0,
        matmul=matmul,
    )
    before = ppo.evaluate(64, env=Points(64, "cuda")).mean
    ppo.train(200_000)
    assert ppo.evaluate(64, env=Points(64, "cuda")).mean > before / 3
    assert torch.backends.cuda.matmul.allow_tf32 is False
