"""Primitives: returns and advantages, language-model operations, packing, running statistics.

Belongs here: functions of arrays and tensors without state of a run. The files `tensors.py`,
`triton.py` and, where the torch code is long, `plain.py` of a folder compute with tensors; the
rest does without torch.
"""

from sharpwave.primitives.llm import (
    compute_batch_group_advantages,
    compute_batch_token_kl,
    compute_batch_token_kl_f32,
    compute_batch_token_kl_schulman,
    compute_batch_token_kl_schulman_f32,
    compute_group_advantages,
    compute_token_kl,
    compute_token_kl_f32,
    compute_token_kl_schulman,
    compute_token_kl_schulman_f32,
)
from sharpwave.primitives.packing import (
    PackedSequences,
    PackingPlan,
    pack_sequences,
    plan_packing,
)
from sharpwave.primitives.returns import (
    compute_gae,
    compute_gae_batched,
    compute_gae_batched_f32,
    compute_vtrace,
    discounted_returns,
    gae,
    n_step_returns,
    vtrace,
)
from sharpwave.primitives.stats import RunningStats, polyak

__all__ = [
    "PackedSequences",
    "PackingPlan",
    "RunningStats",
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
    "discounted_returns",
    "gae",
    "n_step_returns",
    "pack_sequences",
    "plan_packing",
    "polyak",
    "vtrace",
]
