"""Losses of learning from preferences, by the log-probabilities of whole completions.

Direct preference optimization (Rafailov et al., 2023) and its relatives compare a completion that
was chosen with one that was rejected. `kto_loss` takes completions that are good or bad by
themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from sharpwave.losses.kinds import pick
from sharpwave.losses.sequences import check_shape, widen

__all__ = [
    "DIVERGENCES",
    "PREFERENCE_KINDS",
    "Comparison",
    "Pair",
    "kto_loss",
    "preference_loss",
]

LARGEST = 80.0
"""Of exponents: e^80 is a float32 still."""


class Pair(NamedTuple):
    """The same of chosen and of rejected completions.

    Example:
        >>> Pair.of(torch.tensor([1.0, 2.0, 3.0, 4.0])).rejected.tolist()
        [3.0, 4.0]
    """

    chosen: Tensor
    rejected: Tensor

    @classmethod
    def of(cls, both: Tensor) -> Pair:
        """Of a tensor [2N, ...] that has the N chosen ones first."""
        return cls(*both.chunk(2))


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Inputs of a kind of loss: N pairs of completions, and the options.

    Reading what was not given raises.
    """

    kind: str
    log_probs: Pair
    """[N] sums over the tokens of a completion."""
    given_ref: Pair | None
    given_lengths: Pair | None
    beta: float
    label_smoothing: float
    divergence: Callable[[Tensor, float], Tensor]
    alpha: float
    margin: float
    tau: float

    @property
    def lengths(self) -> Pair:
        """[N] numbers of tokens."""
        if self.given_lengths is None:
            raise ValueError(f"lengths must be given for kind {self.kind!r}, got None")
        return self.given_lengths

    @property
    def ref(self) -> Pair:
        """[N] the sums under the reference."""
        if self.given_ref is None:
            raise ValueError(f"ref_log_probs must be given for kind {self.kind!r}, got None")
        return self.given_ref

    @property
    def ratios(self) -> Pair:
        """[N] u, log-probability less that of the reference."""
        return Pair(
            self.log_probs.chosen - self.ref.chosen, self.log_probs.rejected - self.ref.rejected
        )

    @property
    def scores(self) -> Pair:
        """[N] s, scores of the divergence from the ratios: themselves for the reverse KL."""
        chosen, rejected = self.ratios
        return Pair(self.divergence(chosen, self.alpha), self.divergence(rejected, self.alpha))

    @property
    def logits(self) -> Tensor:
        """[N] β (s_chosen − s_rejected)."""
        chosen, rejected = self.scores
        return self.beta * (chosen - rejected)

    def per_token(self, pair: Pair) -> Pair:
        """[N] the same, divided by the lengths; 0 for an empty completion."""
        chosen, rejected = self.lengths
        return Pair(pair.chosen / chosen.clamp_min(1), pair.rejected / rejected.clamp_min(1))


def _smoothed(logits: Tensor, smoothing: float) -> Tensor:
    return -(1 - smoothing) * logsigmoid(logits) - smoothing * logsigmoid(-logits)


def _sigmoid(c: Comparison) -> Tensor:
    return -logsigmoid(c.logits)


def _cdpo(c: Comparison) -> Tensor:
    return _smoothed(c.logits, c.label_smoothing)


def _robust(c: Comparison) -> Tensor:
    if not 0 <= c.label_smoothing < 0.5:
        raise ValueError(f"label_smoothing must be in [0, 0.5), got {c.label_smoothing}")
    clean, flipped = logsigmoid(c.logits), logsigmoid(-c.logits)
    smoothing = c.label_smoothing
    return (smoothing * flipped - (1 - smoothing) * clean) / (1 - 2 * smoothing)


def _hinge(c: Comparison) -> Tensor:
    return torch.relu(1 - c.logits)


def _ipo(c: Comparison) -> Tensor:
    chosen, rejected = c.per_token(c.scores)
    return (chosen - rejected - 0.5 / c.beta).square()


def _exo_pair(c: Comparison) -> Tensor:
    if not 0 < c.label_smoothing < 1:
        raise ValueError(
            f"label_smoothing must be in (0, 1) for kind 'exo_pair', got {c.label_smoothing}"
        )
    wins, loses = logsigmoid(c.logits), logsigmoid(-c.logits)
    first = wins.exp() * (wins - math.log1p(-c.label_smoothing))
    return first + loses.exp() * (loses - math.log(c.label_smoothing))


def _nca_pair(c: Comparison) -> Tensor:
    chosen, rejected = (c.beta * u for u in c.ratios)
    return -logsigmoid(chosen) - 0.5 * logsigmoid(-chosen) - 0.5 * logsigmoid(-rejected)


def _bco_pair(c: Comparison) -> Tensor:
    chosen, rejected = (c.beta * u for u in c.ratios)
    return -logsigmoid(chosen) - logsigmoid(-rejected)


def _sppo_hard(c: Comparison) -> Tensor:
    chosen, rejected = c.ratios
    return (chosen - 0.5 / c.beta).square() + (rejected + 0.5 / c.beta).square()


def _aot(c: Comparison) -> Tensor:
    ours = (c.log_probs.chosen - c.log_probs.rejected).sort().values
    theirs = (c.ref.chosen - c.ref.rejected).sort().values
    return _smoothed(c.beta * (ours - theirs), c.label_smoothing)


def _aot_unpaired(c: Comparison) -> Tensor:
    chosen, rejected = (u.sort().values for u in c.ratios)
    return _smoothed(c.beta * (chosen - rejected), c.label_smoothing)


def _apo_zero(c: Comparison) -> Tensor:
    chosen, rejected = (c.beta * u for u in c.ratios)
    return torch.sigmoid(-chosen) + torch.sigmoid(rejected)


def _apo_down(c: Comparison) -> Tensor:
    chosen, rejected = (c.beta * u for u in c.ratios)
    return torch.sigmoid(chosen) + torch.sigmoid(rejected - chosen)


def _discopop(c: Comparison) -> Tensor:
    mix = torch.sigmoid(c.logits / c.tau)
    return mix * (-c.logits).clamp(max=LARGEST).exp() - (1 - mix) * logsigmoid(c.logits)


def _sft(c: Comparison) -> Tensor:
    mean = -c.log_probs.chosen.sum() / c.lengths.chosen.sum().clamp_min(1)
    return mean.expand(len(c.log_probs.chosen))


def _sigmoid_norm(c: Comparison) -> Tensor:
    chosen, rejected = c.per_token(c.scores)
    return -logsigmoid(c.beta * (chosen - rejected))


def _simpo(c: Comparison) -> Tensor:
    chosen, rejected = c.per_token(c.log_probs)
    return _smoothed(c.beta * (chosen - rejected) - c.margin, c.label_smoothing)


def _orpo(c: Comparison) -> Tensor:
    # Odds of a completion that is certain would be infinite.
    sure = -torch.finfo(c.log_probs.chosen.dtype).eps
    chosen, rejected = (x.clamp(max=sure) for x in c.per_token(c.log_probs))
    log_odds = (chosen - (-chosen.expm1()).log()) - (rejected - (-rejected.expm1()).log())
    return _sft(c) - c.beta * logsigmoid(log_odds)


PREFERENCE_KINDS: dict[str, Callable[[Comparison], Tensor]] = {
    "sigmoid": _sigmoid,
    "cdpo": _cdpo,
    "robust": _robust,
    "hinge": _hinge,
    "ipo": _ipo,
    "exo_pair": _exo_pair,
    "nca_pair": _nca_pair,
    "bco_pair": _bco_pair,
    "sppo_hard": _sppo_hard,
    "aot": _aot,
    "aot_unpaired": _aot_unpaired,
    "apo_zero": _apo_zero,
    "apo_down": _apo_down,
    "discopop": _discopop,
    "sft": _sft,
    "sigmoid_norm": _sigmoid_norm,
    "simpo": _simpo,
    "orpo": _orpo,
}
"""The kinds of `preference_loss` by name: from N pairs to N losses."""


def _alpha_score(ratio: Tensor, alpha: float) -> Tensor:
    power = alpha - 1
    return ratio if power == 0 else (power * ratio).clamp(max=LARGEST).expm1() / power


DIVERGENCES: dict[str, Callable[[Tensor, float], Tensor]] = {
    "reverse_kl": lambda u, _: u,
    "forward_kl": lambda u, _: -(-u).clamp(max=LARGEST).expm1(),
    "js": lambda u, _: math.log(2) + logsigmoid(u),
    "alpha": _alpha_score,
}
"""s = f'(exp u) of f-divergences by name, from the log-ratio u and α."""


def preference_loss(
    log_probs: Pair,
    ref_log_probs: Pair | None = None,
    lengths: Pair | None = None,
    *,
    kind: str | Mapping[str, float] = "sigmoid",
    beta: float = 0.1,
    label_smoothing: float = 0.0,
    divergence: str = "reverse_kl",
    alpha: float = 0.5,
    margin: float = 0.5,
    tau: float = 0.05,
    weights: Tensor | None = None,
    n_pairs: Tensor | int | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    r"""The loss of DPO and its relatives, a mean over pairs.

    With the log-probabilities c of the chosen and r of the rejected completion, their log-ratios
    u = log π − log π_ref, the scores s = f'(exp u) of a divergence, Δ = s_c − s_r, the lengths n,
    and ε = label_smoothing:

    | kind | loss of a pair |
    |---|---|
    | sigmoid | −log σ(βΔ) |
    | cdpo | −(1 − ε) log σ(βΔ) − ε log σ(−βΔ) |
    | robust | (−(1 − ε) log σ(βΔ) + ε log σ(−βΔ)) / (1 − 2ε) |
    | hinge | max(0, 1 − βΔ) |
    | ipo | (s_c / n_c − s_r / n_r − 1 / 2β)² |
    | exo_pair | KL((σ(βΔ), σ(−βΔ)) ‖ (1 − ε, ε)) |
    | nca_pair | −log σ(βu_c) − ½ log σ(−βu_c) − ½ log σ(−βu_r) |
    | bco_pair | −log σ(βu_c) − log σ(−βu_r) |
    | sppo_hard | (u_c − 1 / 2β)² + (u_r + 1 / 2β)² |
    | aot | cdpo of sorted c − r, less the reference's sorted |
    | aot_unpaired | cdpo of sorted u_c less sorted u_r |
    | apo_zero | σ(−βu_c) + σ(βu_r) |
    | apo_down | σ(βu_c) + σ(βu_r − βu_c) |
    | discopop | −(1 − m) log σ(βΔ) + m exp(−βΔ), m = σ(βΔ / τ) |
    | sft | −Σ c / Σ n_c of the batch |
    | sigmoid_norm | −log σ(β (s_c / n_c − s_r / n_r)) |
    | simpo | cdpo of β (c / n_c − r / n_r) − margin |
    | orpo | sft − β log σ(o(c / n_c) − o(r / n_r)), o(x) = x − log(1 − exp x) |

    s is u (`reverse_kl`), 1 − exp(−u) (`forward_kl`), log 2 + log σ(u) (`js`) or
    (exp((α − 1) u) − 1) / (α − 1) (`alpha`). sft, simpo and orpo need no reference.

    Args:
        log_probs: [N] each, sums over the tokens of a completion, with gradients; from
            `completion_log_probs`.
        ref_log_probs: [N] each, the same under the reference.
        lengths: [N] each, numbers of tokens, for kinds with n.
        kind: A key of `PREFERENCE_KINDS`, or several with their weights in the sum.
        beta: β.
        label_smoothing: ε, assumed probability of wrong labels.
        divergence: A key of `DIVERGENCES`.
        alpha: α of the divergence `alpha`.
        margin: Target reward margin of simpo.
        tau: τ of discopop.
        weights: [N] weight of each pair; for WPO the product of both `wpo_weights`.
        n_pairs: Number of pairs of the whole update, where this is a micro-batch of it: then losses
            add up. aot, aot_unpaired and the mean of sft see one micro-batch at a time.

    Returns:
        [] loss, and metrics without gradients, each []: means of `reward_chosen` and
        `reward_rejected` (βu, or β times the mean log-probability of a token without a reference),
        of `reward_margin` and `accuracy` (chosen above rejected), and of `log_prob_chosen` and
        `log_prob_rejected`.

    Raises:
        ValueError: A name is not known, a shape does not fit, label_smoothing is outside what the
            kind allows, or the reference or lengths are missing.

    Example:
        >>> policy = Pair(torch.tensor([-3.0]), torch.tensor([-5.0]))
        >>> reference = Pair(torch.tensor([-4.0]), torch.tensor([-4.0]))
        >>> loss, metrics = preference_loss(policy, reference, kind="hinge", beta=0.25)
        >>> loss.item(), metrics["reward_margin"].item()
        (0.5, 0.5)
    """
    kinds = {kind: 1.0} if isinstance(kind, str) else kind
    functions = {name: pick(PREFERENCE_KINDS, name, "kind") for name in kinds}
    shape = log_probs.chosen.shape
    policy = _read("log_probs", log_probs, shape)
    ref = None if ref_log_probs is None else _read("ref_log_probs", ref_log_probs, shape)
    comparison = Comparison(
        kind="",
        log_probs=policy,
        given_ref=None if ref is None else Pair(ref.chosen.detach(), ref.rejected.detach()),
        given_lengths=None if lengths is None else _read("lengths", lengths, shape),
        beta=beta,
        label_smoothing=label_smoothing,
        divergence=pick(DIVERGENCES, divergence, "divergence"),
        alpha=alpha,
        margin=margin,
        tau=tau,
    )
    rows = torch.zeros_like(policy.chosen)
    for name, share in kinds.items():
        rows = rows + share * functions[name](replace(comparison, kind=name))
    if weights is not None:
        check_shape("weights", weights, shape)
        rows = rows * widen(weights).detach()
    return _mean(rows, n_pairs), _metrics(comparison)


def kto_loss(
    log_probs: Tensor,
    ref_log_probs: Tensor,
    desirable: Tensor,
    *,
    kl: Tensor | float = 0.0,
    beta: float = 0.1,
    desirable_weight: float = 1.0,
    undesirable_weight: float = 1.0,
    n_completions: Tensor | int | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss of Kahneman-Tversky optimization (Ethayarajh et al., 2024), without pairs.

    With u = log π − log π_ref and z = max(0, kl), the loss of a desirable completion is
    w₊ σ(β (z − u)), that of another w₋ σ(β (u − z)). With kl 0 it is APO-zero without pairs.

    Args:
        log_probs: [N] sums over the tokens of a completion, with gradients.
        ref_log_probs: [N] the same under the reference.
        desirable: [N] true where the completion is a good one.
        kl: [] estimate of the divergence from the reference: the mean of u over completions that
            belong to other prompts. No gradient flows through it.
        beta: β.
        desirable_weight: w₊.
        undesirable_weight: w₋.
        n_completions: Number of completions of the whole update, where this is a micro-batch of it.

    Returns:
        [] mean, and metrics without gradients, each []: `kl` (z), `reward_chosen`,
        `reward_rejected` (means of βu of desirable and of other completions, 0 where there are
        none), `reward_margin`, `log_prob_chosen` and `log_prob_rejected`.

    Raises:
        ValueError: A shape does not fit.

    Example:
        >>> same = torch.tensor([-3.0, -5.0])
        >>> loss, _ = kto_loss(same, same, torch.tensor([True, False]), undesirable_weight=3.0)
        >>> loss.item()
        1.0
    """
    for name, x in (("ref_log_probs", ref_log_probs), ("desirable", desirable)):
        check_shape(name, x, log_probs.shape)
    log_probs, good = widen(log_probs), desirable.bool()
    ratios = log_probs - widen(ref_log_probs).detach()
    estimate = kl.detach().to(ratios) if isinstance(kl, Tensor) else ratios.new_full((), kl)
    reference = estimate.clamp_min(0)
    gain = beta * (ratios - reference)
    rows = torch.where(
        good, desirable_weight * torch.sigmoid(-gain), undesirable_weight * torch.sigmoid(gain)
    )

    def of(x: Tensor, which: Tensor) -> Tensor:
        return x.detach().where(which, 0.0).sum() / which.sum().clamp_min(1)

    rewards = Pair(of(beta * ratios, good), of(beta * ratios, ~good))
    return _mean(rows, n_completions), {
        "kl": reference,
        "reward_chosen": rewards.chosen,
        "reward_rejected": rewards.rejected,
        "reward_margin": rewards.chosen - rewards.rejected,
        "log_prob_chosen": of(log_probs, good),
        "log_prob_rejected": of(log_probs, ~good),
    }


def _metrics(c: Comparison) -> dict[str, Tensor]:
    log_probs = Pair(c.log_probs.chosen.detach(), c.log_probs.rejected.detach())
    c = replace(c, log_probs=log_probs)
    values = c.per_token(log_probs) if c.given_ref is None else c.ratios
    chosen, rejected = (c.beta * value for value in values)
    return {
        "reward_chosen": _mean(chosen),
        "reward_rejected": _mean(rejected),
        "reward_margin": _mean(chosen - rejected),
        "accuracy": _mean((chosen > rejected).to(chosen.dtype)),
        "log_prob_chosen": _mean(log_probs.chosen),
        "log_prob_rejected": _mean(log_probs.rejected),
    }


def _mean(rows: Tensor, count: Tensor | int | None = None) -> Tensor:
    return rows.sum() / (max(len(rows), 1) if count is None else count)


def _read(name: str, pair: Pair, shape: torch.Size) -> Pair:
    for part, x in zip(pair._fields, pair, strict=True):
        check_shape(f"{name}.{part}", x, shape)
    return Pair(widen(pair.chosen), widen(pair.rejected))
