"""A vector environment as a user might write it, and the ways in which it might be wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

N_STEPS = 8
BOUND = 3


class Walk(VectorEnv[Any, Any, Any]):
    """Walks along a line to one of its ends, or until its time is up; keeps the contract."""

    mode = AutoresetMode.SAME_STEP

    def __init__(self, num_envs: int = 3) -> None:
        self.num_envs = num_envs
        self.metadata = {"autoreset_mode": self.mode}
        self.single_observation_space = spaces.Box(-BOUND, N_STEPS, (2,), np.float32)
        self.single_action_space = spaces.Discrete(2)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.positions = np.zeros(num_envs)
        self.steps = np.zeros(num_envs, np.int64)
        self.ended = np.zeros(num_envs, np.bool_)
        self.generator = np.random.default_rng()

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        if seed is not None:
            self.generator = self.seeded(seed)
        asked = (options or {}).get("reset_mask", np.ones(self.num_envs, np.bool_))
        self.begin(asked)
        return self.observations(), {}

    def seeded(self, seed: int) -> np.random.Generator:
        return np.random.default_rng(seed)

    def begin(self, rows: Any) -> None:
        drawn = self.generator.uniform(-1, 1, self.num_envs)
        self.positions = np.where(rows, drawn, self.positions)
        self.steps = np.where(rows, 0, self.steps)
        self.ended = self.ended & ~rows

    def observations(self) -> Any:
        return np.stack([self.positions.clip(-BOUND, BOUND), self.steps], 1).astype(np.float32)

    def step(self, actions: Any) -> Any:
        resetting = self.ended & (self.mode is AutoresetMode.NEXT_STEP)
        self.positions = np.where(resetting, self.positions, self.positions + 2 * actions - 1)
        self.steps = np.where(resetting, self.steps, self.steps + 1)
        self.begin(resetting)
        rewards = np.where(resetting, 0.0, self.rewards())
        terminated = np.where(resetting, False, np.abs(self.positions) >= BOUND)
        truncated = np.where(resetting, False, self.steps >= N_STEPS)
        return self.finished(rewards, terminated, truncated)

    def rewards(self) -> Any:
        return 1.0 - np.abs(self.positions) / 10

    def finished(self, rewards: Any, terminated: Any, truncated: Any) -> Any:
        infos: dict[str, Any] = {}
        self.ended = terminated | truncated
        if self.mode is AutoresetMode.SAME_STEP and self.ended.any():
            infos = {"final_obs": self.observations().copy(), "_final_obs": self.ended}
            self.begin(self.ended)
        return self.observations(), rewards, terminated, truncated, infos

    def get_state(self) -> dict[str, Any]:
        return {
            "positions": self.positions,
            "steps": self.steps,
            "ended": self.ended,
            "generator": self.generator.bit_generator.state,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        self.positions, self.steps = state["positions"], state["steps"]
        self.ended = state["ended"]
        self.generator.bit_generator.state = state["generator"]


class NextStep(Walk):
    """Keeps the contract, too."""

    mode = AutoresetMode.NEXT_STEP


class Disabled(Walk):
    """And so does this one."""

    mode = AutoresetMode.DISABLED


class Masked(Walk):
    """Says which actions lead on."""

    def action_masks(self) -> Any:
        return np.stack([self.positions > -BOUND, self.positions < BOUND], 1)


class Declared(Walk):
    """Returns the same array again and again, and says so."""

    copy = False

    def observations(self) -> Any:
        self.memory = getattr(self, "memory", np.zeros((self.num_envs, 2), np.float32))
        self.memory[:] = super().observations()
        return self.memory


class Changed(Walk):
    """Changes what a step returns."""

    def change(self, outcome: dict[str, Any]) -> None:
        raise NotImplementedError

    def step(self, actions: Any) -> Any:
        names = ("obs", "rewards", "terminated", "truncated", "infos")
        outcome = dict(zip(names, super().step(actions), strict=True))
        self.change(outcome)
        return tuple(outcome.values())


class Raises(Walk):
    def step(self, actions: Any) -> Any:
        raise ZeroDivisionError("the wheel is flat")


class SpacesOfOne(Walk):
    def __init__(self) -> None:
        super().__init__()
        self.observation_space = self.single_observation_space


class DoublePrecision(Walk):
    def observations(self) -> Any:
        return super().observations().astype(np.float64)


class OutOfBounds(Walk):
    def observations(self) -> Any:
        return super().observations() * np.float32(2)


class NotANumber(Changed):
    def change(self, outcome: dict[str, Any]) -> None:
        outcome["rewards"] = np.where(self.steps == N_STEPS - 1, np.nan, outcome["rewards"])


class ColumnOfRewards(Changed):
    def change(self, outcome: dict[str, Any]) -> None:
        outcome["rewards"] = outcome["rewards"][:, None]


class NumbersForFlags(Changed):
    def change(self, outcome: dict[str, Any]) -> None:
        outcome["terminated"] = outcome["terminated"].astype(np.float32)


class MergedFlags(Changed):
    def change(self, outcome: dict[str, Any]) -> None:
        outcome["terminated"] = outcome["truncated"] = outcome["terminated"] | outcome["truncated"]


class Undeclared(Walk):
    def __init__(self) -> None:
        super().__init__()
        self.metadata = {}


class LosesTheLastObservation(Changed):
    def change(self, outcome: dict[str, Any]) -> None:
        outcome["infos"] = {}


class FirstForLast(Changed):
    def change(self, outcome: dict[str, Any]) -> None:
        if outcome["infos"]:
            outcome["infos"]["final_obs"] = outcome["obs"].copy()


class SaysNextStep(Walk):
    """Resets in the same step."""

    def __init__(self) -> None:
        super().__init__()
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}


class SilentlyNextStep(SaysNextStep):
    """The same without a word of the last observations."""

    def finished(self, rewards: Any, terminated: Any, truncated: Any) -> Any:
        *outcome, _ = super().finished(rewards, terminated, truncated)
        return *outcome, {}


class ResetsAll(Disabled):
    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return super().reset(seed=seed)


class IgnoresTheSeed(Walk):
    def seeded(self, seed: int) -> np.random.Generator:
        return self.generator


class DrawsGlobally(Walk):
    def rewards(self) -> Any:
        return super().rewards() + np.random.normal(size=self.num_envs)  # noqa: NPY002


class ReusesArrays(Declared):
    copy = True


class WrongMasks(Walk):
    def action_masks(self) -> Any:
        return np.ones((self.num_envs, 3), np.bool_)


class MasksOfWeights(Changed):
    def change(self, outcome: dict[str, Any]) -> None:
        outcome["infos"]["action_mask"] = np.full((self.num_envs, 2), 0.5)


class NumbersForMasks(Changed):
    def change(self, outcome: dict[str, Any]) -> None:
        outcome["infos"] |= {"speed": np.ones(self.num_envs), "_speed": np.arange(self.num_envs)}


class ForgetsItsGenerator(Walk):
    def get_state(self) -> dict[str, Any]:
        return {k: v for k, v in super().get_state().items() if k != "generator"}

    def set_state(self, state: dict[str, Any]) -> None:
        super().set_state({**state, "generator": self.generator.bit_generator.state})


class LendsItsState(Walk):
    """Its state is the memory that it goes on with."""

    def step(self, actions: Any) -> Any:
        outcome = super().step(actions)
        self.lent = getattr(self, "lent", np.zeros(self.num_envs))
        self.lent += actions
        return outcome

    def get_state(self) -> dict[str, Any]:
        return {**super().get_state(), "lent": self.lent}


BROKEN: dict[type, str] = {
    Raises: "can_be_reset_and_stepped",
    SpacesOfOne: "spaces_are_those_of_one_environment_batched",
    DoublePrecision: "observations_have_shape_and_dtype_of_the_space",
    OutOfBounds: "observations_are_in_their_space",
    ColumnOfRewards: "rewards_are_one_number_for_each",
    NotANumber: "rewards_are_finite",
    NumbersForFlags: "terminated_and_truncated_are_flags",
    MergedFlags: "termination_and_truncation_are_told_apart",
    Undeclared: "autoreset_mode_is_declared",
    LosesTheLastObservation: "same_step_gives_the_true_last_observation",
    FirstForLast: "same_step_gives_the_true_last_observation",
    SaysNextStep: "next_step_resets_in_the_step_after_an_end",
    SilentlyNextStep: "next_step_resets_in_the_step_after_an_end",
    ResetsAll: "disabled_resets_only_what_is_asked",
    IgnoresTheSeed: "reset_with_a_seed_reproduces",
    DrawsGlobally: "reset_with_a_seed_reproduces",
    ReusesArrays: "returned_arrays_are_not_overwritten",
    WrongMasks: "action_masks_fit_the_action_space",
    MasksOfWeights: "action_masks_fit_the_action_space",
    NumbersForMasks: "infos_have_gymnasiums_form",
    ForgetsItsGenerator: "a_saved_state_goes_on_exactly",
    LendsItsState: "a_saved_state_goes_on_exactly",
}
"""Broken environments, and the rule that finds each."""
