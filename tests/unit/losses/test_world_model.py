from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sharpwave import losses
from tests.reference import world_model as reference


@given(st.floats(-1e4, 1e4, width=32))
def test_symexp_undoes_symlog(x: float) -> None:
    number = torch.tensor(x, dtype=torch.float64)
    torch.testing.assert_close(losses.symexp(losses.symlog(number)), number)
    assert losses.symlog(number).item() == pytest.approx(math.copysign(math.log1p(abs(x)), x))


def test_bins_are_symmetric_and_have_a_zero() -> None:
    bins = losses.two_hot_bins()
    assert bins[127] == 0
    assert torch.equal(bins, -bins.flip(0))
    assert bool((bins.diff() > 0).all())
    np.testing.assert_allclose(bins.numpy(), reference.bins(255, 20.0), rtol=1e-4, atol=1e-7)
    with pytest.raises(ValueError, match="n must be odd and at least 3, got 4"):
        losses.two_hot_bins(4)


def test_the_first_prediction_is_exactly_zero() -> None:
    logits = torch.full((3, 255), 0.7)
    assert losses.two_hot_mean(logits, losses.two_hot_bins()).tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("target", [0.0, 0.3, -2.5, 1e12, -1e12, 7.0])
def test_targets_are_spread_over_the_bins_around_them(target: float) -> None:
    logits = torch.tensor(np.random.default_rng(0).normal(size=21))
    bins = losses.two_hot_bins(21, 5.0).double()
    loss = losses.two_hot_loss(logits, torch.tensor(target).double(), bins)
    expected = reference.two_hot_loss(logits.numpy(), target, bins.numpy())
    assert loss.item() == pytest.approx(expected, rel=1e-6)


def test_a_target_at_a_bin_is_that_bin() -> None:
    bins = losses.two_hot_bins(21, 5.0)
    logits = torch.randn(21)
    for i, place in enumerate(bins):
        loss = losses.two_hot_loss(logits, place, bins)
        torch.testing.assert_close(loss, -logits.log_softmax(0)[i])


def test_a_learned_distribution_has_the_mean_of_its_targets() -> None:
    bins = losses.two_hot_bins(41, 4.0).double()
    logits = torch.zeros(41, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([logits], lr=0.1)
    for _ in range(400):
        optimizer.zero_grad()
        losses.two_hot_loss(logits, torch.tensor(3.3).double(), bins).backward()
        optimizer.step()
    assert losses.two_hot_mean(logits.detach(), bins).item() == pytest.approx(3.3, abs=0.05)


def test_mixing_with_the_uniform_distribution() -> None:
    logits = torch.tensor(np.random.default_rng(1).normal(size=(4, 6)))
    mixed = losses.unimix(logits, 0.1).exp()
    expected = 0.9 * reference.softmax(logits.numpy()) + 0.1 / 6
    np.testing.assert_allclose(mixed.numpy(), expected, rtol=1e-6)
    assert torch.equal(losses.unimix(logits, 0.0), logits.log_softmax(-1))


@pytest.mark.parametrize("free_nats", [0.0, 0.5, 100.0])
def test_divergences_have_gradients_of_one_side_each(free_nats: float) -> None:
    rng = np.random.default_rng(2)
    raw = [torch.tensor(rng.normal(size=(5, 3, 4)), requires_grad=True) for _ in range(2)]
    posterior, prior = (losses.unimix(x) for x in raw)
    dynamics, representation = losses.balanced_kl(posterior, prior, free_nats=free_nats)
    p, q = (x.detach().exp().numpy() for x in (posterior, prior))
    expected = [max(free_nats, sum(map(reference.kl, p[i], q[i]))) for i in range(5)]
    for loss in (dynamics, representation):
        np.testing.assert_allclose(loss.detach().numpy(), expected, rtol=1e-6)
    for loss, moved, still in ((dynamics, 1, 0), (representation, 0, 1)):
        grads = torch.autograd.grad(loss.sum(), raw, retain_graph=True, allow_unused=True)
        unmoved = grads[still]
        assert unmoved is None or not unmoved.any()
        assert bool(grads[moved].any()) == (free_nats < 100)


@given(st.integers(0, 2**31), st.integers(1, 6), st.floats(0, 1))
def test_lambda_returns(seed: int, length: int, lam: float) -> None:
    rng = np.random.default_rng(seed)
    rewards, values, continues = rng.normal(size=(3, length + 1, 2))
    cuts = (rng.random((length + 1, 2)) < 0.3).astype(float)
    last = rng.normal(size=2)
    arrays = map(torch.tensor, (rewards, values, continues, last))
    found = losses.lambda_returns(*arrays, lam=lam, cuts=torch.tensor(cuts)).numpy()
    for j in range(2):
        expected = reference.lambda_returns(
            rewards[:, j], values[:, j], continues[:, j], float(last[j]), lam, cuts[:, j]
        )
        np.testing.assert_allclose(found[:, j], expected, rtol=1e-9, atol=1e-12)
