"""Rows that a learner of rollouts can learn from."""

from __future__ import annotations

from typing import Any

import torch

from sharpwave.learners.batch import OnPolicyBatch


def rows_of(learner: Any, n: int) -> OnPolicyBatch:
    """Some steps of a learner in a space of vectors, whose advantages are drawn."""
    generator = torch.Generator().manual_seed(5)
    obs = torch.randn(n, *learner.observation_space.shape, generator=generator)
    acted = learner.policy.act(obs, generator=generator)
    advantages, returns = torch.randn(2, n, generator=generator)
    old = acted.log_probs + 0.1 * torch.randn(n, generator=generator)
    return OnPolicyBatch(obs, acted.actions, old, acted.values, advantages, returns)
