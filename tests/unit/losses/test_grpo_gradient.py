"""Gradients of sampled completions are, on average, those of what they estimate."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from sharpwave.losses import Sequences, grpo_loss

VOCABULARY = 3
N_GROUPS, GROUP_SIZE = 2000, 4


class Policy:
    """All completions of two tokens: the first has logits [3], the second [3, 3] by the first."""

    def __init__(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.logits = torch.randn(4, VOCABULARY, generator=generator, dtype=torch.float64)
        self.logits.requires_grad_()

    @property
    def log_probs(self) -> Tensor:
        """[4, 3] of the first token, and of the second by the first."""
        return self.logits.log_softmax(-1)

    def sample(self, count: int, seed: int) -> Tensor:
        """[count, 2] tokens."""
        generator = torch.Generator().manual_seed(seed)
        probs = self.log_probs.detach().exp()
        first = torch.multinomial(probs[0].expand(count, -1), 1, generator=generator)
        second = torch.multinomial(probs[1 + first[:, 0]], 1, generator=generator)
        return torch.cat((first, second), 1)


def rows_of(tokens: Tensor) -> Tensor:
    """[N, 2] which row of logits each token was drawn by."""
    return torch.stack((torch.zeros_like(tokens[:, 0]), 1 + tokens[:, 0]), 1)


def gradients(policy: Policy, tokens: Tensor, by_token: Tensor) -> Tensor:
    """[N, 12] gradient by the logits of each completion, from that by its log-probabilities."""
    rows = rows_of(tokens)
    score = torch.nn.functional.one_hot(tokens, VOCABULARY) - policy.log_probs.detach().exp()[rows]
    found = torch.zeros(len(tokens), 4, VOCABULARY, dtype=torch.float64)
    index = rows[:, :, None].expand(-1, -1, VOCABULARY)
    return found.scatter_add_(1, index, by_token[:, :, None] * score).flatten(1)


def check_mean(groups: Tensor, expected: Tensor) -> None:
    """The mean over groups [G, 12] is the expected one, within three standard errors."""
    error = groups.std(0) / len(groups) ** 0.5
    assert ((groups.mean(0) - expected.flatten()).abs() < 3 * error).all()


def by_log_prob(policy: Policy, tokens: Tensor, **options: Any) -> Tensor:
    """[N, 2] gradient of N times the loss, a sum over tokens, by log-probability."""
    log_probs = policy.log_probs.detach()[rows_of(tokens), tokens].flatten().requires_grad_()
    loss, _ = grpo_loss(
        log_probs, None, sequences=Sequences.of([2] * len(tokens)), kind="luspo", **options
    )
    loss.backward()
    assert log_probs.grad is not None
    return log_probs.grad.reshape(-1, 2) * len(tokens)


def test_completions_weighed_against_the_others_follow_the_expected_return() -> None:
    policy = Policy(0)
    returns = torch.randn(3, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    first, second = policy.log_probs[0].exp(), policy.log_probs[1:].exp()
    (-(first[:, None] * second * returns).sum()).backward()
    assert policy.logits.grad is not None

    tokens = policy.sample(N_GROUPS * GROUP_SIZE, 2)
    rewards = returns[tokens[:, 0], tokens[:, 1]].unflatten(0, (N_GROUPS, GROUP_SIZE))
    others = (rewards.sum(1, keepdim=True) - rewards) / (GROUP_SIZE - 1)
    found = by_log_prob(policy, tokens, advantages=(rewards - others).flatten())
    groups = gradients(policy, tokens, found).unflatten(0, (N_GROUPS, GROUP_SIZE)).mean(1)
    check_mean(groups, policy.logits.grad)


@pytest.mark.parametrize(("kl", "correction"), [("k1", True), ("k2", False), ("k3", True)])
def test_the_kl_of_samples_has_the_gradient_of_the_divergence(kl: str, correction: bool) -> None:
    policy, reference = Policy(0), Policy(3)
    divergence = (policy.log_probs.exp() * (policy.log_probs - reference.log_probs.detach())).sum(1)
    # How often a second token follows a first is the past's doing, which a token's KL leaves alone.
    reached = torch.cat((torch.ones(1), policy.log_probs[0].detach().exp()))
    (reached * divergence).sum().backward()
    assert policy.logits.grad is not None

    tokens = policy.sample(N_GROUPS, 4)
    ref = reference.log_probs.detach()[rows_of(tokens), tokens].flatten()
    nothing = torch.zeros(N_GROUPS, dtype=torch.float64)
    found = by_log_prob(
        policy, tokens, advantages=nothing, ref_log_probs=ref, kl_coef=1.0, kl=kl,
        kl_correction=correction,
    )  # fmt: skip
    check_mean(gradients(policy, tokens, found), policy.logits.grad)
