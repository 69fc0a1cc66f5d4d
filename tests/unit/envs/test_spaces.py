"""Spaces that are supported, and their form in JSON."""

from __future__ import annotations

import json
from collections import OrderedDict
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from sharpwave.envs import check_spaces, space_from_json, space_to_json
from sharpwave.envs.spaces import leaf_spaces
from tests.envs import CountingEnv, numbered, vectorized

SUPPORTED: dict[str, Any] = {
    "box": spaces.Box(-1, 1, (2, 3)),
    "box of each its own bounds": spaces.Box(
        np.array([-1.5, -np.inf, 0.1], np.float32), np.array([np.inf, 2, 0.3], np.float32)
    ),
    "box of doubles": spaces.Box(0.1, 1e300, (), np.float64),
    "unbounded box": spaces.Box(-np.inf, np.inf, (4,), np.float64),
    "image": spaces.Box(0, 255, (4, 84, 84), np.uint8),
    "box of integers": spaces.Box(np.array([-(2**62), 0]), np.array([2**62, 5]), dtype=np.int64),
    "empty box": spaces.Box(0, 1, (0,)),
    "discrete": spaces.Discrete(5),
    "discrete from elsewhere": spaces.Discrete(3, start=-1),
    "multi-discrete": spaces.MultiDiscrete([2, 3, 4]),
    "multi-discrete from elsewhere": spaces.MultiDiscrete(
        np.array([[2, 3], [4, 5]]), start=np.array([[1, 0], [0, 7]])
    ),
    "multi-discrete of small integers": spaces.MultiDiscrete([2, 3], dtype=np.int32),
    "multi-binary": spaces.MultiBinary(4),
    "multi-binary in rows": spaces.MultiBinary((2, 3)),
    "dict": spaces.Dict({"b": spaces.Discrete(2), "a": spaces.Box(0, 1, (2,))}),
    "dict in its order": spaces.Dict(
        OrderedDict([("z", spaces.Discrete(2)), ("a", spaces.Tuple([spaces.MultiBinary(1)]))])
    ),
    "tuple": spaces.Tuple((spaces.Discrete(2), spaces.Dict({"x": spaces.Discrete(3)}))),
}


@pytest.mark.parametrize("kind", SUPPORTED)
def test_json_holds_a_space_exactly(kind: str) -> None:
    space = SUPPORTED[kind]
    text = json.dumps(space_to_json(space), allow_nan=False)
    read = space_from_json(json.loads(text))
    assert read == space
    assert repr(read) == repr(space)
    assert read.dtype == space.dtype
    space.seed(3)
    read.seed(3)
    assert read.contains(space.sample())
    if isinstance(space, spaces.Dict):
        assert list(read.spaces) == list(space.spaces)  # type: ignore[attr-defined]


def test_uniform_bounds_take_little_room() -> None:
    assert len(json.dumps(space_to_json(SUPPORTED["image"]))) < 100


@pytest.mark.parametrize("space", [spaces.Text(3), spaces.Sequence(spaces.Discrete(2))])
def test_other_spaces_have_no_json(space: Any) -> None:
    with pytest.raises(TypeError, match=type(space).__name__):
        space_to_json(space)
    with pytest.raises(ValueError, match="'Text'"):
        space_from_json({"type": "Text"})


class Spaced(CountingEnv):
    def __init__(self, observation_space: Any = None, action_space: Any = None) -> None:
        super().__init__()
        if observation_space is not None:
            self.observation_space = observation_space
        if action_space is not None:
            self.action_space = action_space


@pytest.mark.parametrize("kind", SUPPORTED)
def test_all_of_them_are_observations(kind: str) -> None:
    check_spaces(Spaced(observation_space=SUPPORTED[kind]))


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-np.inf, np.inf, (2,)),
        spaces.Box(0, 1, (2, 2), np.float64),
        spaces.Discrete(3, start=2),
        spaces.MultiDiscrete([2, 3]),
        spaces.MultiBinary(3),
    ],
)
def test_supported_actions(space: Any) -> None:
    check_spaces(Spaced(action_space=space))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"observation_space": spaces.Text(3)}, "observation_space must be .*, got Text"),
        (
            {"observation_space": spaces.Dict({"a": spaces.Tuple([spaces.Text(3)])})},
            r"observation_space\['a'\]\[0\] must be .*, got Text",
        ),
        (
            {"observation_space": spaces.Graph(spaces.Discrete(2), None)},
            "observation_space must be .*, got Graph",
        ),
        ({"action_space": SUPPORTED["dict"]}, "action_space must be .*, got Dict"),
        ({"action_space": SUPPORTED["tuple"]}, "action_space must be .*, got Tuple"),
        ({"action_space": SUPPORTED["image"]}, "action_space must be a Box of floats, got Box"),
    ],
)
def test_unsupported_spaces_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        check_spaces(Spaced(**arguments))


def test_a_vector_environment_is_judged_by_one_of_its_environments() -> None:
    check_spaces(vectorized(numbered(2), "same_step"))
    check_spaces(gym.make_vec("Pendulum-v1", num_envs=2))


def test_leaf_spaces_are_a_nest() -> None:
    assert leaf_spaces(SUPPORTED["tuple"]) == (spaces.Discrete(2), {"x": spaces.Discrete(3)})
