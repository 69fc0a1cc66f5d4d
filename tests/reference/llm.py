"""Group advantages and token KL as plain loops."""

import math
from collections.abc import Sequence

import numpy as np

from sharpwave.primitives.llm import Estimator
from sharpwave.types import Array


def group_advantages(rewards: Sequence[float] | Array) -> list[float]:
    mean = math.fsum(rewards) / len(rewards)
    std = math.sqrt(math.fsum((r - mean) ** 2 for r in rewards) / len(rewards))
    if std < 1e-8:
        return [0.0] * len(rewards)
    return [(r - mean) / std for r in rewards]


def all_group_advantages(
    rewards: Array,
    mask: Array | None = None,
    *,
    ddof: int = 0,
    eps: float = 0.0,
    leave_one_out: bool = False,
    scale: str | None = None,
) -> Array:
    """Of [G, K], with every option."""
    scored = np.ones(rewards.shape, bool) if mask is None else mask != 0
    scale = scale or ("none" if leave_one_out else "group")
    found = np.zeros(rewards.shape)
    for g, group in enumerate(rewards.astype(float)):
        mine = [i for i in range(len(group)) if scored[g, i]]
        for i in mine:
            others = [j for j in mine if j != i] if leave_one_out else mine
            if not others or len(mine) == 1:
                continue
            found[g, i] = group[i] - math.fsum(group[others]) / len(others)
            if scale == "none":
                continue
            of = group[mine] if scale == "group" else rewards[scored].astype(float)
            std = float(np.std(of, ddof=ddof))
            found[g, i] = 0.0 if std < 1e-8 else found[g, i] / (std + eps)
    return found


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
