"""Losses of Q-learning are those of plain loops."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sharpwave import losses
from sharpwave.types import Array
from tests.reference import q_learning as reference

SEEDS = st.integers(0, 10_000)


def draw_probs(rng: np.random.Generator, rows: int, n: int) -> Array:
    probs: Array = rng.random((rows, n)) ** 3
    probs /= probs.sum(1, keepdims=True)
    return probs


def tensors(*arrays: Array) -> list[torch.Tensor]:
    return [torch.from_numpy(array) for array in arrays]


@given(SEEDS, st.floats(0.1, 5.0))
def test_huber_is_square_near_zero_and_straight_beyond(seed: int, threshold: float) -> None:
    errors = np.random.default_rng(seed).normal(size=20) * 3
    expected = [reference.huber(error, threshold) for error in errors]
    found = losses.huber(torch.from_numpy(errors), threshold)
    np.testing.assert_allclose(found.numpy(), expected)


def test_huber_pulls_no_harder_than_its_threshold() -> None:
    errors = torch.tensor([-50.0, -0.5, 0.0, 0.5, 50.0], requires_grad=True)
    losses.huber(errors).sum().backward()
    assert errors.grad is not None
    assert errors.grad.tolist() == [-1.0, -0.5, 0.0, 0.5, 1.0]


def test_weights_scale_the_loss_and_are_not_divided_away() -> None:
    rows, weights = torch.tensor([1.0, 3.0]), torch.tensor([0.5, 0.5])
    assert losses.weighted_mean(rows).item() == 2.0
    assert losses.weighted_mean(rows, weights).item() == 1.0


class TestProjection:
    @given(SEEDS, st.integers(2, 12), st.floats(0.0, 1.0))
    def test_is_that_of_plain_loops(self, seed: int, n: int, gamma: float) -> None:
        rng = np.random.default_rng(seed)
        probs, atoms = draw_probs(rng, 5, n), np.linspace(-2.0, 3.0, n)
        rewards, discounts = rng.normal(size=5) * 2, gamma * rng.integers(0, 2, 5)
        expected = reference.project_categorical(probs, rewards, discounts, atoms)
        found = losses.project_categorical(*tensors(probs, rewards, discounts, atoms))
        np.testing.assert_allclose(found.numpy(), expected, atol=1e-12)
        np.testing.assert_allclose(found.sum(1).numpy(), 1.0)

    @given(SEEDS)
    def test_keeps_the_mean_where_nothing_is_cut_off(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        probs, atoms = draw_probs(rng, 4, 11), np.linspace(-10.0, 10.0, 11)
        rewards, discounts = rng.uniform(-1, 1, 4), np.full(4, 0.9)
        found = losses.project_categorical(*tensors(probs, rewards, discounts, atoms)).numpy()
        np.testing.assert_allclose(found @ atoms, rewards + 0.9 * probs @ atoms)

    def test_after_the_end_all_lies_at_the_reward(self) -> None:
        atoms = torch.linspace(-1.0, 1.0, 5)
        probs = torch.full((1, 5), 0.2)
        found = losses.project_categorical(probs, torch.tensor([0.5]), torch.zeros(1), atoms)
        assert found.tolist() == [[0.0, 0.0, 0.0, 1.0, 0.0]]

    def test_returns_beyond_the_atoms_lie_at_the_outermost(self) -> None:
        atoms = torch.linspace(-1.0, 1.0, 5)
        probs, rewards = torch.full((2, 5), 0.2), torch.tensor([9.0, -9.0])
        found = losses.project_categorical(probs, rewards, torch.ones(2), atoms)
        torch.testing.assert_close(found[:, [4, 0]].diagonal(), torch.ones(2))


def test_cross_entropy_is_least_at_the_target() -> None:
    targets = torch.tensor([[0.2, 0.3, 0.5]])
    logits = targets.log().requires_grad_()
    losses.categorical_cross_entropy(logits.log_softmax(-1), targets).sum().backward()
    assert logits.grad is not None
    torch.testing.assert_close(logits.grad, torch.zeros(1, 3))


class TestQuantiles:
    @given(SEEDS, st.integers(1, 8), st.integers(1, 8), st.floats(0.1, 3.0))
    def test_is_that_of_plain_loops(self, seed: int, n: int, m: int, threshold: float) -> None:
        rng = np.random.default_rng(seed)
        quantiles, targets = rng.normal(size=(4, n)), 2 * rng.normal(size=(4, m))
        expected = reference.quantile_huber(quantiles, targets, threshold)
        thetas, samples = tensors(quantiles, targets)
        found = losses.quantile_huber(thetas, samples, threshold)
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)

    @pytest.mark.long
    def test_descent_finds_the_quantiles(self) -> None:
        targets = torch.linspace(0.0, 100.0, 201)[None]
        quantiles = torch.zeros(1, 4, requires_grad=True)
        optimizer = torch.optim.Adam([quantiles], lr=0.5)
        for _ in range(600):
            optimizer.zero_grad()
            losses.quantile_huber(quantiles, targets, 0.01).sum().backward()
            optimizer.step()
        assert quantiles.tolist()[0] == pytest.approx([12.5, 37.5, 62.5, 87.5], abs=1.0)
