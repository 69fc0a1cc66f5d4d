"""Unrolls that no environment had a part in, and their targets step by step."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch

import sharpwave as sw
from sharpwave.collect import Rollout
from tests.reference.returns import vtrace
from tests.unit.algorithms.fixed_batch import CHOICES, OBS, Spaces

STEPS = 7


def unroll(rng: np.random.Generator, n: int, ends: float = 0.4) -> Rollout:
    """Random steps whose episodes end often, in either way, and whose values mean nothing."""
    shape = (STEPS, n)

    def floats(*shape: int) -> Any:
        return rng.normal(size=shape).astype(np.float32)

    terminated, truncated = rng.random((2, *shape)) < ends / 2
    ended = terminated | truncated
    return Rollout(
        obs=floats(*shape, OBS),
        actions=rng.integers(CHOICES, size=shape),
        log_probs=np.log(rng.uniform(0.1, 0.6, shape)).astype(np.float32),
        values=floats(*shape),
        rewards=floats(*shape),
        terminated=terminated,
        truncated=truncated,
        next_values=floats(*shape),
        starts=np.zeros(shape, np.bool_),
        valid=np.ones(shape, np.bool_),
        advantages=floats(*shape),
        returns=floats(*shape),
        last_obs=floats(n, OBS),
        final_obs=floats(int(ended.sum()), OBS),
    )


def make(cls: Any = sw.IMPALA, **options: Any) -> Any:
    learner = cls(partial(Spaces, discrete=True), hidden=(5, 4), seed=3, **options).learner
    learner.follow(1.0)
    return learner


def value(learner: Any, obs: Any) -> float:
    with torch.no_grad():
        return float(learner.policy.values(torch.from_numpy(obs[None]))[0])


def targets(learner: Any, one: Rollout, **bars: Any) -> tuple[Any, Any]:
    """vs and advantages [T, N] of one unroll, in float64 and step by step."""
    steps = torch.from_numpy(one.obs.reshape(-1, OBS)), torch.from_numpy(one.actions.reshape(-1))
    with torch.no_grad():
        log_probs, _, values = (x.double().numpy() for x in learner.policy.evaluate(*steps))
    values = values.reshape(one.valid.shape)
    next_values, ends = np.zeros_like(values), 0
    for t, env in np.ndindex(*one.valid.shape):
        is_last = t + 1 == STEPS
        following = one.last_obs[env] if is_last else one.obs[t + 1, env]  # type: ignore[index]
        if one.terminated[t, env] or one.truncated[t, env]:
            following = one.final_obs[ends]  # type: ignore[index]
            ends += 1
        next_values[t, env] = value(learner, following)
    log_rhos = log_probs.reshape(one.valid.shape) - one.log_probs
    rewards = one.rewards.astype(np.float64)
    flags = one.terminated, one.truncated
    bars = {**dict.fromkeys(("rho_bar", "c_bar", "pg_rho_bar"), 1.0), **bars}
    return vtrace(log_rhos, rewards, values, next_values, *flags, gamma=0.97, lam=0.9, **bars)
