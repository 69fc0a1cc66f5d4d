from typing import Any

import pytest
import torch

from sharpwave.primitives.rows.tensors import RowTable

N_ROWS = 100


def columns(n_rows: int, device: torch.device) -> list[torch.Tensor]:
    """Rows of 24, 8, 3, 8, 0, 2100, 2 and 16 bytes."""
    return [
        torch.randn(n_rows, 6).to(device),
        torch.randint(0, 9, (n_rows,)).to(device),
        (torch.rand(n_rows, 3) < 0.5).to(device),
        torch.randn(n_rows, 2, 2).half().to(device),
        torch.zeros(n_rows, 0).to(device),
        torch.randint(0, 255, (n_rows, 2100), dtype=torch.uint8).to(device),
        torch.randn(n_rows).bfloat16().to(device),
        torch.randn(n_rows, 2, dtype=torch.float64).to(device),
    ]


def same(found: Any, wanted: Any) -> bool:
    return all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


@pytest.mark.parametrize("count", [0, 1, 33, 300])
def test_gather_takes_the_rows_of_every_column(count: int, device: torch.device) -> None:
    given = columns(N_ROWS, device)
    index = torch.randint(0, N_ROWS, (count,), device=device)
    wanted = [column[index] for column in given]
    table = RowTable(given)
    assert same(table.gather(index), wanted)
    out = [torch.empty_like(x) for x in wanted]
    assert table.gather(index, out)[0] is out[0]
    assert same(out, wanted)


def test_the_stride_of_a_single_row_does_not_matter(device: torch.device) -> None:
    column = torch.randn(4, 6, device=device)[::9]
    assert column.is_contiguous()
    assert column.stride(0) == 54
    index = torch.zeros(3, dtype=torch.int64, device=device)
    (found,) = RowTable([column]).gather(index)
    assert found.is_contiguous()
    assert torch.equal(found, column[index])


@pytest.mark.parametrize("cast", [False, True])
@pytest.mark.parametrize("on_device", [False, True])
def test_scatter_and_push_write_every_column(
    cast: bool, on_device: bool, device: torch.device
) -> None:
    given = columns(N_ROWS, device)
    rows = columns(20, device)
    if cast:  # every other dtype that a caller may have
        kinds = (torch.float64, torch.float32, torch.int32, torch.float32)
        rows = [x.to(kinds[i % 4]) for i, x in enumerate(rows)]
    wanted = [column.clone() for column in given]
    index = torch.randperm(N_ROWS)[:20].to(device)
    table = RowTable(given)
    table.scatter(rows, index)
    for column, row in zip(wanted, rows, strict=True):
        column[index] = row.to(column.dtype)
    assert same(given, wanted)
    table.push(rows, torch.tensor(3, device=device) if on_device else 3)
    for column, row in zip(wanted, rows, strict=True):
        column[60:80] = row.to(column.dtype)
    assert same(given, wanted)


def test_columns_that_do_not_fit_raise(device: torch.device) -> None:
    column, index = (
        torch.zeros(4, 2, device=device),
        torch.zeros(3, dtype=torch.int64, device=device),
    )
    table = RowTable([column])
    with pytest.raises(ValueError, match="index must be a contiguous int64"):
        table.gather(index.int())
    with pytest.raises(ValueError, match=r"columns\[0\] must be contiguous"):
        RowTable([column.T])
    with pytest.raises(ValueError, match=r"columns\[1\] must have as many rows"):
        RowTable([column, column[:2]])
    with pytest.raises(ValueError, match="columns must hold at least one"):
        RowTable([])
    with pytest.raises(ValueError, match="out must have dtypes"):
        table.gather(index, [torch.zeros(3, 2, dtype=torch.int64, device=device)])
    with pytest.raises(ValueError, match=r"rows\[0\] must have shape \(3, 2\)"):
        table.scatter([column], index)
    with pytest.raises(ValueError, match="rows must hold 1 tensors"):
        table.scatter([], index)
    with pytest.raises(ValueError, match="position must be an int or an int64 tensor"):
        table.push([column], index)
