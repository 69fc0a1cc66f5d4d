"""What models have attended to: keys and values, or the tokens alone.

A model calls `update(keys, values, layer)` while it attends, as those of Hugging Face do with
theirs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["PromptCache", "SlotCache", "TokenCache"]


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
    """Keys and values of slots that each have a length of their own, in memory laid out once.

    Args:
        n_slots: How many sequences at once.
        capacity: Tokens of the longest.
        device: Where they lie.

    Attributes:
        lengths: [S] tokens of each slot so far.
    """

    def __init__(self, n_slots: int, capacity: int, device: torch.device) -> None:
        self.capacity = capacity
        self.lengths = torch.zeros(n_slots, dtype=torch.int64, device=device)
        self.longest = 0
        self._rows = torch.arange(n_slots, device=device)
        self._layers: dict[int, tuple[Tensor, Tensor]] = {}

    def put(self, prompts: PromptCache, which: Tensor, slots: Tensor, lengths: Tensor) -> None:
        """Begin sequences with prompts: prompt `which[i]` in slot `slots[i]`."""
        for layer, (keys, values) in prompts.layers.items():
            n_tokens = keys.shape[2]
            for stored, new in zip(self._layer(layer, keys), (keys, values), strict=True):
                stored[slots, :, :n_tokens] = new[which]
        self.lengths[slots] = lengths[which]
        self.longest = max(self.longest, int(lengths.max()))

    def begin_step(self) -> tuple[Tensor, Tensor]:
        """Make room for one token in each slot: its positions [S, 1], and the mask [S, 1, 1, K]."""
        self._write = self.lengths.clamp(max=self.capacity - 1)  # idle slots may be full
        self.lengths = self._write + 1
        self.longest = min(self.longest + 1, self.capacity)
        reach = torch.arange(self.longest, device=self.lengths.device)
        return self._write[:, None], (reach < self.lengths[:, None])[:, None, None]

    def update(
        self, keys: Tensor, values: Tensor, layer: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Store keys and values [S, heads, 1, D] of one token, and attend to all before."""
        k, v = self._layers[layer]
        k[self._rows, :, self._write] = keys[:, :, 0]
        v[self._rows, :, self._write] = values[:, :, 0]
        return k[:, :, : self.longest], v[:, :, : self.longest]

    def keep(self, slots: Tensor) -> None:
        """Go on with some of the slots, in this order."""
        self.lengths = self.lengths[slots]
        self.longest = int(self.lengths.max())
        self._rows = self._rows[: len(slots)]
        self._layers = {name: (k[slots], v[slots]) for name, (k, v) in self._layers.items()}

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
        n_slots: How many sequences at once.
        capacity: Tokens of the longest.
        device: Where they lie.

    Attributes:
        tokens: [S, capacity].
        lengths: [S] tokens of each slot so far.
    """

    def __init__(self, n_slots: int, capacity: int, device: torch.device) -> None:
        self.capacity = capacity
        self.tokens = torch.zeros((n_slots, capacity), dtype=torch.int64, device=device)
        self.lengths = torch.zeros(n_slots, dtype=torch.int64, device=device)

    def put(self, prompts: Tensor, which: Tensor, slots: Tensor, lengths: Tensor) -> None:
        """Begin sequences with prompts [B, P]: prompt `which[i]` in slot `slots[i]`."""
        self.tokens[slots, : prompts.shape[1]] = prompts[which]
        self.lengths[slots] = lengths[which]

    def append(self, ids: Tensor) -> Tensor:
        """Add a token [S] to each slot; returns the tokens [S, K] up to the longest."""
        write = self.lengths.clamp(max=self.capacity - 1)
        self.tokens.scatter_(1, write[:, None], ids[:, None])
        self.lengths = write + 1
        return self.tokens[:, : int(self.lengths.max())]

    def keep(self, slots: Tensor) -> None:
        """Go on with some of the slots, in this order."""
        self.tokens, self.lengths = self.tokens[slots], self.lengths[slots]
