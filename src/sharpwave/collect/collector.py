"""What every collector of experience keeps: where its environments stand."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from sharpwave.collect.episodes import EpisodeStats
from sharpwave.collect.finite import check_finite
from sharpwave.envs import Step, Stepper, action_masks
from sharpwave.types import Array, Nested

__all__ = ["Collector", "Flags", "raw_rewards"]

Flags = npt.NDArray[np.bool_]


class Collector:
    """Stands between N environments and what learns from them.

    Args:
        env: A Gymnasium vector environment of any autoreset mode.
        seed: Of the first reset.

    Attributes:
        stepper: What steps the environments.
        episodes: Statistics of the episodes.
        timesteps: Environment steps so far.
        timings: Seconds by section.
        obs: [N, ...] to act on next; None before the first reset.
        masks: [N, n] actions allowed there; None where all are.
        has_masks: Whether actions are masked at all, as far as is known.
    """

    def __init__(self, env: Any, seed: int | None) -> None:
        self.env = env
        self.stepper = Stepper(env)
        self.episodes = EpisodeStats(env.num_envs)
        self.timesteps = 0
        self.timings = {"env": 0.0, "act": 0.0}
        self.obs: Nested = None
        self.masks: Flags | None = None
        self.has_masks = False
        self._seed = seed

    @property
    def ended(self) -> Flags:
        """[N] where the last step ended an episode."""
        return self.stepper.ended

    def reset(self) -> None:
        """Start new episodes everywhere."""
        obs, infos = self.stepper.reset(seed=self._seed)
        self._seed = None  # the next reset goes on with the environments' own generators
        self.masks = action_masks(self.env, infos)
        self.has_masks |= self.masks is not None
        self.episodes.restart()
        check_finite("obs", obs, self.timesteps)
        self.obs = obs

    def state_dict(self) -> dict[str, Any]:
        """Where the collection stands, but for the environments."""
        return {
            "timesteps": self.timesteps,
            "timings": dict(self.timings),
            "episodes": self.episodes.state_dict(),
            "obs": self.obs,
            "masks": self.masks,
            "has_masks": self.has_masks,
            "ended": self.stepper.ended,
        }

    def load_state_dict(self, state: dict[str, Any], *, in_flight: bool) -> None:
        """Continue from `state_dict`.

        Args:
            state: What `state_dict` returned.
            in_flight: Whether the environments stand where they stood then. Otherwise new episodes
                start.
        """
        self.timesteps = int(state["timesteps"])
        self.timings.update(state["timings"])
        self.episodes.load_state_dict(state["episodes"])
        self.has_masks = state.get("has_masks", False)
        if self.timesteps:
            self._seed = None
        self.obs = state["obs"] if in_flight else None
        self.masks = state["masks"] if in_flight else None
        if in_flight:
            self.stepper.ended = state["ended"]

    def _check(self, step: Step) -> None:
        check_finite("rewards", step.rewards, self.timesteps)
        check_finite("obs", step.next_obs, self.timesteps)
        if step.obs is not step.next_obs:
            check_finite("obs", step.obs, self.timesteps)

    def _count(self, step: Step) -> Array:
        """Add a step to the statistics; the raw rewards of those that were no mere resets."""
        rewards = raw_rewards(step)
        self.episodes.update(rewards, self.stepper.ended, step.real)
        if step.real is not None:
            rewards = rewards[step.real]
        self.timesteps += len(rewards)
        return rewards


def raw_rewards(step: Step) -> Array:
    """Rewards as the environment gave them, before any normalisation."""
    rewards: Array = step.infos.get("raw_rewards", step.rewards)
    return rewards
