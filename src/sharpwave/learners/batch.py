"""On-policy batches: the data of an update."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from sharpwave.core.lazy import torch
from sharpwave.core.tree import leaves, like, map_leaves


@dataclass(frozen=True)
class OnPolicyBatch:
    """Rows of a rollout: [B, ...], or for recurrent policies sequences [T, B, ...].

    They are tensors; for native code, which takes CPU tensors too, they may be arrays.

    Attributes:
        obs: Observations, nested as the environment's.
        actions: As the policy gave them.
        log_probs: Log-probabilities of the actions when they were taken.
        values: Values when the actions were taken.
        advantages: Generalized advantage estimates.
        returns: advantages + values.
        masks: Masks of the allowed actions, [B, n].
        starts: True where an episode starts, for recurrent policies.
        state: Recurrent state before the first step, [..., B, size].
        valid: Mask of the valid rows, for recurrent policies: False where a row is padding; None
            when all are steps.
        extra: Columns of the learner's own by name; None without.
    """

    obs: Any
    actions: torch.Tensor
    log_probs: torch.Tensor
    values: torch.Tensor
    advantages: torch.Tensor
    returns: torch.Tensor
    masks: torch.Tensor | None = None
    starts: torch.Tensor | None = None
    state: torch.Tensor | None = None
    valid: torch.Tensor | None = None
    extra: dict[str, torch.Tensor] | None = None

    @classmethod
    def of(
        cls, columns: dict[str, Any], own: Callable[[Any], Any], state: Any = None
    ) -> OnPolicyBatch:
        """The steps of a rollout, as a learner takes them: views of its memory where possible.

        Args:
            columns: By name, what `columns` of a collector gives.
            own: `Learner.own`.
            state: Recurrent state before the rollout; None for policies without.
        """
        return cls(**_map(own, columns), state=state)

    @property
    def weights(self) -> torch.Tensor | None:
        """1 where a row is a step, 0 where not, for losses; None when all are steps."""
        return None if self.valid is None else self.valid.float()

    @property
    def is_sequence(self) -> bool:
        """True if rows are sequences [T, B] of a recurrent policy."""
        return self.state is not None

    def shuffled(self, size: int, generator: torch.Generator) -> Iterator[torch.Tensor]:
        """Indices of minibatches: every row once, in random order, about `size` steps at a time.

        Of sequences the indices are environments, so that each stays whole.
        """
        if self.is_sequence:
            n_steps, n = self.log_probs.shape
            size = max(1, size // n_steps)
        else:
            n = len(self.log_probs)
        order = torch.randperm(n, generator=generator, device=generator.device)
        yield from order.split(size)

    def rows(self, indices: torch.Tensor | None) -> OnPolicyBatch:
        """Some of the rows; of sequences, some of the environments. None stands for all."""
        if indices is None:
            return self
        if self.is_sequence:
            return replace(self, **_map(lambda leaf: leaf.index_select(1, indices), vars(self)))
        columns = {name: column for name, column in vars(self).items() if column is not None}
        return replace(self, **_gathered(columns, indices))

    def copy_(self, other: OnPolicyBatch) -> None:
        """Take over the rows of a batch of the same shapes, in this one's memory."""
        for name, column in vars(self).items():
            if column is not None:
                map_leaves(lambda mine, theirs: mine.copy_(theirs), column, getattr(other, name))


@dataclass(frozen=True)
class GroupBatch(OnPolicyBatch):
    """Rows of the agents of a group, whose critic may look at something else than they do.

    Attributes:
        agents: [B] the number of each row's agent in the group.
        joint: [M, ...] inputs of the critic, once for all agents of an environment; None where
            it looks at `obs`. Of sequences [T, N, ...], or [T, N * G, ...] where each agent has its
            own.
        joint_rows: [B] which of them belongs to each row; None where they lie alike.
    """

    agents: torch.Tensor | None = None
    joint: torch.Tensor | None = None
    joint_rows: torch.Tensor | None = None

    def rows(self, indices: torch.Tensor | None) -> GroupBatch:
        """Some of the rows, each with its own row of `joint`; of sequences, some of the agents."""
        if indices is None:
            return self
        joint, joint_rows = self.joint, self.joint_rows
        plain = replace(self, joint=None, joint_rows=None)
        chosen: GroupBatch = super(GroupBatch, plain).rows(indices)  # type: ignore[assignment]
        if joint is None:
            return chosen
        if self.is_sequence:
            places = indices // (self.log_probs.shape[1] // joint.shape[1])
            return replace(chosen, joint=joint.index_select(1, places))
        places = indices if joint_rows is None else joint_rows[indices]
        return replace(chosen, joint=joint.index_select(0, places))


def _gathered(columns: dict[str, Any], indices: torch.Tensor) -> dict[str, Any]:
    """Some rows of all columns: on a GPU in one launch, as far as they lie in one piece."""
    from sharpwave.primitives.backend import uses_triton
    from sharpwave.primitives.rows.tensors import RowTable

    if not uses_triton(indices) or indices.dtype != torch.int64:
        return _map(lambda leaf: leaf.index_select(0, indices), columns)
    found = [leaf for _, leaf in leaves(columns)]
    whole = [leaf for leaf in found if _is_whole(leaf)]
    rows = iter(RowTable(whole).gather(indices.contiguous()) if whole else ())
    chosen = (next(rows) if _is_whole(leaf) else leaf.index_select(0, indices) for leaf in found)
    gathered: dict[str, Any] = like(columns, tuple(chosen))
    return gathered


def _is_whole(leaf: torch.Tensor) -> bool:
    return leaf.is_contiguous() and not leaf.requires_grad


def _map(function: Callable[[Any], Any], columns: dict[str, Any]) -> dict[str, Any]:
    return {
        name: None if column is None else map_leaves(function, column)
        for name, column in columns.items()
    }
