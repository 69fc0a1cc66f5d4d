"""Sequences of different lengths in flat tensors of tokens, without padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Sequences", "check_shape", "read_tokens", "widen"]


class Sequences(NamedTuple):
    """Positions of B sequences in tensors [T] that hold their tokens one after another.

    Example:
        >>> sequences = Sequences.of([2, 0, 1])
        >>> sequences.sum(torch.tensor([1.0, 2.0, 3.0])).tolist()
        [3.0, 0.0, 3.0]
        >>> sequences.spread(torch.tensor([5.0, 6.0, 7.0])).tolist()
        [5.0, 5.0, 7.0]
    """

    ids: Tensor
    """[T] int64, number of the sequence that a token belongs to, ascending."""
    lengths: Tensor
    """[B] int64, number of tokens of each sequence; it may be 0."""

    @classmethod
    def of(
        cls,
        lengths: Sequence[int] | Tensor,
        device: torch.device | str | None = None,
        *,
        total: int | None = None,
    ) -> Sequences:
        """The sequences of these lengths.

        Args:
            lengths: [B] number of tokens of each sequence.
            device: Device of the tokens; that of the lengths if None.
            total: T, their sum, for lengths that are known to be right: then those of a GPU are not
                waited for.

        Returns:
            The sequences, on this device.

        Raises:
            ValueError: A length is negative, or the lengths have another shape.
        """
        counts = torch.as_tensor(lengths, dtype=torch.int64)
        if counts.dim() != 1:
            raise ValueError(f"lengths must have shape [B], got {tuple(counts.shape)}")
        if total is None and counts.numel() and int(counts.min()) < 0:
            raise ValueError(f"lengths must not be negative, got {int(counts.min())}")
        ids = torch.repeat_interleave(counts, output_size=total)
        return cls(ids.to(device), counts.to(device))

    def sum(self, tokens: Tensor) -> Tensor:
        """Σ_t x_t of each sequence, 0 for an empty one: [T] -> [B]."""
        # Unlike index_add this adds in the same order every time, on a GPU too. The lengths are
        # known to be right, and checking them would wait for the device.
        total: Tensor = torch.segment_reduce(tokens, "sum", lengths=self.lengths, unsafe=True)
        return total

    def mean(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Σ_t m_t x_t / Σ_t m_t of each sequence, 0 where nothing counts: [T] -> [B]."""
        return self.sum(tokens * mask) / self.sum(mask).clamp_min(1)

    def spread(self, values: Tensor) -> Tensor:
        """The value of its sequence for every token: [B] -> [T]."""
        return values[self.ids]


def widen(x: Tensor) -> Tensor:
    """The same numbers in float32, or in float64 if that is what they are in.

    Sums of bfloat16 lose the small differences that these losses are made of.
    """
    return x if x.dtype == torch.float64 else x.float()


def check_shape(name: str, x: Tensor, shape: torch.Size) -> None:
    """Raises ValueError where the argument of this name has another shape."""
    if x.shape != shape:
        raise ValueError(f"{name} must have shape {tuple(shape)}, got {tuple(x.shape)}")


def read_tokens(sequences: Sequences, mask: Tensor | None, name: str, tokens: Tensor) -> Tensor:
    """Numbers [T] of tokens in float32 or float64, 0 where they do not count.

    Raises:
        ValueError: The argument of this name, or the mask, has another shape.
    """
    check_shape(name, tokens, sequences.ids.shape)
    tokens = widen(tokens)
    if mask is None:
        return tokens
    check_shape("mask", mask, sequences.ids.shape)
    return tokens.where(mask.bool(), 0.0)
