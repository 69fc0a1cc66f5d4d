"""Episodes of several environments, in the order in which they began."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sharpwave.core.tree import map_leaves
from sharpwave.envs import Step
from sharpwave.types import Array, Nested


@dataclass(frozen=True)
class CollectedEpisode:
    """The T steps of an episode, or of its beginning."""

    obs: Nested
    """Observations before the actions, [T, ...]."""
    actions: Array
    """[T, ...]."""
    rewards: Array
    """[T] float64."""
    terminated: Array
    """[T] bool."""
    truncated: Array
    """[T] bool."""
    final_obs: Nested
    """Observation after the last action."""
    seed: int | None
    """Seed of the reset of its environment."""

    def __len__(self) -> int:
        return len(self.rewards)

    def cut(self, length: int) -> CollectedEpisode:
        """Its first steps, truncated after them."""
        if length >= len(self):
            return self
        truncated = self.truncated[:length].copy()
        truncated[-1] = True
        return CollectedEpisode(
            map_leaves(lambda leaf: leaf[:length], self.obs),
            self.actions[:length],
            self.rewards[:length],
            self.terminated[:length],
            truncated,
            map_leaves(lambda leaf: leaf[length], self.obs),
            self.seed,
        )


class _Row(NamedTuple):
    """One step of every environment."""

    obs: Nested
    actions: Array
    rewards: Array
    terminated: Array
    truncated: Array


class EpisodeQueue:
    """Takes the steps of N environments and gives their episodes in the order they began.

    An episode gets its number when it begins, before anything is known of it. Episodes in the order
    of their numbers are therefore a fair sample, as if one environment had played them one after
    another; in the order of their ends short ones would come first.

    Args:
        n_envs: N.
        obs: The first observations, [N, ...].
        seed: Seed of the reset of environment 0; that of environment i is seed + i.
        n_episodes: Episodes that are wanted.
        n_steps: Steps that are wanted, where episodes are not counted.

    Attributes:
        complete: True once all wanted episodes were given.
    """

    def __init__(
        self,
        n_envs: int,
        obs: Nested,
        *,
        seed: int,
        n_episodes: int | None = None,
        n_steps: int | None = None,
    ) -> None:
        self.complete = False
        self._n_wanted = np.inf if n_episodes is None else n_episodes
        self._steps_left = n_steps
        self._obs = map_leaves(np.array, obs)
        self._rows: list[_Row] = []
        self._n_dropped = 0
        self._numbers = np.arange(n_envs)
        self._begins = np.zeros(n_envs, np.int64)
        self._under_way = self._numbers < self._n_wanted
        self._seeds: list[int | None] = [seed + i for i in range(n_envs)]
        self._n_begun = n_envs
        self._ended: dict[int, CollectedEpisode] = {}
        self._next = 0

    def add(self, actions: Array, step: Step) -> None:
        """Add a step of every environment.

        Args:
            actions: Actions that the environments took, [N, ...].
            step: Result of the step.
        """
        # An environment or a policy may write over the arrays it gave.
        values = (actions, step.rewards, step.terminated, step.truncated)
        self._rows.append(_Row(self._obs, *map(np.array, values)))
        self._obs = map_leaves(np.array, step.obs)
        for i in np.flatnonzero((step.terminated | step.truncated) & self._under_way):
            self._ended[int(self._numbers[i])] = self._episode(int(i), step.next_obs)
            self._under_way[i] = False
        if step.valid is not None or step.obs is not step.next_obs:
            begun = ~self._under_way if step.valid is None else ~self._under_way & ~step.valid
            self._begin(np.flatnonzero(begun))

    def ready(self) -> Iterator[CollectedEpisode]:
        """Those episodes that can be given now; the last one cut where `n_steps` ends it."""
        while not self.complete:
            episode = self._ended.pop(self._next, None) or self._long_enough()
            if episode is None:
                return
            self._next += 1
            if self._steps_left is not None:
                episode = episode.cut(self._steps_left)
                self._steps_left -= len(episode)
            self.complete = self._next == self._n_wanted or self._steps_left == 0
            yield episode

    def _begin(self, environments: npt.NDArray[np.intp]) -> None:
        for i in environments:
            self._numbers[i] = self._n_begun
            self._under_way[i] = self._n_begun < self._n_wanted
            self._begins[i] = self._n_dropped + len(self._rows)
            self._seeds[i] = None
            self._n_begun += 1
        # Steps that no episode under way has are not needed any more.
        now = self._n_dropped + len(self._rows)
        first = int(self._begins[self._under_way].min(initial=now))
        del self._rows[: first - self._n_dropped]
        self._n_dropped = first

    def _long_enough(self) -> CollectedEpisode | None:
        """The next episode, truncated where it stands, if it has all steps that are left."""
        found = np.flatnonzero(self._under_way & (self._numbers == self._next))
        if self._steps_left is None or not len(found):
            return None
        i = int(found[0])
        if self._n_dropped + len(self._rows) - self._begins[i] < self._steps_left:
            return None
        episode = self._episode(i, self._obs)
        episode.truncated[-1] = True
        return episode

    def _episode(self, i: int, final_obs: Nested) -> CollectedEpisode:
        rows = self._rows[int(self._begins[i]) - self._n_dropped :]
        obs = [row.obs for row in rows]
        return CollectedEpisode(
            map_leaves(lambda *leaves: np.stack([leaf[i] for leaf in leaves]), *obs),
            np.stack([row.actions[i] for row in rows]),
            np.array([row.rewards[i] for row in rows], np.float64),
            np.array([row.terminated[i] for row in rows], np.bool_),
            np.array([row.truncated[i] for row in rows], np.bool_),
            map_leaves(lambda leaf: np.array(leaf[i]), final_obs),
            self._seeds[i],
        )
