"""Dtypes of users and files."""

from __future__ import annotations

import pytest

import sharpwave as sw
from sharpwave.envs import space_from_json
from sharpwave.types import as_dtype


@pytest.mark.parametrize("text", [",", ",f4", "(1,", "f4,,"])
def test_texts_that_numpy_cannot_parse_are_no_dtypes(text: str) -> None:
    """A comma was a SyntaxError, which nobody expects of a wrong argument."""
    with pytest.raises(TypeError):
        as_dtype(text)
    with pytest.raises(TypeError):
        sw.ReplayBuffer(4, fields={"obs": text, "action": "f4", "reward": "f4"})
    with pytest.raises((TypeError, ValueError)):
        space_from_json({"type": "Discrete", "n": 2, "start": 0, "dtype": text})


def test_others_are_what_numpy_says() -> None:
    assert as_dtype("f4").name == "float32"
    with pytest.raises(TypeError):
        as_dtype("nothing")
