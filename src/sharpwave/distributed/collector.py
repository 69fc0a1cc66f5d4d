"""Collection of unrolls from a fleet for a training loop; drops those with too much policy lag."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from sharpwave.collect import EpisodeStats, VectorStep
from sharpwave.collect.vector_step import OnStep
from sharpwave.core.tree import map_leaves
from sharpwave.distributed.fleet import Fleet, Unroll, Weights, waiting_states
from sharpwave.storage.files import count_of

__all__ = ["FleetCollector"]

PATIENCE = 1.0
"""Seconds after which a learner that waits looks at its fleet."""


class FleetCollector:
    """Takes unrolls from a fleet, and drops those that are too old.

    Args:
        fleet: The actors.
        action_map: Maps actions of the policy to those of the environments.
        n_envs: Number of environments of all actors.
        n_unrolls: Number of unrolls of an update.
        max_lag: Maximum policy lag: updates that the weights of an unroll may have missed.
        in_step: One version apart: the unrolls of an update are made during the update before.

    Attributes:
        episodes: Statistics of the episodes of all actors.
        timesteps: Environment steps of all actors, those of dropped unrolls too.
        timings: Seconds that were waited for unrolls.
        dropped: Unrolls that were not learned from: too old, or taken as a run ended.
        lags: Policy lag of the last unrolls: updates that their weights had missed.
        recent_lags: The same of the unrolls before them too.
    """

    def __init__(
        self,
        fleet: Fleet,
        action_map: Any,
        *,
        n_envs: int,
        n_unrolls: int,
        max_lag: int,
        in_step: bool,
    ) -> None:
        self.fleet = fleet
        self.episodes = EpisodeStats(n_envs)
        self.timesteps = self.dropped = 0
        self.timings = {"collect": 0.0}
        self.lags: list[int] = []
        self.recent_lags: deque[int] = deque(maxlen=100)
        self._action_map = action_map
        self._n_unrolls, self._max_lag, self._in_step = n_unrolls, max_lag, in_step
        self._waiting: list[Unroll] = []  # in step, of those that are taken together
        self._received = 0

    def collect(
        self,
        weights: Weights,
        version: int,
        on_step: OnStep | None = None,
        stops: Callable[[], bool] = lambda: False,
    ) -> list[Unroll] | None:
        """Collect the unrolls of an update.

        Args:
            weights: Those of now.
            version: Updates that they have seen.
            on_step: Called for every step, once it is received; False gives up.
            stops: Asked while no unroll comes; True gives up.

        Returns:
            The unrolls by the number of their actors, or None if they were given up.

        Raises:
            RuntimeError: No actor is left.
        """
        fleet = self.fleet
        fresh: list[Unroll] = []
        fleet.start(weights, version)
        if not self._in_step or fleet.stats().in_flight == 0:
            fleet.publish(weights, version)
        before = self._received - len(self._waiting)
        try:
            for unroll in self._arriving(stops):
                self.episodes.add(unroll.episode_returns, unroll.episode_lengths)
                self.episodes.successes.extend(unroll.successes.tolist())
                if not self._tell(unroll, on_step):
                    break
                if version - unroll.version <= self._max_lag:
                    fresh.append(unroll)
                if len(fresh) == self._n_unrolls:
                    break
        finally:  # a callback or the fleet may raise; what has come is gone then
            is_whole = len(fresh) == self._n_unrolls
            taken = self._received - len(self._waiting) - before
            self.dropped += taken - is_whole * self._n_unrolls
        if not is_whole:
            return None
        if self._in_step:
            fleet.publish(weights, version)
        self.lags = [version - unroll.version for unroll in fresh]
        self.recent_lags.extend(self.lags)
        return sorted(fresh, key=lambda unroll: unroll.actor)

    def _arriving(self, stops: Callable[[], bool]) -> Iterator[Unroll]:
        """Unrolls as they come; in step by the number of the actor, whoever was faster."""
        while (unroll := self._receive(stops)) is not None:
            if not self._in_step:
                yield unroll
                continue
            self._waiting.append(unroll)
            if len(self._waiting) == self._n_unrolls:
                waiting, self._waiting = self._waiting, []
                yield from sorted(waiting, key=lambda unroll: unroll.actor)

    def _receive(self, stops: Callable[[], bool]) -> Unroll | None:
        began = time.perf_counter()
        while (unroll := self.fleet.receive(PATIENCE)) is None and not stops():
            stats = self.fleet.stats()
            if stats.alive == 0 and not stats.may_join:
                raise RuntimeError("no actor of the fleet is left")
        self.timings["collect"] += time.perf_counter() - began
        self._received += unroll is not None
        return unroll

    def _tell(self, unroll: Unroll, on_step: OnStep | None) -> bool:
        valid = unroll.rollout.valid
        if on_step is None:
            self.timesteps += int(np.count_nonzero(valid))
            return True
        for t, steps in enumerate(self._steps(unroll)):
            self.timesteps += int(np.count_nonzero(valid[t]))
            if on_step(float(unroll.rollout.rewards[t].mean()), steps) is False:
                return False
        return True

    def _steps(self, unroll: Unroll) -> Iterator[Any]:
        """Yield, for each step of an unroll, a function that makes it for callbacks."""
        rollout = unroll.rollout
        ended = rollout.terminated | rollout.truncated
        ends = np.cumsum(np.count_nonzero(ended, axis=1))
        for t in range(len(ended)):
            yield partial(self._step, rollout, t, int(ends[t]))

    def _step(self, rollout: Any, t: int, ends: int) -> VectorStep:
        """A step of a rollout, after which so many episodes have ended in it."""
        ended = rollout.terminated[t] | rollout.truncated[t]

        def following(leaf: Any, last: Any, *final: Any) -> Any:
            reached = leaf[t + 1] if t + 1 < len(leaf) else last
            if final and ended.any():
                reached = reached.copy()
                reached[ended] = final[0][ends - np.count_nonzero(ended) : ends]
            return reached

        final = () if rollout.final_obs is None else (rollout.final_obs,)
        return VectorStep(
            map_leaves(lambda leaf: leaf[t], rollout.obs),
            self._action_map.to_env(rollout.actions[t]),
            rollout.rewards[t],
            rollout.terminated[t],
            rollout.truncated[t],
            map_leaves(following, rollout.obs, rollout.last_obs, *final),
            {},
            rollout.valid[t],
        )

    def finish(self, timeout: float = math.inf) -> None:
        """Wait until the environments stand still, or so many seconds."""
        self.fleet.pause(timeout)

    def close(self) -> None:
        """End the actors."""
        self.fleet.stop()

    def state_dict(self) -> dict[str, Any]:
        """State of the collection and of the environments, for a checkpoint."""
        fleet = self.fleet.state_dict()
        fleet["ready"] = [*waiting_states(self._waiting), *fleet["ready"]]
        return {
            "fleet": fleet,
            "timesteps": self.timesteps,
            "timings": dict(self.timings),
            "episodes": self.episodes.state_dict(),
            "dropped": self.dropped,
        }

    def load_state_dict(self, state: dict[str, Any], *, in_flight: bool) -> None:
        """Continue from `state_dict`.

        Args:
            state: State that `state_dict` returned.
            in_flight: True if the environments are like those of then and continue their episodes.
                Otherwise new episodes start.
        """
        self.timesteps = count_of(state, "timesteps")
        self.timings.update({name: float(x) for name, x in state["timings"].items()})
        self.episodes.load_state_dict(state["episodes"])
        self.dropped = count_of(state, "dropped")
        self._waiting.clear()
        self.fleet.load_state_dict(state["fleet"], in_flight=in_flight)
