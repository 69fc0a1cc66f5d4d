"""Advantages of agents that act in turns."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sharpwave.collect.rollout import Rollout

__all__ = ["advantages_over_turns"]


def advantages_over_turns(
    rollout: Rollout,
    waits: npt.NDArray[np.bool_],
    last_values: npt.NDArray[np.float32],
    gamma: float,
    gae_lambda: float,
) -> None:
    """Fill `advantages` and `returns` where a row's next one is not the next in time.

    The step of an agent goes from one of its turns to the next: what it is paid meanwhile belongs
    to the action before, and an end that comes meanwhile ends that step. A step whose next turn
    lies after the rollout bootstraps from the value of what the agent sees at its end.

    Args:
        rollout: [T, B], with `next_values` where something was cut.
        waits: [T, B] where an agent waits for its turn; rows that are neither `real` nor waiting
            are of nobody.
        last_values: [B] of what is seen at the end.
        gamma: Discount of a step, from turn to turn.
        gae_lambda: λ.
    """
    n = rollout.real.shape[1]
    next_value, next_advantage = last_values.astype(np.float64), np.zeros(n)
    # Of the rows since the last turn, going backwards.
    paid, goes_on = np.zeros(n), np.ones(n)
    cut, cut_value = np.zeros(n, np.bool_), np.zeros(n)
    for t in reversed(range(len(rollout.real))):
        acts, waiting = rollout.real[t], waits[t]
        terminated = rollout.terminated[t]
        truncated = rollout.truncated[t] & ~terminated
        ended = (acts | waiting) & (terminated | truncated)
        paid = np.where(ended, 0.0, paid) + np.where(acts | waiting, rollout.rewards[t], 0.0)
        goes_on = np.where(ended, ~terminated, goes_on)
        cut_value = np.where(ended & truncated, rollout.next_values[t], cut_value)
        cut = np.where(ended, truncated, cut)

        bootstrap = goes_on * np.where(cut, cut_value, next_value)
        delta = paid + gamma * bootstrap - rollout.values[t]
        advantage = delta + gamma * gae_lambda * goes_on * ~cut * next_advantage
        rollout.advantages[t] = np.where(acts, advantage, 0.0)
        rollout.returns[t] = np.where(acts, advantage + rollout.values[t], 0.0)

        next_value = np.where(acts, rollout.values[t], next_value)
        next_advantage = np.where(acts, advantage, next_advantage)
        paid, cut = np.where(acts, 0.0, paid), cut & ~acts
        goes_on = np.where(acts, 1.0, goes_on)
