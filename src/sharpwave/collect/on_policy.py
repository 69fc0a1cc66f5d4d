"""Rollouts of the current policy: the one place that knows how episodes end."""

from __future__ import annotations

import time
from functools import partial
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from sharpwave.collect.collector import Collector
from sharpwave.collect.rollout import Rollout, write_row
from sharpwave.collect.vector_step import OnStep, VectorStep
from sharpwave.core.tree import map_leaves
from sharpwave.envs import ActionMap, Step, action_masks
from sharpwave.storage.files import array_of
from sharpwave.types import Array, Nested


class Actor(Protocol):
    """Policy that chooses the actions of a rollout, and keeps its recurrent states itself."""

    def act(
        self, obs: Nested, starts: npt.NDArray[np.bool_], masks: npt.NDArray[np.bool_] | None
    ) -> Any:
        """An object with `actions`, `log_probs`, `values` and `extra` for observations [N, ...]."""

    def values(self, obs: Nested, rows: npt.NDArray[np.intp] | None = None) -> Array:
        """Values [N] of what comes after the last `act`, of some environments or of all."""


class OnPolicyCollector(Collector):
    """Collects rollouts of T steps from N environments, with advantages.

    A terminated episode is worth nothing after its end. A truncated one goes on in value: its last
    step bootstraps from the value of the true last observation. Rows that are only resets (the
    next_step autoreset) are marked and reach no batch.

    Args:
        env: A Gymnasium vector environment of any autoreset mode.
        actor: The policy that chooses actions.
        action_map: From the policy's actions to the environment's.
        n_steps: T.
    """

    def __init__(
        self, env: Any, actor: Actor, action_map: ActionMap, *, n_steps: int, seed: int | None
    ) -> None:
        super().__init__(env, seed)
        self.actor = actor
        self.action_map = action_map
        self.n_steps = n_steps
        self.timings["advantages"] = 0.0
        self.starts = np.ones(env.num_envs, np.bool_)
        self._rollout: Rollout | None = None

    def reset(self) -> None:
        """Start new episodes everywhere."""
        super().reset()
        self.starts = np.ones(self.env.num_envs, np.bool_)

    def collect(
        self,
        gamma: float,
        gae_lambda: float,
        on_step: OnStep | None = None,
    ) -> Rollout | None:
        """One rollout of `n_steps` steps.

        Args:
            gamma: Discount.
            gae_lambda: λ of the advantages.
            on_step: Called after every step; False gives up the rollout.

        Returns:
            The rollout, or None if it was given up.

        Raises:
            NonFiniteError: An environment returned NaN or inf.
        """
        if self.obs is None:
            self.reset()
        clock = time.perf_counter
        for t in range(self.n_steps):
            began = clock()
            acted = self.actor.act(self.obs, self.starts, self.masks)
            actions = acted.actions
            env_actions = self.action_map.to_env(actions)
            chosen = clock()
            step = self.stepper.step(env_actions)
            stepped = clock()
            self.timings["act"] += chosen - began
            self.timings["env"] += stepped - chosen
            if self._rollout is None:
                self._rollout = Rollout.like(self.n_steps, self.obs, actions, acted.extra)
            self._check(step)
            self._write(self._rollout, t, acted, step)
            obs = self.obs
            self._go_on(step)
            if on_step is not None:
                mean = float(np.mean(step.raw_rewards))
                if on_step(mean, partial(VectorStep.of, obs, env_actions, step)) is False:
                    return None
        rollout = self._rollout
        assert rollout is not None
        if not rollout.valid.any():  # one row, a reset everywhere: nothing to learn from
            return self.collect(gamma, gae_lambda, on_step)
        began = clock()
        self._finish(rollout, gamma, gae_lambda)
        self.timings["advantages"] += clock() - began
        return rollout

    def columns(self, rollout: Rollout, *, sequences: bool) -> dict[str, Any]:
        """A rollout as rows [B, ...], or as sequences [T, N, ...] for recurrent policies."""
        return rollout.columns(sequences=sequences)

    def _write(self, rollout: Rollout, t: int, acted: Any, step: Step) -> None:
        write_row(rollout.obs, t, self.obs)
        rollout.actions[t] = acted.actions
        rollout.log_probs[t] = acted.log_probs
        rollout.values[t] = acted.values
        rollout.rewards[t] = step.rewards
        rollout.terminated[t] = step.terminated
        rollout.truncated[t] = step.truncated
        rollout.starts[t] = self.starts
        rollout.valid[t] = True if step.valid is None else step.valid
        rollout.write_masks(t, self.masks)
        if rollout.extra:
            write_row(rollout.extra, t, acted.extra)
        # In mode next_step the following row is the true last observation, with its value.
        if step.obs is not step.next_obs:
            self._write_ends(rollout, t, step)

    def _write_ends(self, rollout: Rollout, t: int, step: Step) -> None:
        """Value what cut episodes led to, while the actor has the memory of that step."""
        if step.truncated.any():
            rows = np.flatnonzero(step.truncated & ~step.terminated)
            last_obs = map_leaves(lambda leaf: leaf[rows], step.next_obs)
            rollout.next_values[t, rows] = self.actor.values(last_obs, rows)

    def _go_on(self, step: Step) -> None:
        ended = self.stepper.ended
        self._count(step)
        self.obs = step.obs
        if self.stepper.mode != "next_step":
            self.starts = ended
        elif step.valid is None:
            self.starts = np.zeros_like(ended)
        else:
            self.starts = ~step.valid
        # A step may be without a mask, also the first: it allows everything.
        if self.has_masks or "action_mask" in step.infos:
            self.masks = action_masks(self.env, step.infos)
            self.has_masks = True

    def _finish(self, rollout: Rollout, gamma: float, gae_lambda: float) -> None:
        """Add what is known once all steps are taken."""
        self._bootstrap(rollout)
        rollout.compute_advantages(gamma, gae_lambda)

    def _bootstrap(self, rollout: Rollout) -> None:
        """Values of what each step led to; those of truncated steps are there already."""
        following = np.empty_like(rollout.values)
        following[:-1] = rollout.values[1:]
        following[-1] = self.actor.values(self.obs)
        if self.stepper.mode == "next_step":
            rollout.next_values[:] = following
        else:
            np.copyto(rollout.next_values, following, where=~rollout.truncated)

    def state_dict(self) -> dict[str, Any]:
        """State of the collection, without the environments and the actor."""
        return {**super().state_dict(), "starts": self.starts}

    def load_state_dict(self, state: dict[str, Any], *, in_flight: bool) -> None:
        """Continue from `state_dict`, as `Collector` does."""
        super().load_state_dict(state, in_flight=in_flight)
        if in_flight:
            self.starts = array_of(state, "starts", (self.env.num_envs,))
