"""Steps for a replay buffer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sharpwave.collect.collector import Collector, Flags
from sharpwave.collect.vector_step import VectorStep
from sharpwave.core.tree import map_leaves
from sharpwave.envs import Step, action_masks
from sharpwave.storage.files import array_of
from sharpwave.types import Array, Nested

Choose = Callable[[Nested, "Flags | None"], Array]
"""Function from observations [N, ...] and masks [N, n] to actions [N, ...]."""

OBSERVATION, MASK = "observation", "action_mask"
"""The two parts of a stored observation where actions are masked."""


class Transitions(NamedTuple):
    """One step of every environment, as a buffer takes it: arrays, or tensors on a device."""

    obs: Nested
    actions: Any
    rewards: Any
    terminated: Any
    truncated: Any
    next_obs: Nested
    streams: npt.NDArray[np.intp] | None
    """Environments that the rows belong to; None for all of them in order."""
    restarted: bool
    """True if the environments were reset before this step, in the middle of episodes or not."""
    extra: dict[str, Any] | None = None
    """Columns of the learner's own by name; None where it did not act."""

    def with_extra(self, columns: Mapping[str, Any]) -> Transitions:
        """These rows with columns [N, ...] of all environments."""
        rows = slice(None) if self.streams is None else self.streams
        return self._replace(extra={name: column[rows] for name, column in columns.items()})


class OffPolicyCollector(Collector):
    """Steps N environments and hands out what happened, with the true last observation of episodes.

    Rows that are only resets (the next_step autoreset) are left out. Where the environments mask
    actions, an observation is `{"observation": ..., "action_mask": ...}`, so that the mask travels
    with the state that it belongs to. That of an episode's last observation is in its last info;
    environments that tell their masks by a method alone cannot be asked any more, and all actions
    count as allowed there.

    Args:
        env: A Gymnasium vector environment of any autoreset mode.
        seed: Of the first reset.

    Attributes:
        is_watched: True to keep `taken`.
        taken: The last step as callbacks see it.
        starts: [N] is_first: True where an episode begins with the observations to act on.
    """

    is_watched = False
    taken: VectorStep | None = None

    def __init__(self, env: Any, seed: int | None) -> None:
        super().__init__(env, seed)
        self.starts: Flags = np.ones(env.num_envs, np.bool_)

    def reset(self) -> None:
        """Start new episodes everywhere."""
        super().reset()
        self.starts = np.ones(self.env.num_envs, np.bool_)

    def state_dict(self) -> dict[str, Any]:
        """State of the collection, without the environments."""
        return {**super().state_dict(), "starts": self.starts}

    def load_state_dict(self, state: dict[str, Any], *, in_flight: bool) -> None:
        """Continue from `state_dict`; see `CollectorState`."""
        super().load_state_dict(state, in_flight=in_flight)
        if in_flight:  # files of before it was told apart have where the last step ended alone
            self.starts = state.get("starts", state["ended"])

    def _check_in_flight(self, state: dict[str, Any]) -> None:
        super()._check_in_flight(state)
        if "starts" in state:
            array_of(state, "starts", (self.env.num_envs,))

    def step(self, choose: Choose) -> tuple[Transitions | None, float]:
        """One step of every environment.

        Args:
            choose: Function that chooses the actions.

        Returns:
            The rows for a buffer (None where all were resets) and their mean reward.

        Raises:
            NonFiniteError: An environment returned NaN or inf.
            ValueError: The first action mask came later than with the first observation.
        """
        step: Step
        obs, actions, step = self._act(choose, self.stepper.step)
        self._check(step)
        masks = action_masks(self.env, step.infos) if self.has_masks else None
        rows = self._rows(obs, actions, step, masks)
        rewards = self._count(step)
        self.taken = VectorStep.of(obs, actions, step) if self.is_watched else None
        self.starts = self.ended
        if self.stepper.mode == "next_step":  # a step that was only a reset leads to a beginning
            self.starts = np.zeros_like(self.ended) if step.valid is None else ~step.valid
        self.obs, self.masks = step.obs, masks
        return rows, float(np.add.reduce(rewards)) / max(len(rewards), 1)

    def _check(self, step: Step) -> None:
        super()._check(step)
        if not self.has_masks and "action_mask" in step.infos:
            raise ValueError("env must give an action mask with its first observation too")

    def _rows(
        self, obs: Nested, actions: Array, step: Step, masks: Flags | None
    ) -> Transitions | None:
        next_obs = step.next_obs
        if self.has_masks:
            obs = self._with_mask(obs, self.masks)
            next_obs = self._with_mask(next_obs, self._next_masks(step, masks))
        columns = (obs, actions, step.rewards, step.terminated, step.truncated, next_obs)
        if step.valid is None:
            return Transitions(*columns, None, self._take_restarted())
        valid = np.flatnonzero(step.valid)
        if not len(valid):
            return None
        parts = (map_leaves(lambda leaf: leaf[valid], part) for part in columns)
        return Transitions._make((*parts, valid, self._take_restarted(), None))

    def _next_masks(self, step: Step, masks: Flags | None) -> Flags | None:
        """The masks of what the step led to, from those of what to act on next."""
        if masks is None or step.obs is step.next_obs:
            return masks
        ended = self.stepper.ended[:, None]
        last_info = step.infos.get("final_info")
        if isinstance(last_info, dict) and "action_mask" in last_info:
            last = action_masks(self.env, last_info)
            return masks if last is None else np.where(ended, last, masks)
        return masks | ended

    def _with_mask(self, obs: Nested, masks: Flags | None) -> Nested:
        if masks is None:
            masks = np.ones((self.env.num_envs, self.n_choices), np.bool_)
        return {OBSERVATION: obs, MASK: masks}

    @property
    def n_choices(self) -> int:
        """The length of a mask."""
        return count_choices(self.env.single_action_space)


def count_choices(space: Any) -> int:
    """The length of a mask for actions of a space."""
    return int(np.sum(space.nvec)) if hasattr(space, "nvec") else int(np.prod(space.n))
