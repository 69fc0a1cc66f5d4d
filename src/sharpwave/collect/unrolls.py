"""Unrolls: rollouts for a learner that values them itself, later and elsewhere."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from sharpwave.collect.on_policy import Actor, OnPolicyCollector
from sharpwave.collect.rollout import Rollout
from sharpwave.collect.vector_step import OnStep
from sharpwave.core.tree import map_leaves
from sharpwave.envs import Step
from sharpwave.types import Array, Nested

__all__ = ["UnrollCollector"]


class Remembering(Actor, Protocol):
    """Policy that chooses the actions of an unroll, and may have recurrent states."""

    def memory(self) -> Array | None:
        """A copy of the recurrent state [..., N, size]; None without one."""


class UnrollCollector(OnPolicyCollector):
    """Collects as `OnPolicyCollector` does, but values nothing: it keeps the observations for that.

    An unroll has `last_obs` and `final_obs` in place of next values and advantages, the recurrent
    `state` that it began with, and memory of its own, which the next one leaves alone.
    """

    actor: Remembering

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._ends: list[Nested] = []

    def collect(
        self, gamma: float, gae_lambda: float, on_step: OnStep | None = None
    ) -> Rollout | None:
        """One unroll of `n_steps` steps; see `OnPolicyCollector`."""
        self._rollout, self._ends = None, []
        state = self.actor.memory()
        rollout = super().collect(gamma, gae_lambda, on_step)
        if rollout is not None:
            rollout.state = state
        return rollout

    def _write_ends(self, rollout: Rollout, t: int, step: Step) -> None:  # noqa: ARG002
        ended = step.terminated | step.truncated
        if ended.any():
            self._ends.append(map_leaves(lambda leaf: leaf[ended], step.next_obs))

    def _finish(self, rollout: Rollout, gamma: float, gae_lambda: float) -> None:  # noqa: ARG002
        rollout.last_obs = map_leaves(np.copy, self.obs)
        if self.stepper.mode == "next_step":
            return
        nothing = map_leaves(lambda leaf: leaf[:0], self.obs)
        rollout.final_obs = map_leaves(lambda *leaves: np.concatenate(leaves), nothing, *self._ends)
