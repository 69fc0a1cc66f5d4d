"""Nested values (arrays in dicts and tuples) as tests handle them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Nest = Any


def leaves(value: Nest, path: str = "") -> Iterator[tuple[str, Array]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, tuple):
        for i, inner in enumerate(value):
            yield from leaves(inner, f"{path}.{i}")
    else:
        yield path, np.asarray(value)


def transform(function: Callable[..., Any], *values: Nest) -> Nest:
    """The nest of function(leaf of each value)."""
    first = values[0]
    if isinstance(first, dict):
        return {key: transform(function, *(value[key] for value in values)) for key in first}
    if isinstance(first, tuple):
        return tuple(transform(function, *inner) for inner in zip(*values, strict=True))
    return function(*values)


def stacked(values: list[Nest]) -> Nest:
    return transform(lambda *parts: np.stack([np.asarray(part) for part in parts]), *values)


def same(left: Nest, right: Nest) -> bool:
    """Equal bit for bit, NaNs included."""
    return all(
        a.shape == b.shape and a.tobytes() == b.tobytes()
        for (_, a), (_, b) in zip(leaves(left), leaves(right), strict=True)
    )


def assert_same(got: Nest, expected: Nest) -> None:
    """The same keys, dtypes, shapes and bits."""
    got_leaves = dict(leaves(got))
    expected_leaves = dict(leaves(expected))
    assert set(got_leaves) == set(expected_leaves)
    for path, array in expected_leaves.items():
        found = got_leaves[path]
        assert found.dtype == array.dtype, path
        assert found.shape == array.shape, path
        assert found.tobytes() == array.tobytes(), f"{path}: got {found}, expected {array}"


def assert_equal(got: Any, expected: Any) -> None:
    """The same types, dtypes, shapes and values, in arrays of objects too."""
    if isinstance(expected, dict):
        assert isinstance(got, dict)
        assert list(got) == list(expected)
        for key in expected:
            assert_equal(got[key], expected[key])
    elif isinstance(expected, tuple | list) or (
        isinstance(expected, np.ndarray) and expected.dtype == object
    ):
        assert type(got) is type(expected)
        assert len(got) == len(expected)
        for one, other in zip(got, expected, strict=True):
            assert_equal(one, other)
    elif isinstance(expected, np.ndarray):
        assert isinstance(got, np.ndarray)
        assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
        np.testing.assert_array_equal(got, expected)
    else:
        assert got == expected
