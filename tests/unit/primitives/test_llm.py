import math
from typing import Any

import numpy as np
import pytest
import torch

from sharpwave import primitives as sp
from sharpwave.primitives.llm import Estimator
from sharpwave.types import Array
from tests.reference import llm as reference
from tests.types import FloatType

ESTIMATORS: list[Estimator] = ["k1", "k2", "k3", "weighted"]


def log_probs(n: int, seed: int = 0, spread: float = 0.3) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    log_p = -rng.exponential(2.0, n)
    return log_p, log_p + rng.normal(size=n) * spread


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [0, 1, 3, 7, 8, 15, 16, 17, 128, 2048])
def test_token_kl_equals_the_loop(estimator: Estimator, dtype: FloatType, n: int) -> None:
    log_p, log_q = (x.astype(dtype) for x in log_probs(n))
    got = sp.compute_token_kl(log_p, log_q, estimator=estimator)
    want = reference.token_kl(log_p.astype(float), log_q.astype(float), estimator)
    assert isinstance(got, float)
    assert got == pytest.approx(want, rel=1e-6 if dtype == np.float32 else 1e-13, abs=1e-6)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("masked", [False, True])
def test_batch_token_kl_is_token_kl_of_each_row(
    estimator: Estimator, dtype: FloatType, masked: bool
) -> None:
    log_p, log_q = (x.astype(dtype).reshape(6, 700) for x in log_probs(4200))
    mask = np.random.default_rng(1).random((6, 700)) < 0.7 if masked else None
    got = sp.compute_batch_token_kl(log_p, log_q, 700, estimator=estimator, mask=mask)
    want = [
        reference.token_kl(
            log_p[i].astype(float),
            log_q[i].astype(float),
            estimator,
            None if mask is None else mask[i],
        )
        for i in range(6)
    ]
    assert got.dtype == dtype
    np.testing.assert_allclose(got, want, rtol=2e-6 if dtype == np.float32 else 1e-12)
    flat = sp.compute_batch_token_kl(
        log_p.ravel(),
        log_q.ravel(),
        700,
        estimator=estimator,
        mask=None if mask is None else mask.ravel(),
    )
    np.testing.assert_array_equal(flat, got)


@pytest.mark.parametrize("estimator", ["k1", "k3"])
def test_estimators_on_sampled_tokens_are_unbiased(estimator: Estimator) -> None:
    rng = np.random.default_rng(0)
    policy = rng.dirichlet(np.ones(8))
    ref = rng.dirichlet(np.ones(8))
    true_kl = float((policy * np.log(policy / ref)).sum())
    n = 200_000
    tokens = rng.choice(8, size=n, p=policy)
    mean = sp.compute_token_kl(np.log(policy)[tokens], np.log(ref)[tokens], estimator=estimator) / n
    assert mean == pytest.approx(true_kl, abs=0.02)


def test_k3_is_never_negative_and_exact_for_small_differences() -> None:
    for scale in (1e-6, 1e-4, 1e-2, 1.0, 5.0):
        d = np.random.default_rng(0).normal(size=10_000) * scale
        for dtype in (np.float32, np.float64):
            x = d.astype(dtype)
            got = sp.compute_batch_token_kl_schulman(x, np.zeros_like(x), 1)
            exact = [
                math.exp(-v) - 1 + v if abs(v) > 1e-2 else v * v / 2 - v**3 / 6 + v**4 / 24
                for v in x.astype(float)
            ]
            assert (got >= 0).all()
            np.testing.assert_allclose(got, exact, rtol=2e-5 if dtype == np.float32 else 1e-7)


@pytest.mark.long
def test_float32_keeps_its_digits_over_a_million_tokens() -> None:
    log_p, log_q = (x.astype(np.float32) for x in log_probs(1_000_000, spread=0.1))
    log_q -= np.float32(0.05)
    for estimator in ESTIMATORS:
        got = sp.compute_batch_token_kl(log_p, log_q, 1_000_000, estimator=estimator)
        want = reference.token_kl(log_p.tolist(), log_q.tolist(), estimator)
        np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_exp_is_good_to_the_last_digits_over_its_whole_range(dtype: FloatType) -> None:
    low, high = (-100, 88) if dtype == np.float32 else (-740, 709)
    x: Array = np.linspace(low, high, 20_001, dtype=dtype)
    got = sp.compute_batch_token_kl(x, x - dtype(1), 1, estimator="weighted")
    want = np.exp(x.astype(np.longdouble)) * (x - (x - dtype(1))).astype(np.longdouble)
    eps, tiny = float(np.finfo(dtype).eps), float(np.finfo(dtype).tiny)
    np.testing.assert_allclose(got, want.astype(np.float64), rtol=4 * eps, atol=tiny)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_equal_infinities_count_nothing(dtype: FloatType, estimator: Estimator) -> None:
    log_p = np.array([-np.inf, -1.0], dtype)
    assert sp.compute_token_kl(log_p, log_p, estimator=estimator) == 0.0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_infinities_on_one_side(dtype: FloatType) -> None:
    finite, never = np.array([-1.0], dtype), np.array([-np.inf], dtype)
    for estimator in ESTIMATORS:
        assert sp.compute_token_kl(finite, never, estimator=estimator) == np.inf
    assert sp.compute_token_kl(never, finite, estimator="k1") == -np.inf
    assert sp.compute_token_kl(never, finite, estimator="k2") == np.inf
    assert sp.compute_token_kl(never, finite, estimator="k3") == np.inf
    assert sp.compute_token_kl(never, finite, estimator="weighted") == 0.0


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_nan_propagates_unless_masked(estimator: Estimator) -> None:
    log_p, log_q = np.array([np.nan, -1.0]), np.array([-1.0, -2.0])
    assert math.isnan(sp.compute_token_kl(log_p, log_q, estimator=estimator))
    masked = sp.compute_token_kl(log_p, log_q, estimator=estimator, mask=[0, 1])
    assert masked == pytest.approx(reference.token_kl([-1.0], [-2.0], estimator))


def test_schulman_names_are_k3_and_f32_names_are_aliases() -> None:
    log_p, log_q = log_probs(64)
    k3 = sp.compute_token_kl(log_p, log_q, estimator="k3")
    assert sp.compute_token_kl_schulman(log_p, log_q) == k3
    assert sp.compute_batch_token_kl_schulman(log_p, log_q, 64).tolist() == [k3]
    assert sp.compute_batch_token_kl_schulman_f32(log_p, log_q, 64).tolist() == [k3]
    assert sp.compute_batch_token_kl_f32 is sp.compute_batch_token_kl


def test_kl_out_and_torch() -> None:
    log_p, log_q = (torch.from_numpy(x).reshape(2, 8).requires_grad_() for x in log_probs(16))
    out = torch.empty(2, dtype=torch.float64)
    assert sp.compute_batch_token_kl(log_p, log_q, 8, out=out) is out
    torch.testing.assert_close(out, (log_p - log_q).sum(-1).detach())
    assert isinstance(sp.compute_batch_token_kl(log_p, log_q, 8), torch.Tensor)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0.0] * 6, [0.0] * 5, 3), "log_q must have shape"),
        (([0.0] * 6, [0.0] * 6, 4), "multiple of seq_len"),
        (([0.0] * 6, [0.0] * 6, 0), "seq_len must be at least 1"),
        (([0.0] * 6, [0.0] * 6, -1), "seq_len must be an integer from 0"),
    ],
)
def test_kl_refuses_shapes_that_do_not_fit(
    arguments: tuple[list[float], list[float], int], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        sp.compute_batch_token_kl(*arguments)


def test_kl_refuses_unknown_estimators() -> None:
    with pytest.raises(ValueError, match="estimator must be 'k1', 'k2', 'k3' or 'weighted'"):
        sp.compute_token_kl([0.0], [0.0], estimator="k4")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="estimator must be a string"):
        sp.compute_token_kl([0.0], [0.0], estimator=3)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("group_size", [1, 2, 3, 8, 31, 32])
def test_group_advantages_equal_the_loop(dtype: FloatType, group_size: int) -> None:
    rewards = np.random.default_rng(0).normal(size=group_size * 5).astype(dtype)
    got = sp.compute_batch_group_advantages(rewards, group_size)
    want = [
        a
        for group in rewards.astype(float).reshape(5, group_size)
        for a in reference.group_advantages(group)
    ]
    assert got.dtype == dtype
    np.testing.assert_allclose(got, want, rtol=1e-5 if dtype == np.float32 else 1e-10, atol=1e-12)
    np.testing.assert_array_equal(
        sp.compute_group_advantages(rewards[:group_size]), got[:group_size]
    )


def test_named_defaults_equal_those_of_native_code() -> None:
    rewards = np.random.default_rng(0).normal(size=(5, 8))
    named = sp.compute_batch_group_advantages(rewards, 8, ddof=0, eps=0.0, scale="group")
    np.testing.assert_allclose(
        named, sp.compute_batch_group_advantages(rewards, 8), rtol=1e-12, atol=1e-14
    )


def test_group_advantages_with_options_give_back_what_they_were_given() -> None:
    rewards = torch.rand(2, 3, requires_grad=True)
    found = sp.compute_batch_group_advantages(rewards, 3, mask=np.ones((2, 3)), ddof=1)
    assert isinstance(found, torch.Tensor)
    assert found.dtype == torch.float32
    np.testing.assert_allclose(
        found, reference.all_group_advantages(rewards.detach().numpy(), ddof=1), rtol=1e-5
    )
    assert sp.compute_group_advantages([1, 3], scale="none").tolist() == [-1.0, 1.0]
    assert sp.compute_group_advantages([], leave_one_out=True).shape == (0,)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ddof": 2}, "ddof must be 0 or 1, got 2"),
        ({"eps": -1.0}, "eps must be finite and not negative, got -1.0"),
        ({"eps": math.nan}, "eps must be finite and not negative, got nan"),
        ({"scale": "all"}, "scale must be one of group, batch, none, got 'all'"),
        ({"mask": [1, 1]}, r"mask must have shape \(4,\) like rewards, got \(2,\)"),
        ({"group_size": 3, "ddof": 1}, "group_size must divide the number of rewards, got 3"),
    ],
    ids=str,
)
def test_group_advantages_refuse_options_that_do_not_fit(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        sp.compute_batch_group_advantages(np.zeros(4), **{"group_size": 2, **options})


def test_group_advantages_refuse_what_are_no_numbers() -> None:
    with pytest.raises(TypeError, match="rewards must be real numbers"):
        sp.compute_group_advantages(["a"], ddof=1)


@pytest.mark.parametrize("value", [0.1, 1e9 + 0.1, -3.3e15])
def test_equal_rewards_have_no_advantage(value: float) -> None:
    np.testing.assert_array_equal(sp.compute_group_advantages([value] * 7), 0.0)
    for scale in ("group", "batch", "none"):
        found = sp.compute_group_advantages([value] * 7, ddof=1, leave_one_out=True, scale=scale)
        np.testing.assert_array_equal(found, 0.0)


def test_large_offsets_cost_no_digits() -> None:
    rewards = np.array([0.0, 1.0, 2.0, 5.0])
    plain = sp.compute_group_advantages(rewards)
    np.testing.assert_allclose(sp.compute_group_advantages(rewards + 1e12), plain, rtol=1e-12)


def test_group_advantages_keep_the_shape_and_accept_nothing() -> None:
    assert sp.compute_batch_group_advantages(np.zeros((3, 4)), 4).shape == (3, 4)
    assert sp.compute_batch_group_advantages(np.zeros(0), 4).shape == (0,)
    assert sp.compute_group_advantages([]).shape == (0,)


@pytest.mark.parametrize("group_size", [0, 4, -1])
def test_group_size_must_divide(group_size: int) -> None:
    with pytest.raises(ValueError, match="group_size"):
        sp.compute_batch_group_advantages(np.zeros(6), group_size)
