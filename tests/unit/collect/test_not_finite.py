"""Observations and rewards that are not finite stop the collection, wherever they come from."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from sharpwave.collect import NonFiniteError, OffPolicyCollector, OnPolicyCollector
from sharpwave.envs import ActionMap, PythonVectorEnv, VecNormalize
from sharpwave.learners import Acted
from tests.envs import CountingEnv, NestedEnv, vectorized
from tests.unit.collect.test_on_policy import Constant, collector

KINDS = ["own", "next_step", "same_step", "disabled"]
BAD = [np.nan, -np.inf]


class BrokenSensor(CountingEnv):
    """Episodes of three steps; in the second one something is not finite.

    Args:
        where: "first", "middle" or "last" observation, or "reward".
        bad: What comes instead.
    """

    def __init__(self, number: int, where: str, bad: float) -> None:
        super().__init__((3,), number, "alternating")
        self.where = where
        self.bad = bad if number == 1 else 0.0

    def observation(self) -> Any:
        obs = super().observation()
        if self.episode == 1 and self.where == ("first", "middle", "", "last")[self.step_number]:
            obs[1] = self.bad
        return obs

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = super().step(action)
        if self.episode == 1 and self.where == "reward":
            reward = self.bad
        return obs, reward, terminated, truncated, info


# The number of steps that two environments took before the one that went wrong.
TAKEN = {"first": 4, "middle": 6, "last": 10, "reward": 6}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("where", TAKEN)
@pytest.mark.parametrize("bad", BAD)
def test_the_environment_and_the_step_are_named(
    kind: str, normalized: bool, where: str, bad: float
) -> None:
    makers = [partial(BrokenSensor, number, where, bad) for number in range(2)]
    env: Any = PythonVectorEnv(makers) if kind == "own" else vectorized(makers, kind)
    if normalized:
        env = VecNormalize(env)
    ours = collector(env, Constant(0.0), n_steps=4)
    what = "rewards" if where == "reward" else "obs"
    with pytest.raises(NonFiniteError, match=f"{what} must be finite") as raised:
        collect_three(ours)
    assert "environment 1" in str(raised.value)
    taken = 6 if where == "first" and kind == "next_step" else TAKEN[where]
    assert f"at step {taken}" in str(raised.value)
    if normalized:
        statistics = env.state_dict()
        assert all(np.isfinite(array).all() for name, array in statistics.items() if "." in name)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("where", TAKEN)
@pytest.mark.parametrize("bad", BAD)
def test_also_on_the_way_to_a_buffer(kind: str, where: str, bad: float) -> None:
    makers = [partial(BrokenSensor, number, where, bad) for number in range(2)]
    env: Any = PythonVectorEnv(makers) if kind == "own" else vectorized(makers, kind)
    ours = OffPolicyCollector(env, seed=0)
    what = "rewards" if where == "reward" else "obs"
    with pytest.raises(NonFiniteError, match=f"{what} must be finite.*environment 1"):
        take_steps(ours)


def take_steps(ours: OffPolicyCollector) -> None:
    for _ in range(12):
        rows, _ = ours.step(lambda obs, masks: np.zeros(2, np.int64))  # noqa: ARG005
        assert rows is None or np.isfinite(rows.rewards).all()


def collect_three(ours: OnPolicyCollector) -> None:
    for _ in range(3):
        ours.collect(0.9, 0.9)


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_observation_counts_too(kind: str) -> None:
    class Broken(CountingEnv):
        def observation(self) -> Any:
            return super().observation() + np.float32("nan")

    env = PythonVectorEnv([Broken]) if kind == "own" else vectorized([Broken], kind)
    with pytest.raises(NonFiniteError, match=r"obs must be finite.*environment 0 at step 0"):
        collector(env, Constant(0.0), n_steps=4).collect(0.9, 0.9)


@pytest.mark.parametrize("kind", KINDS)
def test_nested_observations_name_the_entry(kind: str) -> None:
    class Broken(NestedEnv):
        def observation(self) -> Any:
            obs = super().observation()
            image, number, _ = obs["parts"]
            return {**obs, "parts": (image, number, np.nan if number == 2 else 0.0)}

    class Still:
        def act(self, obs: Any, starts: Any, masks: Any) -> Any:
            return Acted(np.zeros(1, np.int64), np.zeros(1), np.zeros(1))

        def values(self, obs: Any, rows: Any = None) -> Any:
            return np.zeros(1)

    env = PythonVectorEnv([Broken]) if kind == "own" else vectorized([Broken], kind)
    action_map = ActionMap(env.single_action_space)
    ours = OnPolicyCollector(env, Still(), action_map, n_steps=4, seed=0)
    with pytest.raises(NonFiniteError, match=r"obs\['parts'\]\[2\] must be finite"):
        ours.collect(0.9, 0.9)


def test_numbers_whose_sum_overflows_are_fine() -> None:
    class Huge(CountingEnv):
        def observation(self) -> Any:
            return np.full(3, 3e38, np.float32)

    rollout = collector(PythonVectorEnv([Huge]), Constant(0.0), 4).collect(0.9, 0.9)
    assert rollout is not None
