"""Every supported space: a run, its actions, its evaluation, its checkpoint."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import sharpwave as sw
from tests.envs import vectorized
from tests.unit.agents.small_runs import small_ppo

FLOAT = spaces.Box(-1, 1, (3,), np.float32)
ACTIONS: dict[str, spaces.Space[Any]] = {
    "discrete": spaces.Discrete(3),
    "discrete from another start": spaces.Discrete(3, start=-5),
    "multi-discrete": spaces.MultiDiscrete([3, 2, 4]),
    "multi-discrete in two dimensions": spaces.MultiDiscrete(np.array([[3, 2], [4, 5]])),
    "multi-discrete from another start": spaces.MultiDiscrete([3, 2], start=[10, -10]),
    "multi-binary": spaces.MultiBinary(4),
    "multi-binary in two dimensions": spaces.MultiBinary((2, 3)),
    "box": spaces.Box(-2, 2, (3,), np.float32),
    "box of one number": spaces.Box(-2, 2, (), np.float32),
    "box in two dimensions": spaces.Box(-2, 2, (2, 3), np.float32),
    "box of doubles": spaces.Box(-2, 2, (2,), np.float64),
    "box with its own bounds in each dimension": spaces.Box(
        np.array([0, -5, 100], "f"), np.array([1, 5, 101], "f")
    ),
    "box without bounds": spaces.Box(-np.inf, np.inf, (2,), np.float32),
}
OBSERVATIONS: dict[str, spaces.Space[Any]] = {
    "box": FLOAT,
    "box of one number": spaces.Box(-1, 1, (), np.float32),
    "box of doubles": spaces.Box(-1, 1, (3,), np.float64),
    "box of integers": spaces.Box(0, 5, (3,), np.int64),
    "box in three dimensions": spaces.Box(-1, 1, (2, 3, 4), np.float32),
    "image": spaces.Box(0, 255, (36, 36, 3), np.uint8),
    "image with channels first": spaces.Box(0, 255, (4, 40, 36), np.uint8),
    "discrete": spaces.Discrete(5),
    "discrete from another start": spaces.Discrete(5, start=-2),
    "multi-discrete": spaces.MultiDiscrete([3, 4]),
    "multi-binary": spaces.MultiBinary(4),
    "dict": spaces.Dict({"where": FLOAT, "what": spaces.Discrete(3)}),
    "dict with an image": spaces.Dict(
        {"camera": spaces.Box(0, 255, (36, 36, 1), np.uint8), "speed": spaces.Box(-1, 1, (2,))}
    ),
    "tuple in a dict": spaces.Dict(
        {"a": spaces.Tuple((FLOAT, spaces.Discrete(2))), "b": spaces.MultiBinary(2)}
    ),
}


class AnySpace(gym.Env[Any, Any]):
    """Samples its observations, and insists on actions from its space."""

    def __init__(self, observation_space: Any = FLOAT, action_space: Any = ACTIONS["box"]) -> None:
        self.observation_space = observation_space
        self.action_space = action_space
        self.t = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.t = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self.action_space.shape == () and isinstance(self.action_space, spaces.Box):
            action = np.asarray(action)  # a row of an array is no array, in Gymnasium too
        assert self.action_space.contains(action), f"{action!r} not in {self.action_space}"
        self.t += 1
        return self.observation_space.sample(), 1.0, False, self.t == 5, {}


def check_a_run(make: Any, path: Path, **options: Any) -> sw.PPO:
    """Trains, evaluates, saves, loads and predicts."""
    algo = small_ppo(make, n_envs=2, n_steps=8, batch_size=8, n_epochs=1, **options)
    assert algo.train(32)["mean_return"] == 5.0
    for deterministic in (True, False):
        result = algo.evaluate(3, deterministic=deterministic)
        assert (result.returns, result.lengths) == ((5.0,) * 3, (5,) * 3)
    algo.save(path / "a")
    loaded = sw.PPO.from_checkpoint(path / "a", make)
    obs = algo.observation_space.sample()
    action = loaded.predict(obs)
    assert algo.action_space.contains(action)
    np.testing.assert_array_equal(action, algo.predict(obs))
    return algo


@pytest.mark.parametrize("kind", ACTIONS)
def test_actions(kind: str, tmp_path: Path) -> None:
    check_a_run(partial(AnySpace, action_space=ACTIONS[kind]), tmp_path)


@pytest.mark.long(but=["box"])
@pytest.mark.parametrize("kind", OBSERVATIONS)
def test_observations(kind: str, tmp_path: Path) -> None:
    check_a_run(partial(AnySpace, OBSERVATIONS[kind], ACTIONS["discrete"]), tmp_path)


@pytest.mark.long(but=["box"])
@pytest.mark.parametrize("kind", ["box", "dict", "box of doubles", "tuple in a dict", "image"])
def test_normalized_observations(kind: str, tmp_path: Path) -> None:
    make = partial(AnySpace, OBSERVATIONS[kind], ACTIONS["discrete"])
    check_a_run(make, tmp_path, normalize_obs=True, normalize_rewards=True)


@pytest.mark.long(but=["lstm-box"])
@pytest.mark.parametrize("kind", ["box", "image", "dict with an image", "discrete"])
@pytest.mark.parametrize("recurrent", ["lstm", "gru"])
def test_recurrent_policies(kind: str, recurrent: str, tmp_path: Path) -> None:
    make = partial(AnySpace, OBSERVATIONS[kind], ACTIONS["discrete"])
    check_a_run(make, tmp_path, recurrent=recurrent)


@pytest.mark.long(but=["PPO-None-next_step"])
@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
@pytest.mark.parametrize("recurrent", [None, "lstm"])
@pytest.mark.parametrize("algorithm", [sw.PPO, sw.A2C])
def test_vector_environments_of_every_autoreset_mode(
    mode: str, recurrent: Any, algorithm: Any
) -> None:
    env = vectorized([AnySpace] * 3, mode)
    algo = algorithm(env, n_steps=7, recurrent=recurrent, normalize_obs=True)
    metrics = algo.train(100)
    assert metrics["mean_return"] == metrics["mean_length"] == 5.0
    assert all(np.isfinite(value) for name, value in metrics.items() if "variance" not in name)
    assert algo.evaluate(4, env=vectorized([AnySpace] * 2, mode)).returns == (5.0,) * 4


class Recording(AnySpace):
    """Keeps what is done."""

    def __init__(self, action_space: Any, seen: list[Any]) -> None:
        super().__init__(action_space=action_space)
        self.seen = seen

    def step(self, action: Any) -> Any:
        self.seen.append(action)
        return super().step(action)


@pytest.mark.long(but=["clip"])
@pytest.mark.parametrize(
    "options", [{}, {"squash_actions": True}, {"use_gsde": True}], ids=["clip", "squash", "gsde"]
)
def test_each_dimension_is_explored_within_its_own_bounds(options: dict[str, Any]) -> None:
    seen: list[Any] = []
    space = ACTIONS["box with its own bounds in each dimension"]
    algo = small_ppo(partial(Recording, space, seen), log_std_init=1.0, **options)
    algo.train(1000)
    actions = np.array(seen)
    assert isinstance(space, spaces.Box)
    assert (actions >= space.low).all()
    assert (actions <= space.high).all()
    spread = actions.max(0) - actions.min(0)
    if "squash_actions" in options:  # clipped raw actions near 0 stay at the lower bound of 100
        assert (spread > 0.9 * (space.high - space.low)).all()
    else:
        assert (spread[:2] > [0.9, 3.0]).all()
