import math

import numpy as np
import pytest
import torch

from sharpwave.kernels import llm
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
