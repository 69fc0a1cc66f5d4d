"""Marks that make some cases of a test long."""

from __future__ import annotations

from typing import Any

import pytest

from tests.long_cases import is_long


@pytest.mark.parametrize(
    ("arguments", "long"),
    [
        ({}, ["ppo-torch", "ppo-native", "sac-torch", "torch_like"]),
        ({"only": ["torch"]}, ["ppo-torch", "sac-torch"]),
        ({"but": ["torch"]}, ["ppo-native", "torch_like"]),
        ({"only": ["ppo-torch", "sac"]}, ["ppo-torch", "sac-torch"]),
        ({"but": ["ppo"]}, ["sac-torch", "torch_like"]),
    ],
)
def test_parts_of_an_id_choose(arguments: dict[str, Any], long: list[str]) -> None:
    mark = pytest.mark.long(**arguments).mark
    cases = ["ppo-torch", "ppo-native", "sac-torch", "torch_like"]
    assert [case for case in cases if is_long(mark, case)] == long


@pytest.mark.parametrize(
    "mark",
    [pytest.mark.long(["a"]), pytest.mark.long(some=["a"]), pytest.mark.long(only=[], but=[])],
)
def test_other_arguments_are_refused(mark: pytest.MarkDecorator) -> None:
    with pytest.raises(pytest.UsageError, match="long takes only"):
        is_long(mark.mark, "a")


@pytest.mark.long(but=["quick"])
class TestMarkOfAClass:
    @pytest.mark.parametrize("case", ["quick", "other"])
    def test_is_one_of_its_tests(self, case: str, request: pytest.FixtureRequest) -> None:
        marks = [mark.name for mark in request.node.iter_markers("long")]
        assert marks == ([] if case == "quick" else ["long"])
