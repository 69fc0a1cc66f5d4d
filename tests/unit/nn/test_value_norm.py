from __future__ import annotations

import numpy as np
import torch

from sharpwave.nn import ValueNorm


def test_moments_are_debiased_exponential_means() -> None:
    generator = np.random.default_rng(0)
    norm, decay = ValueNorm(decay=0.9), 0.9
    mean = square = weight = 0.0
    for _ in range(7):
        returns = generator.normal(50.0, 3.0, 40)
        norm.update(torch.tensor(returns, dtype=torch.float32))
        returns = returns.astype(np.float32).astype(np.float64)
        mean = decay * mean + (1 - decay) * returns.mean()
        square = decay * square + (1 - decay) * (returns**2).mean()
        weight = decay * weight + (1 - decay)
    deviation = np.sqrt(square / weight - (mean / weight) ** 2)
    found = [x.item() for x in norm.moments()]
    np.testing.assert_allclose(found, [mean / weight, deviation], rtol=1e-6)


def test_nothing_is_changed_before_the_first_update() -> None:
    x = torch.tensor([1.5, -2.0])
    norm = ValueNorm()
    assert torch.equal(norm.normalize(x), x)
    assert torch.equal(norm.denormalize(x), x)


def test_rows_of_weight_zero_are_left_out() -> None:
    returns = torch.tensor([1.0, 3.0, 1e6])
    one, other = ValueNorm(), ValueNorm()
    one.update(returns[:2])
    other.update(returns, torch.tensor([1.0, 1.0, 0.0]))
    assert [x.item() for x in one.moments()] == [x.item() for x in other.moments()]


def test_returns_that_all_have_weight_zero_are_no_sample() -> None:
    """They counted as a zero: moments of 11 and 1 became 5.5 and 5.55."""
    norm = ValueNorm(decay=0.5)
    norm.update(torch.tensor([10.0, 12.0]))
    before = {name: number.clone() for name, number in norm.state_dict().items()}
    norm.update(torch.tensor([5.0, 7.0]), torch.zeros(2))
    assert norm.state_dict() == before
    norm.update(torch.tensor([5.0, 7.0]), torch.tensor([0.0, 1.0]))
    assert norm.mean.item() == 0.25 * 11.0 + 0.5 * 7.0


def test_normalization_and_its_opposite_agree() -> None:
    norm = ValueNorm()
    norm.update(torch.tensor([-30.0, -20.0, -26.0]))
    x = torch.linspace(-40, 10, 11)
    torch.testing.assert_close(norm.denormalize(norm.normalize(x)), x)


def test_returns_that_hardly_differ_are_not_blown_up() -> None:
    norm = ValueNorm()
    norm.update(torch.full((5,), 1000.0))
    assert abs(norm.normalize(torch.tensor(1000.5)).item()) < 5.1


def test_the_state_is_taken_over() -> None:
    one, other = ValueNorm(), ValueNorm()
    one.update(torch.tensor([5.0, 9.0]))
    other.load_state_dict(one.state_dict())
    assert [x.item() for x in one.moments()] == [x.item() for x in other.moments()]
