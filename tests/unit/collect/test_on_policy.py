"""The on-policy collector against single environments, in every autoreset mode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharpwave.collect import OnPolicyCollector, Rollout
from sharpwave.envs import ActionMap, PythonVectorEnv, VecNormalize
from sharpwave.learners import Acted
from sharpwave.types import Array
from tests.envs import CountingEnv, vectorized
from tests.reference.rollout import Transition, episodes, rollouts

KINDS = ["own", "next_step", "same_step", "disabled"]
GAMMA, LAMBDA, SEED = 0.9, 0.8, 3

kinds = pytest.mark.parametrize("kind", KINDS)
Maker = Callable[[], Any]


class Forgetful:
    """Knows the present observation only: [number, episode, step] of a CountingEnv."""

    def start(self) -> float:
        return 0.0

    def look(self, memory: float, obs: Array) -> float:
        number, episode, step = map(float, obs)
        return 0.3 * number + 0.7 * episode + 1.1 * step

    def action(self, memory: float) -> int:
        return int(10 * memory) % 2

    def value(self, memory: float) -> float:
        return memory


class Remembering(Forgetful):
    """The memory is made of all observations of an episode."""

    def look(self, memory: float, obs: Array) -> float:
        return 0.5 * memory + 1.0 + super().look(memory, obs)


class Constant(Forgetful):
    """Does and values everything alike."""

    def __init__(self, constant: float) -> None:
        self.constant = constant

    def action(self, memory: float) -> int:
        return 0

    def value(self, memory: float) -> float:
        return self.constant


class Acting:
    """A policy for single environments, acting in N of them as the collector asks."""

    def __init__(self, policy: Forgetful, n_envs: int) -> None:
        self.policy = policy
        self.memories = [policy.start()] * n_envs

    def act(self, obs: Array, starts: Array, masks: Any) -> Acted:
        look, start = self.policy.look, self.policy.start
        self.memories = [
            look(start() if is_start else memory, row)
            for memory, row, is_start in zip(self.memories, obs, starts, strict=True)
        ]
        actions = np.array([self.policy.action(memory) for memory in self.memories])
        values = np.array([self.policy.value(memory) for memory in self.memories], np.float32)
        return Acted(actions, -values, values)

    def values(self, obs: Array, rows: Array | None = None) -> Array:
        rows = np.arange(len(self.memories)) if rows is None else rows
        known = [self.policy.look(self.memories[i], one) for i, one in zip(rows, obs, strict=True)]
        return np.array([self.policy.value(memory) for memory in known], np.float32)


def vector_env(kind: str, makers: Sequence[Maker]) -> Any:
    return PythonVectorEnv(list(makers)) if kind == "own" else vectorized(list(makers), kind)


def collector(env: Any, policy: Forgetful, n_steps: int) -> OnPolicyCollector:
    actor = Acting(policy, env.num_envs)
    action_map = ActionMap(env.single_action_space)
    return OnPolicyCollector(env, actor, action_map, n_steps=n_steps, seed=SEED)


def makers_of(schedules: Sequence[Sequence[tuple[int, str]]]) -> list[Maker]:
    return [
        partial(CountingEnv, [n for n, _ in schedule], number, [end for _, end in schedule])
        for number, schedule in enumerate(schedules)
    ]


def expected_of(
    kind: str, makers: Sequence[Maker], policy: Any, n_steps: int, n_rollouts: int
) -> list[list[list[Transition]]]:
    return [
        rollouts(
            make,
            policy,
            seed=SEED + i,
            n_rollouts=n_rollouts,
            n_steps=n_steps,
            resets_take_a_row=kind == "next_step",
            gamma=GAMMA,
            lam=LAMBDA,
        )
        for i, make in enumerate(makers)
    ]


def rows_of(rollout: Rollout) -> Array:
    """The steps as (obs, action, reward, value, is first, advantage, return), sorted."""
    columns = [
        *np.moveaxis(rollout.obs, -1, 0),
        rollout.actions,
        rollout.rewards,
        rollout.values,
        rollout.starts,
        rollout.advantages,
        rollout.returns,
    ]
    return _sorted(np.stack([column[rollout.valid] for column in columns], axis=1))


def rows_expected(transitions: list[Transition]) -> Array:
    rows = [
        [*x.obs, x.action, x.reward, x.value, x.is_first, x.advantage, x.advantage + x.value]
        for x in transitions
    ]
    return _sorted(np.array(rows).reshape(len(rows), 9))


def _sorted(rows: Array) -> Array:
    """By what is exact: number, episode and step."""
    return rows[np.lexsort(rows[:, 2::-1].T)]


def check(kind: str, makers: Sequence[Maker], policy: Any, n_steps: int, n_rollouts: int) -> None:
    compare(vector_env(kind, makers), kind, makers, policy, n_steps, n_rollouts)


def compare(
    env: Any, kind: str, singles: Sequence[Maker], policy: Any, n_steps: int, n_rollouts: int
) -> None:
    """Collects, and compares every row and every episode with the single environments'."""
    ours = collector(env, policy, n_steps)
    # Rollouts in which nothing but resets happens are collected again.
    expected = expected_of(kind, singles, policy, n_steps, 2 * n_rollouts)
    of_rollouts = [rollout for rollout in zip(*expected, strict=True) if any(rollout)]
    expected = [list(collected) for collected in zip(*of_rollouts[:n_rollouts], strict=True)]
    timesteps = 0
    for i in range(n_rollouts):
        transitions = [step for collected in expected for step in collected[i]]
        rollout = ours.collect(GAMMA, LAMBDA)
        assert rollout is not None
        np.testing.assert_allclose(rows_of(rollout), rows_expected(transitions), 1e-4, 1e-4)
        timesteps += len(transitions)
        assert ours.timesteps == timesteps
    if not isinstance(env, VecNormalize):
        check_episodes(ours, expected)
    env.close()


def check_episodes(ours: OnPolicyCollector, expected: list[list[list[Transition]]]) -> None:
    """Episodes are counted as they end, those that end together in the order of the envs."""
    ended = [
        (episode.row, i, episode)
        for i, collected in enumerate(expected)
        for episode in episodes(collected)
    ]
    in_order = [episode for _, _, episode in sorted(ended)]
    assert ours.episodes.count == len(in_order)
    assert list(ours.episodes.lengths) == [one.length for one in in_order]
    np.testing.assert_allclose(list(ours.episodes.returns), [one.total for one in in_order])


SCHEDULES: dict[str, list[list[tuple[int, str]]]] = {
    "episodes of one step": [[(1, "terminated")], [(1, "truncated")], [(1, "both")]],
    "all end together": [[(3, "terminated")], [(3, "truncated")], [(3, "both")]],
    "each its own": [[(2, "truncated"), (5, "terminated")], [(4, "both"), (1, "truncated")]],
    "only cuts": [[(2, "truncated")], [(3, "truncated")], [(1, "truncated")]],
    "no end in sight": [[(1000, "terminated")], [(1000, "truncated")]],
    "at the end of the rollout": [[(8, "truncated")], [(8, "terminated")], [(16, "truncated")]],
}


@kinds
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_rows_and_episodes_are_those_of_single_environments(kind: str, schedule: str) -> None:
    check(kind, makers_of(SCHEDULES[schedule]), Forgetful(), n_steps=8, n_rollouts=3)


@kinds
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_memory_lasts_exactly_one_episode(kind: str, schedule: str) -> None:
    check(kind, makers_of(SCHEDULES[schedule]), Remembering(), n_steps=8, n_rollouts=3)


ends = st.sampled_from(["terminated", "truncated", "both"])
schedules = st.lists(
    st.lists(st.tuples(st.integers(1, 4), ends), min_size=1, max_size=4), min_size=1, max_size=3
)


@pytest.mark.long
@given(
    kind=st.sampled_from(KINDS),
    schedule=schedules,
    policy=st.sampled_from([Forgetful(), Remembering()]),
    n_steps=st.integers(1, 9),
    n_rollouts=st.integers(1, 3),
)
def test_any_schedule(
    kind: str,
    schedule: list[list[tuple[int, str]]],
    policy: Any,
    n_steps: int,
    n_rollouts: int,
) -> None:
    check(kind, makers_of(schedule), policy, n_steps, n_rollouts)


class SteadyReward(CountingEnv):
    """Pays 1 - gamma in every step: with truncation alone, everything is worth 1."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs, _, terminated, truncated, info = super().step(action)
        return obs, 1 - GAMMA, terminated, truncated, info


@kinds
def test_truncation_bootstraps_exactly_once(kind: str) -> None:
    """Advantages of right values are 0, at cuts and before them too."""
    makers = [partial(SteadyReward, [n], n, "truncated") for n in (1, 2, 5)]
    env = vector_env(kind, makers)
    ours = collector(env, Constant(1.0), n_steps=8)
    for _ in range(3):
        rollout = ours.collect(GAMMA, 0.95)
        assert rollout is not None
        np.testing.assert_allclose(rollout.advantages[rollout.valid], 0, atol=1e-6)
        np.testing.assert_allclose(rollout.returns[rollout.valid], 1, atol=1e-6)


@kinds
def test_episodes_are_counted_in_raw_rewards(kind: str) -> None:
    makers = makers_of(SCHEDULES["each its own"])
    env = VecNormalize(vector_env(kind, makers), gamma=GAMMA)
    ours = collector(env, Constant(0.0), n_steps=8)
    for _ in range(3):
        ours.collect(GAMMA, LAMBDA)
    check_episodes(ours, expected_of(kind, makers, Constant(0.0), 8, 3))


class Scaled(gym.Wrapper[Any, Any, Any, Any]):
    """One environment, seen through frozen statistics."""

    def __init__(self, env: Any, normalizer: VecNormalize, scale: float) -> None:
        super().__init__(env)
        self.normalizer = normalizer
        self.scale = scale

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(**kwargs)
        return self.normalizer.normalize_obs(obs), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        reward = float(reward) / self.scale
        return self.normalizer.normalize_obs(obs), reward, terminated, truncated, info


@kinds
def test_normalized_rows_are_those_of_single_environments(kind: str) -> None:
    """The last observations of episodes are on the scale of all others."""
    makers = makers_of(SCHEDULES["each its own"])
    normalizer = VecNormalize(vector_env(kind, makers), gamma=GAMMA)
    statistics = trained_statistics(makers)
    normalizer.load_state_dict(statistics)
    normalizer.training = False
    scale = float(np.sqrt(statistics["return.var"] + normalizer.epsilon))
    singles = [lambda make=make: Scaled(make(), normalizer, scale) for make in makers]
    compare(normalizer, kind, singles, Forgetful(), n_steps=8, n_rollouts=3)


def trained_statistics(makers: Sequence[Maker]) -> dict[str, Array]:
    env = VecNormalize(PythonVectorEnv(list(makers)), gamma=GAMMA)
    env.reset()
    for _ in range(50):
        env.step(np.zeros(len(makers), np.int64))
    return {**env.state_dict(), "returns": np.zeros(0)}
