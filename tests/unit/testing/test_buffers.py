"""Buffers keep their contract, and each way to break it is found by the rule it belongs to."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import sharpwave as sw
from sharpwave.compat import rlox
from sharpwave.testing import BUFFER_RULES, ContractError, check_buffer
from tests.envs import NestedEnv
from tests.unit.testing.broken_buffers import BROKEN, Ring, WithPriorities

CONTINUOUS = "Pendulum-v1"
FLAT: dict[str, Any] = {"obs_dim": 4, "act_dim": 1}


def made(kind: Any, env: Any, **options: Any) -> Callable[[int], Any]:
    return lambda capacity: kind.for_env(sw.make_vec_env(env, 1), capacity, **options)


OURS: dict[str, tuple[Callable[[int], Any], Any]] = {
    "uniform": (lambda n: sw.ReplayBuffer(n, **FLAT), "CartPole-v1"),
    "uniform in order": (made(sw.ReplayBuffer, "CartPole-v1"), "CartPole-v1"),
    "uniform, forces": (made(sw.ReplayBuffer, CONTINUOUS), CONTINUOUS),
    "uniform, nested": (made(sw.ReplayBuffer, NestedEnv), NestedEnv),
    "prioritized": (lambda n: sw.PrioritizedReplayBuffer(n, **FLAT), "CartPole-v1"),
    "prioritized by rank": (
        lambda n: sw.PrioritizedReplayBuffer(n, **FLAT, kind="rank"),
        "CartPole-v1",
    ),
    "prioritized in order": (made(sw.PrioritizedReplayBuffer, CONTINUOUS), CONTINUOUS),
    "of rlox": (lambda n: rlox.ReplayBuffer(n, **FLAT), "CartPole-v1"),
    "of a user": (Ring, "CartPole-v1"),
    "of a user, prioritized": (WithPriorities, "CartPole-v1"),
}
NOT_OF_ALL = {"priorities_are_followed"}


@pytest.mark.long(but=["uniform"])
@pytest.mark.parametrize("name", OURS)
def test_buffers_keep_all_rules(name: str) -> None:
    make, env = OURS[name]
    absent = set() if "prioritized" in name else NOT_OF_ALL
    assert set(check_buffer(make, env)) == set(BUFFER_RULES) - absent


@pytest.mark.long(but=["CartPole-v1-False"])
@pytest.mark.parametrize("prioritized", [False, True])
@pytest.mark.parametrize("env", ["CartPole-v1", CONTINUOUS])
def test_buffers_in_folders_keep_all_rules(env: str, prioritized: bool, memory_path: Path) -> None:
    numbers = itertools.count()
    vector = sw.make_vec_env(env, 1)

    def make(capacity: int) -> Any:
        folder = memory_path / str(next(numbers))
        options: dict[str, Any] = {"cold_path": folder, "prioritized": prioritized}
        return sw.MmapReplayBuffer.for_env(vector, capacity, **options)

    absent = set() if prioritized else NOT_OF_ALL
    assert set(check_buffer(make, env)) == set(BUFFER_RULES) - absent


@pytest.mark.long(but=["WithoutNextObs"])
@pytest.mark.parametrize("kind", BROKEN, ids=lambda kind: kind.__name__)
def test_a_broken_buffer_is_found_by_its_rule(kind: type) -> None:
    with pytest.raises(ContractError) as caught:
        check_buffer(kind)
    rule = BROKEN[kind]
    assert rule in caught.value.broken
    assert str(caught.value).startswith(f"{kind.__name__} breaks ")
    assert f"- {rule}: " in str(caught.value)


def test_every_rule_finds_something() -> None:
    assert set(BROKEN.values()) == set(BUFFER_RULES)


@pytest.mark.long
def test_a_buffer_without_a_seed_is_drawn_from_too() -> None:
    class OfItsOwnGenerator(Ring):
        def __init__(self, capacity: int) -> None:
            super().__init__(capacity)
            self.generator = np.random.default_rng(0)

        def sample(self, batch_size: int) -> dict[str, Any]:  # type: ignore[override]
            return super().sample(batch_size, int(self.generator.integers(2**31)))

    kept = set(check_buffer(OfItsOwnGenerator))
    assert kept == set(BUFFER_RULES) - {*NOT_OF_ALL, "same_seed_gives_the_same_batch"}


@pytest.mark.parametrize("backend", ["native", "torch"])
def test_the_priorities_of_a_users_buffer_are_the_errors_of_its_rows(backend: str) -> None:
    """A batch with indices was learned from, and then there was nobody to tell."""
    buffer = WithPriorities(64)
    options: dict[str, Any] = {"learning_starts": 16, "batch_size": 8, "hidden": 8, "seed": 0}
    agent = sw.DQN("CartPole-v1", n_envs=1, buffer=buffer, backend=backend, **options)
    agent.train(48)
    assert len({*buffer.priorities[:48]}) > 8


def test_images_stay_integers() -> None:
    class Images(gym.Env[Any, Any]):
        observation_space = gym.spaces.Box(0, 255, (4, 4, 1), np.uint8)
        action_space = gym.spaces.Discrete(2)

    def as_floats(capacity: int) -> Any:
        return sw.ReplayBuffer(capacity, obs_dim=16, act_dim=1)

    rule = "shapes_and_dtypes_are_those_of_the_spaces"
    check_buffer(made(sw.ReplayBuffer, Images), Images, rules=rule)
    with pytest.raises(ContractError, match=rule):
        check_buffer(as_floats, Images, rules=rule)
