"""PPO's learner with kernels, beside the one that autograd differentiates."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import sharpwave as sw
from sharpwave.algorithms.ppo import FusedPPOLearner, PPOLearner
from tests.unit.envs.tensor_envs import Points
from tests.unit.learners.test_fused import ACTIONS, OPTIONS, batch, learner

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


class Definition(PPOLearner):
    """The learner without kernels."""


def test_it_is_chosen_and_says_so() -> None:
    ppo = sw.PPO(Points(16, "cuda"), device="cuda")
    assert type(ppo.learner) is FusedPPOLearner
    assert ppo.backend_reason == "device is 'cuda', with fused kernels"
    assert ppo.learner.acts_in_graphs
    other = sw.PPO(Points(16, "cuda"), device="cuda", recurrent="gru")
    assert type(other.learner) is PPOLearner
    assert "without fused kernels, since recurrent is 'gru'" in other.backend_reason


@pytest.mark.parametrize("actions", ACTIONS)
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("graph", [False, True])
def test_fifty_updates_are_those_of_the_definition(
    actions: str, options: dict[str, Any], graph: bool
) -> None:
    options = {"matmul": "fp32", "cuda_graph": graph, **options}
    plain, fused = (learner(k, actions, "cuda", **options) for k in (Definition, None))
    assert type(fused) is FusedPPOLearner
    first = plain.flat.data.clone()
    for seed in range(50):
        rows = batch(plain, seed)
        expected, found = plain.update(rows), fused.update(rows)
        for name, value in expected.items():
            torch.testing.assert_close(found[name], value, rtol=1e-3, atol=1e-4)
    moved = (plain.flat.data - first).norm()
    assert (fused.flat.data - plain.flat.data).norm() < 1e-3 * moved


@pytest.mark.parametrize("actions", ACTIONS)
def test_a_rounded_gradient_is_near_the_definition(actions: str) -> None:
    options: dict[str, Any] = {"matmul": "tf32", "hidden": (64, 64)}
    plain, fused = (learner(k, actions, "cuda", **options) for k in (Definition, None))
    made, rows = batch(plain, 0), torch.arange(90, device="cuda")
    for one in (plain, fused):  # away from where ratios are all 1
        one.flat.data.mul_(1.1)
    expected, found = plain.differentiate(made, rows), fused.differentiate(made, rows)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=2e-2, atol=2e-2)
    norm = plain.flat.grad.norm()
    assert norm > 0
    assert (fused.flat.grad - plain.flat.grad).norm() < 0.03 * norm


@pytest.mark.parametrize("activation", ["tanh", "relu", "elu"])
@pytest.mark.parametrize("graph", [False, True])
def test_rollouts_are_those_of_the_definition(activation: str, graph: bool) -> None:
    options: dict[str, Any] = {
        "device": "cuda",
        "n_steps": 7,
        "matmul": "fp32",
        "seed": 3,
        "cuda_graph": graph,
        "activation": activation,
    }
    agents = [sw.PPO(Points(64, "cuda"), learner=k, **options) for k in (Definition, None)]
    for _ in range(3):
        expected, found = (agent.loop.collect() for agent in agents)
        for name in ("obs", "actions", "log_probs", "values", "advantages", "returns"):
            one, other = getattr(found, name), getattr(expected, name)
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("actions", ACTIONS)
@pytest.mark.parametrize("matmul", ["fp32", "tf32"])
def test_a_step_is_that_of_the_definition(actions: str, matmul: str) -> None:
    plain, fused = (learner(k, actions, "cuda", matmul=matmul) for k in (Definition, None))
    obs = torch.randn(4096, 5, device="cuda")
    with plain.inference():
        expected, found = plain.act(obs, explore=True), fused.act(obs, explore=True)
    bound = 1e-2 if matmul == "tf32" else 1e-4
    near: dict[str, Any] = {"rtol": bound, "atol": bound}
    apart = (found.actions - expected.actions).reshape(4096, -1).abs().amax(1)
    same = apart <= bound * (1 + found.actions.reshape(4096, -1).abs().amax(1))
    assert same.float().mean() > 0.99  # a rounding may tip a choice
    torch.testing.assert_close(found.log_probs[same], expected.log_probs[same], **near)
    torch.testing.assert_close(found.values, expected.values, **near)


@pytest.mark.parametrize("matmul", ["tf32", "bf16", "fp32"])
def test_it_learns_in_every_precision(matmul: str) -> None:
    ppo = sw.PPO(
        Points(512, "cuda"),
        device="cuda",
        n_steps=16,
        batch_size=2048,
        gamma=0.9,
        learning_rate=3e-3,
        hidden=(32, 32),
        seed=0,
        matmul=matmul,
    )
    assert type(ppo.learner) is FusedPPOLearner
    before = ppo.evaluate(64, env=Points(64, "cuda")).mean
    ppo.train(200_000)
    assert ppo.evaluate(64, env=Points(64, "cuda")).mean > before / 3
