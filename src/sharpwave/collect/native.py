"""Rollouts of native policies in native environments."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from gymnasium import spaces

from sharpwave import _native
from sharpwave.collect.finite import NonFiniteError
from sharpwave.collect.on_policy import Actor, OnPolicyCollector
from sharpwave.collect.rollout import Rollout
from sharpwave.envs import ActionMap, NativeVectorEnv
from sharpwave.types import Array

__all__ = ["NativeRollouts"]


class NativeActs(Actor, Protocol):
    """An actor that native code can act for."""

    @property
    def learner(self) -> _native.PolicyLearner:
        """What acts."""

    def take_calls(self, n: int) -> tuple[int, int]:
        """The seed of its random numbers and the first of n calls, which nobody else gets."""


class NativeRollouts(OnPolicyCollector):
    """Collects rollouts of native environments in one call each.

    They are those of an `OnPolicyCollector`, bit for bit. Steps that somebody wants to hear of are
    taken one by one.

    Args:
        env: Environments that `fits` has nothing against.
        actor: What chooses actions, in native code.
        action_map: From the policy's actions to the environment's.
        n_steps: T.
        seed: Of the first reset.
        n_buffers: Rollouts that have memory of their own, used in turn.
    """

    actor: NativeActs

    def __init__(
        self,
        env: NativeVectorEnv,
        actor: NativeActs,
        action_map: ActionMap,
        *,
        n_steps: int,
        seed: int | None,
        n_buffers: int = 1,
    ) -> None:
        super().__init__(env, actor, action_map, n_steps=n_steps, seed=seed)
        self._buffers: deque[Rollout] = deque(maxlen=n_buffers)
        self.timings["collect"] = 0.0
        self._bounds = (0.0, 0.0)
        if isinstance(env.single_action_space, spaces.Box):
            box = env.single_action_space
            self._bounds = (box.low.item(), box.high.item())

    @staticmethod
    def fits(env: Any) -> bool:
        """Whether these environments can be stepped without Python."""
        return (
            isinstance(env, NativeVectorEnv)
            and env.metadata["autoreset_mode"].name.lower() == "same_step"
        )

    def _take_steps(self, on_step: Callable[[float], bool] | None) -> Rollout | None:
        if on_step is not None:
            return super()._take_steps(on_step)
        began = time.perf_counter()
        is_full = len(self._buffers) == self._buffers.maxlen
        self._rollout = rollout = self._buffers[0] if is_full else self._new_rollout()
        self._buffers.append(rollout)
        obs, starts = self.obs.copy(), self.starts.copy()
        taken, returns, lengths = _native.collect_rollout(
            self.actor.learner,
            self.env,
            *self.actor.take_calls(self.n_steps),
            *self._bounds,
            (
                rollout.obs,
                rollout.actions,
                rollout.log_probs,
                rollout.values,
                rollout.rewards,
                rollout.terminated,
                rollout.truncated,
                rollout.starts,
                rollout.next_values,
            ),
            (obs, starts, *self.episodes.in_flight),
        )
        self.episodes.add(returns, lengths)
        self.timesteps += taken * self.env.num_envs
        self.obs, self.starts = obs, starts
        self.stepper.ended = starts
        self.timings["collect"] += time.perf_counter() - began
        if taken < self.n_steps:
            raise NonFiniteError(
                f"the policy must give finite numbers, it did not at step {self.timesteps}: "
                "its weights are NaN or too large"
            )
        return rollout

    def _new_rollout(self) -> Rollout:
        n_envs = self.env.num_envs
        actions: Array = np.zeros((n_envs, 1), np.float32)
        if isinstance(self.env.single_action_space, spaces.Discrete):
            actions = np.zeros(n_envs, np.int64)
        rollout = Rollout.like(self.n_steps, self.obs, actions)
        rollout.real[:] = True
        return rollout
