"""Returns and advantages as plain loops over one environment; time-major functions loop columns."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from sharpwave.types import Array


def gae(
    rewards: Array,
    values: Array,
    next_values: Array,
    terminated: Array,
    truncated: Array,
    gamma: float,
    lam: float,
) -> tuple[Array, Array]:
    """[T, N] float64 in and out; next_values are the true successors."""
    n_steps, n_envs = rewards.shape
    advantages = np.zeros((n_steps, n_envs))
    for env in range(n_envs):
        following = 0.0
        for t in reversed(range(n_steps)):
            after = 0.0 if terminated[t, env] else next_values[t, env]
            delta = rewards[t, env] + gamma * after - values[t, env]
            ends = terminated[t, env] or truncated[t, env]
            following = delta + (0.0 if ends else gamma * lam * following)
            advantages[t, env] = following
    return advantages, advantages + values


def gae_trajectory(
    rewards: Sequence[float] | Array,
    values: Array,
    dones: Sequence[float] | Array,
    last_value: float,
    gamma: float,
    lam: float,
) -> tuple[Array, Array]:
    """[T]; dones are numbers."""
    advantages = np.zeros(len(rewards))
    next_value, following = last_value, 0.0
    for t in reversed(range(len(rewards))):
        alive = 1.0 - dones[t]
        following = (
            rewards[t] + gamma * next_value * alive - values[t] + gamma * lam * alive * following
        )
        advantages[t] = following
        next_value = values[t]
    return advantages, advantages + values


def successors(values: Array, bootstrap: npt.ArrayLike) -> Array:
    """next_values of a rollout without truncation: values one step later, then bootstrap."""
    return np.concatenate([values[1:], np.asarray(bootstrap, np.float64)[None]])


def vtrace(
    log_rhos: Array,
    rewards: Array,
    values: Array,
    next_values: Array,
    terminated: Array,
    truncated: Array,
    gamma: float,
    lam: float,
    rho_bar: float,
    c_bar: float,
    pg_rho_bar: float,
) -> tuple[Array, Array]:
    """[T, N] float64 in and out."""
    n_steps, n_envs = rewards.shape
    vs = np.zeros((n_steps, n_envs))
    pg_advantages = np.zeros((n_steps, n_envs))
    rhos = np.exp(log_rhos)
    for env in range(n_envs):
        correction = 0.0
        for t in reversed(range(n_steps)):
            rho = rhos[t, env]
            after = 0.0 if terminated[t, env] else next_values[t, env]
            delta = min(rho, rho_bar) * (rewards[t, env] + gamma * after - values[t, env])
            ends = terminated[t, env] or truncated[t, env]
            correction = delta + (0.0 if ends else gamma * lam * min(rho, c_bar) * correction)
            vs[t, env] = values[t, env] + correction
            follows = after if ends or t == n_steps - 1 else vs[t + 1, env]
            pg_advantages[t, env] = min(rho, pg_rho_bar) * (
                rewards[t, env] + gamma * follows - values[t, env]
            )
    return vs, pg_advantages


def n_step_returns(
    rewards: Array,
    next_values: Array,
    terminated: Array,
    truncated: Array,
    n: int,
    gamma: float,
) -> Array:
    """[T, N] float64 in and out."""
    n_steps, n_envs = rewards.shape
    returns = np.zeros((n_steps, n_envs))
    for env in range(n_envs):
        for t in range(n_steps):
            total, discount = 0.0, 1.0
            for k in range(t, min(t + n, n_steps)):
                total += discount * rewards[k, env]
                discount *= gamma
                if terminated[k, env] or truncated[k, env]:
                    break
            if not terminated[k, env]:
                total += discount * next_values[k, env]
            returns[t, env] = total
    return returns


def discounted_returns(
    rewards: Array, dones: Array, gamma: float, bootstrap: npt.ArrayLike
) -> Array:
    """[T, N] float64 in and out; bootstrap [N]."""
    returns = np.zeros(rewards.shape)
    following = np.array(bootstrap, np.float64)
    for t in reversed(range(len(rewards))):
        following = rewards[t] + gamma * (1.0 - dones[t]) * following
        returns[t] = following
    return returns
