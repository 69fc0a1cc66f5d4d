"""Actions of a policy in the bounds and dtypes of every action space."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sharpwave.envs import ActionMap, PythonVectorEnv
from tests.envs import CountingEnv

FLOATS = (np.float32, np.float64)


@st.composite
def boxes(draw: st.DrawFn, bounded: bool) -> spaces.Box:
    """Boxes with bounds of their own in each dimension, far apart, close or equal."""
    dtype: Any = draw(st.sampled_from(FLOATS))
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=2, max_side=3))
    limit = float(np.finfo(dtype).max)
    width = 8 * np.dtype(dtype).itemsize
    numbers = st.floats(-limit, limit, width=width)
    one, other = (draw(hnp.arrays(dtype, shape, elements=numbers)) for _ in range(2))
    low, high = np.minimum(one, other), np.maximum(one, other)
    if not bounded:
        low = np.where(draw(hnp.arrays(np.bool_, shape)), dtype(-np.inf), low)
        high = np.where(draw(hnp.arrays(np.bool_, shape)), dtype(np.inf), high)
    return spaces.Box(low, high, shape, dtype)


def raw_actions(box: spaces.Box, draw: Any) -> Any:
    size = int(np.prod(box.shape))
    shape = (3, size) if box.shape else (3,)
    numbers = st.floats(width=32, allow_nan=False, allow_infinity=False)
    return draw(hnp.arrays(np.float32, shape, elements=numbers))


@given(boxes(bounded=True), st.data())
def test_squashed_actions_lie_in_the_space(box: spaces.Box, data: st.DataObject) -> None:
    raw = raw_actions(box, data.draw)
    actions = ActionMap(box, squash=True).to_env(raw)
    assert actions.shape == (3, *box.shape)
    for action in actions:
        assert box.contains(np.asarray(action))


@pytest.mark.long
@given(boxes(bounded=False), st.data())
def test_clipped_actions_lie_in_the_space(box: spaces.Box, data: st.DataObject) -> None:
    raw = raw_actions(box, data.draw)
    actions = ActionMap(box).to_env(raw)
    for action, one in zip(actions, raw, strict=True):
        assert box.contains(np.asarray(action))
        expected = np.clip(one.astype(box.dtype).reshape(box.shape), box.low, box.high)
        np.testing.assert_array_equal(action, expected)


def test_squashing_has_scale_and_bias_of_each_dimension() -> None:
    box = spaces.Box(np.array([0, -5], np.float32), np.array([1, 5], np.float32))
    raw = np.array([[0.0, 0.0], [0.5, -1.0], [50.0, -50.0]])
    expected = box.low + (np.tanh(raw) + 1) / 2 * (box.high - box.low)
    actions = ActionMap(box, squash=True).to_env(raw)
    assert actions.dtype == np.float32
    np.testing.assert_allclose(actions, expected, rtol=1e-6)
    np.testing.assert_array_equal(actions[2], [1, -5])


def test_clipping_keeps_what_is_inside_and_what_is_unbounded() -> None:
    box = spaces.Box(np.array([0, -np.inf], np.float32), np.array([1, np.inf], np.float32))
    actions = ActionMap(box).to_env(np.array([[-1.9, -1e9], [0.25, 1e9], [2.2, 3.0]], np.float32))
    expected = np.array([[0, -1e9], [0.25, 1e9], [1, 3]], np.float32)
    np.testing.assert_array_equal(actions, expected)


def test_squashing_needs_bounds() -> None:
    box = spaces.Box(np.array([0, -np.inf], np.float32), np.array([1, 5], np.float32))
    with pytest.raises(ValueError, match=r"squash needs .* unbounded in \[\[1\]\]"):
        ActionMap(box, squash=True)


def test_flat_actions_take_the_shape_of_the_space() -> None:
    box = spaces.Box(-10, 10, (2, 3))
    raw = np.arange(12, dtype=np.float32).reshape(2, 6)
    actions = ActionMap(box).to_env(raw)
    assert actions.shape == (2, 2, 3)
    np.testing.assert_array_equal(actions.reshape(2, 6)[0], raw[0])
    np.testing.assert_array_equal(ActionMap(box).to_env(raw.reshape(2, 2, 3)), actions)


@pytest.mark.parametrize(
    ("space", "raw", "expected", "dtype"),
    [
        (spaces.Discrete(3), [0, 2], [0, 2], np.int64),
        (spaces.Discrete(3, start=-1), [0, 2], [-1, 1], np.int64),
        (spaces.MultiDiscrete([2, 3]), [[0, 2]], [[0, 2]], np.int64),
        (
            spaces.MultiDiscrete([2, 3], dtype=np.int32, start=[5, 7]),
            [[0, 2]],
            [[5, 9]],
            np.int32,
        ),
        (
            spaces.MultiDiscrete(np.array([[2], [3]]), start=np.array([[1], [0]])),
            [[0, 2]],
            [[[1], [2]]],
            np.int64,
        ),
        (spaces.MultiBinary(3), [[0, 1, 1]], [[0, 1, 1]], np.int8),
        (spaces.MultiBinary((2, 2)), [[0, 1, 1, 0]], [[[0, 1], [1, 0]]], np.int8),
    ],
)
def test_actions_that_are_counted(space: Any, raw: Any, expected: Any, dtype: Any) -> None:
    actions = ActionMap(space).to_env(np.array(raw))
    assert actions.dtype == dtype
    assert actions.tolist() == expected
    for action in actions:
        assert space.contains(action)


def test_squash_means_nothing_to_actions_that_are_counted() -> None:
    assert ActionMap(spaces.Discrete(3), squash=True).to_env(np.array([2])).tolist() == [2]


@pytest.mark.parametrize(
    ("space", "raw", "message"),
    [
        (spaces.Box(0, 1, (2,)), np.zeros((3, 3)), r"shape \(N, 2\), got \(3, 3\)"),
        (spaces.Box(0, 1, (2,)), np.zeros(4), r"shape \(N, 2\), got \(4,\)"),
        (spaces.Discrete(2), np.zeros((2, 2)), r"shape \(N\), got \(2, 2\)"),
        (spaces.Discrete(2), np.int64(1), r"shape \(N\), got \(\)"),
    ],
)
def test_raw_actions_of_another_shape_are_refused(space: Any, raw: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ActionMap(space).to_env(raw)


@pytest.mark.parametrize(
    "space",
    [spaces.Text(3), spaces.Dict({"a": spaces.Discrete(2)}), spaces.Box(0, 5, (), np.int64)],
)
def test_other_spaces_are_refused(space: Any) -> None:
    with pytest.raises(TypeError, match="action_space must be a Box of floats"):
        ActionMap(space)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Discrete(3, start=4),
        spaces.MultiDiscrete([2, 3]),
        spaces.MultiBinary(3),
        spaces.Box(-1, 1, (2, 1)),
    ],
)
def test_environments_receive_members_of_their_space(space: Any) -> None:
    class Strict(CountingEnv):
        def __init__(self) -> None:
            super().__init__()
            self.action_space = space

        def step(self, action: Any) -> Any:
            assert self.action_space.contains(action)
            return super().step(0)

    env = PythonVectorEnv([Strict] * 2)
    env.reset()
    width = () if isinstance(space, spaces.Discrete) else (int(np.prod(space.shape)),)
    env.step(ActionMap(space).to_env(np.zeros((2, *width), np.int64)))
