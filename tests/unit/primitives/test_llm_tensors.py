import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch

from sharpwave import primitives as sp
from sharpwave.primitives.llm import tensors as llm
from tests.reference import llm as reference

TOLERANCES = {torch.float32: 2e-5, torch.float64: 1e-9}
dtypes = pytest.mark.parametrize("dtype", TOLERANCES, ids=str)


@pytest.mark.parametrize(("n_groups", "size"), [(5, 1), (7, 8), (3, 33), (2, 3000), (1, 9000)])
def test_group_advantages_equal_the_loop(n_groups: int, size: int, device: torch.device) -> None:
    rewards = torch.randn(n_groups, size) + 3
    rewards[0] = 1000.1  # equals, which do not add up exactly
    found = llm.group_advantages(rewards.to(device), size)
    wanted = [reference.group_advantages(row) for row in rewards.double().numpy()]
    np.testing.assert_allclose(found.cpu(), wanted, rtol=1e-4, atol=1e-4)
    assert not found[0].any()
    assert torch.equal(llm.group_advantages(rewards.view(-1).to(device), size), found.view(-1))


OPTIONS: list[dict[str, Any]] = [
    {"ddof": ddof, "eps": eps, "leave_one_out": leave_one_out, "scale": scale}
    for ddof, eps, leave_one_out, scale in itertools.product(
        (0, 1), (0.0, 1e-4), (False, True), (None, "group", "batch", "none")
    )
]


def hard_groups(n_groups: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Rewards and masks: equal ones, one scored, none scored, NaN where none is read."""
    rewards, mask = torch.randn(n_groups, size) + 3, torch.rand(n_groups, size) < 0.6
    rewards[0] = 1000.1
    mask[1] = False
    mask[2] = False
    mask[2, -1] = True
    return rewards.masked_fill(~mask, torch.nan), mask


@pytest.mark.long(but=["torch.float32-1"])
@pytest.mark.parametrize("size", [1, 7, 33])
@dtypes
def test_group_advantages_of_scored_completions_equal_the_loop(
    size: int, dtype: torch.dtype, device: torch.device
) -> None:
    rewards, mask = hard_groups(6, size)
    rewards = rewards.to(dtype)
    for options in OPTIONS:
        found = llm.group_advantages(rewards.to(device), size, mask=mask.to(device), **options)
        wanted = reference.all_group_advantages(rewards.numpy(), mask.numpy(), **options)
        np.testing.assert_allclose(
            found.cpu(), wanted, rtol=1e-4, atol=1e-4 * (1 if dtype == torch.float32 else 1e-4)
        )
        assert found.dtype == dtype
        assert not found[~mask.to(device)].any()
        assert not found[:3].any()
        native = sp.compute_batch_group_advantages(rewards, size, mask=mask, **options)
        np.testing.assert_allclose(native, wanted, rtol=1e-6, atol=1e-6)


@dtypes
def test_group_advantages_of_all_completions_equal_the_loop(
    dtype: torch.dtype, device: torch.device
) -> None:
    rewards = torch.randn(9, 5).to(dtype) + 3
    rewards[0] = 1000.1
    for options in OPTIONS:
        found = llm.group_advantages(rewards.T.contiguous().T.to(device), 5, **options)
        wanted = reference.all_group_advantages(rewards.numpy(), **options)
        np.testing.assert_allclose(found.cpu(), wanted, rtol=1e-4, atol=1e-4)
        assert not found[0].any()


def test_an_option_of_trl_gives_its_formula(device: torch.device) -> None:
    rewards = torch.rand(4, 8, device=device)
    found = llm.group_advantages(rewards, 8, ddof=1, eps=1e-4)
    centered = rewards - rewards.mean(1, keepdim=True)
    wanted = centered / (rewards.std(1, keepdim=True) + 1e-4)
    np.testing.assert_allclose(found.cpu(), wanted.cpu(), rtol=1e-4, atol=1e-5)
    found = llm.group_advantages(rewards, 8, ddof=1, eps=1e-4, scale="batch")
    wanted = centered / (rewards.std() + 1e-4)
    np.testing.assert_allclose(found.cpu(), wanted.cpu(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_no_completions_have_no_advantages(options: Any, device: torch.device) -> None:
    nothing = torch.zeros(0, 4, device=device)
    for mask in (None, nothing):
        assert llm.group_advantages(nothing, 4, mask=mask, **options).shape == (0, 4)


@pytest.mark.parametrize("estimator", llm.ESTIMATORS)
@dtypes
def test_terms_of_token_kl_and_their_gradient(
    estimator: str, dtype: torch.dtype, device: torch.device
) -> None:
    p, q = (-torch.rand(5, 30, dtype=dtype) * 5 for _ in range(2))
    q[0] = p[0] - 1e-4 * torch.randn(30, dtype=dtype)  # where the parts of k3 cancel
    q[1] = p[1]
    p[2, :3] = q[2, :3] = -torch.inf
    policy, ref = (x.clone().to(device).requires_grad_() for x in (p, q))
    found = llm.token_kl_terms(policy, ref, estimator)
    sums = llm.token_kl(policy, ref, estimator=estimator).cpu()
    np.testing.assert_allclose(found.detach().sum(1).cpu(), sums, rtol=1e-4, atol=1e-5)
    found.sum().backward()
    p, d = p.double(), torch.where(p == q, 0.0, p.double() - q.double())
    slopes = {
        "k1": torch.ones_like(d),
        "k2": d,
        "k3": -torch.expm1(-d),
        "weighted": p.exp() * (d + 1),
    }
    wanted = slopes[estimator]
    if estimator == "k1":
        wanted[2, :3] = 0  # both are impossible
    assert found.dtype == dtype
    assert policy.grad is not None
    assert ref.grad is None
    tolerance = 1e-6 if dtype == torch.float32 else 1e-9
    np.testing.assert_allclose(policy.grad.cpu(), wanted, rtol=tolerance, atol=0)


@pytest.mark.parametrize("estimator", llm.ESTIMATORS)
def test_terms_of_token_kl_have_numerical_derivatives(estimator: str, device: torch.device) -> None:
    log_probs, ref = (-torch.rand(2, 3, dtype=torch.float64, device=device) for _ in range(2))
    assert torch.autograd.gradcheck(
        lambda x: llm.token_kl_terms(x, ref, estimator), log_probs.requires_grad_()
    )


def test_a_token_that_the_policy_never_takes_weighs_nothing(device: torch.device) -> None:
    log_probs = torch.tensor([-torch.inf], device=device, requires_grad=True)
    terms = llm.token_kl_terms(log_probs, torch.tensor([-1.0], device=device), "weighted")
    terms.sum().backward()
    assert log_probs.grad is not None
    assert terms.tolist() == log_probs.grad.tolist() == [0.0]


def test_terms_of_token_kl_of_short_floats_are_float32(device: torch.device) -> None:
    log_probs = torch.tensor([-1.0, -2.0], dtype=torch.bfloat16, device=device).requires_grad_()
    terms = llm.token_kl_terms(log_probs, torch.tensor([-1.5, -2.0], device=device), "k1")
    assert terms.dtype == torch.float32
    terms.sum().backward()
    assert log_probs.grad is not None
    assert log_probs.grad.tolist() == [1.0, 1.0]
    assert llm.token_kl_terms(log_probs[:0], log_probs[:0]).shape == (0,)


@pytest.mark.parametrize(("n_rows", "length"), [(3, 1), (5, 7), (4, 700), (2, 5000)])
@pytest.mark.parametrize("estimator", llm.ESTIMATORS)
@dtypes
def test_token_kl_equals_the_loop(
    n_rows: int, length: int, estimator: str, dtype: torch.dtype, device: torch.device
) -> None:
    p, q = (-torch.rand(n_rows, length, dtype=dtype) * 5 for _ in range(2))
    q[0] = p[0] - 1e-3 * torch.randn(length, dtype=dtype)  # where the parts of k3 cancel
    p[1, 0] = q[1, 0] = -torch.inf
    mask = torch.rand(n_rows, length) < 0.7
    for given in (None, mask):
        there = None if given is None else given.to(device)
        found = llm.token_kl(p.to(device), q.to(device), estimator=estimator, mask=there)
        terms = [
            reference.token_kl_terms(
                p[i].double().numpy(),
                q[i].double().numpy(),
                estimator,  # type: ignore[arg-type]
                None if given is None else given[i].numpy(),
            )
            for i in range(n_rows)
        ]
        wanted = np.array([math.fsum(row) for row in terms])
        # Terms of both signs may add up to almost nothing, but each of them was rounded.
        rounding = torch.finfo(dtype).eps * np.array([math.fsum(map(abs, row)) for row in terms])
        error = np.abs(found.cpu().numpy() - wanted)
        assert (error <= TOLERANCES[dtype] * np.abs(wanted) + rounding + 1e-8).all(), error


def test_arguments_that_do_not_fit_raise(device: torch.device) -> None:
    zeros = torch.zeros(4, 3, device=device)
    with pytest.raises(ValueError, match="group_size must divide"):
        llm.group_advantages(zeros, 5)
    with pytest.raises(ValueError, match="estimator must be one of"):
        llm.token_kl(zeros, zeros, estimator="k4")
    with pytest.raises(ValueError, match=r"log_q must have shape \(4, 3\)"):
        llm.token_kl(zeros, zeros[:2])
    with pytest.raises(ValueError, match="estimator must be one of"):
        llm.token_kl_terms(zeros, zeros, "k4")
    with pytest.raises(ValueError, match=r"ref_log_probs must have shape \(4, 3\)"):
        llm.token_kl_terms(zeros, zeros[:2])
    with pytest.raises(ValueError, match=r"mask must have shape \(4, 3\) like rewards"):
        llm.group_advantages(zeros, 3, mask=zeros[:2])
    with pytest.raises(ValueError, match="ddof must be 0 or 1, got 2"):
        llm.group_advantages(zeros, 3, ddof=2)
    with pytest.raises(ValueError, match="eps must be finite and not negative"):
        llm.group_advantages(zeros, 3, eps=-1.0)
    with pytest.raises(ValueError, match="scale must be one of group, batch, none, got 'all'"):
        llm.group_advantages(zeros, 3, scale="all")
