"""Advantages of completions, and what shapes and filters their rewards."""

from __future__ import annotations

import pytest
import torch

from sharpwave.losses import (
    ADVANTAGE_KINDS,
    Sequences,
    grpo_loss,
    overlong_penalty,
    relative_advantages,
    token_advantages,
    useful_groups,
)

REWARDS = torch.tensor([1.0, 0.0, 0.5, 0.5, 3.0, torch.nan, 1.0, torch.nan])


@pytest.mark.parametrize("kind", ADVANTAGE_KINDS)
def test_completions_are_compared_with_those_of_their_prompt(kind: str) -> None:
    found = relative_advantages(REWARDS, 4, kind)
    for group, mine in ((REWARDS[:4], found[:4]), (REWARDS[[4, 6]], found[[4, 6]])):
        others = (group.sum() - group) / (len(group) - 1)
        wanted = {
            "group": (group - group.mean()) / (group.std() + 1e-4),
            "batch": (group - group.mean()) / (REWARDS[~REWARDS.isnan()].std() + 1e-4),
            "none": group - group.mean(),
            "rloo": group - others,
        }[kind]
        torch.testing.assert_close(mine, wanted)
    assert found[[5, 7]].tolist() == [0.0, 0.0]
    assert relative_advantages(torch.full((8,), 0.1), 4, kind).tolist() == [0.0] * 8


def test_advantages_of_tokens_have_what_follows_them() -> None:
    generator = torch.Generator().manual_seed(0)
    lengths = [3, 1, 0, 4, 2]
    sequences = Sequences.of(lengths)
    rewards = torch.tensor([1.0, -2.0, 5.0, torch.nan, 0.5])
    costs = torch.randn(10, generator=generator)
    mask = torch.rand(10, generator=generator) < 0.7
    mask[0] = True
    returns, counts = [], []
    for row, (reward, own, valid) in enumerate(
        zip(rewards, costs.split(lengths), mask.split(lengths), strict=True)
    ):
        for t in range(lengths[row]):
            returns.append(float(reward - (own * valid)[t:].sum()))
            counts.append(bool(valid[t]) and row != 3)
    counted = torch.tensor(returns)[counts]
    wanted = torch.zeros(10)
    wanted[counts] = (counted - counted.mean()) / (counted.std() + 1e-4)
    found = token_advantages(rewards, costs, sequences, mask=mask)
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)
    nothing = token_advantages(rewards[:0], costs[:0], Sequences.of([]))
    assert nothing.shape == (0,)


def test_advantages_of_tokens_take_the_place_of_those_of_completions() -> None:
    sequences, advantages = Sequences.of([2, 1]), torch.tensor([1.0, -1.0])
    log_probs = torch.tensor([-1.0, -2.0, -3.0], requires_grad=True)
    spread, _ = grpo_loss(
        log_probs, None, torch.zeros(2), sequences, token_advantages=sequences.spread(advantages)
    )
    whole, _ = grpo_loss(log_probs, None, advantages, sequences)
    assert spread == whole
    single = torch.tensor([3.0, 0.0, 0.0])
    loss, _ = grpo_loss(log_probs, None, advantages, sequences, token_advantages=single)
    loss.backward()
    assert log_probs.grad is not None
    assert log_probs.grad.tolist() == [-1.0, 0.0, 0.0]
    with pytest.raises(ValueError, match=r"token_advantages must have shape \(3,\), got \(2,\)"):
        grpo_loss(log_probs, None, advantages, sequences, token_advantages=advantages)


def test_long_completions_lose_more_the_nearer_they_come_to_the_longest() -> None:
    lengths = torch.tensor([0, 12, 13, 15, 16, 20])
    found = overlong_penalty(lengths, max_length=16, buffer=4, penalty=2.0)
    torch.testing.assert_close(found, torch.tensor([0.0, 0.0, -0.5, -1.5, -2.0, -2.0]))


def test_groups_are_useful_by_difference_or_by_mean() -> None:
    groups = torch.tensor(
        [[0.0, 0.0], [1.0, 1.0], [0.0, 1.0], [torch.nan, 1.0], [torch.nan, torch.nan], [0.1, 0.1]]
    )
    values = groups.reshape(-1)
    assert useful_groups(values, 2).tolist() == [False, False, True, False, False, False]
    inside = useful_groups(values, 2, 0.0, 1.0)
    assert inside.tolist() == [False, False, True, False, False, True]
    assert useful_groups(values, 2, high=0.5).tolist() == [True, False, False, False, False, True]
