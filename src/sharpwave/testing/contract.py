"""Contracts as lists of rules, and the error that lists the broken ones."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypeVar

from sharpwave.errors import EnvironmentFailed

__all__ = ["ContractError", "DoesNotApply", "by_name", "expect", "hold"]


class _Releasable(Protocol):
    def release(self) -> None:
        """Close what the last rule opened."""


Case = TypeVar("Case", bound=_Releasable)


class ContractError(AssertionError):
    """Something breaks rules of its contract.

    Args:
        subject: Name of the thing that was checked.
        broken: Expected and actual results, by the name of the rule.

    Attributes:
        subject: Name of the thing that was checked.
        broken: Expected and actual results, by the name of the rule.

    Example:
        >>> raise ContractError("MyBuffer", {"is_empty_at_first": "expected 0 rows, got 1"})
        Traceback (most recent call last):
            ...
        sharpwave.testing.contract.ContractError: MyBuffer breaks 1 rule:
        - is_empty_at_first: expected 0 rows, got 1
    """

    def __init__(self, subject: str, broken: Mapping[str, str]) -> None:
        super().__init__(subject, broken)
        self.subject = subject
        self.broken = dict(broken)

    def __str__(self) -> str:
        count = len(self.broken)
        lines = [f"{self.subject} breaks {count} rule{'s' if count != 1 else ''}:"]
        lines += [f"- {name}: {message}" for name, message in self.broken.items()]
        return "\n".join(lines)


class DoesNotApply(Exception):  # noqa: N818 - it is no error
    """A rule has nothing to check here."""


class BrokenRuleError(AssertionError):
    """One rule is broken."""


def expect(holds: Any, expected: str, got: object) -> None:
    """Break the rule that is being checked, unless something holds.

    Args:
        holds: The condition that should be true.
        expected: That, in words.
        got: The actual result.
    """
    if not holds:
        raise BrokenRuleError(f"expected {expected}, got {got}")


def by_name(*rules: Callable[[Case], None]) -> dict[str, Callable[[Case], None]]:
    """Rules by their names. The first says what all others stand on."""
    return {rule.__name__: rule for rule in rules}


def hold(
    subject: str,
    contract: Mapping[str, Callable[[Case], None]],
    case: Case,
    asked: str | Iterable[str] | None = None,
) -> tuple[str, ...]:
    """Check the rules of a contract one by one.

    Args:
        subject: Name of the thing that is checked, for the message.
        contract: Rules by name. Where the first is broken, the others are not looked at.
        case: The argument of each rule; `release` is called after each of them.
        asked: Names of the rules to check; all when None.

    Returns:
        The names of the rules that were checked; rules that do not apply are left out.

    Raises:
        ContractError: Rules are broken; all of them are named.
        ValueError: There is no rule of a name.
    """
    broken: dict[str, Exception] = {}
    kept = []
    for name in _chosen(contract, asked):
        error = _failure(contract[name], case)
        if error is None:
            kept.append(name)
        elif not isinstance(error, DoesNotApply):
            broken[name] = error
            if name == next(iter(contract)):
                break
    if broken:
        messages = {name: _described(contract[name], error) for name, error in broken.items()}
        raise ContractError(subject, messages) from next(iter(broken.values()))
    return tuple(kept)


def _failure(rule: Callable[[Case], None], case: Case) -> Exception | None:
    """The exception that a rule raises; None if it holds."""
    try:
        rule(case)
    except Exception as error:
        return error
    finally:
        case.release()
    return None


def _chosen(contract: Mapping[str, Any], asked: str | Iterable[str] | None) -> list[str]:
    if asked is None:
        return list(contract)
    names = [asked] if isinstance(asked, str) else list(asked)
    for name in names:
        if name not in contract:
            nearest = difflib.get_close_matches(name, contract, n=1, cutoff=0.0)[0]
            raise ValueError(f"rules has no rule {name!r}; the nearest is {nearest!r}")
    return names


def _described(rule: Callable[..., None], error: Exception) -> str:
    """The statement of a rule, and how it was broken, in one line."""
    says = (rule.__doc__ or "").strip().rstrip(".")
    what = str(error) if isinstance(error, BrokenRuleError) else f"it raised {_said(error)}"
    return " ".join(f"{says}: {what}".split())


def _said(error: BaseException) -> str:
    """The type and the words of an error; of an environment that failed those of its own."""
    if isinstance(error, EnvironmentFailed) and error.__cause__ is not None:
        return f"in {error.doing} {_said(error.__cause__)}"
    return f"{type(error).__name__}: {error}"
