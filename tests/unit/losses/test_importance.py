"""Samplers that disagree with the trainer are measured and made up for."""

from __future__ import annotations

import math

import pytest
import torch

from sharpwave.losses import Sequences, grpo_loss, importance_weights, sampler_mismatch

SEQUENCES = Sequences.of([2, 1])
OLD = torch.tensor([0.5, 0.5, 0.5]).log()
SAMPLER = torch.tensor([0.25, 0.125, 0.5]).log()  # ratios 2, 4 and 1


@pytest.mark.parametrize(
    ("level", "mode", "wanted"),
    [
        ("token", "truncate", [2.0, 3.0, 1.0]),
        ("token", "mask", [2.0, 0.0, 1.0]),
        ("sequence", "truncate", [3.0, 3.0, 1.0]),
        ("sequence", "mask", [0.0, 0.0, 1.0]),
    ],
)
def test_weights_are_ratios_up_to_a_cap(level: str, mode: str, wanted: list[float]) -> None:
    found = importance_weights(OLD, SAMPLER, SEQUENCES, level=level, mode=mode, cap=3.0)
    torch.testing.assert_close(found, torch.tensor(wanted))


def test_weights_scale_what_a_token_adds() -> None:
    log_probs = OLD.clone().requires_grad_()
    weights = torch.tensor([2.0, 0.0, 1.0])
    loss, _ = grpo_loss(log_probs, OLD, torch.tensor([1.0, -1.0]), SEQUENCES, weights=weights)
    loss.backward()
    assert log_probs.grad is not None
    torch.testing.assert_close(log_probs.grad, torch.tensor([-2.0, 0.0, 1.0]) / 3)


def test_weights_make_samples_of_another_policy_right_on_average() -> None:
    """Of samples by μ, the mean of w r is the expected reward under π."""
    policy, sampler = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.2, 0.3, 0.5])
    rewards = torch.tensor([1.0, 2.0, -1.0])
    drawn = torch.multinomial(sampler, 20_000, True, generator=torch.Generator().manual_seed(0))
    weights = importance_weights(
        policy.log()[drawn], sampler.log()[drawn], Sequences.of([1] * len(drawn)),
        level="token", mode="truncate",
    )  # fmt: skip
    found = weights * rewards[drawn]
    assert abs(found.mean() - (policy * rewards).sum()) < 3 * found.std() / len(drawn) ** 0.5


def test_the_mismatch_is_that_of_tokens_that_count() -> None:
    mask = torch.tensor([True, False, True])
    sampler = torch.where(mask, SAMPLER, torch.nan)
    found = sampler_mismatch(OLD, sampler, SEQUENCES, mask)
    assert found["sampler_mismatch"].item() == pytest.approx(math.log(2) / 2)
    assert found["sampler_mismatch_max"].item() == pytest.approx(math.log(2))
    whole = sampler_mismatch(OLD, SAMPLER, SEQUENCES)
    assert whole["sampler_mismatch_max"].item() == pytest.approx(math.log(4))
    assert sampler_mismatch(OLD[:0], OLD[:0], Sequences.of([]))["sampler_mismatch"] == 0
