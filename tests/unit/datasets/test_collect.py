"""Steps of policies are kept as they were, in every autoreset mode, and repeat with their seed."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import sharpwave as sw
from sharpwave import envs
from sharpwave.datasets import EpsilonNoise, GaussianNoise, collect, episode_returns
from sharpwave.episodes.transitions import transitions_of
from tests.envs import CountingEnv, NestedEnv, RandomWalkEnv, ReusingEnv, numbered, vectorized

MODES = ("next_step", "same_step", "disabled")
LENGTHS = ((3, 1), (2,), (5, 1, 1))


def makers(kind: Any = CountingEnv) -> list[Any]:
    return [partial(kind, lengths, n, "alternating") for n, lengths in enumerate(LENGTHS)]


def counting(mode: str) -> Any:
    return vectorized(makers(), mode)


def ones(obs: Any) -> Any:
    return np.ones(len(obs), np.int64)


def assert_equal(first: dict[str, Any], second: dict[str, Any]) -> None:
    assert first.keys() == second.keys()
    for name in first:
        np.testing.assert_array_equal(first[name], second[name], err_msg=name)


@pytest.mark.parametrize(
    "env",
    [*map(counting, MODES), envs.PythonVectorEnv(makers(ReusingEnv))],
    ids=[*MODES, "memory-used-again"],
)
def test_episodes_come_in_the_order_they_began_with_their_true_ends(env: Any) -> None:
    data = collect(env, ones, n_episodes=5)
    # All three begin at once; then the second, whose first ended after 2 steps, then the first.
    assert data["obs"].tolist() == [
        *[[0, 0, 0], [0, 0, 1], [0, 0, 2]],
        *[[1, 0, 0], [1, 0, 1]],
        *[[2, 0, 0], [2, 0, 1], [2, 0, 2], [2, 0, 3], [2, 0, 4]],
        *[[1, 1, 0], [1, 1, 1]],
        [0, 1, 0],
    ]
    assert data["next_obs"].tolist() == [
        *[[0, 0, 1], [0, 0, 2], [0, 0, 3]],
        *[[1, 0, 1], [1, 0, 2]],
        *[[2, 0, 1], [2, 0, 2], [2, 0, 3], [2, 0, 4], [2, 0, 5]],
        *[[1, 1, 1], [1, 1, 2]],
        [0, 1, 1],
    ]
    ends = np.flatnonzero(data["terminated"] | data["truncated"]).tolist()
    assert ends == [2, 4, 9, 11, 12]
    assert data["terminated"][ends].tolist() == [True, True, True, False, False]
    assert data["truncated"][ends].tolist() == [False, False, False, True, True]
    np.testing.assert_allclose(data["rewards"][:3], [1.11, 1.21, 1.31])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("n_steps", range(1, 15))
def test_steps_are_counted_exactly_and_the_last_episode_is_cut(mode: str, n_steps: int) -> None:
    whole = collect(counting(mode), ones, n_episodes=8)
    data = collect(counting(mode), ones, n_steps)
    assert len(data["rewards"]) == n_steps
    for name in ("obs", "next_obs", "actions", "rewards", "terminated"):
        np.testing.assert_array_equal(data[name], whole[name][:n_steps])
    assert data["truncated"][:-1].tolist() == whole["truncated"][: n_steps - 1].tolist()
    assert data["truncated"][-1] == (whole["truncated"][n_steps - 1] or not data["terminated"][-1])


@pytest.mark.long
def test_a_folder_holds_the_same_as_the_arrays(tmp_path: Path) -> None:
    options: Any = {"n_steps": 700, "noise": 0.3, "seed": 5}
    arrays = collect("CartPole-v1", "expert", **options)
    with collect("CartPole-v1", "expert", folder=tmp_path / "x", **options) as buffer:
        assert_equal(transitions_of(buffer), arrays)
        np.testing.assert_array_equal(episode_returns(buffer), episode_returns(arrays))
        assert buffer.episodes().meta["seed"][0] >= 0
    np.testing.assert_array_equal(episode_returns(tmp_path / "x"), episode_returns(arrays))


@pytest.mark.long
def test_a_folder_is_continued(tmp_path: Path) -> None:
    collect("CartPole-v1", n_episodes=3, folder=tmp_path, seed=1).close()
    with collect("CartPole-v1", "expert", n_episodes=2, folder=tmp_path) as buffer:
        assert buffer.num_episodes == 5


@pytest.mark.long(but=["random-CartPole-v1"])
@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
@pytest.mark.parametrize("policy", ["random", "expert"])
def test_a_dataset_is_a_function_of_its_seed(env_id: str, policy: str) -> None:
    first, again, other = (
        collect(env_id, policy, 450, noise=0.2, seed=seed, n_envs=3) for seed in (7, 7, 8)
    )
    assert_equal(first, again)
    assert not np.array_equal(first["obs"], other["obs"])


def test_the_random_numbers_of_others_are_left_alone() -> None:
    before = np.random.get_state()[1].tolist()  # type: ignore[index]  # noqa: NPY002
    collect("CartPole-v1", "random", 50)
    assert np.random.get_state()[1].tolist() == before  # type: ignore[index]  # noqa: NPY002


def test_nested_observations_stay_nested(tmp_path: Path) -> None:
    env = vectorized(numbered(2, NestedEnv), "same_step")
    data = collect(env, ones_of_nest, n_episodes=4)
    assert data["obs"]["where"].shape == (12, 2)
    assert data["next_obs"]["parts"][1].tolist() == [1, 2, 3] * 4
    with collect(env, ones_of_nest, n_episodes=4, folder=tmp_path) as buffer:
        table = buffer.episodes()
        assert table.meta["final_obs.parts.1"].tolist() == [3] * 4


def ones_of_nest(obs: Any) -> Any:
    return np.ones(len(obs["where"]), np.int64)


def test_an_environment_that_is_given_stays_open() -> None:
    env = gym.make("CartPole-v1")
    collect(env, n_steps=10)
    env.step(0)


def test_environments_that_were_made_are_closed() -> None:
    made: list[CountingEnv] = []

    class Remembered(CountingEnv):
        def __init__(self) -> None:
            super().__init__()
            made.append(self)

    collect(Remembered, n_steps=10, n_envs=2)
    collect(lambda: Remembered(), n_steps=10)
    assert [env.is_closed for env in made] == [True, True, True]


def test_episodes_draw_on_the_environments_own_randomness() -> None:
    data = collect(lambda: RandomWalkEnv(), n_episodes=20, n_envs=4, seed=3)
    assert len(set(np.diff(np.flatnonzero(data["terminated"])).tolist())) > 1


def test_gaussian_noise_stays_inside_the_bounds() -> None:
    plain, noisy = (
        collect("Pendulum-v1", lambda obs: 0 * obs[:, :1] + 1.5, 400, noise=noise, seed=2)
        for noise in (None, GaussianNoise(1.0))
    )
    assert (plain["actions"] == 1.5).all()
    assert noisy["actions"].dtype == np.float32
    assert np.abs(noisy["actions"]).max() == 2.0
    inside = noisy["actions"][np.abs(noisy["actions"]) < 2]
    assert 0.5 < inside.std() < 1.0


@pytest.mark.long(but=["0.0"])
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 1.0])
def test_epsilon_noise_replaces_that_share_of_the_actions(epsilon: float) -> None:
    data = collect("CartPole-v1", ones, 2000, noise=epsilon)
    assert abs((data["actions"] == 0).mean() - epsilon / 2) < 0.05
    data = collect("Pendulum-v1", "expert", 400, noise=EpsilonNoise(1.0))
    assert abs(data["actions"].mean()) < 0.2


class Masked(gym.Env[Any, Any]):
    """Allows only some actions, and says so."""

    def __init__(self, action_space: Any, mask: list[int], allowed: Any) -> None:
        self.action_space = action_space
        self.observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
        self.mask = np.array(mask, np.int8)
        self.allowed = allowed

    def reset(self, **_: Any) -> tuple[Any, dict[str, Any]]:
        return np.zeros(1, np.float32), {"action_mask": self.mask}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.allowed(action)
        return np.zeros(1, np.float32), 0.0, False, False, {"action_mask": self.mask}


@pytest.mark.parametrize(
    ("space", "mask", "allowed"),
    [
        (gym.spaces.Discrete(4, start=3), [0, 1, 0, 1], lambda a: a in (4, 6)),
        (gym.spaces.MultiDiscrete([2, 3]), [0, 1, 1, 0, 1], lambda a: a[0] == 1 and a[1] != 1),
        (gym.spaces.MultiBinary(3), [1, 0, 1], lambda a: a[1] == 0),
    ],
    ids=["discrete", "multi-discrete", "multi-binary"],
)
@pytest.mark.parametrize("noise", [None, 0.5])
def test_random_actions_are_allowed_ones(space: Any, mask: Any, allowed: Any, noise: Any) -> None:
    data = collect(Masked(space, mask, allowed), "random", 60, noise=noise)
    assert len(np.unique(data["actions"], axis=0)) > 1


def test_an_algorithm_plays_its_mode_or_samples() -> None:
    agent = sw.PPO("CartPole-v1", n_envs=2, n_steps=16)
    first, again = (collect("CartPole-v1", agent, 200, seed=1) for _ in range(2))
    assert_equal(first, again)
    np.testing.assert_array_equal(first["actions"], agent.predict(first["obs"]))
    sampled = collect("CartPole-v1", agent, 200, seed=1, deterministic=False)
    assert not np.array_equal(sampled["actions"], first["actions"])


def test_progress_is_told() -> None:
    told: list[tuple[str, int, int]] = []
    collect("Pendulum-v1", n_episodes=3, progress=lambda *now: told.append(now))
    assert told == [("random", 1, 3), ("random", 2, 3), ("random", 3, 3)]
    told.clear()
    collect("Pendulum-v1", "expert", 500, progress=lambda *now: told.append(now))
    assert told == [("expert", 200, 500), ("expert", 400, 500), ("expert", 500, 500)]


@pytest.mark.parametrize(
    ("arguments", "error", "reason"),
    [
        ({}, TypeError, "either n_steps or n_episodes must be given"),
        ({"n_steps": 1, "n_episodes": 1}, TypeError, "either n_steps or n_episodes"),
        ({"n_steps": 0}, ValueError, "n_steps must be at least 1, got 0"),
        ({"n_episodes": 1.5}, TypeError, "n_episodes must be an integer, got 1.5"),
        ({"n_steps": 5, "seed": -1}, ValueError, "seed must be an integer of at least 0, got -1"),
        ({"n_steps": 5, "policy": 3}, TypeError, 'policy must be "random", "expert"'),
        ({"n_steps": 5, "noise": 2}, ValueError, "epsilon must be between 0 and 1, got 2"),
        ({"n_steps": 5, "noise": "much"}, TypeError, "noise must be a number or a Noise, got"),
        ({"n_steps": 5, "noise": True}, TypeError, "noise must be a number or a Noise, got True"),
        ({"n_steps": 5, "noise": GaussianNoise(1)}, ValueError, "noise must be an EpsilonNoise"),
        ({"n_steps": 5, "env": CountingEnv, "policy": "expert"}, ValueError, "without an id"),
        ({"n_steps": 5, "env": "CartPol-v1"}, ValueError, "the nearest are CartPole"),
        (
            {"n_steps": 5, "policy": lambda obs: np.zeros((2, len(obs) + 1), int)},
            ValueError,
            r"actions must have shape \(1,\), got \(2, 2\)",
        ),
    ],
)
def test_bad_arguments_are_explained(
    arguments: dict[str, Any], error: type[Exception], reason: str
) -> None:
    with pytest.raises(error, match=reason):
        collect(arguments.pop("env", "CartPole-v1"), **arguments)


def test_noise_must_have_possible_values() -> None:
    for value in (-1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match="std must be"):
            GaussianNoise(value)
