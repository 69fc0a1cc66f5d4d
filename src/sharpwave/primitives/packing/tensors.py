"""Packing of token sequences on a device: the plan is the host's, tokens stay where they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from sharpwave.primitives.backend import HAS_TRITON, uses_triton
from sharpwave.primitives.packing import plan_packing

if HAS_TRITON:
    from sharpwave.primitives.packing import triton as jit

__all__ = ["PackedTokens", "PackingLayout", "pack_tokens", "plan_layout", "unpack_tokens"]


class PackingLayout(NamedTuple):
    """Placement of sequences; entry k is the k-th of the layout, by row and by column."""

    n_bins: int
    """Rows."""
    max_len: int
    """Columns."""
    total: int
    """Tokens of all sequences."""
    table: Tensor
    """[3, n] int64 on the device: column of the first token, length, and where the sequence starts
    in the concatenation."""
    first: Tensor
    """[n_bins + 1] int64 on the device: the entries of row b are first[b] to first[b + 1]."""
    places: Tensor
    """[total] int64 on the device: row · max_len + column of every token of the concatenation."""


class PackedTokens(NamedTuple):
    """Rows of tokens with what attention needs to keep the sequences apart."""

    input_ids: Tensor
    """[n_bins, max_len], pad_id where padded."""
    attention_mask: Tensor
    """[n_bins, max_len] bool, true at tokens."""
    position_ids: Tensor
    """[n_bins, max_len] int32, position inside the own sequence, 0 where padded."""
    segment_ids: Tensor
    """[n_bins, max_len] int32, 1, 2, ... for the sequences of a row, 0 where padded."""


def plan_layout(lengths: Sequence[int], max_len: int, device: torch.device | str) -> PackingLayout:
    """Decide where sequences go (first-fit decreasing) and send the plan to the device.

    Args:
        lengths: Length of each sequence, from 0 to max_len.
        max_len: Length of a row.
        device: Device of the tokens.

    Returns:
        The layout.

    Raises:
        ValueError: A length is negative or above max_len, or max_len is 0.

    Example:
        >>> layout = plan_layout([3, 5, 2], 5, "cpu")
        >>> layout.n_bins, layout.places.tolist()
        (2, [5, 6, 7, 0, 1, 2, 3, 4, 8, 9])
    """
    from sharpwave.primitives.packing import plan_packing  # needs the native module

    sizes = np.asarray(lengths, np.int64)
    plan = plan_packing(sizes, max_len)
    starts = np.cumsum(sizes) - sizes
    order = plan.sequence_index
    table = np.stack([plan.offsets, sizes[order], starts[order]])
    first = np.searchsorted(plan.bins, np.arange(plan.n_bins + 1))
    begins = np.empty_like(starts)
    begins[order] = plan.bins * max_len + plan.offsets
    total = int(sizes.sum())
    places = np.arange(total) + np.repeat(begins - starts, sizes)
    sent = [torch.from_numpy(x).to(device, non_blocking=True) for x in (table, first, places)]
    return PackingLayout(plan.n_bins, max_len, total, sent[0], sent[1], sent[2])


def pack_tokens(tokens: Tensor, layout: PackingLayout, *, pad_id: int = 0) -> PackedTokens:
    """Move tokens into their rows, in one launch.

    Args:
        tokens: [total], the sequences one after the other.
        layout: From `plan_layout`, on the tokens' device.
        pad_id: Token written where a row is not full.

    Returns:
        The rows.

    Raises:
        ValueError: tokens do not fit the layout.

    Example:
        >>> layout = plan_layout([3, 1], 5, "cpu")
        >>> packed = pack_tokens(torch.tensor([7, 8, 9, 4]), layout)
        >>> packed.input_ids.tolist(), packed.segment_ids.tolist()
        ([[7, 8, 9, 4, 0]], [[1, 1, 1, 2, 0]])
    """
    if tokens.shape != (layout.total,) or tokens.device != layout.table.device:
        raise ValueError(
            f"tokens must have shape ({layout.total},) on {layout.table.device},"
            f" got {tuple(tokens.shape)} on {tokens.device}"
        )
    shape, device = (layout.n_bins, layout.max_len), tokens.device
    packed = PackedTokens(
        torch.empty(shape, dtype=tokens.dtype, device=device),
        torch.empty(shape, dtype=torch.bool, device=device),
        torch.empty(shape, dtype=torch.int32, device=device),
        torch.empty(shape, dtype=torch.int32, device=device),
    )
    if uses_triton(tokens):
        jit.pack(tokens.contiguous(), layout.table, layout.first, pad_id, *packed)
    else:
        _pack(tokens, layout, pad_id, packed)
    return packed


def unpack_tokens(packed: Tensor, layout: PackingLayout) -> Tensor:
    """The concatenation [total, ...] of what a model gave for packed rows [n_bins, max_len, ...].

    Raises:
        ValueError: packed does not fit the layout.

    Example:
        >>> layout = plan_layout([1, 3], 5, "cpu")
        >>> unpack_tokens(torch.tensor([[7, 8, 9, 4, 0]]), layout).tolist()
        [4, 7, 8, 9]
    """
    if packed.shape[:2] != (layout.n_bins, layout.max_len):
        raise ValueError(
            f"packed must have shape [{layout.n_bins}, {layout.max_len}, ...],"
            f" got {tuple(packed.shape)}"
        )
    return packed.flatten(0, 1).index_select(0, layout.places)  # which has a gradient


def _pack(tokens: Tensor, layout: PackingLayout, pad_id: int, packed: PackedTokens) -> None:
    n = layout.table.shape[1]
    _, lengths, starts = layout.table
    # The entries of the layout in the order of the concatenation; empty sequences repeat 0 times.
    order = starts.argsort(stable=True)
    own = torch.repeat_interleave(order, lengths[order])
    positions = torch.arange(layout.total, device=tokens.device) - starts[own]
    bins = torch.searchsorted(layout.first[1:].contiguous(), own, right=True)
    segments = own - layout.first[bins] + 1
    for target, fill, value in zip(
        packed, (pad_id, False, 0, 0), (tokens, n > 0, positions, segments), strict=True
    ):
        target.fill_(fill)
        source = value if isinstance(value, Tensor) else torch.full_like(own, value)
        target.view(-1)[layout.places] = source.to(target.dtype)


def pack_sequences(sequences: Sequence[Tensor], max_len: int, pad_id: int) -> tuple[Any, ...]:
    """The fields of `sharpwave.primitives.PackedSequences` on the sequences' device."""
    kinds = {sequence.dtype for sequence in sequences}
    if any(kind.is_floating_point or kind.is_complex for kind in kinds):
        raise TypeError(f"tokens must be integers, got {', '.join(map(str, kinds))}")
    for i, sequence in enumerate(sequences):
        if sequence.dim() != 1 or sequence.device != sequences[0].device:
            raise ValueError(
                f"sequences[{i}] must have one axis on {sequences[0].device},"
                f" got {tuple(sequence.shape)} on {sequence.device}"
            )
    device, lengths = sequences[0].device, [len(sequence) for sequence in sequences]
    tokens = torch.cat([x if len(kinds) == 1 else x.to(torch.int64) for x in sequences])
    layout = plan_layout(lengths, max_len, device)
    plan = plan_packing(lengths, max_len)
    packed = pack_tokens(tokens, layout, pad_id=pad_id)
    ends = torch.tensor([0, *lengths])[[0, *(plan.sequence_index + 1)]].cumsum(0)
    tail = (torch.from_numpy(x) for x in (plan.sequence_index, plan.bins, plan.offsets))
    sent = (x.to(device, non_blocking=True) for x in (*tail, ends.to(torch.int32)))
    return (*packed, *sent)
