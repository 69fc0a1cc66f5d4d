"""Functions over arrays in dicts and tuples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sharpwave.core.tree import leaves, map_leaves


def test_the_structure_of_the_first_is_kept() -> None:
    nest = {"b": np.zeros(2), "a": (1, {"c": 2})}
    mapped = map_leaves(lambda leaf: leaf + 1, nest)
    assert list(mapped) == ["b", "a"]
    assert mapped["a"] == (2, {"c": 3})
    assert mapped["b"].tolist() == [1, 1]
    assert map_leaves(len, [1, 2]) == 2  # a list is a leaf


def test_several_nests_are_taken_together() -> None:
    assert map_leaves(max, {"a": 1, "b": (5,)}, {"b": (2,), "a": 3}) == {"a": 3, "b": (5,)}


@pytest.mark.parametrize(
    ("one", "other", "message"),
    [
        ({"a": 1}, {"b": 1}, r"must have the keys \['a'\], got the keys \['b'\]"),
        ({"a": 1}, (1,), r"must have the keys \['a'\], got a tuple of 1"),
        ((1, 2), (1,), "must be tuples of 2, got a tuple of 1"),
        ((1, 2), {"a": 1}, r"must be tuples of 2, got the keys \['a'\]"),
        (({"a": 1},), (3,), r"must have the keys \['a'\], got a int"),
    ],
)
def test_other_structures_are_refused(one: Any, other: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        map_leaves(max, one, other)


def test_leaves_have_paths() -> None:
    assert list(leaves({"x": 1, "y": (2, {"z": 3})})) == [("x", 1), ("y.0", 2), ("y.1.z", 3)]
    assert list(leaves(7)) == [("", 7)]
