"""Group advantages and token KL as plain loops."""

import math
from collections.abc import Sequence

from sharpwave.primitives.llm import Estimator
from sharpwave.types import Array


def group_advantages(rewards: Sequence[float] | Array) -> list[float]:
    mean = math.fsum(rewards) / len(rewards)
    std = math.sqrt(math.fsum((r - mean) ** 2 for r in rewards) / len(rewards))
    if std < 1e-8:
        return [0.0] * len(rewards)
    return [(r - mean) / std for r in rewards]


def token_kl_terms(
    log_p: Sequence[float] | Array,
    log_q: Sequence[float] | Array,
    estimator: Estimator,
    mask: Sequence[float] | Array | None = None,
) -> list[float]:
    terms = []
    for i, (p, q) in enumerate(zip(log_p, log_q, strict=True)):
        if mask is not None and not mask[i]:
            continue
        d = 0.0 if p == q else p - q
        if estimator == "k1":
            terms.append(d)
        elif estimator == "k2":
            terms.append(d * d / 2)
        elif estimator == "k3":
            terms.append(math.expm1(-d) + d)
        else:
            terms.append(0.0 if p == -math.inf else math.exp(p) * d)
    return terms


def token_kl(
    log_p: Sequence[float] | Array,
    log_q: Sequence[float] | Array,
    estimator: Estimator,
    mask: Sequence[float] | Array | None = None,
) -> float:
    return math.fsum(token_kl_terms(log_p, log_q, estimator, mask))
