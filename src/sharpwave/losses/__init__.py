"""Losses as pure functions of tensors."""

from __future__ import annotations

from sharpwave.losses.grpo import GRPO_KINDS, grpo_loss, grpo_totals, importance_weights
from sharpwave.losses.on_policy import (
    approx_kl,
    clip_fraction,
    clipped_surrogate,
    clipped_value_loss,
    explained_variance,
    mean,
    normalize,
    policy_gradient,
    value_loss,
)
from sharpwave.losses.q_learning import (
    categorical_cross_entropy,
    huber,
    project_categorical,
    quantile_huber,
    weighted_mean,
)
from sharpwave.losses.sequences import Sequences

__all__ = [
    "GRPO_KINDS",
    "Sequences",
    "approx_kl",
    "categorical_cross_entropy",
    "clip_fraction",
    "clipped_surrogate",
    "clipped_value_loss",
    "explained_variance",
    "grpo_loss",
    "grpo_totals",
    "huber",
    "importance_weights",
    "mean",
    "normalize",
    "policy_gradient",
    "project_categorical",
    "quantile_huber",
    "value_loss",
    "weighted_mean",
]
