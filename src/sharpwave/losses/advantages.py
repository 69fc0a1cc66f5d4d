"""Advantages of completions, from their rewards."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sharpwave.losses.kinds import pick
from sharpwave.losses.sequences import Sequences, check_shape, read_tokens, widen
from sharpwave.primitives.llm.tensors import group_advantages

__all__ = [
    "ADVANTAGE_KINDS",
    "overlong_penalty",
    "relative_advantages",
    "token_advantages",
    "useful_groups",
]

EPS = 1e-4
"""Added to standard deviations, so that tiny ones do not blow up what is divided by them."""

ADVANTAGE_KINDS: dict[str, dict[str, Any]] = {
    "group": {"ddof": 1, "eps": EPS, "scale": "group"},
    "batch": {"ddof": 1, "eps": EPS, "scale": "batch"},
    "none": {"scale": "none"},
    "rloo": {"leave_one_out": True, "scale": "none"},
}
"""The kinds of `relative_advantages` by name, as options of `group_advantages`."""


def relative_advantages(rewards: Tensor, group_size: int, kind: str = "group") -> Tensor:
    """Advantages of completions over the others of their prompt.

    | kind | A |
    |---|---|
    | group | (r − mean of the group) / (deviation of the group + 1e-4), GRPO |
    | batch | (r − mean of the group) / (deviation of all rewards + 1e-4) |
    | none | r − mean of the group, Dr. GRPO |
    | rloo | r − mean of the others of the group, RLOO |

    Args:
        rewards: [N] those of a group one after another; NaN where a completion was not scored.
        group_size: Completions of a group.
        kind: A key of `ADVANTAGE_KINDS`.

    Returns:
        [N], 0 for unscored completions and for groups without variance.

    Raises:
        ValueError: The kind is not known, or groups do not divide the rewards.

    Example:
        >>> relative_advantages(torch.tensor([0.0, 2.0, 4.0]), 3, "rloo").tolist()
        [-3.0, 0.0, 3.0]
    """
    options = pick(ADVANTAGE_KINDS, kind, "kind")
    return group_advantages(rewards.nan_to_num(), group_size, mask=~rewards.isnan(), **options)


def token_advantages(
    rewards: Tensor, costs: Tensor, sequences: Sequences, *, mask: Tensor | None = None
) -> Tensor:
    r"""Advantages of tokens over all tokens of a batch (REINFORCE++, Hu et al., 2025).

    What follows a token is $G_t = r - \sum_{s \ge t} c_s$, the reward of its completion less the
    costs of its tokens from it on, such as their divergence from the reference. Its advantage is
    (G − mean) / (deviation + 1e-4) over the tokens that count.

    Args:
        rewards: [B] of completions; NaN where one was not scored, whose tokens do not count.
        costs: [T] c of tokens.
        sequences: Positions of the completions in flat tensors.
        mask: [T] true or 1 where a token counts; None for everywhere.

    Returns:
        [T], 0 for tokens that do not count.

    Raises:
        ValueError: A shape does not fit.

    Example:
        >>> rewards, costs = torch.tensor([3.0, 1.0]), torch.tensor([0.0, 1.0, 0.0])
        >>> token_advantages(rewards, costs, Sequences.of([2, 1])).sign().tolist()
        [1.0, 1.0, -1.0]
    """
    check_shape("rewards", rewards, sequences.lengths.shape)
    costs = read_tokens(sequences, mask, "costs", costs)
    # What a token's own completion has cost before it: all so far less what the others did.
    totals = sequences.sum(costs)
    before = costs.cumsum(0) - costs - sequences.spread(totals.cumsum(0) - totals)
    returns = sequences.spread(widen(rewards) - totals) + before
    counts = ~returns.isnan() if mask is None else mask.bool() & ~returns.isnan()
    count, returns = counts.sum(), torch.where(counts, returns, 0.0)
    centered = torch.where(counts, returns - returns.sum() / count.clamp_min(1), 0.0)
    deviation = (centered.square().sum() / (count - 1).clamp_min(1)).sqrt()
    return centered / (deviation + EPS)


def overlong_penalty(lengths: Tensor, max_length: int, buffer: int, penalty: float = 1.0) -> Tensor:
    r"""Overlong penalty of completions (DAPO, Yu et al., 2025): 0 up to a soft limit.

    $-p\, \mathrm{clip}((n - (L - b)) / b, 0, 1)$ with the length n, the longest possible L and the
    buffer b of tokens before it, over which the penalty grows to p.

    Args:
        lengths: [B] tokens of completions.
        max_length: L.
        buffer: b, at least 1.
        penalty: p.

    Returns:
        [B], to be added to rewards.

    Example:
        >>> overlong_penalty(torch.tensor([4, 6, 7, 8]), max_length=8, buffer=4).tolist()
        [-0.0, -0.5, -0.75, -1.0]
    """
    over = (lengths.float() - (max_length - buffer)) / buffer
    return -penalty * over.clamp(0, 1)


def useful_groups(
    values: Tensor, group_size: int, low: float | None = None, high: float | None = None
) -> Tensor:
    """The groups that have something to compare, by a measure of their completions.

    Args:
        values: [N] the measure, those of a group one after another; NaN where there is none.
        group_size: Completions of a group.
        low: The mean of a group must be above; None for no bound.
        high: The mean of a group must be below; None for no bound.

    Returns:
        [G] true for groups whose mean lies between the bounds; without bounds, for those whose
        values differ.

    Example:
        >>> values = torch.tensor([1.0, 1.0, 0.0, 1.0])
        >>> useful_groups(values, 2).tolist(), useful_groups(values, 2, low=0.6).tolist()
        ([False, True], [True, False])
    """
    groups = values.view(-1, group_size)
    mean = groups.nanmean(1)
    if low is None and high is None:
        # A difference of two is exact where they are equal; a deviation may not be.
        first = groups.nan_to_num(torch.inf).amin(1, keepdim=True)
        return (groups > first).any(1)
    above = mean > (-torch.inf if low is None else low)
    return above & (mean < (torch.inf if high is None else high))
