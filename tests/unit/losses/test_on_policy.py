from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from sharpwave import losses


def rows(count: int, seed: int) -> Tensor:
    return torch.randn(count, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def column(name: str, count: int) -> Tensor:
    return rows(8, sum(name.encode()))[:count]


SCALARS: dict[str, Callable[[int, Tensor | None], Tensor]] = {
    "surrogate": lambda n, w: losses.clipped_surrogate(column("r", n), column("a", n), 0.2, w),
    "policy gradient": lambda n, w: losses.policy_gradient(column("p", n), column("a", n), w),
    "value": lambda n, w: losses.value_loss(column("v", n), column("R", n), w),
    "clipped value": lambda n, w: losses.clipped_value_loss(
        column("v", n), column("o", n), column("R", n), 0.2, w
    ),
    "kl": lambda n, w: losses.approx_kl(column("r", n), w),
    "clip fraction": lambda n, w: losses.clip_fraction(column("r", n), 0.2, w),
    "explained variance": lambda n, w: losses.explained_variance(column("v", n), column("R", n), w),
}


@pytest.mark.parametrize("name", SCALARS)
def test_weights_of_one_change_nothing(name: str) -> None:
    loss = SCALARS[name]
    torch.testing.assert_close(loss(6, torch.ones(6, dtype=torch.float64)), loss(6, None))


@pytest.mark.parametrize("name", SCALARS)
def test_rows_of_weight_zero_do_not_count(name: str) -> None:
    loss = SCALARS[name]
    weights = torch.tensor([1.0, 1, 1, 1, 0, 0], dtype=torch.float64)
    torch.testing.assert_close(loss(6, weights), loss(4, None))


@given(st.integers(2, 20), st.integers(0, 100), st.floats(0.01, 0.5))
def test_surrogate_is_the_mean_of_the_worse_of_both(count: int, seed: int, clip: float) -> None:
    log_ratio, advantages = rows(count, seed), rows(count, seed + 1)
    ratio, adv = np.exp(log_ratio.numpy()), advantages.numpy()
    expected = np.mean(
        [max(-a * r, -a * min(max(r, 1 - clip), 1 + clip)) for a, r in zip(adv, ratio, strict=True)]
    )
    actual = losses.clipped_surrogate(log_ratio, advantages, clip)
    assert actual.item() == pytest.approx(expected)


def test_surrogate_has_no_gradient_where_the_ratio_has_left_the_range_to_its_profit() -> None:
    log_ratio = torch.tensor([0.5, -0.5, 0.5, -0.5, 0.0], requires_grad=True)
    advantages = torch.tensor([1.0, -1.0, -1.0, 1.0, 1.0])
    losses.clipped_surrogate(log_ratio, advantages, 0.2).backward()
    assert log_ratio.grad is not None
    expected = -advantages * log_ratio.detach().exp() / 5
    expected[:2] = 0.0
    torch.testing.assert_close(log_ratio.grad, expected)


def test_the_clip_range_may_be_a_tensor() -> None:
    arguments = rows(8, 0), rows(8, 1)
    clip = torch.tensor(0.1, dtype=torch.float64)
    torch.testing.assert_close(
        losses.clipped_surrogate(*arguments, clip), losses.clipped_surrogate(*arguments, 0.1)
    )
    torch.testing.assert_close(
        losses.clipped_value_loss(*arguments, rows(8, 2), clip),
        losses.clipped_value_loss(*arguments, rows(8, 2), 0.1),
    )
    torch.testing.assert_close(
        losses.clip_fraction(rows(8, 0), clip), losses.clip_fraction(rows(8, 0), 0.1)
    )


def test_clipped_value_loss_equals_the_plain_one_near_the_old_values() -> None:
    values, returns = rows(8, 0), rows(8, 1)
    near = losses.clipped_value_loss(values, values + 0.01, returns, 0.2)
    torch.testing.assert_close(near, losses.value_loss(values, returns))


@given(st.integers(5, 30), st.integers(0, 100))
def test_normalized_advantages_have_mean_zero_and_deviation_one(count: int, seed: int) -> None:
    normalized = losses.normalize(3 + 2 * rows(count, seed))
    assert normalized.mean().item() == pytest.approx(0, abs=1e-12)
    assert normalized.std().item() == pytest.approx(1, abs=1e-5)


def test_one_advantage_alone_is_not_normalized() -> None:
    assert losses.normalize(torch.tensor([3.0])).tolist() == [3.0]


def test_equal_advantages_normalize_to_zero() -> None:
    assert losses.normalize(torch.full((4,), 2.0)).tolist() == [0.0] * 4


def test_padding_does_not_touch_normalized_advantages() -> None:
    weights = torch.tensor([1.0, 1, 1, 0], dtype=torch.float64)
    padded = losses.normalize(rows(4, 0), weights)
    torch.testing.assert_close(padded[:3], losses.normalize(rows(4, 0)[:3]))


def test_kl_of_an_unchanged_policy_is_zero_and_never_negative() -> None:
    assert losses.approx_kl(torch.zeros(4)).item() == 0.0
    assert losses.approx_kl(rows(100, 0)).item() > 0.0


def test_explained_variance_of_constant_returns_is_nan() -> None:
    assert torch.isnan(losses.explained_variance(rows(4, 0), torch.ones(4, dtype=torch.float64)))


def test_explained_variance_of_a_constant_value_is_zero() -> None:
    zeros = torch.zeros(5, dtype=torch.float64)
    assert losses.explained_variance(zeros, rows(5, 0)).item() == pytest.approx(0)
