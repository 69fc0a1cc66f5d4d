"""Rollouts for a learner whose environments and policy are native code."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from sharpwave.collect.episodes import EpisodeStats
from sharpwave.collect.native import NativeCollector
from sharpwave.collect.rollout import VALUES, Rollout
from sharpwave.collect.vector_step import OnStep, VectorStep
from sharpwave.core.finite import check_weights
from sharpwave.envs.native import NativeVectorEnv
from sharpwave.storage.files import count_of

ARRAYS = ("actions", "log_probs", "rewards", "terminated", "truncated", "starts")


class NativeRollouts:
    """Collects as `OnPolicyCollector` does, a whole rollout at a time and without the interpreter.

    With `overlap` the next rollout is collected while the learner is busy with this one, always by
    the weights from before that update: which weights a rollout has does not depend on who is
    faster.

    Args:
        env: The environments.
        weights: [n_parameters] memory of the policy, which the learner changes.
        hidden: Widths of the actor's hidden layers.
        critic_hidden: Widths of the critic's.
        activation: By its name in a configuration.
        n_steps: T.
        gamma: Discount.
        gae_lambda: λ of the advantages.
        seed: Seed of the environments.
        action_seed: Seed of the actions.
        threads: Most threads that step the environments.
        overlap: Collect ahead by one rollout.
        values: Value the steps; see `NativeCollector`.
    """

    def __init__(
        self,
        env: NativeVectorEnv,
        weights: npt.NDArray[np.float32],
        *,
        hidden: Sequence[int],
        critic_hidden: Sequence[int],
        activation: str,
        n_steps: int,
        gamma: float,
        gae_lambda: float,
        seed: int,
        action_seed: int,
        threads: int = 1,
        overlap: bool = False,
        values: bool = True,
    ) -> None:
        self.env = env
        self.weights = weights
        self.overlap = overlap
        self.episodes = EpisodeStats(env.num_envs)
        self.timesteps = 0
        self.timings = {"collect": 0.0}
        self.n_steps = n_steps
        self._options: dict[str, Any] = {
            "n_steps": n_steps,
            "hidden": tuple(hidden),
            "critic_hidden": tuple(critic_hidden),
            "activation": activation,
            "gamma": gamma,
            "gae_lambda": gae_lambda,
            "seed": action_seed,
            "threads": threads,
            "capacity": 0,
            "values": values,
        }
        self._arrays = (*ARRAYS, *VALUES) if values else ARRAYS
        self._make = Rollout if values else Rollout.without_values
        self._seed: int | None = seed
        self._collector: NativeCollector | None = None
        self._is_reset = False
        self._count = 0
        self._real = np.ones((n_steps, env.num_envs), np.bool_)
        self._pending: dict[str, Any] | None = None
        self._is_requested = False

    @staticmethod
    def why_not(env: Any) -> str | None:
        """Why these environments cannot be stepped by native code alone; None when they can."""
        if not isinstance(env, NativeVectorEnv):
            return f"the environments are {type(env).__name__}, not native ones"
        if env.metadata["autoreset_mode"].name != "SAME_STEP":
            return "the environments do not reset themselves in the step that ends an episode"
        return None

    def collect(
        self,
        gamma: float,  # noqa: ARG002 - as given before
        gae_lambda: float,  # noqa: ARG002
        on_step: OnStep | None = None,
    ) -> Rollout | None:
        """One rollout of `n_steps` steps.

        Args:
            gamma: Discount, that of the constructor.
            gae_lambda: λ of the advantages, that of the constructor.
            on_step: Called for every step, once all are taken; False gives up the rollout.

        Returns:
            The rollout, or None if it was given up.

        Raises:
            NonFiniteError: The weights gave NaN or inf.
        """
        began = time.perf_counter()
        collector = self._with_weights()
        batch = collector.recv() if self._pending is None else self._pending
        self._pending, self._is_requested = None, False
        if self.overlap:
            collector.request()
            self._is_requested = True
        self.timings["collect"] += time.perf_counter() - began
        self.episodes.add(batch["episode_returns"], batch["episode_lengths"])
        if on_step is None:
            self.timesteps += batch["rewards"].size
        else:
            ends = np.cumsum(np.count_nonzero(batch["dones"], axis=1))
            for t, rewards in enumerate(batch["rewards"]):
                self.timesteps += rewards.size
                step = partial(self._vector_step, batch, t, ends)
                if on_step(float(rewards.mean()), step) is False:
                    return None
        return self._make(
            obs=batch["observations"],
            valid=self._real,
            last_obs=batch["last_obs"],
            final_obs=batch["final_obs"],
            **{name: batch[name] for name in self._arrays},
        )

    def columns(self, rollout: Rollout, *, sequences: bool) -> dict[str, Any]:
        """A rollout as rows [B, ...], or as sequences [T, N, ...]."""
        return rollout.columns(sequences=sequences)

    def _vector_step(self, batch: dict[str, Any], t: int, ends: npt.NDArray[np.intp]) -> VectorStep:
        """A step of a rollout, before which ends[t - 1] episodes had ended."""
        obs, actions, dones = batch["observations"], batch["actions"][t], batch["dones"][t]
        next_obs = obs[t + 1] if t + 1 < len(obs) else batch["last_obs"]
        if dones.any():
            next_obs = next_obs.copy()
            next_obs[dones] = batch["final_obs"][ends[t] - np.count_nonzero(dones) : ends[t]]
        space: Any = self.env.single_action_space
        if actions.dtype.kind == "f":
            actions = np.clip(actions, space.low, space.high)
        flags = batch["terminated"][t], batch["truncated"][t]
        valid = np.ones_like(dones)
        return VectorStep(obs[t], actions, batch["rewards"][t], *flags, next_obs, {}, valid)

    def finish(self) -> None:
        """Wait for a rollout that is under way, so that the environments stand still."""
        if self._is_requested and self._pending is None:
            assert self._collector is not None
            self._pending = self._collector.recv()

    def restart(self) -> None:
        """Count from 0 again, and start new episodes before the next rollout."""
        self.finish()
        self._count = self._count if self._collector is None else self._collector.count
        self.close()
        self.timesteps, self._collector, self._pending = 0, None, None
        self._is_requested = self._is_reset = False

    def close(self) -> None:
        """End the thread."""
        if self._collector is not None:
            self._collector.stop()

    def _with_weights(self) -> NativeCollector:
        """The collector, whose next rollout has the weights of now."""
        check_weights(self.weights, self.timesteps)  # before environments are reset
        collector = self._start() if self._collector is None else self._collector
        collector.sync_weights(self.weights)
        return collector

    def _start(self) -> NativeCollector:
        if not self._is_reset:
            self.env.reset(seed=self._seed)
            self._seed = None
        self._collector = NativeCollector(
            self.env, self.env.num_envs, weights=self.weights, **self._options
        )
        self._collector.count = self._count
        return self._collector

    def state_dict(self) -> dict[str, Any]:
        """State of the collection, without the environments."""
        self.finish()
        return {
            "timesteps": self.timesteps,
            "timings": dict(self.timings),
            "episodes": self.episodes.state_dict(),
            "count": self._count if self._collector is None else self._collector.count,
            "is_reset": self._is_reset or self._collector is not None,
            "pending": self._pending,
        }

    def load_state_dict(self, state: dict[str, Any], *, in_flight: bool) -> None:
        """Continue from `state_dict`.

        Args:
            state: The result of `state_dict`.
            in_flight: True if the environments are in the state of then. Otherwise new episodes
                start.
        """
        self.close()
        self._collector = None
        self.timesteps = count_of(state, "timesteps")
        self.timings.update({name: float(x) for name, x in state["timings"].items()})
        self.episodes.load_state_dict(state["episodes"])
        # Where another collector began, the steps so far number rollouts that were not drawn yet.
        self._count = count_of({"count": self.timesteps, **state}, "count")
        if state.get("is_reset", self.timesteps > 0):
            self._seed = None
        self._is_reset = in_flight and bool(state["is_reset"])
        self._pending = state["pending"] if in_flight else None
        if self._pending is not None:
            for name in ("episode_returns", "episode_lengths", "observations", *self._arrays):
                if not isinstance(self._pending[name], np.ndarray):
                    raise TypeError(f"pending {name} must be an array")
        self._is_requested = self._pending is not None
