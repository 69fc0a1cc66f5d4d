from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from sharpwave import primitives as sp
from tests.reference.packing import first_fit_decreasing


def test_lengths_give_source_positions_masks_and_positions() -> None:
    packed, masks, positions = sp.pack_sequences(np.array([3, 5, 2, 4]), 6)
    assert packed.tolist() == [[3, 4, 5, 6, 7, -1], [10, 11, 12, 13, 8, 9], [0, 1, 2, -1, -1, -1]]
    assert positions.tolist() == [[0, 1, 2, 3, 4, 0], [0, 1, 2, 3, 0, 1], [0, 1, 2, 0, 0, 0]]
    assert packed.dtype == positions.dtype == np.int64
    assert masks.dtype == bool
    np.testing.assert_array_equal(masks, packed >= 0)


@pytest.mark.parametrize("dtype", [np.uint32, np.int32, np.int64, np.uint8])
def test_token_arrays_give_rows_that_say_where_everything_is(dtype: npt.DTypeLike) -> None:
    sequences = [np.arange(10 * i, 10 * i + n, dtype=dtype) for i, n in enumerate([3, 5, 2, 4])]
    packed = sp.pack_sequences(sequences, 6, pad_id=7)
    assert isinstance(packed, sp.PackedSequences)
    assert packed.input_ids.dtype == dtype
    assert packed.input_ids.tolist() == [
        [10, 11, 12, 13, 14, 7],
        [30, 31, 32, 33, 20, 21],
        [0, 1, 2, 7, 7, 7],
    ]
    assert packed.segment_ids.tolist() == [
        [1, 1, 1, 1, 1, 0],
        [1, 1, 1, 1, 2, 2],
        [1, 1, 1, 0, 0, 0],
    ]
    assert packed.position_ids.tolist() == [
        [0, 1, 2, 3, 4, 0],
        [0, 1, 2, 3, 0, 1],
        [0, 1, 2, 0, 0, 0],
    ]
    assert packed.sequence_index.tolist() == [1, 3, 2, 0]
    assert packed.bins.tolist() == [0, 1, 1, 2]
    assert packed.offsets.tolist() == [0, 0, 4, 0]
    assert packed.cu_seqlens.tolist() == [0, 5, 9, 11, 14]
    assert packed.cu_seqlens.dtype == np.int32
    line = packed.input_ids[packed.attention_mask]
    for k, index in enumerate(packed.sequence_index):
        start, end = packed.cu_seqlens[k : k + 2]
        np.testing.assert_array_equal(line[start:end], sequences[index])


def test_plan_equals_first_fit_decreasing() -> None:
    rng = np.random.default_rng(0)
    for n, high in ((1, 4), (200, 9), (300, 100), (64, 65)):
        lengths = rng.integers(0, high + 1, n)
        plan = sp.plan_packing(lengths, high)
        want = first_fit_decreasing(lengths.tolist(), high)
        assert plan.n_bins == len(want)
        got = [plan.sequence_index[plan.bins == b].tolist() for b in range(plan.n_bins)]
        assert got == want


def test_lists_of_integers_are_lengths_and_mixed_dtypes_become_int64() -> None:
    packed, _, _ = sp.pack_sequences([2, 1], 3)
    assert packed.tolist() == [[0, 1, 2]]
    mixed = sp.pack_sequences([[1, 2], np.array([3], np.int32), np.array([], np.float64)], 3)
    assert mixed.input_ids.tolist() == [[1, 2, 3]]
    assert mixed.input_ids.dtype == np.int64


def test_torch_in_gives_torch_out() -> None:
    packed = sp.pack_sequences([torch.tensor([1, 2]), torch.tensor([3])], 4)
    assert all(isinstance(field, torch.Tensor) for field in packed)
    assert packed.input_ids.tolist() == [[1, 2, 3, 0]]
    assert isinstance(sp.pack_sequences(torch.tensor([1, 2]), 4)[0], torch.Tensor)


def test_nothing_packs_into_no_rows() -> None:
    assert sp.pack_sequences([], 4).input_ids.shape == (0, 4)
    packed, masks, positions = sp.pack_sequences(np.zeros(0, np.int64), 4)
    assert packed.shape == masks.shape == positions.shape == (0, 4)


@pytest.mark.parametrize(
    ("sequences", "max_len", "message"),
    [
        ([3, 5], 4, "from 0 to max_len = 4, got 5 at index 1"),
        ([3, -1], 4, "got -1 at index 1"),
        ([0], 0, "max_len must be at least 1"),
        ([[1, 2, 3]], 2, "got 3 at index 0"),
        ([[1]], 0, "max_len must be at least 1"),
        ([3], -4, "max_len must be an integer from 0"),
        ([[[1]]], 2, r"sequences\[0\] must have shape \[length\]"),
        (np.zeros((2, 2), object), 4, "sequences"),
        ([1], 2**62, "addressable"),
    ],
)
def test_what_cannot_be_packed_raises_and_says_why(
    sequences: Any, max_len: int, message: str
) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        sp.pack_sequences(sequences, max_len)


@pytest.mark.parametrize(
    "sequences", [[1.5], np.array([1.5]), [[1.5]], [np.array([1.5])], ["ab"], 5, None, "ab", [None]]
)
def test_what_is_not_tokens_or_lengths_raises(sequences: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        sp.pack_sequences(sequences, 4)


@pytest.mark.parametrize("pad_id", [-1, 256, 1.5, "a"])
def test_pad_id_must_fit_the_tokens(pad_id: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        sp.pack_sequences([np.array([1], np.uint8)], 4, pad_id=pad_id)
