"""Attention of tokens: in whole sequences, or of one more token to a key-value cache.

Layers hand over queries, keys and values of tokens without padding, and get the output of each
token. Only attention itself knows which tokens belong together.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from sharpwave.primitives.transformer.tensors import rotated

__all__ = ["Attention", "SequenceAttention"]


class Attention(Protocol):
    """Attention of N tokens."""

    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        cos: Tensor,
        sin: Tensor,
        *,
        layer: int,
        scale: float,
    ) -> Tensor:
        """The output of attention.

        Args:
            q: [N, heads, D], before rotary positions are applied.
            k: [N, fewer heads, D], likewise.
            v: [N, fewer heads, D].
            cos: [N, D].
            sin: [N, D].
            layer: Number of the layer.
            scale: Scale of the attention scores.

        Returns:
            [N, heads * D].
        """
        ...


class SequenceAttention:
    """Each token of a sequence attends to those before it and to itself.

    Attention alone is computed on padded sequences: what it does is quick beside the layers where
    sequences are about as long, and for those torch has its fastest kernels.

    Args:
        lengths: [B] tokens of the sequences, which stand one after another.
        longest: The largest of them.
        n_tokens: Their sum.
        cache: Keeps keys and values where given: `update(keys, values, layer)` takes them as
            [B, heads, L, D].
    """

    def __init__(self, lengths: Tensor, longest: int, n_tokens: int, cache: Any = None) -> None:
        self._shape = len(lengths), longest
        self._cache = cache
        self._place: Tensor | None = None
        if n_tokens < len(lengths) * longest:
            padding = longest - lengths
            before = torch.cat([padding.new_zeros(1), padding.cumsum(0)[:-1]])
            before = before.repeat_interleave(lengths, output_size=n_tokens)
            self._place = torch.arange(n_tokens, device=lengths.device) + before

    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        cos: Tensor,
        sin: Tensor,
        *,
        layer: int,
        scale: float,
    ) -> Tensor:
        """The output of attention."""
        q, k = rotated(q, cos, sin), rotated(k, cos, sin)
        return self.attend(q, k, v, layer=layer, scale=scale)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, *, layer: int, scale: float) -> Tensor:
        """The output of attention for queries and keys with rotary positions already applied."""
        is_shared = k.shape[1] != q.shape[1]  # keys and values of several heads
        q, k, v = (self._padded(x) for x in (q, k, v))
        if self._cache is not None:
            k, v = self._cache.update(k, v, layer)
        with _without_plans(q.device):
            found = scaled_dot_product_attention(
                q, k, v, is_causal=True, scale=scale, enable_gqa=is_shared
            )
        flat = found.transpose(1, 2).reshape(self._shape[0] * self._shape[1], -1)
        return flat if self._place is None else flat[self._place]

    def _padded(self, x: Tensor) -> Tensor:
        """[N, heads, D] of tokens as [B, heads, L, D] of sequences."""
        if self._place is not None:
            room = x.new_zeros((self._shape[0] * self._shape[1], *x.shape[1:]))
            x = room.index_copy(0, self._place, x)
        return x.view(*self._shape, *x.shape[1:]).transpose(1, 2)


@contextlib.contextmanager
def _without_plans(device: torch.device) -> Iterator[None]:
    """Inside, torch leaves cuDNN's attention out.

    That plans anew for every shape, and batches of sequences hardly ever have the same one.
    """
    flags = torch.backends.cuda
    if device.type != "cuda" or not flags.cudnn_sdp_enabled():
        yield
        return
    flags.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        flags.enable_cudnn_sdp(True)
