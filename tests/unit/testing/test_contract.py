"""A check goes through all rules, and says which were broken and how."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from sharpwave import testing
from sharpwave.testing.bits import first_difference, global_states, other_globals
from sharpwave.testing.contract import ContractError, DoesNotApply, by_name, expect, hold


class Case:
    """Counts how often it was released."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.releases = 0

    def release(self) -> None:
        self.releases += 1


def is_there(case: Case) -> None:
    """There is a number."""
    expect(case.number is not None, "a number", case.number)


def is_even(case: Case) -> None:
    """The number is even."""
    expect(case.number % 2 == 0, "an even number", case.number)


def divides_twelve(case: Case) -> None:
    """Twelve can be divided by it."""
    expect(12 % case.number == 0, "a divisor of 12", case.number)


def is_large(case: Case) -> None:
    """Large numbers are round."""
    if case.number < 100:
        raise DoesNotApply
    expect(case.number % 10 == 0, "a round number", case.number)


RULES = by_name(is_there, is_even, divides_twelve, is_large)


def test_rules_that_were_checked_are_named_and_those_that_do_not_apply_are_not() -> None:
    case = Case(6)
    assert hold("six", RULES, case) == ("is_there", "is_even", "divides_twelve")
    assert case.releases == len(RULES)


def test_all_broken_rules_are_listed_with_what_was_expected_and_what_came() -> None:
    with pytest.raises(ContractError) as caught:
        hold("seven", RULES, Case(7))
    assert str(caught.value) == (
        "seven breaks 2 rules:\n"
        "- is_even: The number is even: expected an even number, got 7\n"
        "- divides_twelve: Twelve can be divided by it: expected a divisor of 12, got 7"
    )
    assert caught.value.__cause__ is not None
    assert isinstance(caught.value, AssertionError)


def test_an_exception_breaks_the_rule_in_which_it_was_raised() -> None:
    with pytest.raises(ContractError, match=r"divides_twelve: .*: it raised ZeroDivisionError: "):
        hold("zero", RULES, Case(0))


def test_what_all_rules_stand_on_comes_first() -> None:
    case: Any = Case(None)  # type: ignore[arg-type]
    with pytest.raises(ContractError) as caught:
        hold("nothing", RULES, case)
    assert list(caught.value.broken) == ["is_there"]
    assert case.releases == 1


@pytest.mark.parametrize("asked", ["is_even", ["is_even"]])
def test_single_rules_are_asked_for_by_name(asked: Any) -> None:
    assert hold("two", RULES, Case(2), asked) == ("is_even",)
    with pytest.raises(ValueError, match=r"rules has no rule 'is_evn'; the nearest is 'is_even'"):
        hold("two", RULES, Case(2), "is_evn")


def test_the_error_goes_through_pickle() -> None:
    error = ContractError("seven", {"is_even": "expected 2, got 7"})
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.broken) == (str(error), error.broken)


@pytest.mark.parametrize("rules", [testing.BUFFER_RULES, testing.LEARNER_RULES, testing.ENV_RULES])
def test_every_rule_says_in_one_line_what_it_asks(rules: dict[str, Callable[..., None]]) -> None:
    for name, rule in rules.items():
        assert rule.__name__ == name
        assert rule.__doc__ is not None
        assert "\n" not in rule.__doc__
        assert rule.__doc__.endswith(".")


def test_global_generators_are_put_back() -> None:
    before = global_states()
    with other_globals(1):
        one = global_states()
    with other_globals(2):
        other = global_states()
    assert first_difference(before, global_states()) is None
    assert first_difference(one, other) is not None


@pytest.mark.long
def test_neither_the_library_nor_the_contracts_import_torch_or_a_test_framework() -> None:
    code = """
import sys
import sharpwave as sw
assert not any(name.startswith("sharpwave.testing") for name in sys.modules)
sw.testing.check_buffer(lambda n: sw.ReplayBuffer(n, 4, 1), rules="rows_stay_together")
sw.testing.check_env("CartPole-v1", n_steps=20)
assert not {"torch", "pytest", "hypothesis"} & set(sys.modules), sorted(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
