"""A look for numbers that are not finite."""

import pytest
import torch

from sharpwave.primitives.finite.tensors import look


def mark_after(*tensors: torch.Tensor) -> float:
    mark = torch.zeros((), dtype=torch.float64)
    look(mark, tensors)
    return float(mark)


@pytest.mark.parametrize("number", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_one_number_among_many_is_seen(number: float, dtype: torch.dtype) -> None:
    good, other = torch.full((50, 61), 6e4, dtype=dtype), torch.zeros(7)
    assert mark_after(good, other) == 0.0
    assert mark_after() == 0.0
    assert mark_after(torch.zeros(0)) == 0.0
    good[49, 60] = number
    assert torch.isnan(torch.tensor(mark_after(other, good)))


def test_columns_of_other_memory_are_not_looked_at() -> None:
    table = torch.zeros(5, 4)
    table[2, 1] = torch.nan
    assert mark_after(table[:, 2:]) == 0.0
    assert mark_after(table[:, 1]) != 0.0


def test_a_mark_stays() -> None:
    mark = torch.zeros((), dtype=torch.float64)
    look(mark, [torch.tensor([torch.inf])])
    look(mark, [torch.ones(3)])
    assert mark.isnan()
