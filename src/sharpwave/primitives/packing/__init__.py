"""Sequence packing: many short sequences into few rows of one length."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from sharpwave import _native
from sharpwave.types import Array

if TYPE_CHECKING:
    import torch

__all__ = ["PackedSequences", "PackingPlan", "pack_sequences", "plan_packing"]


class PackingPlan(NamedTuple):
    """Placement of each sequence: entry k is the k-th of the packed layout, by bin and offset."""

    n_bins: int
    """Rows needed."""
    sequence_index: NDArray[np.int64]
    """[n], index of the sequence in the input."""
    bins: NDArray[np.int64]
    """[n], row."""
    offsets: NDArray[np.int64]
    """[n], column of its first token."""


class PackedSequences(NamedTuple):
    """Packed token rows, with what keeps sequences apart in attention: positions and segments."""

    input_ids: Any
    """[bins, max_len], the sequences' common dtype (int64 if they differ), pad_id where padded."""
    attention_mask: Any
    """[bins, max_len] bool, true at tokens."""
    position_ids: Any
    """[bins, max_len] int32, position inside the own sequence, 0 where padded."""
    segment_ids: Any
    """[bins, max_len] int32, 1, 2, ... for the sequences of a row, 0 where padded."""
    sequence_index: Any
    """[n] int64, input index of the k-th sequence of the layout (by bin, by offset)."""
    bins: Any
    """[n] int64, row of the k-th sequence."""
    offsets: Any
    """[n] int64, column of its first token."""
    cu_seqlens: Any
    """[n + 1] int32, where the k-th sequence starts in `input_ids[attention_mask]`."""


def plan_packing(lengths: Any, max_len: int) -> PackingPlan:
    """Decides where sequences go, without moving tokens.

    First-fit decreasing: by falling length, equal lengths in input order, each into the first row
    with room; O(n log n).

    Args:
        lengths: [n] integers, each from 0 to max_len.
        max_len: Length of a row.

    Returns:
        The plan.

    Raises:
        ValueError: A length is negative or above max_len, or max_len is 0.

    Example:
        >>> plan = plan_packing([3, 5, 2], 5)
        >>> plan.n_bins, plan.sequence_index.tolist(), plan.offsets.tolist()
        (2, [1, 0, 2], [0, 0, 3])
    """
    return PackingPlan(*_native.plan_packing(lengths, max_len))


@overload
def pack_sequences(
    sequences: Sequence[Sequence[int] | Array | torch.Tensor], max_len: int, *, pad_id: int = 0
) -> PackedSequences: ...


@overload
def pack_sequences(
    sequences: Sequence[int] | Array | torch.Tensor, max_len: int, *, pad_id: int = 0
) -> tuple[Any, Any, Any]: ...


def pack_sequences(
    sequences: Any, max_len: int, *, pad_id: int = 0
) -> PackedSequences | tuple[Any, Any, Any]:
    """Packs sequences into rows of max_len, first-fit decreasing (see `plan_packing`).

    Args:
        sequences: Either the lengths of the sequences, an array [n] or list of integers; or the
            sequences, a list of token arrays; CUDA tensors are packed on their device.
        max_len: Length of a row.
        pad_id: Token written where a row is not full (token arrays only).

    Returns:
        For lengths `(packed, masks, positions)`, each [bins, max_len]: packed (int64) is the index
        of the token in the concatenation of all sequences, -1 where padded; masks (bool) is true
        at tokens; positions (int64) is the position inside the own sequence.
        For token arrays a `PackedSequences`. An empty list counts as no token arrays.

    Raises:
        ValueError: A sequence is longer than max_len, a length is negative, or max_len is 0.
        TypeError: Lengths or tokens are not integers.

    Example:
        >>> packed, masks, positions = pack_sequences([3, 5, 2], 5)
        >>> packed.tolist()
        [[3, 4, 5, 6, 7], [0, 1, 2, 8, 9]]
        >>> pack_sequences([[7, 8, 9], [4]], 5).input_ids.tolist()
        [[7, 8, 9, 4, 0]]
    """
    if _are_on_device(sequences):
        from sharpwave.primitives.packing import tensors

        return PackedSequences(*tensors.pack_sequences(sequences, max_len, index(pad_id)))
    if _are_lengths(sequences):
        return _native.pack_lengths(sequences, max_len)
    return PackedSequences(*_native.pack_tokens(sequences, max_len, index(pad_id)))


def _are_lengths(sequences: Any) -> bool:
    if isinstance(sequences, Sequence):
        return len(sequences) > 0 and not hasattr(sequences[0], "__len__")
    ndim = getattr(sequences, "ndim", None)
    return ndim == 1 and str(sequences.dtype) != "object"


def _are_on_device(sequences: Any) -> bool:
    return isinstance(sequences, Sequence) and any(
        getattr(x, "is_cuda", False) for x in sequences[:1]
    )
