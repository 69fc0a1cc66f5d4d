"""A small causal transformer: enough of a language model to learn tasks on a laptop."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import linear, rms_norm, scaled_dot_product_attention, silu

__all__ = ["Transformer"]


class Transformer(nn.Module):
    """A decoder of tokens: RMS norms, rotary positions, gated layers, a head tied to the embedding.

    Args:
        vocab_size: Number of tokens.
        hidden: Length of a hidden state.
        layers: Number of layers.
        heads: Attention heads of a layer; `hidden` is a multiple of twice their number.
        max_positions: Longest sequence.
        seed: Random seed of the initial weights.

    Attributes:
        arguments: Arguments of its construction.

    Raises:
        ValueError: `hidden` does not divide into heads.

    Example:
        >>> model = Transformer(vocab_size=16, hidden=32)
        >>> model(torch.tensor([[1, 2, 3]])).shape
        torch.Size([1, 3, 16])
    """

    def __init__(
        self,
        vocab_size: int,
        *,
        hidden: int = 64,
        layers: int = 2,
        heads: int = 4,
        max_positions: int = 1024,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if hidden % (2 * heads):
            raise ValueError(f"hidden must be a multiple of 2 * heads, got {hidden} and {heads}")
        self.arguments = {
            "vocab_size": vocab_size,
            "hidden": hidden,
            "layers": layers,
            "heads": heads,
            "max_positions": max_positions,
            "seed": seed,
        }
        self.vocab_size = vocab_size
        self.max_positions = max_positions
        rng = np.random.Generator(np.random.Philox(seed))
        self.embedding = _weight(rng, vocab_size, hidden)
        self.layers = nn.ModuleList(_Layer(rng, index, hidden, heads) for index in range(layers))
        self.norm = nn.Parameter(torch.ones(hidden))
        angles = _angles(max_positions, hidden // heads)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, ids: Tensor) -> Tensor:
        """Logits [B, L, V] of the token after each of `ids` [B, L]."""
        return linear(self.hidden(ids), self.embedding)

    def hidden(
        self, ids: Tensor, positions: Tensor | None = None, cache: Any = None, mask: Any = None
    ) -> Tensor:
        """Hidden states [B, L, H] of tokens, from which the head makes logits.

        Args:
            ids: [B, L] tokens.
            positions: [B, L] where they stand; from 0 on when not given.
            cache: What came before: `update(keys, values, layer)` takes keys and values
                [B, heads, L, D] and returns all to attend to.
            mask: [B, 1, L, K] what each token attends to; all before it and itself when not given.
        """
        length = ids.shape[1]
        if length > self.max_positions:
            raise ValueError(f"ids must have at most {self.max_positions} tokens, got {length}")
        where = slice(0, length) if positions is None else positions
        cos, sin = self.cos[where], self.sin[where]  # type: ignore[index]
        if positions is not None:
            cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
        x = self.embedding[ids]
        for layer in self.layers:
            x = layer(x, cos, sin, cache, mask)
        return rms_norm(x, self.norm.shape, self.norm, 1e-6)

    @torch.no_grad()
    def generate(
        self, ids: Tensor, max_new_tokens: int, *, generator: torch.Generator | None = None
    ) -> Tensor:
        """Prompts [B, P] with tokens drawn after them, [B, P + max_new_tokens]."""
        for _ in range(max_new_tokens):
            probs = self(ids)[:, -1].softmax(-1)
            ids = torch.cat([ids, torch.multinomial(probs, 1, generator=generator)], 1)
        return ids


class _Layer(nn.Module):
    """Attention and a gated layer, each added to its input."""

    def __init__(self, rng: np.random.Generator, index: int, hidden: int, heads: int) -> None:
        super().__init__()
        self.index, self.heads = index, heads
        self.attention_norm = nn.Parameter(torch.ones(hidden))
        self.qkv = _weight(rng, 3 * hidden, hidden)
        self.out = _weight(rng, hidden, hidden)
        self.mlp_norm = nn.Parameter(torch.ones(hidden))
        self.gate_up = _weight(rng, 4 * hidden, hidden)
        self.down = _weight(rng, hidden, 2 * hidden)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, cache: Any, mask: Any) -> Tensor:
        batch, length, hidden = x.shape
        normed = rms_norm(x, (hidden,), self.attention_norm, 1e-6)
        qkv = linear(normed, self.qkv).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q, k = _rotate(qkv[:2], cos, sin)
        v = qkv[2]
        if cache is not None:
            k, v = cache.update(k, v, self.index)
        attended = scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
        x = x + linear(attended.transpose(1, 2).reshape(batch, length, hidden), self.out)
        gate, up = linear(rms_norm(x, (hidden,), self.mlp_norm, 1e-6), self.gate_up).chunk(2, -1)
        return x + linear(silu(gate) * up, self.down)


def _weight(rng: np.random.Generator, rows: int, columns: int) -> nn.Parameter:
    return nn.Parameter(torch.from_numpy(rng.normal(0, 0.02, (rows, columns)).astype(np.float32)))


def _angles(positions: int, dim: int) -> Tensor:
    """Rotary angles [positions, dim], each of the first half again in the second."""
    rates = 10_000.0 ** (-torch.arange(0, dim, 2) / dim)
    return torch.outer(torch.arange(positions), rates).repeat(1, 2)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat([-second, first], -1) * sin
