"""Losses as pure functions of tensors."""

from __future__ import annotations

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

__all__ = [
    "approx_kl",
    "clip_fraction",
    "clipped_surrogate",
    "clipped_value_loss",
    "explained_variance",
    "mean",
    "normalize",
    "policy_gradient",
    "value_loss",
]
