"""Networks as one operation give the same numbers and gradients as layer by layer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from sharpwave import nn
from sharpwave.nn import fused, mlp, stacked

BOX = spaces.Box(-1.0, 1.0, (5,))


@pytest.fixture(autouse=True)
def _few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces and batches small enough to test."""
    monkeypatch.setattr(fused, "MANY", 1)
    monkeypatch.setattr(fused, "PIECE", 8)
    monkeypatch.setattr(fused, "LARGE", 1)


def layer_by_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (mlp, stacked):
        monkeypatch.setattr(module, "can_fuse", lambda *_: False)


def outcome(network: Any, *inputs: torch.Tensor) -> list[torch.Tensor]:
    """Output, and the gradients of inputs and parameters for a loss that weighs all outputs."""
    network.zero_grad()
    leaves = [value.clone().requires_grad_() for value in inputs]
    output = network(*leaves)
    weights = torch.linspace(-1, 1, output.numel()).view_as(output)
    (output * weights).sum().backward()
    gradients = [leaf.grad for leaf in leaves] + [p.grad.clone() for p in network.parameters()]
    return [output.detach(), *gradients]


@pytest.mark.parametrize("rows", [1, 8, 20])
@pytest.mark.parametrize("activation", ["relu", "tanh"])
class TestSame:
    def networks(self, activation: str) -> dict[str, Any]:
        options: dict[str, Any] = {
            "hidden": (16, 12),
            "activation": activation,
            "generator": np.random.default_rng(0),
        }
        return {
            "critics": nn.Critics(BOX, 2, n_critics=3, **options),
            "quantiles": nn.Critics(BOX, 2, n_outputs=4, **options),
            "value": nn.ValueFunction(BOX, **options),
            "actor": nn.DeterministicActor(BOX, 2, **options),
            "choice": nn.CategoricalActor(BOX, 4, **options),
        }

    @pytest.mark.long(but=["relu-1"])
    def test_outputs_and_gradients(
        self, activation: str, rows: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name, network in self.networks(activation).items():
            inputs = [torch.randn(rows, 5, generator=torch.Generator().manual_seed(1))]
            if name in ("critics", "quantiles"):
                inputs.append(torch.randn(rows, 2, generator=torch.Generator().manual_seed(2)))
            found = outcome(network, *inputs)
            with monkeypatch.context() as patch:
                layer_by_layer(patch)
                expected = outcome(network, *inputs)
            for one, other in zip(found, expected, strict=True):
                torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5, msg=name)

    def test_without_gradients(
        self, activation: str, rows: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        critics = self.networks(activation)["critics"]
        obs, actions = torch.randn(rows, 5), torch.randn(rows, 2)
        with torch.no_grad():
            found = critics(obs, actions)
            first = critics(obs, actions, n=1)
            layer_by_layer(monkeypatch)
            expected = critics(obs, actions)
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(first, expected[:1])


def critics() -> Any:
    return nn.Critics(BOX, 2, hidden=(16,), generator=np.random.default_rng(0))


def test_memory_is_used_again_and_not_by_two_at_once() -> None:
    network = critics()
    obs, actions = torch.randn(20, 5), torch.randn(20, 2)
    first = network(obs, actions)
    second = network(2 * obs, actions)  # before the first was differentiated
    expected = outcome(network, obs, actions)[0]
    torch.testing.assert_close(first, expected)
    second.sum().backward()
    network.zero_grad()
    (first * torch.linspace(-1, 1, first.numel()).view_as(first)).sum().backward()
    gradients = [p.grad.clone() for p in network.parameters()]
    for one, other in zip(gradients, outcome(network, obs, actions)[3:], strict=True):
        torch.testing.assert_close(one, other)


def test_a_second_derivation_is_refused() -> None:
    output = critics()(torch.randn(20, 5), torch.randn(20, 2)).sum()
    output.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="only once"):
        output.backward()


def test_the_first_critics_alone() -> None:
    network = critics()
    obs, actions = torch.randn(20, 5), torch.randn(20, 2)
    torch.testing.assert_close(network(obs, actions, n=1), network(obs, actions)[:1])


def test_a_gaussian_actor_has_the_density_of_a_normal_distribution() -> None:
    actor = nn.GaussianActor(BOX, 2, hidden=(8,), generator=np.random.default_rng(0))
    with torch.no_grad():
        actor.log_std.copy_(torch.tensor([0.3, -0.5]))
    obs, actions = torch.randn(6, 5), torch.randn(6, 2)
    normal = torch.distributions.Normal(actor(obs), actor.log_std.exp())
    torch.testing.assert_close(actor.log_prob(obs, actions), normal.log_prob(actions).sum(-1))
    drawn = torch.stack([actor.explore(obs) for _ in range(100)])
    assert drawn.abs().max() <= 1.0


def test_a_choice_never_falls_on_what_is_forbidden() -> None:
    actor = nn.CategoricalActor(BOX, 3, hidden=(8,), generator=np.random.default_rng(0))
    obs = torch.randn(50, 5)
    masks = torch.tensor([True, False, True]).expand(50, 3)
    assert not (actor.mode(obs, masks) == 1).any()
    assert not (actor.explore(obs, masks=masks) == 1).any()
    assert (actor.explore(obs) == 1).any()
