"""Batches of sequences of teams whose networks have a memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from sharpwave.collect.off_policy import MASK
from sharpwave.core.tree import map_leaves
from sharpwave.learners.sequences import SequenceSampler

__all__ = ["TeamSequenceSampler", "TeamSequences"]


@dataclass(frozen=True)
class TeamSequences:
    """Sequences of T observations, with the T - 1 steps between them.

    Attributes:
        obs: [T, B, ...] as `JointVectorEnv` gives them.
        masks: [T, B, n] true where an action is allowed; None where all are.
        actions: [T - 1, B, A] from each observation to the next, integers from 0 on.
        rewards: [T - 1, B] that they brought.
        discounts: [T - 1, B] γ, 0 where the episode terminated.
        valid: [T - 1, B] true where both observations are of one episode.
    """

    obs: Any
    masks: Any
    actions: Any
    rewards: Any
    discounts: Any
    valid: Any


class TeamSequenceSampler(SequenceSampler):
    """Draws sequences of a buffer, which begin without memory."""

    written: ClassVar[tuple[str, ...]] = ()

    def as_batch(self, drawn: dict[str, Any]) -> Any:
        """The result of `draw` [B, T] as sequences [T, B]."""
        masks = drawn["obs"][MASK] if self.has_masks else None
        arrived = super().as_batch(drawn)
        return TeamSequences(
            obs=arrived.obs,
            masks=None if masks is None else map_leaves(lambda x: x.transpose(0, 1), masks),
            actions=arrived.prev_actions[1:],
            rewards=arrived.rewards[1:],
            discounts=self.gamma * (1.0 - arrived.is_terminal[1:].float()),
            valid=~arrived.is_last[:-1],
        )

    def report(self, batch: Any, metrics: Mapping[str, Any]) -> None:
        """Nothing is written."""
