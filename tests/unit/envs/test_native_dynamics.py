"""Native environments do what Gymnasium's do."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from sharpwave.envs import NativeVectorEnv
from sharpwave.envs.native import SPECS
from sharpwave.types import Array
from tests.examples import examples

IDS = sorted(SPECS)
N = 5  # not a multiple of the width of vectors

# How far the variables of a state go, and somewhat further.
SCALES = {
    "CartPole-v1": (2.5, 6.0, 0.22, 6.0),
    "Pendulum-v1": (100.0, 8.0),
    "Acrobot-v1": (np.pi, np.pi, 4 * np.pi, 9 * np.pi),
    "MountainCar-v0": (1.2, 0.07),
    "MountainCarContinuous-v0": (1.2, 0.07),
}


class Twins:
    """N native environments and Gymnasium's in the same states."""

    def __init__(self, env_id: str, n: int = N, **kwargs: Any) -> None:
        self.native = NativeVectorEnv(env_id, n, **kwargs)
        self.native.reset(seed=0)
        self.theirs: list[Any] = [
            gym.make(env_id, disable_env_checker=True, **kwargs) for _ in range(n)
        ]
        for env in self.theirs:
            env.reset()
        self.is_float32 = env_id == "MountainCarContinuous-v0"

    def put(self, variables: Array, steps: int = 1) -> None:
        """Bring both into these states [variables, n], after so many steps of an episode.

        A state of MountainCarContinuous-v0 is float32, but for that of a reset.
        """
        as_float32 = self.is_float32 and steps > 0
        variables = variables.astype(np.float32) if as_float32 else variables
        state = self.native.get_state()
        state["variables"] = variables.astype(np.float64)
        state["steps"] = np.full(self.native.num_envs, steps)
        self.native.set_state(state)
        for i, env in enumerate(self.theirs):
            env.unwrapped.state = variables[:, i].copy()
            env.unwrapped.steps_beyond_terminated = None
            env._elapsed_steps = steps

    def put_starts(self) -> None:
        """Bring Gymnasium's into the states that the native ones were reset to."""
        is_float32 = self.native.spec is not None and self.native.spec.id == "Acrobot-v1"
        for env, start in zip(self.theirs, self.native.get_state()["variables"].T, strict=True):
            env.unwrapped.state = start.astype(np.float32) if is_float32 else start.copy()

    def step(self, actions: Array, atol: float = 1e-6) -> Array:
        """Step both, compare, and return where episodes ended."""
        obs, rewards, terminated, truncated, infos = self.native.step(actions)
        ended: Array = terminated | truncated
        if ended.any():
            obs[ended] = np.stack(infos["final_obs"][ended])
        for i, env in enumerate(self.theirs):
            expected = env.step(actions[i])
            assert (bool(terminated[i]), bool(truncated[i])) == expected[2:4]
            np.testing.assert_allclose(obs[i], expected[0], rtol=1e-6, atol=atol)
            np.testing.assert_allclose(rewards[i], expected[1], rtol=1e-6, atol=atol)
        return ended


def actions_of(env: Any, units: Array) -> Array:
    """Actions from numbers in [-1, 1], a little beyond the bounds where they are real."""
    if isinstance(env.single_action_space, gym.spaces.Discrete):
        n = int(env.single_action_space.n)
        return np.minimum((units + 1) / 2 * n, n - 1).astype(np.int64)
    high = float(env.single_action_space.high[0])
    return (1.5 * high * units).astype(np.float32)[:, None]


units = st.floats(-1, 1).map(lambda x: round(x, 9) or 0.0)
states = arrays.arrays(np.float64, (4, N), elements=units)
choices = arrays.arrays(np.float64, N, elements=units)
TWINS: dict[str, Twins] = {}


@pytest.mark.long(but=["Acrobot-v1"])
@pytest.mark.parametrize("env_id", IDS)
@settings(max_examples=examples(50), deadline=None)
@given(scales=states, acts=choices, steps=st.sampled_from([0, 1, 7]))
def test_one_step_from_any_state(env_id: str, scales: Array, acts: Array, steps: int) -> None:
    twins = TWINS.setdefault(env_id, Twins(env_id))
    bounds = np.array(SCALES[env_id])[:, None]
    twins.put(scales[: len(bounds)] * bounds, steps)
    twins.step(actions_of(twins.native, acts))


@pytest.mark.long
@pytest.mark.parametrize("env_id", IDS)
def test_one_step_from_many_random_states(env_id: str) -> None:
    rng = np.random.default_rng(0)
    twins = Twins(env_id, 500)
    for _ in range(4):
        scales = np.array(SCALES[env_id])[:, None]
        twins.put(rng.uniform(-scales, scales, (len(scales), 500)))
        twins.step(actions_of(twins.native, rng.uniform(-1, 1, 500)))


@pytest.mark.long(but=["1-Acrobot-v1"])
@pytest.mark.parametrize("env_id", IDS)
@pytest.mark.parametrize("repeats", [1, 12])
def test_whole_episodes(env_id: str, repeats: int) -> None:
    """The same starts and actions give the same episodes; Acrobot, which is chaotic, 50 steps."""
    rng = np.random.default_rng(repeats)
    twins = Twins(env_id)
    twins.put_starts()
    limit = 50 if env_id == "Acrobot-v1" else SPECS[env_id]["time_limit"]
    running = np.ones(N, np.bool_)
    acts = np.zeros(N)
    for t in range(limit):
        if t % repeats == 0:
            acts = rng.uniform(-1, 1, N)
        actions = actions_of(twins.native, acts)
        obs, rewards, terminated, truncated, infos = twins.native.step(actions)
        for i in np.flatnonzero(running):
            expected = twins.theirs[i].step(actions[i])
            ended = bool(terminated[i] or truncated[i])
            last = infos["final_obs"][i] if ended else obs[i]
            np.testing.assert_allclose(last, expected[0], rtol=0, atol=1e-6)
            np.testing.assert_allclose(rewards[i], expected[1], rtol=0, atol=1e-6)
            assert (bool(terminated[i]), bool(truncated[i])) == expected[2:4]
            running[i] = not ended
        if not running.any():
            break
    assert limit == 50 or not running.any()


def test_a_pole_is_balanced_alike() -> None:
    """An upright pole doubles a difference in 9 steps: rounding shows only after some 300."""
    twins = Twins("CartPole-v1", 3)
    twins.put_starts()
    obs = [env.unwrapped.state for env in twins.theirs]
    for _ in range(200):
        actions = np.array([int(angle + 0.3 * speed > 0) for _, _, angle, speed in obs])
        ended = twins.step(actions)
        assert not ended.any()
        obs = [env.unwrapped.state for env in twins.theirs]


def test_a_goal_is_reached_alike() -> None:
    for env_id in ("MountainCar-v0", "MountainCarContinuous-v0"):
        twins = Twins(env_id, 1)
        twins.put_starts()
        ended = np.zeros(1, np.bool_)
        steps = 0
        while not ended.any():
            forward = twins.theirs[0].unwrapped.state[1] >= 0
            ended = twins.step(actions_of(twins.native, np.array([1.0 if forward else -1.0])))
            steps += 1
        assert 50 < steps < 200


@pytest.mark.parametrize("env_id", IDS)
def test_a_time_limit_and_an_end_may_come_together(env_id: str) -> None:
    limit = SPECS[env_id]["time_limit"]
    about_to_end = {
        "CartPole-v1": (0.0, 0.0, 0.2, 3.0),
        "Pendulum-v1": (0.0, 0.0),
        "Acrobot-v1": (3.1, 0.0, 0.0, 0.0),
        "MountainCar-v0": (0.49, 0.06),
        "MountainCarContinuous-v0": (0.44, 0.06),
    }[env_id]
    twins = Twins(env_id, 2)
    for steps, truncated in ((limit - 2, False), (limit - 1, True)):
        twins.put(np.array([about_to_end] * 2).T, steps)
        state = twins.native.get_state()
        actions = actions_of(twins.native, np.ones(2))
        ended = twins.step(actions)
        terminates = env_id != "Pendulum-v1"
        assert ended.all() == (terminates or truncated)
        twins.native.set_state(state)
        _, _, terminated, flags, _ = twins.native.step(actions)
        assert terminated.tolist() == [terminates] * 2
        assert flags.tolist() == [truncated] * 2


@pytest.mark.long(but=["CartPole-v1-kwargs0"])
@pytest.mark.parametrize(
    ("env_id", "kwargs"),
    [
        ("CartPole-v1", {"sutton_barto_reward": True}),
        ("Pendulum-v1", {"g": 3.7}),
        ("Pendulum-v1", {"g": 9}),
        ("MountainCar-v0", {"goal_velocity": 0.05}),
        ("MountainCarContinuous-v0", {"goal_velocity": 0.05}),
        ("CartPole-v1", {"max_episode_steps": 3}),
    ],
)
def test_arguments_of_the_constructor(env_id: str, kwargs: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    twins = Twins(env_id, 200, **kwargs)
    for steps in (1, 2):
        scales = np.array(SCALES[env_id])[:, None]
        variables = rng.uniform(-scales, scales, (len(scales), 200))
        if env_id.startswith("MountainCar"):
            variables = np.stack([rng.uniform(0.38, 0.6, 200), rng.uniform(0.03, 0.07, 200)])
        twins.put(variables, steps)
        ended = twins.step(actions_of(twins.native, rng.uniform(-1, 1, 200)))
    if env_id != "Pendulum-v1":
        assert ended.any()


@pytest.mark.parametrize("far", [1e4, 1e7, 1e12])
def test_angles_far_out(far: float) -> None:
    rng = np.random.default_rng(0)
    twins = Twins("Pendulum-v1", 50)
    twins.put(np.stack([rng.uniform(-far, far, 50), rng.uniform(-8, 8, 50)]))
    twins.step(np.zeros((50, 1), np.float32))


@pytest.mark.parametrize("env_id", IDS)
def test_starts_are_uniform_between_the_bounds(env_id: str) -> None:
    env = NativeVectorEnv(env_id, 40_000)
    env.reset(seed=1)
    variables = env.get_state()["variables"]
    bounds = SPECS[env_id]["low"], SPECS[env_id]["high"]
    for values, low, high in zip(variables, *bounds, strict=True):
        if low == high:
            assert (values == low).all()
            continue
        margin = 1e-3 * (high - low)
        assert low - 1e-8 <= values.min() < low + margin
        assert high - margin < values.max() <= high + 1e-8
        counts, _ = np.histogram(values, 20, (low, high))
        assert np.sum((counts - 2000) ** 2 / 2000) < 50  # χ² of 19 degrees: 1 in 10⁴
    drawn = variables[np.ptp(variables, axis=1) > 0]
    correlations = np.atleast_2d(np.corrcoef(drawn)) - np.eye(len(drawn))
    assert np.abs(correlations).max() < 0.03


@pytest.mark.parametrize("env_id", IDS)
def test_starts_have_gymnasiums_bounds_and_precision(env_id: str) -> None:
    theirs = gym.make(env_id)
    starts = []
    for seed in range(300):
        theirs.reset(seed=seed)
        starts.append(np.array(theirs.unwrapped.state))  # type: ignore[attr-defined]
    native = NativeVectorEnv(env_id, 300)
    native.reset(seed=0)
    variables = native.get_state()["variables"].T
    assert (variables.astype(np.float32) == variables).all() == (starts[0].dtype == np.float32)
    low, high = np.array(SPECS[env_id]["low"]), np.array(SPECS[env_id]["high"])
    width = high - low
    assert np.all(np.abs(np.min(starts, axis=0) - low) <= 0.03 * width)
    assert np.all(np.abs(np.max(starts, axis=0) - high) <= 0.03 * width)
