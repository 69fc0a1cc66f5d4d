"""Batches of sequences, for world models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from sharpwave.buffers.views import Sequence
from sharpwave.core.lazy import torch
from sharpwave.core.tree import map_leaves
from sharpwave.learners.replay import INDICES, ReplaySampler

__all__ = ["SequenceBatch", "SequenceSampler"]


@dataclass(frozen=True)
class SequenceBatch:
    """Sequences [T, B] of observations, each with what led to it.

    Attributes:
        obs: [T, B, ...], nested as the space.
        prev_actions: [T, B, ...] the action that led to each observation, as the learner has them.
        rewards: [T, B] the reward that arrived with it; 0 where an episode begins.
        is_first: [T, B] bool, true where an episode begins.
        is_last: [T, B] bool, true where it ends, terminated or truncated.
        is_terminal: [T, B] bool, true where it is terminated.
        deter: [B, ...] recurrent state of a model before the sequence; None where none is stored.
        stoch: [B, latents] its latent classes then.
        indices: [T, B] ids of the steps; None where nobody rewrites them.
    """

    obs: Any
    prev_actions: Any
    rewards: Any
    is_first: Any
    is_last: Any
    is_terminal: Any
    deter: Any = None
    stoch: Any = None
    indices: Any = None


class SequenceSampler(ReplaySampler):
    """Draws sequences of a buffer: those that are new once each, the others at random.

    Latent states that are stored with steps come with the row before a sequence, and `report`
    writes over what learning made of them.
    """

    written: ClassVar[tuple[str, ...]] = ("deter", "stoch")

    view: Sequence

    @property
    def needs_ids(self) -> bool:
        """True where latent states are stored, which are overwritten by their ids."""
        return bool(self.columns)

    def as_batch(self, drawn: dict[str, Any]) -> Any:
        """The result of `draw`, [B, context + T], as sequences [T, B] and their initial states."""
        context = self.view.context
        obs, _ = self._observation(drawn["obs"])
        rewards = drawn["rewards"]
        if self.normalizer is not None:
            first = drawn["is_first"]
            rewards = self.normalizer.rewards(rewards).masked_fill(first, 0.0)
        rows = {
            "obs": obs,
            "prev_actions": self._arrived(drawn["prev_actions"], drawn["is_first"]),
            "rewards": rewards,
            "is_first": drawn["is_first"],
            "is_last": drawn["is_last"],
            "is_terminal": drawn["is_terminal"],
        }
        sequences = map_leaves(lambda x: x[:, context:].transpose(0, 1), rows)
        before = {name: drawn[name][:, 0] for name in self.columns} if context else {}
        if self.columns:
            sequences["indices"] = drawn[INDICES][:, context:].swapaxes(0, 1)
        return SequenceBatch(**sequences, **before)

    def _arrived(self, actions: Any, is_first: Any) -> Any:
        """Actions [B, T, ...] as the learner has them; 0 where none led there."""
        flat = self._actions(actions.flatten(0, 1))
        if self.action_bias is not None:  # which was subtracted from what is none
            flat = flat.masked_fill(is_first.flatten().view(-1, *[1] * (flat.dim() - 1)), 0)
        return flat.unflatten(0, actions.shape[:2])

    def report(self, batch: Any, metrics: Mapping[str, Any]) -> None:
        """Write the latent states [T, B, ...] that learning gave over those of the batch."""
        if batch.indices is None:
            return
        found = {name: metrics[name].transpose(0, 1) for name in self.written if name in metrics}
        ids = batch.indices.T
        if isinstance(ids, torch.Tensor) and ids.device.type != "cpu":
            self.buffer.update(ids, **found)
        else:
            arrays = {name: column.cpu().numpy() for name, column in found.items()}
            self.buffer.update(np.asarray(ids), **arrays)
