"""The losses of GRPO on padded rows, one completion at a time."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def clipped(r: Tensor, a: Tensor, o: dict[str, Any]) -> Tensor:
    bounded = r if o["delta"] is None else r.clamp(max=o["delta"])
    return -torch.minimum(bounded * a, r.clamp(1 - o["clip_low"], 1 + o["clip_high"]) * a)


def policy_terms(
    kind: str, lp: Tensor, log_ratio: Tensor, r: Tensor, a: Tensor, w: Tensor, o: dict[str, Any]
) -> Tensor:
    """The term of each token of one completion, before it is divided."""
    if kind == "cispo":
        return -w * r.detach().clamp(max=1 + o["clip_high"]) * a * lp
    if kind == "sapo":
        tau = 1.0 if a > 0 else 1.05
        return -w * 4 / tau * torch.sigmoid(tau * (r - 1)) * a
    if kind == "vespo":
        k, scale = (2.0, 3.0) if a > 0 else (3.0, 2.0)
        total = torch.prod(w * log_ratio.exp()).item()
        phi: float = total**k * math.exp(scale - scale * total)
        return -phi * a * lp
    if kind == "gmpo":
        bounds = math.exp(-o["clip_low"]), math.exp(o["clip_high"])
        worse = torch.minimum if a > 0 else torch.maximum
        ratios = worse(log_ratio.exp(), log_ratio.exp().clamp(*bounds))
        return -w * ratios.prod() ** (1 / len(ratios)) * a
    return w * clipped(r, a, o)


KL: dict[str, Callable[[Tensor], Tensor]] = {
    "k1": lambda ratio: -ratio.log(),
    "k2": lambda ratio: ratio.log() ** 2 / 2,
    "k3": lambda ratio: ratio - 1 - ratio.log(),
}


def divisor(kind: str, n: int, n_sequences: int, n_tokens: int, max_length: int) -> float:
    if kind in {"grpo", "sapo", "gmpo"}:
        return n * n_sequences
    if kind == "dr_grpo":
        return n_sequences * max_length
    return n_sequences if kind == "luspo" else n_tokens


def grpo_loss(rows: dict[str, Tensor], advantages: Tensor, mask: Tensor, **o: Any) -> Tensor:
    """The loss of rows [B, L] where mask [B, L] says which tokens count."""
    total = torch.zeros((), dtype=torch.float64)
    for i, counts in enumerate(mask):
        n = int(counts.sum())
        if n == 0:
            continue
        lp, old, ref, w = (rows[k][i][counts] for k in ("log_probs", "old", "ref", "weights"))
        log_ratio = lp - old
        r = log_ratio.exp()
        if o["ratio_level"] == "sequence":
            r = (r.prod() ** (1 / n)).expand(n)
        terms = policy_terms(o["kind"], lp, log_ratio, r, advantages[i], w, o)
        kl = KL[o["kl"]]((ref - lp).exp())
        terms = terms + o["kl_coef"] * (kl * r if o["kl_correction"] else kl)
        by = divisor(o["kind"], n, len(mask), int(mask.sum()), o["max_length"])
        total = total + terms.sum() / by
    return total
