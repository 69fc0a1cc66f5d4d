"""Base of the collectors: the last observations of the environments, counters and episodes."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces

from sharpwave.collect.episodes import EpisodeStats
from sharpwave.core.finite import check_finite
from sharpwave.core.tree import leaves
from sharpwave.envs import Step, Stepper, action_masks
from sharpwave.envs.observations import as_batch
from sharpwave.envs.step_infos import success_of
from sharpwave.storage.files import array_of, count_of, flag_of
from sharpwave.types import Array, Flags

__all__ = ["Collector", "CollectorState", "Flags"]


class CollectorState(ABC):
    """State of a collection, as a checkpoint keeps it.

    Args:
        env: The environments.
        seed: Of the first reset.
        episodes: Statistics of the episodes.

    Attributes:
        timesteps: Environment steps so far.
        timings: Seconds by section.
        obs: [N, ...] to act on next; None before the first reset.
        masks: [N, n] actions allowed there; None where all are.
        has_masks: True if actions are masked at all, as far as is known.
    """

    ended: Any
    """[N] where the last step ended an episode."""

    def __init__(self, env: Any, seed: int | None, episodes: Any) -> None:
        self.env = env
        self.episodes = episodes
        self.timesteps = 0
        self.timings = {"env": 0.0, "act": 0.0}
        self.obs: Any = None
        self.masks: Any = None
        self.has_masks = False
        self._seed = seed
        self._restarted = False

    @abstractmethod
    def reset(self) -> None:
        """Start new episodes everywhere."""

    def restart(self) -> None:
        """Count from 0 again, and start new episodes before the next step."""
        self.timesteps = 0
        self.obs = None

    def _act(self, choose: Callable[[Any, Any], Any], step: Callable[[Any], Any]) -> Any:
        """Choose actions and step: the observations, the actions and the step that followed."""
        if self.obs is None:
            self.reset()
        clock = time.perf_counter
        began = clock()
        actions = choose(self.obs, self.masks)
        acted = clock()
        # Whatever ends this step early: the environments no longer stand at this observation.
        obs, self.obs = self.obs, None
        taken = step(actions)
        self.timings["act"] += acted - began
        self.timings["env"] += clock() - acted
        return obs, actions, taken

    def _take_restarted(self) -> bool:
        """Return whether the environments were reset since the last call."""
        restarted, self._restarted = self._restarted, False
        return restarted

    def state_dict(self) -> dict[str, Any]:
        """State of the collection, without the environments."""
        return {
            "timesteps": self.timesteps,
            "timings": dict(self.timings),
            "episodes": self.episodes.state_dict(),
            "obs": self._as_arrays(self.obs),
            "masks": self._as_arrays(self.masks),
            "has_masks": self.has_masks,
            "ended": self._as_arrays(self.ended),
            "restarted": self._restarted,
        }

    def load_state_dict(self, state: dict[str, Any], *, in_flight: bool) -> None:
        """Continue from `state_dict`.

        Args:
            state: The result of `state_dict`, of this class or of one for tensors or native code.
            in_flight: True if the environments are in the state of then. Otherwise new episodes
                start.
        """
        self.timesteps = count_of(state, "timesteps")
        self.timings.update({name: float(x) for name, x in state["timings"].items()})
        self.episodes.load_state_dict(state["episodes"])
        self.has_masks = flag_of(state, "has_masks")
        if self.timesteps:
            self._seed = None
        self.obs = self._from_arrays(state["obs"]) if in_flight else None
        self.masks = self._from_arrays(state["masks"]) if in_flight else None
        if in_flight:
            self.ended = self._from_arrays(state["ended"])
            self._restarted = flag_of(state, "restarted")

    def close(self) -> None:  # noqa: B027
        """Nothing to close."""

    def _as_arrays(self, tree: Any) -> Any:
        """A tree of tensors or arrays, as this collector keeps them, as arrays; None as None."""
        return tree

    def _from_arrays(self, tree: Any) -> Any:
        """The opposite of `_as_arrays`."""
        return tree


class Collector(CollectorState):
    """Base of the collectors that step N environments of arrays.

    Args:
        env: A Gymnasium vector environment of any autoreset mode.
        seed: Of the first reset.

    Attributes:
        stepper: The `Stepper` of the environments.
    """

    episodes: EpisodeStats

    def __init__(self, env: Any, seed: int | None) -> None:
        super().__init__(env, seed, EpisodeStats(env.num_envs))
        self.stepper = Stepper(env)

    @property
    def ended(self) -> Flags:
        """[N] where the last step ended an episode."""
        return self.stepper.ended

    @ended.setter
    def ended(self, ended: Flags) -> None:
        self.stepper.ended = ended

    def load_state_dict(self, state: dict[str, Any], *, in_flight: bool) -> None:
        """Continue from `state_dict`; see `CollectorState`.

        Raises:
            ValueError: The state says of its episodes what these environments cannot have.
        """
        if flag_of(state, "has_masks") and isinstance(self.env.single_action_space, spaces.Box):
            raise ValueError("has_masks must be False where actions are continuous")
        if in_flight:
            self._check_in_flight(state)
        super().load_state_dict(state, in_flight=in_flight)

    def _check_in_flight(self, state: dict[str, Any]) -> None:
        n_envs, obs = self.env.num_envs, state["obs"]
        if obs is not None:
            _, length, single = as_batch(self.env.single_observation_space, obs)
            if single or length != n_envs:
                raise ValueError(f"obs must be of {n_envs} environments")
            found = dict(leaves(obs, "obs"))
            for name in found:
                array_of(found, name)
        if state["masks"] is not None:
            array_of(state, "masks", (n_envs, -1))
        array_of(state, "ended", (n_envs,))

    def reset(self) -> None:
        """Start new episodes everywhere."""
        obs, infos = self.stepper.reset(seed=self._seed)
        self._seed = None  # the next reset goes on with the environments' own generators
        self.masks = action_masks(self.env, infos)
        self.has_masks |= self.masks is not None
        self.episodes.restart()
        check_finite("obs", obs, self.timesteps)
        self.obs = obs
        self._restarted = True

    def _check(self, step: Step) -> None:
        check_finite("rewards", step.rewards, self.timesteps)
        check_finite("obs", step.next_obs, self.timesteps)
        if step.obs is not step.next_obs:
            check_finite("obs", step.obs, self.timesteps)

    def _count(self, step: Step) -> Array:
        """Add a step to the statistics; the raw rewards of those that were no mere resets."""
        rewards, ended = step.raw_rewards, self.stepper.ended
        self._count_episodes(step)
        if np.count_nonzero(ended):
            self.episodes.add_successes(success_of(step.infos, ended))
        if step.valid is not None:
            rewards = rewards[step.valid]
        self.timesteps += len(rewards)
        return rewards

    def _count_episodes(self, step: Step) -> None:
        self.episodes.update(step.raw_rewards, self.stepper.ended, step.valid)
