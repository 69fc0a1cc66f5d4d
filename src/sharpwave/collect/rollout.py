"""The arrays of one on-policy rollout, time first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sharpwave.core.tree import map_leaves
from sharpwave.primitives import gae
from sharpwave.types import Array, Flags, Floats, Nested

VALUES = ("values", "next_values", "advantages", "returns")
"""Columns of a rollout that come from the value function."""


@dataclass(eq=False)
class Rollout:
    """T steps of N environments. The memory is used again by the next rollout.

    `next_values` is the value of what each step really led to: at a truncated step the value of the
    true last observation, which bootstraps it, once. `valid` is the mask of valid rows, False
    where a row was only a reset; such rows are in no batch.
    """

    obs: Nested
    """[T, N, ...], before the step."""
    actions: Array
    """[T, N, ...], as the policy gave them."""
    log_probs: Floats
    values: Floats
    rewards: Floats
    terminated: Flags
    truncated: Flags
    next_values: Floats
    starts: Flags
    """is_first: True where `obs` is the first observation of an episode."""
    valid: Flags
    advantages: Floats
    returns: Floats
    masks: Flags | None = None
    """[T, N, n], the actions that were allowed; None where all always were."""
    extra: dict[str, Array] | None = None
    """[T, N, ...] by name, columns of the learner's own; None without."""
    last_obs: Nested | None = None
    """[N, ...], what the last step left to act on; None where nobody kept it."""
    final_obs: Nested | None = None
    """[E, ...], the true last observations of the episodes that ended, by time and then by
    environment; None where nobody kept them, or where they are the `obs` that follow."""
    state: Array | None = None
    """[..., N, size], recurrent state of the actor before the first step; None where nobody kept
    it."""

    @classmethod
    def like(
        cls, n_steps: int, obs: Nested, actions: Array, extra: dict[str, Array] | None = None
    ) -> Rollout:
        """Arrays for `n_steps` steps such as this one of N environments."""

        def stacked(one: Array) -> Array:
            floating = np.issubdtype(one.dtype, np.floating)
            return np.zeros((n_steps, *one.shape), np.float32 if floating else one.dtype)

        shape = (n_steps, len(actions))
        floats = [np.zeros(shape, np.float32) for _ in range(6)]
        flags = [np.zeros(shape, np.bool_) for _ in range(4)]
        log_probs, values, rewards, next_values, advantages, returns = floats
        terminated, truncated, starts, valid = flags
        return cls(
            obs=map_leaves(stacked, obs),
            actions=stacked(actions),
            log_probs=log_probs,
            values=values,
            rewards=rewards,
            terminated=terminated,
            truncated=truncated,
            next_values=next_values,
            starts=starts,
            valid=valid,
            advantages=advantages,
            returns=returns,
            extra=extra
            and {name: np.zeros((n_steps, *x.shape), x.dtype) for name, x in extra.items()},
        )

    @classmethod
    def without_values(cls, **columns: Any) -> Rollout:
        """A rollout of everything but values, next values, advantages and returns.

        They are NaN, of which nobody can take one for a number, and cost no memory.
        """
        unknown: Any = np.broadcast_to(np.float32(np.nan), columns["rewards"].shape)
        return cls(**columns, **dict.fromkeys(VALUES, unknown))

    def rows(self) -> dict[str, Any]:
        """The steps [B, ...] of all environments, without rows that are none; views where possible.

        Returns:
            `obs`, `actions`, `log_probs`, `values`, `advantages`, `returns`, and `masks` and
            `extra`, which may be None.
        """
        valid = None if self.valid.all() else self.valid.reshape(-1)

        def flat(leaf: Array) -> Array:
            rows = leaf.reshape(-1, *leaf.shape[2:])
            return rows if valid is None else rows[valid]

        return {
            name: None if column is None else map_leaves(flat, column)
            for name, column in self._columns().items()
        }

    def sequences(self) -> dict[str, Any]:
        """Columns as sequences [T, N, ...], with `starts`, and `valid` if a row is not valid."""
        valid = None if self.valid.all() else self.valid
        return {**self._columns(), "starts": self.starts, "valid": valid}

    def columns(self, *, sequences: bool) -> dict[str, Any]:
        """Rows [B, ...], or sequences [T, N, ...] for recurrent policies."""
        return self.sequences() if sequences else self.rows()

    def _columns(self) -> dict[str, Any]:
        names = ("obs", "actions", "log_probs", "values", "advantages", "returns", "masks", "extra")
        return {name: getattr(self, name) for name in names}

    def write_masks(self, t: int, masks: Flags | None) -> None:
        """Write the masks [N, n] of one step; None allows everything."""
        if masks is None:
            if self.masks is not None:
                self.masks[t] = True
            return
        if self.masks is None:
            self.masks = np.ones((len(self.values), *masks.shape), np.bool_)
        self.masks[t] = masks

    def cuts(self) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp], Nested | None]:
        """The steps that cut an episode, which goes on in value.

        Returns:
            Their times [C] and environments [C], and the true last observations [C, ...]; none of
            them where `final_obs` is None.
        """
        if self.final_obs is None:
            nothing = np.empty(0, np.intp)
            return nothing, nothing, None
        cut = self.truncated & ~self.terminated
        among_ended = cut[self.terminated | self.truncated]
        times, envs = np.nonzero(cut)
        return times, envs, map_leaves(lambda leaf: leaf[among_ended], self.final_obs)

    def compute_advantages(self, gamma: float, gae_lambda: float) -> None:
        """Fill `advantages` and `returns` by generalized advantage estimation."""
        gae(
            self.rewards,
            self.values,
            next_values=self.next_values,
            terminated=self.terminated,
            truncated=self.truncated,
            gamma=gamma,
            lam=gae_lambda,
            out=(self.advantages, self.returns),
        )


def write_row(rollout_leaf: Any, t: int, value: Any) -> None:
    """Write one step of a tree of arrays."""
    if isinstance(rollout_leaf, dict):
        for key, inner in rollout_leaf.items():
            write_row(inner, t, value[key])
    elif isinstance(rollout_leaf, tuple):
        for inner, part in zip(rollout_leaf, value, strict=True):
            write_row(inner, t, part)
    else:
        rollout_leaf[t] = value
