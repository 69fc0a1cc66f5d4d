import itertools
from typing import Any

import numpy as np
import pytest
import torch

from sharpwave.primitives import backend
from sharpwave.primitives.ahead.tensors import look_ahead
from tests.reference.tensors import n_step_row

SIZE, NUM_ENVS = 7, 3
N_ROWS = SIZE * NUM_ENVS


def ring(device: torch.device) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Rewards, dones and truncateds."""
    dones = torch.rand(N_ROWS) < 0.3
    truncateds = dones & (torch.rand(N_ROWS) < 0.5)
    return torch.randn(N_ROWS).to(device), dones.to(device), truncateds.to(device)


@pytest.mark.parametrize(
    ("n", "position", "cuts"),
    list(itertools.product([1, 2, 3, 7, 50], [0, 1, 6], [(), (4,), (0, 3, 5)])),
)
def test_it_sums_rewards_up_to_an_end_the_newest_step_or_a_cut(
    n: int, position: int, cuts: tuple[int, ...], device: torch.device
) -> None:
    columns = ring(device)
    index = torch.randint(N_ROWS, (50,))
    marks = torch.tensor(cuts, dtype=torch.int64, device=device) if cuts else None
    last, rewards, discounts = look_ahead(
        *columns, index.to(device), n=n, gamma=0.9, num_envs=NUM_ENVS, position=position, cuts=marks
    )
    assert (last.dtype, rewards.dtype, discounts.dtype) == (
        torch.int64,
        torch.float32,
        torch.float32,
    )
    steps: Any = [column.cpu().numpy() for column in columns]
    wanted = [
        n_step_row(
            steps[0],
            steps[1],
            steps[2],
            i,
            n=n,
            gamma=0.9,
            num_envs=NUM_ENVS,
            breaks={position, *cuts},
        )
        for i in index.tolist()
    ]
    assert last.tolist() == [row for row, _, _ in wanted]
    np.testing.assert_allclose(rewards.cpu(), [total for _, total, _ in wanted], 1e-5, 1e-6)
    np.testing.assert_allclose(discounts.cpu(), [discount for _, _, discount in wanted], 1e-5)


def test_it_writes_into_given_tensors(device: torch.device) -> None:
    columns, index = ring(device), torch.arange(4, device=device)
    out = torch.empty(4, device=device), torch.empty(4, device=device)
    options: Any = {"n": 3, "gamma": 0.9, "num_envs": NUM_ENVS, "position": 2}
    wanted = look_ahead(*columns, index, **options)
    found = look_ahead(*columns, index, **options, out=out)
    assert found[1] is out[0]
    assert found[2] is out[1]
    for mine, other in zip(found, wanted, strict=True):
        assert torch.equal(mine, other)


def test_no_rows_are_no_rows(device: torch.device) -> None:
    none = torch.arange(0, device=device)
    found = look_ahead(*ring(device), none, n=3, gamma=0.9, num_envs=NUM_ENVS, position=2)
    assert [len(part) for part in found] == [0, 0, 0]


def test_one_row_of_one_environment(device: torch.device) -> None:
    rewards, ended = torch.tensor([2.0], device=device), torch.tensor([False], device=device)
    index = torch.tensor([0], device=device)
    last, total, discount = look_ahead(
        rewards, ended, ended, index, n=3, gamma=0.5, num_envs=1, position=0
    )
    assert (last.tolist(), total.tolist(), discount.tolist()) == ([0], [2.0], [0.5])


def test_rows_outside_are_not_read(device: torch.device) -> None:
    columns = ring(device)
    if not backend.uses_triton(columns[0]):
        pytest.skip("torch raises itself")
    index = torch.tensor([-1, N_ROWS, 2**40], device=device)
    _, rewards, discounts = look_ahead(
        *columns, index, n=3, gamma=0.9, num_envs=NUM_ENVS, position=0
    )
    assert rewards.tolist() == discounts.tolist() == [0.0, 0.0, 0.0]
