"""The losses of preferences, one pair of numbers at a time."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean


@dataclass
class Pairs:
    """N pairs: log-probabilities of completions under the policy and the reference, and lengths."""

    chosen: list[float]
    rejected: list[float]
    ref_chosen: list[float]
    ref_rejected: list[float]
    n_chosen: list[int]
    n_rejected: list[int]
    beta: float
    epsilon: float

    @property
    def ratios(self) -> list[tuple[float, float]]:
        return [
            (c - rc, r - rr)
            for c, r, rc, rr in zip(
                self.chosen, self.rejected, self.ref_chosen, self.ref_rejected, strict=True
            )
        ]

    @property
    def means(self) -> list[tuple[float, float]]:
        chosen = [x / n for x, n in zip(self.chosen, self.n_chosen, strict=True)]
        rejected = [x / n for x, n in zip(self.rejected, self.n_rejected, strict=True)]
        return list(zip(chosen, rejected, strict=True))

    @property
    def mean_ratios(self) -> list[tuple[float, float]]:
        lengths = zip(self.n_chosen, self.n_rejected, strict=True)
        return [(c / n, r / m) for (c, r), (n, m) in zip(self.ratios, lengths, strict=True)]


def sigma(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def nll(x: float) -> float:
    return -math.log(sigma(x))


def smoothed(x: float, e: float) -> float:
    return (1 - e) * nll(x) + e * nll(-x)


def of_ratios(row: Callable[[float, float, float, float], float]) -> Callable[[Pairs], float]:
    """The mean of a function of the log-ratios of chosen and rejected, β and ε."""
    return lambda p: fmean(row(c, r, p.beta, p.epsilon) for c, r in p.ratios)


def exo(c: float, r: float, b: float, e: float) -> float:
    q = sigma(b * (c - r))
    return q * math.log(q / (1 - e)) + (1 - q) * math.log((1 - q) / e)


def discopop(c: float, r: float, b: float, _: float) -> float:
    x = b * (c - r)
    mix = sigma(x / 0.05)
    return (1 - mix) * nll(x) + mix * math.exp(-x)


def aot(p: Pairs) -> float:
    ours = sorted(c - r for c, r in zip(p.chosen, p.rejected, strict=True))
    theirs = sorted(c - r for c, r in zip(p.ref_chosen, p.ref_rejected, strict=True))
    return fmean(smoothed(p.beta * (x - y), p.epsilon) for x, y in zip(ours, theirs, strict=True))


def aot_unpaired(p: Pairs) -> float:
    chosen, rejected = (sorted(side) for side in zip(*p.ratios, strict=True))
    return fmean(
        smoothed(p.beta * (x - y), p.epsilon) for x, y in zip(chosen, rejected, strict=True)
    )


def sft(p: Pairs) -> float:
    return -sum(p.chosen) / sum(p.n_chosen)


def orpo(p: Pairs) -> float:
    def odds(x: float) -> float:
        return math.exp(x) / (1 - math.exp(x))

    return sft(p) + p.beta * fmean(nll(math.log(odds(c) / odds(r))) for c, r in p.means)


KINDS: dict[str, Callable[[Pairs], float]] = {
    "sigmoid": of_ratios(lambda c, r, b, _: nll(b * (c - r))),
    "cdpo": of_ratios(lambda c, r, b, e: smoothed(b * (c - r), e)),
    "robust": of_ratios(
        lambda c, r, b, e: ((1 - e) * nll(b * (c - r)) - e * nll(b * (r - c))) / (1 - 2 * e)
    ),
    "hinge": of_ratios(lambda c, r, b, _: max(0.0, 1 - b * (c - r))),
    "ipo": lambda p: fmean((c - r - 1 / (2 * p.beta)) ** 2 for c, r in p.mean_ratios),
    "exo_pair": of_ratios(exo),
    "nca_pair": of_ratios(lambda c, r, b, _: nll(b * c) + nll(-b * c) / 2 + nll(-b * r) / 2),
    "bco_pair": of_ratios(lambda c, r, b, _: nll(b * c) + nll(-b * r)),
    "sppo_hard": of_ratios(lambda c, r, b, _: (c - 0.5 / b) ** 2 + (r + 0.5 / b) ** 2),
    "aot": aot,
    "aot_unpaired": aot_unpaired,
    "apo_zero": of_ratios(lambda c, r, b, _: 1 - sigma(b * c) + sigma(b * r)),
    "apo_down": of_ratios(lambda c, r, b, _: sigma(b * c) + 1 - sigma(b * (c - r))),
    "discopop": of_ratios(discopop),
    "sft": sft,
    "sigmoid_norm": lambda p: fmean(nll(p.beta * (c - r)) for c, r in p.mean_ratios),
    "simpo": lambda p: fmean(smoothed(p.beta * (c - r) - 0.5, p.epsilon) for c, r in p.means),
    "orpo": orpo,
}
