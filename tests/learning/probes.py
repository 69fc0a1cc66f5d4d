"""Environments so small that the right value and the right action are known."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces


class Probe(gym.Env[Any, Any]):
    """An environment of a few steps; a subclass says how obs, reward and end follow."""

    observation_space: gym.Space[Any] = spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space: gym.Space[Any] = spaces.Discrete(2)

    def __init__(self) -> None:
        self.t = 0
        self.sign = 1.0

    def observe(self) -> Any:
        return np.array([self.sign], np.float32)

    def outcome(self, action: Any) -> tuple[float, bool, bool]:
        """(reward, terminated, truncated)."""
        raise NotImplementedError

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        self.sign = float(self.np_random.choice([-1.0, 1.0]))
        return self.observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        reward, terminated, truncated = self.outcome(action)
        return self.observe(), reward, terminated, truncated, {}


class ConstantValue(Probe):
    """One step, reward 1: the value is 1."""

    def outcome(self, action: Any) -> tuple[float, bool, bool]:
        return 1.0, True, False


class ValueOfObservation(Probe):
    """One step, the reward is the observation: so is the value."""

    def outcome(self, action: Any) -> tuple[float, bool, bool]:
        return self.sign, True, False


class DelayedReward(Probe):
    """Two steps, reward 1 at the second: values are γ and 1."""

    def observe(self) -> Any:
        return np.array([float(self.t)], np.float32)

    def outcome(self, action: Any) -> tuple[float, bool, bool]:
        return float(self.t == 2), self.t == 2, False


class Identity(Probe):
    """One step, reward 1 for the action that the observation names."""

    def outcome(self, action: Any) -> tuple[float, bool, bool]:
        return (1.0 if (action == 1) == (self.sign > 0) else -1.0), True, False


class ContinuousIdentity(Probe):
    """One step; the best action is half the observation's sign; bounds are not symmetric."""

    action_space = spaces.Box(-1.0, 3.0, (1,), np.float32)

    def outcome(self, action: Any) -> tuple[float, bool, bool]:
        assert self.action_space.contains(action), action
        return -float((action[0] - 0.5 * self.sign) ** 2), True, False


class MultiIdentity(Probe):
    """One step; each of two actions of three and two kinds has a right answer."""

    action_space = spaces.MultiDiscrete([3, 2])

    def outcome(self, action: Any) -> tuple[float, bool, bool]:
        right = (2, 0) if self.sign > 0 else (1, 1)
        return float(action[0] == right[0]) + float(action[1] == right[1]), True, False


class BinaryIdentity(Probe):
    """One step; every bit should follow the observation."""

    action_space = spaces.MultiBinary(3)

    def outcome(self, action: Any) -> tuple[float, bool, bool]:
        return float(np.sum(action == (self.sign > 0))), True, False


class EndsAfterFive(Probe):
    """Reward 1 at each of five steps; cut or really over at the fifth.

    The observation never changes, so the value of the cut one is 1 / (1 − γ), and that of the
    other one the mean of what is left.
    """

    def __init__(self, cut: bool) -> None:
        super().__init__()
        self.cut = cut

    def observe(self) -> Any:
        return np.array([1.0], np.float32)

    def outcome(self, action: Any) -> tuple[float, bool, bool]:
        over = self.t == 5
        return 1.0, over and not self.cut, over and self.cut


class MemoryOfStart(Probe):
    """The first observation names the action that is right two steps later, unseen by then."""

    observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)

    def observe(self) -> Any:
        return np.array([self.sign if self.t == 0 else 0.0, self.t / 2], np.float32)

    def outcome(self, action: Any) -> tuple[float, bool, bool]:
        last = self.t == 3
        right = (action == 1) == (self.sign > 0)
        return (1.0 if right else -1.0) if last else 0.0, last, False


class OnlyAllowed(Probe):
    """Five actions, of which the mask allows two; the larger one is right."""

    action_space = spaces.Discrete(5)

    def _info(self) -> dict[str, Any]:
        mask = np.zeros(5, np.int8)
        mask[[0, 3] if self.sign > 0 else [1, 2]] = 1
        return {"action_mask": mask}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        obs, _ = super().reset(seed=seed)
        return obs, self._info()

    def outcome(self, action: Any) -> tuple[float, bool, bool]:
        mask = self._info()["action_mask"]
        assert mask[action], f"action {action} is not allowed"
        return float(action == (3 if self.sign > 0 else 2)), True, False

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, _ = super().step(action)
        return obs, reward, terminated, truncated, self._info()


def with_continuous_actions(probe: type[Probe]) -> type[Probe]:
    """The same probe, with an action that means nothing and has bounds that are not symmetric."""

    class Continuous(probe):  # type: ignore[misc, valid-type]
        action_space = spaces.Box(-1.0, 3.0, (1,), np.float32)

    return Continuous
