"""The losses of GRPO and its relatives, on completions that lie one after another.

Group-relative policy optimization (Shao et al., 2024) samples several completions of a prompt and
gives every token of a completion the same advantage. Its relatives differ in how far the ratio of
the policy to the old one may move a token, and in what a sum over tokens is divided by.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from sharpwave.losses.kinds import pick
from sharpwave.losses.sequences import Sequences, check_shape, read_tokens, widen
from sharpwave.primitives.llm.tensors import token_kl_terms

__all__ = ["GRPO_KINDS", "grpo_loss", "grpo_totals"]

LARGEST = 40.0
"""Of logarithms before exp: beyond it products would overflow, and 0 · ∞ make gradients NaN."""


class _Tokens(NamedTuple):
    """Inputs of a kind of loss: [T] unless said otherwise."""

    log_probs: Tensor
    log_ratio: Tensor
    ratio: Tensor
    """Of the token or of its sequence, as the ratio level says."""
    advantages: Tensor
    mask: Tensor
    """1 where a token counts, otherwise 0."""
    kept: Tensor
    """The same, and 0 where the entropy is too low."""
    weights: Tensor
    sequences: Sequences
    totals: Tensor
    """[2] sequences and tokens of the whole update."""
    clip_low: float
    clip_high: float
    delta: float | None
    temperatures: tuple[float, float]
    gammas: tuple[tuple[float, float], tuple[float, float]]
    max_length: int | None


def _clipped(t: _Tokens) -> Tensor:
    clipped = t.ratio.clamp(1 - t.clip_low, 1 + t.clip_high)
    ratio = t.ratio if t.delta is None else t.ratio.clamp(max=t.delta)
    return -t.kept * t.weights * torch.minimum(ratio * t.advantages, clipped * t.advantages)


def _cispo(t: _Tokens) -> Tensor:
    ratio = t.ratio.detach().clamp(max=1 + t.clip_high)
    return -t.kept * t.weights * ratio * t.advantages * t.log_probs


def _sapo(t: _Tokens) -> Tensor:
    temperature = _by_sign(t.advantages, *t.temperatures)
    gate = torch.sigmoid(temperature * (t.ratio - 1)) * 4 / temperature
    return -t.kept * t.weights * gate * t.advantages


def _vespo(t: _Tokens) -> Tensor:
    # The weights of sampler and trainer are part of w, so they do not scale the tokens as well.
    lowest, highest = math.log(1e-8), 20.0
    log_ratio = t.log_ratio.detach().clamp(-highest, highest)
    log_w = t.sequences.sum((log_ratio + t.weights.log().clamp(lowest, highest)) * t.mask)
    log_w = t.sequences.spread(log_w.clamp(lowest, highest))
    (k_pos, lambda_pos), (k_neg, lambda_neg) = t.gammas
    k = _by_sign(t.advantages, k_pos, k_neg)
    scale = _by_sign(t.advantages, lambda_pos, lambda_neg)
    phi = (scale + k * log_w - scale * log_w.exp()).exp()
    return -t.kept * phi * t.advantages * t.log_probs


def _gmpo(t: _Tokens) -> Tensor:
    # Tokens of low entropy are left out of the geometric mean, not out of the sum over tokens.
    clipped = t.log_ratio.clamp(-t.clip_low, t.clip_high)
    lower, upper = torch.minimum(t.log_ratio, clipped), torch.maximum(t.log_ratio, clipped)
    worse = torch.where(t.advantages > 0, lower, upper)
    ratio = t.sequences.mean(worse, t.kept).exp()
    return -t.weights * t.sequences.spread(ratio) * t.advantages


def _per_sequence_mean(t: _Tokens) -> Tensor:
    lengths = t.sequences.sum(t.mask).clamp_min(1)
    return t.sequences.spread(lengths) * t.totals[0]


def _per_sequence(t: _Tokens) -> Tensor:
    return t.totals[0]


def _per_token(t: _Tokens) -> Tensor:
    return t.totals[1]


def _per_token_of_batch(t: _Tokens) -> Tensor:
    return t.mask.sum() * t.totals[0] / max(len(t.sequences.lengths), 1)


def _per_place(t: _Tokens) -> Tensor:
    if t.max_length is None:
        raise ValueError("max_length must be given for kind 'dr_grpo', got None")
    return t.totals[0] * t.max_length


class GRPOKind(NamedTuple):
    """Term of a token in the loss, and its divisor; both [T], or the latter []."""

    term: Callable[[_Tokens], Tensor]
    divisor: Callable[[_Tokens], Tensor]


GRPO_KINDS: dict[str, GRPOKind] = {
    "grpo": GRPOKind(_clipped, _per_sequence_mean),
    "bnpo": GRPOKind(_clipped, _per_token_of_batch),
    "dr_grpo": GRPOKind(_clipped, _per_place),
    "dapo": GRPOKind(_clipped, _per_token),
    "luspo": GRPOKind(_clipped, _per_sequence),
    "cispo": GRPOKind(_cispo, _per_token),
    "sapo": GRPOKind(_sapo, _per_sequence_mean),
    "vespo": GRPOKind(_vespo, _per_token),
    "gmpo": GRPOKind(_gmpo, _per_sequence_mean),
}
"""The kinds of `grpo_loss` by name."""

KL_ESTIMATES = {name: name for name in ("k1", "k2", "k3")}
"""Those of `token_kl_terms` that a loss may have."""

RATIO_LEVELS: dict[str, Callable[[Tensor, Tensor, Sequences], Tensor]] = {
    "token": lambda log_ratio, _mask, _sequences: log_ratio.exp(),
    "sequence": lambda log_ratio, mask, sequences: sequences.spread(
        sequences.mean(log_ratio, mask).exp()
    ),
}


def grpo_loss(
    log_probs: Tensor,
    old_log_probs: Tensor | None,
    advantages: Tensor,
    sequences: Sequences,
    *,
    kind: str = "dapo",
    ratio_level: str = "token",
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    delta: float | None = None,
    ref_log_probs: Tensor | None = None,
    kl_coef: float = 0.0,
    kl: str = "k3",
    kl_correction: bool = True,
    entropies: Tensor | None = None,
    entropy_coef: float = 0.0,
    top_entropy: float = 1.0,
    weights: Tensor | None = None,
    token_advantages: Tensor | None = None,
    mask: Tensor | None = None,
    totals: Tensor | None = None,
    max_length: int | None = None,
    temperatures: tuple[float, float] = (1.0, 1.05),
    gammas: tuple[tuple[float, float], tuple[float, float]] = ((2.0, 3.0), (3.0, 2.0)),
) -> tuple[Tensor, dict[str, Tensor]]:
    r"""The loss of GRPO and its relatives.

    $$L = \sum_t m_t \frac{\ell_t + c_{KL}\, \mathrm{kl}_t}{d_t} - c_H \bar H$$

    over the tokens t of all completions, with the mask m. A token's ratio r is exp(lp − old), or at
    the level of sequences exp(mean over its sequence of (lp − old)), which with kind grpo is GSPO.
    With the importance weight w, the completion i of a token, the number nᵢ of its tokens that
    count, the number B of completions and N of tokens of the whole update:

    | kind | ℓ | d |
    |---|---|---|
    | grpo | −w min(min(r, δ) A, clip(r, 1 − c_low, 1 + c_high) A) | B nᵢ |
    | bnpo | the same | tokens of this batch, times B / its completions |
    | dapo | the same | N |
    | dr_grpo | the same | B max_length |
    | luspo | the same (meant for the level of sequences) | B |
    | cispo | −w sg(min(r, 1 + c_high)) A lp | N |
    | sapo | −w (4 / τ) σ(τ (r − 1)) A, with τ by the sign of A | B nᵢ |
    | vespo | −sg(exp(λ + k log W − λ W)) A lp, W = Πₜ w r of tokens; k, λ by the sign of A | N |
    | gmpo | −w A exp(mean over i of the worse of log r and clip(log r, −c_low, c_high)) | B nᵢ |

    where sg stops the gradient. With e = ref − lp, kl is −e (`k1`), e² / 2 (`k2`) or exp(e) − e − 1
    (`k3`). The correction multiplies it by r, gradient included: samples of the old policy then
    estimate the divergence of the present one at each token given those before it. Its gradient is
    right on average for k1 and k3 with the correction, and for k2 without it while r = 1; without
    it that of k1 is 0 on average, and refused. H̄ is the mean entropy of the tokens that count.

    A batch may be cut at completions: with the `totals` of all parts, the losses of the parts add
    up to the loss of the whole, and so do their gradients. Only `top_entropy` and bnpo look at one
    part at a time.

    Numbers of 16 bits are computed with in float32. Nothing waits for the device.

    Args:
        log_probs: [T] lp, log-probabilities of the tokens, with gradients.
        old_log_probs: [T] old, the same when they were sampled; None if the policy has not moved
            since, which makes r = 1 and keeps its gradient.
        advantages: [B] A of each completion.
        sequences: Positions of the completions in flat tensors.
        kind: A key of `GRPO_KINDS`.
        ratio_level: "token" or "sequence".
        clip_low: c_low; for gmpo of log r.
        clip_high: c_high; for gmpo of log r. TRL's `epsilon_high` of cispo is 1 + c_high.
        delta: δ, which bounds the ratio of tokens with negative advantages; None for no bound.
        ref_log_probs: [T] ref, log-probabilities under the reference.
        kl_coef: c_KL.
        kl: "k1", "k2" or "k3".
        kl_correction: Multiply kl by the importance ratio r.
        entropies: [T] entropies of the policy at the tokens.
        entropy_coef: c_H.
        top_entropy: Share of the tokens that ℓ and H̄ are taken of, those of highest entropy.
        weights: [T] w, from `importance_weights`.
        token_advantages: [T] A of each token, in place of that of its completion.
        mask: [T] true or 1 where a token counts; None for everywhere. Elsewhere log-probabilities
            may be anything, NaN included.
        totals: [2] B and N, the sum of `grpo_totals` over micro-batches and ranks; those of this
            batch if None.
        max_length: Longest possible completion, for dr_grpo.
        temperatures: τ of sapo for positive and for other advantages.
        gammas: (k, λ) of vespo for positive and for other advantages.

    Returns:
        [] loss, and metrics without gradients, each []: `ratio` (mean of r), `clip_fraction_low`
        (r below the range and A < 0), `clip_fraction_high` (above it and A > 0), `clip_fraction`
        (either; of completions at the level of sequences), and with what they need `kl` and
        `entropy`.

    Raises:
        ValueError: A name is not known, a shape does not fit, or something is missing that the
            options need.

    Example:
        >>> log_probs = torch.tensor([-1.0, -2.0, -3.0], requires_grad=True)
        >>> advantages, sequences = torch.tensor([1.0, -1.0]), Sequences.of([2, 1])
        >>> loss, metrics = grpo_loss(log_probs, None, advantages, sequences, kind="grpo")
        >>> loss.backward()
        >>> log_probs.grad.tolist(), metrics["ratio"].item()
        ([-0.25, -0.25, 0.5], 1.0)
    """
    chosen = pick(GRPO_KINDS, kind, "kind")
    ratio_of = pick(RATIO_LEVELS, ratio_level, "ratio_level")
    estimate = pick(KL_ESTIMATES, kl, "kl")
    if entropies is None and (entropy_coef or top_entropy < 1):
        raise ValueError("entropies must be given for entropy_coef and top_entropy, got None")
    _check_kl(kl_coef, kl, kl_correction, ref_log_probs)
    check_shape("advantages", advantages, sequences.lengths.shape)

    read = partial(read_tokens, sequences, mask)
    log_probs = read("log_probs", log_probs)
    old = log_probs if old_log_probs is None else read("old_log_probs", old_log_probs)
    ones = torch.ones_like(log_probs)
    counted = read("mask", ones)
    entropy = None if entropies is None else read("entropies", entropies)
    log_ratio = (log_probs - old.detach()).clamp(-LARGEST, LARGEST)
    tokens = _Tokens(
        log_probs=log_probs,
        log_ratio=log_ratio,
        ratio=ratio_of(log_ratio, counted, sequences),
        advantages=(
            sequences.spread(widen(advantages.detach()))
            if token_advantages is None
            else read("token_advantages", token_advantages).detach()
        ),
        mask=counted,
        kept=counted if entropy is None else _top(entropy.detach(), counted, top_entropy),
        weights=ones if weights is None else read("weights", weights).detach(),
        sequences=sequences,
        totals=(grpo_totals(sequences, mask) if totals is None else totals).to(log_probs.dtype),
        clip_low=clip_low,
        clip_high=clip_high,
        delta=delta,
        temperatures=temperatures,
        gammas=gammas,
        max_length=max_length,
    )

    terms = chosen.term(tokens)
    metrics = _ratio_metrics(tokens, kind, ratio_level)
    if ref_log_probs is not None:
        ref = read("ref_log_probs", ref_log_probs).detach()
        near = torch.minimum(ref, log_probs.detach() + LARGEST)
        distance = token_kl_terms(log_probs, near, estimate)
        distance = distance * tokens.ratio if kl_correction else distance
        terms = terms + kl_coef * distance if kl_coef else terms
        metrics["kl"] = _mean(distance.detach(), counted)
    loss = (counted * terms / chosen.divisor(tokens).clamp_min(1)).sum()
    if entropy is not None:
        share = counted.sum() / tokens.totals[1].clamp_min(1)
        loss = loss - entropy_coef * share * _mean(entropy, tokens.kept) if entropy_coef else loss
        metrics["entropy"] = _mean(entropy.detach(), counted)
    return loss, metrics


def grpo_totals(sequences: Sequences, mask: Tensor | None = None) -> Tensor:
    """Divisors of `grpo_loss` for one batch; their sum over batches is for all together.

    Args:
        sequences: Positions of the completions in flat tensors.
        mask: [T] true or 1 where a token counts; None for everywhere.

    Returns:
        [2] number of completions and of tokens that count, float32.

    Example:
        >>> parts = [Sequences.of([2, 1]), Sequences.of([4])]
        >>> sum(grpo_totals(part) for part in parts).tolist()
        [3.0, 7.0]
    """
    count, device = len(sequences.lengths), sequences.lengths.device
    tokens = sequences.lengths.sum() if mask is None else mask.bool().sum()
    return torch.stack((torch.full((), count, device=device), tokens)).float()


def _ratio_metrics(t: _Tokens, kind: str, ratio_level: str) -> dict[str, Tensor]:
    ratio, weights = t.ratio.detach(), t.mask
    if ratio_level == "sequence":
        weights = weights / t.sequences.spread(t.sequences.sum(t.mask).clamp_min(1))
    bounds = 1 - t.clip_low, 1 + t.clip_high
    if kind == "gmpo":
        bounds = math.exp(-t.clip_low), math.exp(t.clip_high)
    low = _mean(((ratio < bounds[0]) & (t.advantages < 0)).to(ratio.dtype), weights)
    high = _mean(((ratio > bounds[1]) & (t.advantages > 0)).to(ratio.dtype), weights)
    return {
        "ratio": _mean(ratio, weights),
        "clip_fraction_low": low,
        "clip_fraction_high": high,
        "clip_fraction": low + high,
    }


def _top(entropies: Tensor, mask: Tensor, share: float) -> Tensor:
    """The mask of tokens whose entropy reaches the quantile 1 − share of those that count."""
    if share >= 1 or not len(entropies):
        return mask
    # torch.quantile would have to know how many tokens count, and wait for it.
    ordered = entropies.masked_fill(mask == 0, torch.inf).sort().values
    place = ((mask.sum() - 1) * (1 - share)).clamp_min(0)
    below, above = ordered.gather(0, torch.stack((place.floor(), place.ceil())).long())
    threshold = torch.lerp(below, above, place.frac())
    return mask * (entropies >= threshold)


def _by_sign(advantages: Tensor, positive: float, other: float) -> Tensor:
    return torch.full_like(advantages, other).masked_fill(advantages > 0, positive)


def _mean(x: Tensor, weights: Tensor) -> Tensor:
    return (x * weights).sum() / weights.sum().clamp_min(1)


def _check_kl(kl_coef: float, kl: str, correction: bool, ref_log_probs: Tensor | None) -> None:
    if kl_coef and ref_log_probs is None:
        raise ValueError(f"ref_log_probs must be given for kl_coef {kl_coef}, got None")
    if kl_coef and kl == "k1" and not correction:
        raise ValueError(
            "kl_correction must be True for kl 'k1', whose gradient is 0 on average without it"
        )
