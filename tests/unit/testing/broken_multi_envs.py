"""A multi-agent vector environment that keeps its contract, and the ways in which it might not."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from sharpwave.envs import GroupStep, MultiStep, PettingZooVectorEnv
from sharpwave.envs.multi.toys import Generations

N = 3


class MaskedGenerations(Generations):
    """Says in its infos that everything is allowed."""

    def step(self, actions: Mapping[str, Any]) -> Any:
        *told, infos = super().step(actions)
        return (*told, {agent: {"action_mask": np.ones(2, np.int8)} for agent in infos})


class Good(PettingZooVectorEnv):
    """Keeps the contract; `change` may change what a step returned."""

    def __init__(self) -> None:
        super().__init__([MaskedGenerations] * N)
        self.number = 0

    def reset(self, **kwargs: Any) -> MultiStep:
        self.number = 0
        return self.changed(super().reset(**kwargs))

    def step(self, actions: Any) -> MultiStep:
        self.number += 1
        return self.changed(super().step(actions))

    def changed(self, step: MultiStep) -> MultiStep:
        changes = self.change(step.groups["agent"], step)
        of_step = {
            x.name: changes.pop(x.name) for x in dataclasses.fields(step) if x.name in changes
        }
        group = step.groups["agent"]._replace(**changes)
        return dataclasses.replace(step, **{"groups": {"agent": group}, **of_step})

    def change(self, group: GroupStep, step: MultiStep) -> dict[str, Any]:
        return {}


class Raises(Good):
    def step(self, actions: Any) -> MultiStep:
        raise ZeroDivisionError("the wheel is flat")


class LeavesOneOut(Good):
    def __init__(self) -> None:
        super().__init__()
        self.agents = (*self.agents, "agent_99")


class DoublePrecision(Good):
    def change(self, group: GroupStep, step: MultiStep) -> dict[str, Any]:
        return {"obs": group.obs.astype(np.float64)}


class NumbersForFlags(Good):
    def change(self, group: GroupStep, step: MultiStep) -> dict[str, Any]:
        return {"terminated": group.terminated.astype(np.float32)}


class StateOfOne(Good):
    def change(self, group: GroupStep, step: MultiStep) -> dict[str, Any]:
        assert step.state is not None
        return {"state": step.state[0]}


class OutOfBounds(Good):
    def change(self, group: GroupStep, step: MultiStep) -> dict[str, Any]:
        return {"obs": group.obs * np.float32(3)}


class NotANumber(Good):
    def change(self, group: GroupStep, step: MultiStep) -> dict[str, Any]:
        return {"rewards": np.where(self.number == 9, np.nan, group.rewards)}


class PaysForNothing(Good):
    def change(self, group: GroupStep, step: MultiStep) -> dict[str, Any]:
        return {"rewards": group.rewards + (self.number == 0)}


class EndsTwice(Good):
    """Repeats the ends of the step before, unless the episode is over."""

    before: Any = None

    def change(self, group: GroupStep, step: MultiStep) -> dict[str, Any]:
        again = group.terminated
        if self.before is not None:
            again = again | (self.before & ~step.ended[:, None])
        self.before = group.terminated & ~step.ended[:, None]
        return {"terminated": again}


class PaysTheDead(Good):
    def change(self, group: GroupStep, step: MultiStep) -> dict[str, Any]:
        gone = ~group.alive & ~(group.terminated | group.truncated)
        return {"rewards": np.where(gone & (self.number > 0), -5.0, group.rewards)}


class RemembersTheDead(Good):
    def change(self, group: GroupStep, step: MultiStep) -> dict[str, Any]:
        return {"obs": np.where(step.ended[:, None, None], group.obs, group.next_obs)}


class EndsEarly(Good):
    def change(self, group: GroupStep, step: MultiStep) -> dict[str, Any]:
        return {"ended": step.ended | (self.number % 5 == 3)}


class Nobody(Good):
    def change(self, group: GroupStep, step: MultiStep) -> dict[str, Any]:
        return {"alive": group.alive & ~step.ended[:, None]}


class FirstForLast(Good):
    def change(self, group: GroupStep, step: MultiStep) -> dict[str, Any]:
        return {"next_obs": np.where(step.ended[:, None, None], group.obs, group.next_obs)}


class ForbidsAll(Good):
    def change(self, group: GroupStep, step: MultiStep) -> dict[str, Any]:
        return {"masks": None if group.masks is None else group.masks & (self.number != 4)}


class Curious(Good):
    """Looks at what the gone do."""

    def step(self, actions: Any) -> MultiStep:
        self.paid = float(np.sum(actions["agent"]))
        return super().step(actions)

    def change(self, group: GroupStep, step: MultiStep) -> dict[str, Any]:
        return {"rewards": np.where(group.alive, self.paid, group.rewards)} if self.number else {}


class Unseeded(Good):
    def reset(self, *, seed: int | None = None, **kwargs: Any) -> MultiStep:
        return super().reset(**kwargs)


class Overwrites(Good):
    memory: Any = None

    def change(self, group: GroupStep, step: MultiStep) -> dict[str, Any]:
        if self.memory is None:
            self.memory = group.rewards.copy()
        self.memory[...] = group.rewards
        return {"rewards": self.memory}


class OneInfo(Good):
    def change(self, group: GroupStep, step: MultiStep) -> dict[str, Any]:
        return {"infos": step.infos[:1]}


class ForgetsTheLastInfo(Good):
    def change(self, group: GroupStep, step: MultiStep) -> dict[str, Any]:
        return {"infos": [{key: x[key] for key in x if key != "final_info"} for x in step.infos]}


class Forgets(Good):
    """Saves no generators."""

    def set_states(self, kind: str, states: Any) -> None:
        super().set_states(kind, [{**state, "random": [{}]} for state in states])


class WordsForActions(Good):
    def __init__(self) -> None:
        super().__init__()
        self.action_spaces = {"agent": spaces.Text(3)}


BROKEN = {
    Raises: "can_be_reset_and_stepped",
    WordsForActions: "can_be_reset_and_stepped",
    LeavesOneOut: "every_agent_is_in_one_group",
    DoublePrecision: "arrays_have_the_form_of_their_group",
    NumbersForFlags: "arrays_have_the_form_of_their_group",
    StateOfOne: "state_has_the_form_of_its_space",
    OutOfBounds: "observations_are_in_their_space",
    NotANumber: "rewards_are_finite",
    PaysForNothing: "a_reset_begins_without_ends",
    EndsTwice: "an_end_is_told_once",
    PaysTheDead: "the_gone_have_zeros",
    RemembersTheDead: "the_gone_have_zeros",
    EndsEarly: "an_episode_ends_when_nobody_is_left",
    Nobody: "an_episode_ends_when_nobody_is_left",
    FirstForLast: "the_true_last_observations_are_kept",
    ForbidsAll: "masks_allow_something",
    Curious: "actions_of_the_gone_are_ignored",
    Unseeded: "reset_with_a_seed_reproduces",
    Overwrites: "returned_arrays_are_not_overwritten",
    OneInfo: "infos_are_one_for_each_environment",
    ForgetsTheLastInfo: "infos_are_one_for_each_environment",
    Forgets: "a_saved_state_goes_on_exactly",
}
"""The rule that each of them breaks."""
