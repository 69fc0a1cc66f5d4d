"""Losses as pure functions of tensors.

Belongs here: functions of tensors that return losses; no network, no optimizer.
"""

from __future__ import annotations

from sharpwave.losses.advantages import (
    ADVANTAGE_KINDS,
    overlong_penalty,
    relative_advantages,
    token_advantages,
    useful_groups,
)
from sharpwave.losses.completions import completion_log_probs, wpo_weights
from sharpwave.losses.grpo import GRPO_KINDS, grpo_loss, grpo_totals
from sharpwave.losses.importance import importance_weights, sampler_mismatch
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
from sharpwave.losses.preference import (
    DIVERGENCES,
    PREFERENCE_KINDS,
    Comparison,
    Pair,
    kto_loss,
    preference_loss,
)
from sharpwave.losses.q_learning import (
    categorical_cross_entropy,
    huber,
    project_categorical,
    quantile_huber,
    weighted_mean,
)
from sharpwave.losses.sequences import Sequences
from sharpwave.losses.supervised import SFT_KINDS, sft_loss
from sharpwave.losses.world_model import (
    balanced_kl,
    lambda_returns,
    symexp,
    symlog,
    two_hot_bins,
    two_hot_loss,
    two_hot_losses,
    two_hot_mean,
    unimix,
)

__all__ = [
    "ADVANTAGE_KINDS",
    "DIVERGENCES",
    "GRPO_KINDS",
    "PREFERENCE_KINDS",
    "SFT_KINDS",
    "Comparison",
    "Pair",
    "Sequences",
    "approx_kl",
    "balanced_kl",
    "categorical_cross_entropy",
    "clip_fraction",
    "clipped_surrogate",
    "clipped_value_loss",
    "completion_log_probs",
    "explained_variance",
    "grpo_loss",
    "grpo_totals",
    "huber",
    "importance_weights",
    "kto_loss",
    "lambda_returns",
    "mean",
    "normalize",
    "overlong_penalty",
    "policy_gradient",
    "preference_loss",
    "project_categorical",
    "quantile_huber",
    "relative_advantages",
    "sampler_mismatch",
    "sft_loss",
    "symexp",
    "symlog",
    "token_advantages",
    "two_hot_bins",
    "two_hot_loss",
    "two_hot_losses",
    "two_hot_mean",
    "unimix",
    "useful_groups",
    "value_loss",
    "weighted_mean",
    "wpo_weights",
]
