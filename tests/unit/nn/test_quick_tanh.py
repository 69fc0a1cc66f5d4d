from __future__ import annotations

from typing import Any

import numpy as np
import torch

from sharpwave.nn import mlp
from sharpwave.nn.distributions import MANY, Categorical
from sharpwave.nn.mlp import MANY as NUMBERS
from sharpwave.nn.mlp import is_quick_tanh, quick_tanh_

ROWS = 3 * NUMBERS // (2 * 64)


def network() -> mlp.MLP:
    return mlp.make_mlp(5, (64, 64), 3, "tanh", np.random.default_rng(0))


def learned(net: mlp.MLP, x: Any, through: Any) -> list[Any]:
    """The output and the gradients of a sum of its squares."""
    output = through(x)
    gradients = torch.autograd.grad(output.square().sum(), list(net.parameters()))
    return [output, *gradients]


def test_numbers_and_gradients_are_those_of_torch() -> None:
    net, x = network(), torch.randn(ROWS, 5, generator=torch.Generator().manual_seed(0))
    assert is_quick_tanh(net[1], net[0](x))
    quick = learned(net, x, lambda x: net.with_latent(x)[0])
    plain = learned(net, x, net)
    for one, other in zip(quick, plain, strict=True):
        torch.testing.assert_close(one, other, atol=2e-6, rtol=1e-5)
    torch.testing.assert_close(net.with_latent(x)[1], net[:-1](x), atol=2e-6, rtol=0.0)
    with torch.no_grad():
        torch.testing.assert_close(net.with_latent(x)[0], plain[0], atol=2e-6, rtol=1e-5)


def test_the_ends_and_zero_are_exact() -> None:
    x = torch.tensor([-torch.inf, -50.0, 0.0, 50.0, torch.inf])
    assert quick_tanh_(x.clone()).tolist() == [-1.0, -1.0, 0.0, 1.0, 1.0]
    assert torch.isnan(quick_tanh_(torch.tensor([torch.nan]))).all()


def test_a_second_derivative_is_that_of_torch() -> None:
    x = torch.linspace(-2, 2, 9, requires_grad=True)

    def second(function: Any) -> Any:
        (first,) = torch.autograd.grad(function(x).sum(), x, create_graph=True)
        return torch.autograd.grad(first.sum(), x)[0]

    torch.testing.assert_close(second(lambda x: quick_tanh_(x * 1.0)), second(torch.tanh))


def test_few_numbers_and_hooks_go_through_the_layer() -> None:
    net = network()
    assert not is_quick_tanh(net[1], torch.zeros(16, 64))
    assert not is_quick_tanh(net[1], torch.zeros(ROWS, 64, dtype=torch.float64))
    heard: list[int] = []
    net[1].register_forward_hook(lambda *_: heard.append(1))
    net.with_latent(torch.zeros(ROWS, 5))
    assert heard == [1]


def test_many_rows_of_choices_are_as_few() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(MANY, 5, generator=generator, requires_grad=True)
    actions = torch.randint(0, 5, (MANY,), generator=generator)
    choice = Categorical(5)

    def gradient(*parts: Any) -> Any:
        each = [choice.log_prob_and_entropy(logits[p], actions[p]) for p in parts]
        log_probs, entropy = (torch.cat(column) for column in zip(*each, strict=True))
        (found,) = torch.autograd.grad((log_probs * 3 + entropy.square()).sum(), logits)
        return log_probs, entropy, found

    whole = gradient(slice(None))
    parts = gradient(slice(0, MANY // 2), slice(MANY // 2, None))
    for one, other in zip(whole, parts, strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-6)
