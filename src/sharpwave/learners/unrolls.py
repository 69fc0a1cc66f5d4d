"""Batches of unrolls, and the targets of V-trace that a learner's own values make of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sharpwave.core.tree import map_leaves
from sharpwave.learners.batch import OnPolicyBatch
from sharpwave.primitives import vtrace

if TYPE_CHECKING:
    from sharpwave.collect import Rollout

__all__ = ["UnrollBatch", "Valued", "value_unrolls"]


class Valued(NamedTuple):
    """Log-probabilities and values of unrolls of T steps beside each other, B in all.

    Attributes:
        log_probs: [T, B] of the actions.
        values: [T, B] of the observations.
        last_values: [B] of `last_obs`.
        cut_values: [C] of `cut_obs`; None without.
    """

    log_probs: Any
    values: Any
    last_values: Any
    cut_values: Any = None


@dataclass(frozen=True)
class UnrollBatch:
    """Unrolls of T steps, beside each other: [T, B, ...], with what their ends led to.

    Values are the learner's to compute, since those of the actors are older. Tensors; for native
    code arrays.

    Attributes:
        obs: Observations, nested as the environment's.
        actions: As the policies of the actors gave them.
        log_probs: Log-probabilities there, when the actions were taken.
        rewards: Of the steps.
        terminated: True where an episode terminated.
        truncated: True where an episode was truncated.
        last_obs: [B, ...] after the last steps.
        cut_obs: [C, ...] true last observations of truncated episodes; None where none was.
        cut_rows: [C] the steps that cut them, t * B + b.
        masks: [T, B, n] true where an action was allowed; None where all were.
        valid: [T, B] mask of the valid rows, False where a row is padding; None when all are steps.
        extra: [T, B, ...] columns of the learner's own by name; None without.
        starts: [T, B] true where an episode starts, for recurrent policies; None for others.
        state: [..., B, size] recurrent state of the actors before the first step; None without.
    """

    obs: Any
    actions: Any
    log_probs: Any
    rewards: Any
    terminated: Any
    truncated: Any
    last_obs: Any
    cut_obs: Any = None
    cut_rows: Any = None
    masks: Any = None
    valid: Any = None
    extra: Any = None
    starts: Any = None
    state: Any = None

    @classmethod
    def of(cls, rollouts: Sequence[Rollout], own: Callable[[Any], Any]) -> UnrollBatch:
        """Some rollouts of the same length beside each other, as a learner takes them.

        Args:
            rollouts: With `last_obs`.
            own: `Learner.own`.
        """
        names = ("obs", "actions", "log_probs", "rewards", "terminated", "truncated", "extra")
        columns = {name: _beside([getattr(one, name) for one in rollouts]) for name in names}
        columns["last_obs"] = _after([one.last_obs for one in rollouts])
        if any(one.masks is not None for one in rollouts):
            columns["masks"] = _beside([_masks(one, rollouts) for one in rollouts])
        if not all(one.valid.all() for one in rollouts):
            columns["valid"] = _beside([one.valid for one in rollouts])
        columns["cut_rows"], columns["cut_obs"] = _cuts(rollouts)
        if rollouts[0].state is not None:
            columns["starts"] = _beside([one.starts for one in rollouts])
            columns["state"] = _beside([one.state for one in rollouts])
        return cls(
            **{
                name: None if column is None else map_leaves(own, column)
                for name, column in columns.items()
            }
        )

    def steps(self) -> dict[str, Any]:
        """Inputs of a policy to evaluate the steps, by name.

        They are rows [T * B, ...]; for recurrent policies sequences [T, B, ...].
        """
        if self.state is None:
            return {name: _flat(getattr(self, name)) for name in ("obs", "actions", "masks")}
        return {
            name: getattr(self, name) for name in ("obs", "actions", "masks", "starts", "state")
        }

    def corrected(self, valued: Valued, config: Any, *, old_log_probs: Any = None) -> OnPolicyBatch:
        """The steps with the targets of V-trace: `returns` are vs, `advantages` pg.

        Args:
            valued: Log-probabilities and values of the policy that learns.
            config: With `gamma`, `vtrace_lambda`, `rho_bar`, `c_bar` and `pg_rho_bar`.
            old_log_probs: [T, B] to be the `log_probs` of the steps; those of the actors when None.
        """
        values, log_rhos = valued.values, valued.log_probs - self.log_probs
        # What a step led to is what follows it, but where an episode was cut: there something else
        # follows. Where it terminated, V-trace does not look.
        next_values = 0 * values
        next_values[:-1] = values[1:]
        next_values[-1] = valued.last_values
        if valued.cut_values is not None:
            next_values.reshape(-1)[self.cut_rows] = valued.cut_values
        returns, advantages = vtrace(
            log_rhos,
            self.rewards,
            values,
            next_values=next_values,
            terminated=self.terminated,
            truncated=self.truncated,
            gamma=config.gamma,
            lam=config.vtrace_lambda,
            rho_bar=config.rho_bar,
            c_bar=config.c_bar,
            pg_rho_bar=config.pg_rho_bar,
        )
        columns = {
            "log_probs": self.log_probs if old_log_probs is None else old_log_probs,
            "values": values,
            "advantages": advantages,
            "returns": returns,
            "extra": self.extra,
        }
        if self.state is not None:
            return OnPolicyBatch(**self.steps(), **columns, valid=self.valid)
        columns = {**self.steps(), **{name: _flat(column) for name, column in columns.items()}}
        if self.valid is not None:
            valid = _flat(self.valid)
            columns = {
                name: None if column is None else map_leaves(lambda leaf: leaf[valid], column)
                for name, column in columns.items()
            }
        return OnPolicyBatch(**columns)


def value_unrolls(policy: Any, batch: UnrollBatch) -> Valued:
    """Log-probabilities and values of unrolls by a torch policy, from the states of their actors.

    Args:
        policy: With `evaluate` and `values`, and where it is recurrent `states`.
        batch: The unrolls.
    """
    log_probs, _, values = policy.evaluate(**batch.steps())
    after: dict[str, Any] = {}
    at_cuts: dict[str, Any] = {}
    if batch.state is not None:
        # What comes after a step is seen with the memory of that step.
        states = policy.states(batch.obs, state=batch.state, starts=batch.starts)
        after["state"] = states[-1]
        if batch.cut_rows is not None:
            steps = states.movedim(2, 1).flatten(0, 1)
            at_cuts["state"] = steps[batch.cut_rows].movedim(0, 1)
    shape = batch.log_probs.shape
    return Valued(
        log_probs.reshape(shape),
        values.reshape(shape),
        policy.values(batch.last_obs, **after),
        None if batch.cut_obs is None else policy.values(batch.cut_obs, **at_cuts),
    )


def _flat(column: Any) -> Any:
    if column is None:
        return None
    return map_leaves(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), column)


def _beside(columns: Sequence[Any]) -> Any:
    """Columns [T, N, ...] as one [T, B, ...]; None for none."""
    if columns[0] is None:
        return None
    if len(columns) == 1:  # those of a message are part of it, and torch takes no such memory
        return map_leaves(lambda leaf: leaf if leaf.flags.writeable else leaf.copy(), columns[0])
    return map_leaves(lambda *leaves: np.concatenate(leaves, axis=1), *columns)


def _after(columns: Sequence[Any]) -> Any:
    """Columns [N, ...] as one [B, ...]."""
    return map_leaves(lambda *leaves: np.concatenate(leaves), *columns)


def _masks(rollout: Rollout, rollouts: Sequence[Rollout]) -> Any:
    """The masks of a rollout, which allow everything where it had none and others did."""
    if rollout.masks is not None:
        return rollout.masks
    width = next(one.masks.shape[2] for one in rollouts if one.masks is not None)
    return np.ones((*rollout.valid.shape, width), np.bool_)


def _cuts(rollouts: Sequence[Rollout]) -> tuple[Any, Any]:
    """The rows that cut an episode among all rollouts, and what they led to; None for none."""
    n_envs = sum(one.valid.shape[1] for one in rollouts)
    rows, seen, first = [], [], 0
    for one in rollouts:
        if one.truncated.any():
            times, envs, obs = one.cuts()
            if len(times):
                rows.append(times * n_envs + first + envs)
                seen.append(obs)
        first += one.valid.shape[1]
    return (np.concatenate(rows), _after(seen)) if rows else (None, None)
