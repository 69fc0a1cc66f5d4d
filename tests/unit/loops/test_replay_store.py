"""Pushes to the buffer of a run, and draws from it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import sharpwave as sw
from sharpwave.buffers.views import NStep
from sharpwave.envs import PythonVectorEnv
from sharpwave.types import Array
from tests.envs import (
    BoxActionEnv,
    CountingEnv,
    DiscreteObsEnv,
    FramesEnv,
    MaskedEnv,
    NestedEnv,
    vectorized,
)
from tests.reference.nests import leaves, transform
from tests.reference.transitions import Transition, n_step, transitions

KINDS = ["own", "next_step", "same_step", "disabled"]
SCHEDULES: dict[str, list[tuple[int, ...]]] = {
    "one": [(3, 1, 4)],
    "three": [(3, 5), (4,), (2, 1, 6)],
    "together": [(2,)] * 3,
    "single steps": [(1,)] * 3,
}
ENDS = ("terminated", "truncated", "both")
ROUNDS = 30

kinds = pytest.mark.parametrize("kind", KINDS)
Makers = list[Callable[[], Any]]


def vector_env(kind: str, makers: Makers) -> Any:
    return PythonVectorEnv(makers) if kind == "own" else vectorized(makers, kind)


def collected(env: Any, **options: Any) -> Any:
    """An algorithm that has collected some rounds with random actions, and learned from them."""
    cls = sw.SAC if hasattr(env.single_action_space, "low") else sw.DQN
    options = {"buffer_size": 1000, "batch_size": 8, "hidden": (4,), **options}
    algorithm = cls(env, learning_starts=10_000, **options)
    algorithm.train(ROUNDS * env.num_envs)
    return algorithm


def by_env(buffer: Any, n_envs: int) -> list[Any]:
    """The ids of each environment's steps, in order."""
    ids = buffer.indices()
    streams = ids % n_envs
    return [ids[streams == i] for i in range(n_envs)]


def lived(make: Callable[[], Any], actions: Array, seed: int) -> list[Transition]:
    """The steps of an environment that was given these actions."""
    given = iter(actions)
    return list(islice(transitions(make, lambda _: next(given), seed), len(actions)))


def check_rows(batch: Any, expected: list[Transition]) -> None:
    for name in ("obs", "next_obs"):
        rows = [getattr(step, name) for step in expected]
        want = transform(lambda *parts: np.stack([np.asarray(p) for p in parts]), *rows)
        wanted = dict(leaves(want))
        for path, leaf in leaves(batch[name]):
            np.testing.assert_array_equal(leaf, wanted.pop(path))
        assert not wanted
    np.testing.assert_array_equal(batch["actions"], [step.action for step in expected])
    np.testing.assert_allclose(batch["rewards"], [step.reward for step in expected], rtol=1e-6)
    for name in ("terminated", "truncated"):
        np.testing.assert_array_equal(batch[name], [getattr(step, name) for step in expected])


@kinds
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("make", [CountingEnv, NestedEnv, DiscreteObsEnv, BoxActionEnv])
def test_holds_exactly_the_steps_of_the_environments(kind: str, schedule: str, make: Any) -> None:
    makers: Makers = [
        partial(make, lengths, number, ENDS) for number, lengths in enumerate(SCHEDULES[schedule])
    ]
    algorithm = collected(vector_env(kind, makers))
    buffer = algorithm.buffer
    assert len(buffer) == algorithm.timesteps
    assert algorithm.timesteps >= ROUNDS * len(makers)
    for i, ids in enumerate(by_env(buffer, len(makers))):
        batch = buffer.gather(ids)
        check_rows(batch, lived(makers[i], batch["actions"], algorithm.learner.seeds.env + i))


@kinds
def test_stacks_store_every_frame_once_and_come_back_whole(kind: str) -> None:
    makers: Makers = [partial(FramesEnv, (4, 1, 9), number, ENDS) for number in range(2)]
    algorithm = collected(vector_env(kind, makers), frame_stack=3)
    buffer = algorithm.buffer
    assert buffer.stats()["bytes_per_step"] < 3 * 2 * 3 * 4  # less than one whole stack
    for i, ids in enumerate(by_env(buffer, len(makers))):
        batch = buffer.gather(ids)
        check_rows(batch, lived(makers[i], batch["actions"], algorithm.learner.seeds.env + i))


@kinds
@pytest.mark.parametrize("n", [1, 3])
def test_n_step_transitions_end_where_episodes_do(kind: str, n: int) -> None:
    makers: Makers = [partial(CountingEnv, lengths, 0, ENDS) for lengths in SCHEDULES["three"]]
    algorithm = collected(vector_env(kind, makers), n_step=n)
    buffer = algorithm.buffer
    for i, ids in enumerate(by_env(buffer, len(makers))):
        steps = lived(makers[i], buffer.gather(ids)["actions"], algorithm.learner.seeds.env + i)
        batch = buffer.gather(ids, view=NStep(n, 0.9))
        for t in range(len(steps)):
            reward, discount, next_obs = n_step(steps, t, n, 0.9)
            assert batch["rewards"][t] == pytest.approx(reward, rel=1e-5)
            assert batch["discounts"][t] == pytest.approx(discount, rel=1e-5)
            np.testing.assert_array_equal(batch["next_obs"][t], next_obs)


@kinds
@pytest.mark.parametrize("n", [1, 3])
def test_masks_are_those_of_the_observations_also_after_n_steps(kind: str, n: int) -> None:
    makers: Makers = [partial(MaskedEnv, (5, 2), number, ENDS) for number in range(2)]
    algorithm = collected(vector_env(kind, makers), n_step=n, batch_size=16)
    for _ in range(10):
        batch = algorithm.sampler.sample()
        for obs, masks in ((batch.obs, batch.masks), (batch.next_obs, batch.next_masks)):
            forbidden = np.asarray(obs)[:, 2].astype(int) % 3
            assert not masks[np.arange(16), forbidden].any()
            assert (masks.sum(1) == 2).all()


class LooksLikeMasks(NestedEnv):
    """Its observation has the very names that masks are stored under."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        space = CountingEnv().observation_space
        self.observation_space = spaces.Dict({"observation": space, "action_mask": space})

    def observation(self) -> Any:
        obs = CountingEnv.observation(self)
        return {"observation": obs, "action_mask": obs}


def test_an_observation_that_looks_like_one_with_masks_is_left_alone() -> None:
    algorithm = collected(PythonVectorEnv([LooksLikeMasks]))
    batch = algorithm.sampler.sample()
    assert batch.masks is None
    assert set(batch.obs) == {"observation", "action_mask"}


def test_actions_come_out_between_minus_one_and_one() -> None:
    algorithm = collected(PythonVectorEnv([BoxActionEnv]), batch_size=30)
    batch = algorithm.sampler.sample()
    assert batch.actions.shape == (30, 2)
    assert batch.actions.min() < -0.8
    assert batch.actions.max() > 0.8
    assert abs(batch.actions).max() <= 1


def test_whole_numbers_come_out_from_zero_on() -> None:
    class Shifted(CountingEnv):
        def __init__(self) -> None:
            super().__init__()
            self.action_space = spaces.Discrete(4, start=-2)

        def step(self, action: Any) -> Any:
            assert self.action_space.contains(action)
            return super().step(action)

    algorithm = collected(PythonVectorEnv([Shifted]), batch_size=30)
    assert set(algorithm.buffer.gather(algorithm.buffer.indices())["actions"]) == {-2, -1, 0, 1}
    drawn = [algorithm.sampler.sample().actions.tolist() for _ in range(20)]
    assert {action for batch in drawn for action in batch} == {0, 1, 2, 3}


def test_a_stack_of_no_images_is_refused() -> None:
    with pytest.raises(ValueError, match="frame_stack"):
        collected(PythonVectorEnv([CountingEnv]), frame_stack=4)


@pytest.mark.parametrize("prioritized", [False, True])
def test_a_buffer_that_no_memory_holds_is_named(prioritized: bool) -> None:
    agent = sw.DQN("CartPole-v1", buffer_size=10**14, prioritized=prioritized, seed=0)
    with pytest.raises(
        ValueError, match=r"buffer_size must fit .*, got 10{14} steps of \d+\.\d GiB"
    ):
        agent.train(10)
    agent.close()
