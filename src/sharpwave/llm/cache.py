"""Caches of what models attended to: keys and values (KV cache), or the tokens alone.

A model calls `update(keys, values, layer)` while it attends, as those of Hugging Face do with
theirs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from sharpwave.primitives.transformer import tensors as kernels

__all__ = ["PromptCache", "SlotCache", "TokenCache", "first"]


def first(column: Tensor, rows: Tensor) -> Tensor:
    """The first rows of a column, after these rows of it were moved there."""
    kept = column[: len(rows)]
    kept.copy_(column[rows])
    return kept


class PromptCache:
    """Keys and values of prompts, as they are made.

    Attributes:
        layers: Keys and values [B, heads, P, D] by layer.
    """

    def __init__(self) -> None:
        self.layers: dict[int, tuple[Tensor, Tensor]] = {}

    def update(
        self, keys: Tensor, values: Tensor, layer: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Keep keys and values of a layer, and attend to them alone."""
        self.layers[layer] = keys, values
        return keys, values

    # What models of Hugging Face ask of a cache

    is_compileable = False

    def get_seq_length(self, layer_idx: int = 0) -> int:  # noqa: ARG002
        """Tokens before those that come now."""
        return 0

    def get_query_offset(self, layer_idx: int | None = None) -> int:  # noqa: ARG002
        """Position of the first token that comes now."""
        return 0

    def get_mask_sizes(self, query_length: int, layer_idx: int | None = None) -> tuple[int, int]:  # noqa: ARG002
        """Tokens to attend to, and the first of them."""
        return query_length, 0


class SlotCache:
    """Key-value cache of slots with a length of their own each, in memory laid out once.

    Everything about a step lies where it lay before, so that a device can be told to repeat one.

    Args:
        n_slots: Number of sequences at once.
        capacity: Maximum number of tokens of a sequence.
        device: Device of the memory.

    Attributes:
        lengths: [S] tokens of each slot so far.
    """

    def __init__(self, n_slots: int, capacity: int, device: torch.device) -> None:
        self.capacity = capacity
        self.lengths = torch.zeros(n_slots, dtype=torch.int64, device=device)
        self.longest = capacity if device.type == "cuda" else 0
        self._is_static = device.type == "cuda"
        self._rows = torch.arange(n_slots, device=device)
        self._write = torch.zeros_like(self.lengths)
        self._layers: dict[int, tuple[Tensor, Tensor]] = {}
        self._mask: Tensor | None = None
        self._whole = self.lengths, self._write, self._rows, self._layers

    def put(self, prompts: PromptCache, which: Tensor, slots: Tensor, lengths: Tensor) -> None:
        """Begin sequences with prompts: prompt `which[i]` in slot `slots[i]`."""
        for layer, (keys, values) in prompts.layers.items():
            n_tokens = keys.shape[2]
            for stored, new in zip(self._layer(layer, keys), (keys, values), strict=True):
                stored[slots, :, :n_tokens] = new[which]
        self.lengths[slots] = lengths[which]
        if not self._is_static:
            self.longest = max(self.longest, int(lengths.max()))

    def begin(self) -> Tensor:
        """Make room for one token in each slot: its positions [S]."""
        torch.clamp(self.lengths, max=self.capacity - 1, out=self._write)  # idle ones may be full
        torch.add(self._write, 1, out=self.lengths)
        if not self._is_static:
            self.longest = min(self.longest + 1, self.capacity)
        self._mask = None
        return self._write

    @property
    def mask(self) -> Tensor:
        """Attention mask [S, 1, 1, K] of the token that comes now."""
        if self._mask is None:
            reach = torch.arange(self.longest, device=self.lengths.device)
            self._mask = (reach < self.lengths[:, None])[:, None, None]
        return self._mask

    def update(
        self, keys: Tensor, values: Tensor, layer: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Store keys and values [S, heads, 1, D] of one token, and attend to all before."""
        k, v = self._layers[layer]
        k[self._rows, :, self._write] = keys[:, :, 0]
        v[self._rows, :, self._write] = values[:, :, 0]
        return k[:, :, : self.longest], v[:, :, : self.longest]

    def attend(
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
        """Attention of one token in each slot, as layers ask for it."""
        if self._is_static:
            keys, values = self._layers[layer]
            q = kernels.store(q, k, v, cos, sin, self._write, keys, values)
            return kernels.attend(q, keys, values, self.lengths, scale).flatten(1)
        is_shared = k.shape[1] != q.shape[1]
        q, k = kernels.rotated(q, cos, sin), kernels.rotated(k, cos, sin)
        keys, values = self.update(k[:, :, None], v[:, :, None], layer)
        found = scaled_dot_product_attention(
            q[:, :, None], keys, values, attn_mask=self.mask, scale=scale, enable_gqa=is_shared
        )
        return found.view(len(q), -1)

    def forget(self, is_idle: Tensor) -> None:
        """Nothing is remembered of slots [S] that are idle, so that they attend to nothing."""
        self.lengths.masked_fill_(is_idle, 0)

    def keep(self, slots: Tensor) -> None:
        """Go on with some of the slots, in this order, in the first part of the same memory."""
        n_slots = len(slots)
        self.lengths, self._write = (first(x, slots) for x in (self.lengths, self._write))
        self.longest = self.longest if self._is_static else int(self.lengths.max())
        self._rows = self._rows[:n_slots]
        self._layers = {
            name: (first(k, slots), first(v, slots)) for name, (k, v) in self._layers.items()
        }

    def restart(self) -> None:
        """Empty all slots, also those that were not kept."""
        self.lengths, self._write, self._rows, self._layers = self._whole
        self.lengths.zero_()
        self.longest = self.capacity if self._is_static else 0

    def _layer(self, layer: int, like: Tensor) -> tuple[Tensor, Tensor]:
        if layer not in self._layers:
            shape = (len(self._rows), like.shape[1], self.capacity, like.shape[3])
            # Zeros: what is masked is still multiplied by 0, and memory may hold NaN.
            self._layers[layer] = like.new_zeros(shape), like.new_zeros(shape)
        return self._layers[layer]

    is_compileable = False

    def get_seq_length(self, layer_idx: int = 0) -> int:  # noqa: ARG002
        """Tokens before the one that comes now, of the longest slot."""
        return self.longest - 1


class TokenCache:
    """The tokens of slots, for models that must see all of them at every step.

    Args:
        n_slots: Number of sequences at once.
        capacity: Maximum number of tokens of a sequence.
        device: Device of the memory.

    Attributes:
        tokens: [S, capacity].
        lengths: [S] tokens of each slot so far.
    """

    def __init__(self, n_slots: int, capacity: int, device: torch.device) -> None:
        self.capacity = capacity
        self.tokens = torch.zeros((n_slots, capacity), dtype=torch.int64, device=device)
        self.lengths = torch.zeros(n_slots, dtype=torch.int64, device=device)
        self._whole = self.tokens, self.lengths

    def put(self, prompts: Tensor, which: Tensor, slots: Tensor, lengths: Tensor) -> None:
        """Begin sequences with prompts [B, P]: prompt `which[i]` in slot `slots[i]`."""
        self.tokens[slots, : prompts.shape[1]] = prompts[which]
        self.lengths[slots] = lengths[which]

    def append(self, ids: Tensor) -> Tensor:
        """Add a token [S] to each slot; returns the tokens [S, K] up to the longest."""
        write = self.lengths.clamp(max=self.capacity - 1)
        self.tokens.scatter_(1, write[:, None], ids[:, None])
        self.lengths.copy_(write + 1)
        return self.tokens[:, : int(self.lengths.max())]

    def forget(self, is_idle: Tensor) -> None:
        """Nothing is remembered of slots [S] that are idle."""
        self.lengths.masked_fill_(is_idle, 0)

    def keep(self, slots: Tensor) -> None:
        """Go on with some of the slots, in this order, in the first part of the same memory."""
        self.tokens, self.lengths = first(self.tokens, slots), first(self.lengths, slots)

    def restart(self) -> None:
        """Empty all slots, also those that were not kept."""
        self.tokens, self.lengths = self._whole
        self.lengths.zero_()
