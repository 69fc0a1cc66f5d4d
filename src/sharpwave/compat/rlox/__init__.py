"""The buffers and primitives under the names and signatures of rlox.

    import sharpwave.compat.rlox as rlox

Names, argument names and order, defaults, keys, shapes and dtypes are those that a program relies
on. docs/compat.md lists what is deliberately different.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from sharpwave import primitives
from sharpwave.buffers import OfflineDatasetBuffer, PrioritizedReplayBuffer
from sharpwave.compat.rlox.replay import ReplayBuffer
from sharpwave.primitives import (
    compute_batch_group_advantages,
    compute_gae,
    compute_gae_batched,
    compute_gae_batched_f32,
    compute_group_advantages,
    compute_token_kl,
    compute_token_kl_f32,
    compute_token_kl_schulman,
    compute_token_kl_schulman_f32,
    compute_vtrace,
)

__all__ = [
    "OfflineDatasetBuffer",
    "PrioritizedReplayBuffer",
    "ReplayBuffer",
    "compute_batch_group_advantages",
    "compute_batch_token_kl",
    "compute_batch_token_kl_f32",
    "compute_batch_token_kl_schulman",
    "compute_batch_token_kl_schulman_f32",
    "compute_gae",
    "compute_gae_batched",
    "compute_gae_batched_f32",
    "compute_group_advantages",
    "compute_token_kl",
    "compute_token_kl_f32",
    "compute_token_kl_schulman",
    "compute_token_kl_schulman_f32",
    "compute_vtrace",
    "pack_sequences",
]

P = ParamSpec("P")
R = TypeVar("R")


def _also_named(function: Callable[P, R], **names: str) -> Callable[..., R]:
    """The function, which takes some keywords under a second name too."""

    @wraps(function)
    def renamed(*args: Any, **keywords: Any) -> R:
        return function(*args, **{names.get(key, key): value for key, value in keywords.items()})

    return renamed


_KL_NAMES = {"log_probs_policy": "log_p", "log_probs_ref": "log_q"}

compute_batch_token_kl = _also_named(primitives.compute_batch_token_kl, **_KL_NAMES)
compute_batch_token_kl_f32 = _also_named(primitives.compute_batch_token_kl_f32, **_KL_NAMES)
compute_batch_token_kl_schulman = _also_named(
    primitives.compute_batch_token_kl_schulman, **_KL_NAMES
)
compute_batch_token_kl_schulman_f32 = _also_named(
    primitives.compute_batch_token_kl_schulman_f32, **_KL_NAMES
)
pack_sequences = _also_named(primitives.pack_sequences, max_length="max_len")
