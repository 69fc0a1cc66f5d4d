"""Sampling of tokens: truncation of distributions, and counter-based random numbers.

The number for a token is a function of seed, prompt, completion and position alone, so a text does
not depend on the batch that it is drawn in, on its order, or on what was drawn before.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

import torch
from torch import Tensor

from sharpwave.primitives.transformer.plain import inverse
from sharpwave.primitives.transformer.tensors import sample

__all__ = ["DrawnTokens", "Options", "draw", "mixed", "uniforms"]

_STRIDE = -0x61C8864680B583EB  # 2**64 over the golden ratio, as int64
_FIRST, _SECOND = -0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15


@dataclass(frozen=True, kw_only=True)
class Options:
    """Sampling options: changes of a distribution over tokens before one is drawn.

    Raises:
        ValueError: A value is impossible.
    """

    temperature: float = 1.0
    """Temperature: logits are divided by it; 0 is greedy decoding."""
    top_k: int = 0
    """Top-k sampling: keep the k most likely tokens; 0 keeps all."""
    top_p: float = 1.0
    """Nucleus sampling: keep the fewest most likely tokens whose probabilities reach this sum."""
    min_p: float = 0.0
    """Keep tokens with at least this fraction of the most likely one's probability."""
    repetition_penalty: float = 1.0
    """Divides the positive logits of tokens that stand in the sequence, multiplies the others."""
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    """Added to the logits of tokens; -inf forbids one."""
    min_tokens: int = 0
    """Minimum number of tokens before a completion may end."""

    def __post_init__(self) -> None:
        checks = {
            "temperature": (0 <= self.temperature < math.inf, "finite and at least 0"),
            "top_k": (self.top_k >= 0, "at least 0"),
            "top_p": (0 < self.top_p <= 1, "in (0, 1]"),
            "min_p": (0 <= self.min_p <= 1, "in [0, 1]"),
            "repetition_penalty": (self.repetition_penalty > 0, "positive"),
            "min_tokens": (self.min_tokens >= 0, "at least 0"),
        }
        for name, (is_right, wanted) in checks.items():
            if not is_right:
                raise ValueError(f"{name} must be {wanted}, got {getattr(self, name)}")

    @cached_property
    def keeps_all(self) -> bool:
        """True if tokens are drawn from softmax(logits / temperature) as it is."""
        return self.temperature > 0 and replace(self, temperature=1.0) == Options()

    @property
    def scale(self) -> float:
        """The temperature of log-probabilities: the most likely token is drawn from all at 1."""
        return self.temperature or 1.0


@dataclass(frozen=True)
class DrawnTokens:
    """Tokens of one step.

    Attributes:
        tokens: [S] the tokens.
        log_probs: [S] log-probabilities under the distribution that they were drawn from.
        plain_log_probs: [S] log-probabilities under softmax(logits / temperature), as learning
            computes them.
    """

    tokens: Tensor
    log_probs: Tensor
    plain_log_probs: Tensor


def draw(
    logits: Tensor,
    numbers: Tensor,
    options: Options,
    *,
    seen: Tensor | None = None,
    too_early: Tensor | None = None,
    stops: Tensor | None = None,
) -> DrawnTokens:
    """Draw a token from each row of logits.

    Args:
        logits: [S, V].
        numbers: [S] uniform in [0, 1).
        options: Changes of the distributions.
        seen: [S, V] true for tokens that are in the sequence, for `repetition_penalty`.
        too_early: [S] true where none of `stops` may be drawn.
        stops: [V] true for tokens that end a completion.

    Example:
        >>> drawn = draw(torch.tensor([[0.0, 9.0]]), torch.tensor([0.5]), Options())
        >>> drawn.tokens.item()
        1
    """
    if options.keeps_all:
        tokens, log_probs = sample(logits, numbers, options.temperature)
        return DrawnTokens(tokens, log_probs, log_probs)
    logits = logits.float()
    plain = (logits if options.scale == 1 else logits / options.scale).log_softmax(-1)
    changed = _changed(logits, options, seen, too_early, stops)
    scores = plain if changed is logits else (changed / options.scale).log_softmax(-1)
    kept = _kept(scores, options)
    if options.temperature == 0:
        tokens = kept.argmax(-1)
        log_probs = torch.zeros_like(kept[:, 0])  # there was nothing else to draw
    else:
        tokens = inverse(kept, numbers)
        log_probs = kept.gather(1, tokens[:, None])[:, 0]
    return DrawnTokens(tokens, log_probs, plain.gather(1, tokens[:, None])[:, 0])


def _changed(
    logits: Tensor,
    options: Options,
    seen: Tensor | None,
    too_early: Tensor | None,
    stops: Tensor | None,
) -> Tensor:
    if options.logit_bias:
        logits = logits + _bias(tuple(options.logit_bias.items()), logits.shape[1], logits.device)
    if options.repetition_penalty != 1 and seen is not None:
        penalty = options.repetition_penalty
        penalized = torch.where(logits > 0, logits / penalty, logits * penalty)
        logits = torch.where(seen, penalized, logits)
    if too_early is not None and stops is not None:
        logits = logits.masked_fill(too_early[:, None] & stops, -math.inf)
    return logits


@lru_cache(maxsize=8)
def _bias(biases: tuple[tuple[int, float], ...], size: int, device: torch.device) -> Tensor:
    """[V] bias of logits; kept, because a graph cannot bring it to its device."""
    bias = torch.zeros(size)
    for token, value in biases:
        bias[token] = value
    return bias.to(device)


def _kept(scores: Tensor, options: Options) -> Tensor:
    """Log-probabilities [S, V] of what is kept, -inf for the rest."""
    n_tokens = scores.shape[1]
    kept = scores
    if 0 < options.top_k < n_tokens:
        least = scores.topk(options.top_k, -1).values[:, -1:]
        kept = kept.masked_fill(scores < least, -math.inf)
    if options.min_p > 0:
        least = scores.max(-1, keepdim=True).values + math.log(options.min_p)
        kept = kept.masked_fill(scores < least, -math.inf)
    if options.top_p < 1:
        kept = _nucleus(kept.log_softmax(-1), options.top_p)
    return kept if kept is scores else kept.log_softmax(-1)


def _nucleus(scores: Tensor, top_p: float) -> Tensor:
    """The fewest most likely tokens whose probabilities reach `top_p`; always the first."""
    ordered, order = scores.sort(-1, descending=True)
    probs = ordered.exp()
    before = probs.cumsum(-1) - probs
    dropped = torch.zeros_like(scores, dtype=torch.bool).scatter(1, order, before >= top_p)
    return scores.masked_fill(dropped, -math.inf)


def mixed(seed: int, *keys: Tensor) -> Tensor:
    """Bits [S] (int64) that depend on a seed and on keys [S] (int64) alone, and on all of them."""
    bits = torch.full_like(keys[0], _wrapped(seed))
    for key in keys:
        bits = _mixed(bits ^ (key + 1) * _STRIDE)
    return bits


def uniforms(bits: Tensor, key: Tensor) -> Tensor:
    """Numbers [S] in [0, 1), float64, that depend on bits of `mixed` and one more key [S] alone.

    Example:
        >>> keys = torch.arange(3)
        >>> torch.equal(uniforms(mixed(7, keys), keys)[1:], uniforms(mixed(7, keys[1:]), keys[1:]))
        True
    """
    bits = _mixed(bits ^ (key + 1) * _STRIDE)
    return _shifted(bits, 11).double() * 2.0**-53


def _mixed(bits: Tensor) -> Tensor:
    """SplitMix64: every bit of the result depends on every bit of the input."""
    bits = bits + _STRIDE
    bits = (bits ^ _shifted(bits, 30)) * _FIRST
    bits = (bits ^ _shifted(bits, 27)) * _SECOND
    return bits ^ _shifted(bits, 31)


def _shifted(bits: Tensor, count: int) -> Tensor:
    """Shifted to the right, with zeros from the left, which signed integers do not do."""
    return (bits >> count) & ((1 << (64 - count)) - 1)


def _wrapped(number: int) -> int:
    """An integer wrapped to its last 64 bits, as int64."""
    return (number + 2**63) % 2**64 - 2**63
