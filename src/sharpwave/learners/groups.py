"""The learners of several groups of agents, seen as one."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from statistics import fmean
from typing import Any

import numpy as np

from sharpwave.core.lazy import torch
from sharpwave.learners.actor import RolloutActor
from sharpwave.learners.base import BaseLearner, Metrics
from sharpwave.types import Array, Nested

__all__ = ["GroupLearners", "GroupRolloutActor"]


class GroupLearners(BaseLearner):
    """Learns from a rollout of each group by the learner of that group.

    Args:
        config: Options.
        members: The learner of each group by its name.
        frozen: Groups that do not learn.
    """

    def __init__(
        self, config: Any, members: Mapping[str, Any], frozen: frozenset[str] = frozenset()
    ) -> None:
        super().__init__(config)
        self.members = dict(members)
        self.learning = {name: x for name, x in self.members.items() if name not in frozen}
        first = next(iter(self.members.values()))
        self.seeds, self.device_name, self.is_random = first.seeds, first.device_name, True
        self.networks = self._of_members("networks")
        self.optimizers = self._of_members("optimizers")

    @property
    def kind(self) -> str:  # type: ignore[override]
        """Backend of the groups: "torch" where they differ."""
        kinds = {member.kind for member in self.members.values()}
        return kinds.pop() if len(kinds) == 1 else "torch"

    def __getitem__(self, group: str) -> Any:
        """The learner of a group."""
        return self.members[group]

    @property
    def policy(self) -> Any:
        """The policy of the only group, or the policies by group."""
        policies = {name: member.policy for name, member in self.members.items()}
        return policies if len(policies) > 1 else next(iter(policies.values()))

    def _of_members(self, kind: str) -> dict[str, Any]:
        """Their networks or optimizers, as `group.name`."""
        return {
            f"{group}.{name}": part
            for group, member in self.members.items()
            for name, part in getattr(member, kind).items()
        }

    def update(self, batch: Mapping[str, Any]) -> Metrics:
        """Learn from the rollouts of all groups that learn.

        Args:
            batch: By group, as their learners take them. Groups that are missing or have no rows,
                since nobody acted, stay as they are.

        Returns:
            The means over the groups, and of several each group's own as `name/group`; nothing
            where nobody acted.
        """
        acted = {
            name: x
            for name, x in self.learning.items()
            if name in batch and len(batch[name].log_probs)
        }
        measured = {name: x.update(batch[name]) for name, x in acted.items()}
        self.updates += 1
        return self._joined(measured)

    def metrics(self) -> Metrics:
        """Measurements beside those of updates."""
        return self._joined({name: member.metrics() for name, member in self.learning.items()})

    def _joined(self, measured: Mapping[str, Metrics]) -> Metrics:
        """The means of what some groups measured, and of several groups each one's own."""
        every = list(measured.values())
        if len(self.learning) == 1 or not every:
            return every[0] if every else {}
        means = {name: _mean([one[name] for one in every]) for name in every[0]}
        own = {f"{name}/{group}": x for group, one in measured.items() for name, x in one.items()}
        return {**means, **own}

    def follow(self, progress_remaining: float) -> None:
        """Apply schedules at the remaining progress of a run: 1 at its start, 0 at its end."""
        for member in self.learning.values():
            member.follow(progress_remaining)

    def few_threads(self, rows: int) -> contextlib.AbstractContextManager[None]:
        """Context in which updates on so many rows use as many threads as pay off."""
        largest = max(self.members.values(), key=lambda member: member.weights().size)
        return largest.few_threads(rows)  # type: ignore[no-any-return]

    def make_generator(self, seed: int) -> Any:
        """A source of random numbers for play."""
        return {name: member.make_generator(seed) for name, member in self.members.items()}

    def state_dict(self) -> dict[str, Any]:
        """All that learning has changed, by group."""
        groups = {name: member.state_dict() for name, member in self.members.items()}
        return {"groups": groups, "gradient_steps": self.updates}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`.

        Raises:
            ValueError: The groups or their networks are others than those of the state.
        """
        saved = state["groups"]
        if saved.keys() != self.members.keys():
            raise ValueError(f"groups must be {sorted(saved)}, got {sorted(self.members)}")
        for name, member in self.members.items():
            member.load_state_dict(saved[name])
        self.updates = int(state["gradient_steps"])


class GroupRolloutActor:
    """Acts for all agents of a group in N environments, whose rows lie beside each other.

    Args:
        learner: The learner of the group, with its `view`.
        n_envs: N.
        learns: True if a learner learns from its steps.
        **options: Of `RolloutActor`.
    """

    def __init__(self, learner: Any, n_envs: int, *, learns: bool = True, **options: Any) -> None:
        size = learner.view.n_agents
        self.learner, self.learns = learner, learns
        self.action_map = learner.action_map
        self.rollout_actor = RolloutActor(learner, n_envs * size, **options)
        self._agents = np.tile(np.arange(size), n_envs)

    @property
    def state(self) -> Any:
        """Recurrent memory of the learner; None without one."""
        return self.rollout_actor.state

    @state.setter
    def state(self, state: Any) -> None:
        self.rollout_actor.state = state

    def begin_rollout(self) -> None:
        """Prepare to explore in another rollout."""
        self.rollout_actor.begin_rollout()

    def act(
        self, obs: Nested, joint: Array | None, starts: Any, masks: Any = None, acts: Any = None
    ) -> Any:
        """Choose actions for rows [N * G, ...]; see `GroupActor`."""
        seen, before = self.learner.view.inputs(obs, self._agents, joint), self.state
        acted = self.rollout_actor.act(seen, starts, masks)
        if before is not None and acts is not None and not np.all(acts):
            # An agent remembers what it saw when it acted, and nothing of the turns of others.
            own = self.learner.own(np.asarray(acts)[:, None])
            self.state = torch.where(own, acted.state, before)
        return acted

    def values(self, obs: Nested, joint: Array | None, rows: Any = None) -> Array:
        """Values of what comes after the last `act`, of some rows or of all."""
        agents = self._agents if rows is None else self._agents[rows]
        return self.rollout_actor.values(self.learner.view.inputs(obs, agents, joint), rows)

    def play(self, obs: Nested, starts: Any, masks: Any = None, acts: Any = None) -> Array:
        """Actions for the environments of rows [N * G, ...], whatever critics look at."""
        actions: Array = self.action_map.to_env(self.act(obs, None, starts, masks, acts).actions)
        return actions


def _mean(numbers: list[Any]) -> Any:
    if all(isinstance(x, int | float) for x in numbers):
        return fmean(numbers)
    return sum(numbers) / len(numbers)
