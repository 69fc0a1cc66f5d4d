"""Transitions from the collector to a replay buffer, against single environments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharpwave.collect import OffPolicyCollector, Transitions
from sharpwave.envs import PythonVectorEnv
from sharpwave.types import Array
from tests.envs import CountingEnv, MaskedEnv, NestedEnv, ReusingEnv, vectorized
from tests.reference.nests import assert_same, leaves, transform
from tests.reference.transitions import Transition, transitions

KINDS = ["own", "next_step", "same_step", "disabled"]
SCHEDULES: dict[str, list[tuple[int, ...]]] = {
    "one": [(3, 1, 4)],
    "each its own": [(3, 5), (4,), (2, 1, 6)],
    "all together": [(4,)] * 3,
    "one step each": [(1,)] * 3,
}
SEED = 3

kinds = pytest.mark.parametrize("kind", KINDS)
Maker = Callable[[], Any]


def vector_env(kind: str, makers: Sequence[Maker]) -> Any:
    return PythonVectorEnv(list(makers)) if kind == "own" else vectorized(list(makers), kind)


def choice(obs: Any) -> int:
    """An action that depends on everything the observation says."""
    number, episode, step = (
        (*obs["where"], obs["parts"][1]) if isinstance(obs, dict) else map(float, obs)
    )
    return int(number + 2 * episode + step) % 2


def choose(obs: Any, masks: Any) -> Array:
    n = len(obs["where"] if isinstance(obs, dict) else obs)
    rows = [transform(lambda leaf, i=i: leaf[i], obs) for i in range(n)]
    return np.array([choice(row) for row in rows])


def first_allowed(obs: Any, masks: Any) -> Array:
    allowed: Array = masks.argmax(1)
    return allowed


def zeros(obs: Any, masks: Any) -> Array:
    return np.zeros(len(obs), np.int64)


def collected(
    collector: OffPolicyCollector, n_rounds: int, choose: Any = choose
) -> list[list[Any]]:
    """Transitions by environment, each (obs, action, reward, terminated, truncated, next_obs)."""
    found: list[list[Any]] = [[] for _ in range(collector.env.num_envs)]
    for _ in range(n_rounds):
        rows, _ = collector.step(choose)
        if rows is not None:
            for i, stream in enumerate(streams_of(rows)):
                found[stream].append(transform(lambda leaf, i=i: leaf[i], tuple(rows[:6])))
    return found


def streams_of(rows: Transitions) -> list[int]:
    return list(range(len(rows.rewards))) if rows.streams is None else list(map(int, rows.streams))


def check_steps(found: list[Any], expected: Sequence[Transition]) -> None:
    assert len(found) == len(expected)
    for one, step in zip(found, expected, strict=True):
        expected_leaves = dict(leaves(tuple(step[:6])))
        for path, leaf in leaves(one):
            np.testing.assert_array_equal(leaf, expected_leaves.pop(path), path)
        assert not expected_leaves


@pytest.mark.long(but=["CountingEnv-one-own"])
@kinds
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("make", [CountingEnv, NestedEnv, ReusingEnv])
def test_hands_out_exactly_the_steps_of_the_environments(
    kind: str, schedule: str, make: Any
) -> None:
    if make is ReusingEnv and kind == "same_step":
        pytest.skip("Gymnasium's last observation is then overwritten by its reset")
    makers = [
        partial(make, lengths, number, ("terminated", "truncated", "both"))
        for number, lengths in enumerate(SCHEDULES[schedule])
    ]
    collector = OffPolicyCollector(vector_env(kind, makers), seed=SEED)
    found = collected(collector, 25)
    assert collector.timesteps == sum(map(len, found))
    if kind != "next_step":
        assert all(len(steps) == 25 for steps in found)
    for i, steps in enumerate(found):
        check_steps(steps, list(islice(transitions(makers[i], choice, SEED + i), len(steps))))


endings = st.sampled_from(["terminated", "truncated", "both"])
schedules = st.lists(st.tuples(st.integers(1, 4), endings), min_size=1, max_size=3)


@pytest.mark.long
@given(st.sampled_from(KINDS), st.lists(schedules, min_size=1, max_size=3), st.integers(1, 12))
def test_whatever_the_schedule(kind: str, drawn: Any, n_rounds: int) -> None:
    makers = [
        partial(CountingEnv, [n for n, _ in schedule], number, [end for _, end in schedule])
        for number, schedule in enumerate(drawn)
    ]
    found = collected(OffPolicyCollector(vector_env(kind, makers), seed=SEED), n_rounds)
    for i, steps in enumerate(found):
        check_steps(steps, list(islice(transitions(makers[i], choice, SEED + i), len(steps))))


@kinds
def test_masks_travel_with_the_observation_they_belong_to(kind: str) -> None:
    makers = [partial(MaskedEnv, (n,), n, "alternating") for n in (2, 3, 1)]
    collector = OffPolicyCollector(vector_env(kind, makers), seed=SEED)
    found = collected(collector, 20, first_allowed)
    assert collector.has_masks
    assert collector.n_choices == 3
    for i, steps in enumerate(found):

        def allowed(obs: Any) -> int:
            return int(np.argmax(np.arange(3) != int(obs[2]) % 3))

        expected = islice(transitions(makers[i], allowed, SEED + i), len(steps))
        for (obs, action, _, _, _, next_obs), step in zip(steps, expected, strict=True):
            assert_same(obs, {"observation": step.obs, **step.info})
            assert action == step.action
            assert_same(next_obs, {"observation": step.next_obs, **step.next_info})


class MaskMethod(MaskedEnv):
    """Tells its masks by a method."""

    def info(self) -> dict[str, Any]:
        return {}

    def action_masks(self) -> Array:
        allowed: Array = np.arange(3) != self.step_number % 3
        return allowed


@kinds
def test_masks_from_a_method(kind: str) -> None:
    makers = [partial(MaskMethod, (2,), 0, "truncated"), partial(MaskMethod, (3,), 1)]
    collector = OffPolicyCollector(vector_env(kind, makers), seed=SEED)
    for steps in collected(collector, 12, first_allowed):
        for obs, _, _, terminated, truncated, next_obs in steps:
            step = int(obs["observation"][2])
            np.testing.assert_array_equal(obs["action_mask"], np.arange(3) != step % 3)
            if not (terminated or truncated) or kind == "next_step":
                allowed = np.arange(3) != (step + 1) % 3
            else:  # it stands at the next episode's start already
                allowed = np.ones(3, np.bool_)
            np.testing.assert_array_equal(next_obs["action_mask"], allowed)


@kinds
def test_a_mask_that_comes_late_is_refused(kind: str) -> None:
    collector = OffPolicyCollector(
        vector_env(kind, [partial(MaskedEnv, (3,), 0, silent=(0,))]), seed=SEED
    )
    with pytest.raises(ValueError, match="action mask"):
        collector.step(zeros)


@kinds
def test_rewards_and_episodes_are_those_of_real_steps(kind: str) -> None:
    makers = [partial(CountingEnv, (1, 2), 0), partial(CountingEnv, (2,), 1)]
    collector = OffPolicyCollector(vector_env(kind, makers), seed=SEED)
    for _ in range(9):
        rows, reward = collector.step(zeros)
        assert reward == (0.0 if rows is None else pytest.approx(np.mean(rows.rewards)))
    assert set(collector.episodes.lengths) == {1, 2}
    assert set(collector.episodes.returns) == {1.1, 2.1 + 2.2, 1.1 + 1.2}


class Interrupting(CountingEnv):
    """Its fourth step is interrupted once it has been taken."""

    interrupted = False

    def step(self, action: Any) -> Any:
        outcome = super().step(action)
        if self.step_number == 4 and not self.interrupted:
            self.interrupted = True
            raise KeyboardInterrupt
        return outcome


def test_an_interrupted_step_is_not_joined_to_the_next_one() -> None:
    collector = OffPolicyCollector(PythonVectorEnv([partial(Interrupting, (9,))]), seed=SEED)
    for _ in range(3):
        collector.step(zeros)
    with pytest.raises(KeyboardInterrupt):
        collector.step(zeros)
    rows, _ = collector.step(zeros)
    assert rows is not None
    np.testing.assert_array_equal(rows.obs, [[0, 1, 0]])
    np.testing.assert_array_equal(rows.next_obs, [[0, 1, 1]])


def test_arrays_that_an_environment_uses_again_are_copied() -> None:
    env = gym.vector.SyncVectorEnv([partial(CountingEnv, (9,))] * 2, copy=False)
    collector = OffPolicyCollector(env, seed=SEED)
    rounds = [collector.step(zeros)[0] for _ in range(3)]
    for t, rows in enumerate(rounds):
        assert rows is not None
        assert rows.obs[:, 2].tolist() == [t, t]
        assert rows.next_obs[:, 2].tolist() == [t + 1, t + 1]
        assert rows.rewards.tolist() == pytest.approx([1 + (t + 1) / 10] * 2)
