"""Validation of values by type annotations, and conversion where nothing is lost."""

from __future__ import annotations

import json
import math
import numbers
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Union, get_args, get_origin

import numpy as np

from sharpwave.config.schedules import Adaptive, Linear, adaptive_from_text, schedule_from_json
from sharpwave.core.suggest import did_you_mean

TRUE_WORDS = frozenset({"true", "yes", "on", "1"})
FALSE_WORDS = frozenset({"false", "no", "off", "0"})
NONE_WORDS = frozenset({"none", "null"})


def convert(value: Any, annotation: Any) -> Any:
    """Check a value against an annotation; convert it where nothing is lost.

    An integer passes for a float, an integral float for an integer, text such as `1e-3` for a
    number, a list or one element for a tuple, text such as `linear(1e-3, 0)` for a schedule. A
    bool never passes for a number.

    Args:
        value: The value given.
        annotation: bool, int, float, str, None, Any, Literal, `tuple[T, ...]`, a dict, a
            callable, `Linear`, `Adaptive`, another class, or a union of these.

    Raises:
        TypeError: The value has another type.
        ValueError: It is NaN, text that is not a number, or not among the literals.

    Example:
        >>> convert("1e-3", float), convert([64, 64], tuple[int, ...])
        (0.001, (64, 64))
    """
    origin = get_origin(annotation)
    if annotation is Any:
        return value
    if origin in (Union, types.UnionType):
        return _to_member(value, annotation)
    if origin is Literal:
        return _to_literal(value, annotation)
    if origin is tuple:
        return _to_tuple(value, get_args(annotation)[0])
    converter = _CONVERTERS.get(origin or annotation)
    if converter is not None:
        return converter(value)
    if isinstance(value, annotation):
        return value
    raise TypeError(f"must be {describe(annotation)}, got {value!r}")


def from_text(text: str, annotation: Any) -> Any:
    """Read a value from the text that a person typed, such as `64,64`, `true` or `none`.

    Raises:
        TypeError: The text cannot be such a value.
        ValueError: The text cannot be such a value.

    Example:
        >>> from_text("64,64", tuple[int, ...]), from_text("no", bool), from_text("1e5", int)
        ((64, 64), False, 100000)
    """
    members = members_of(annotation)
    word = text.strip().casefold()
    if type(None) in members and word in NONE_WORDS:
        return None
    if bool in members and word in TRUE_WORDS | FALSE_WORDS:
        return word in TRUE_WORDS
    for member in members:
        if get_origin(member) is tuple:
            return tuple(from_text(part, get_args(member)[0]) for part in _parts(text))
        if get_origin(member) is Literal:
            for choice in get_args(member):
                if text == str(choice):
                    return choice
        is_object = word.startswith("{") or len(members) == 1
        if (get_origin(member) or member) is dict and is_object:
            try:
                return convert(json.loads(text), member)
            except json.JSONDecodeError:
                raise ValueError(f"must be a JSON object, got {text!r}") from None
    return convert(text, annotation)


def _parts(text: str) -> list[str]:
    """The items between the commas, with or without the brackets of Python and JSON."""
    inner = text.strip()
    if inner[:1] + inner[-1:] in ("()", "[]"):
        inner = inner[1:-1]
    return [part.strip() for part in inner.split(",") if part.strip()]


def describe(annotation: Any) -> str:
    """An annotation in words, for messages and help.

    Example:
        >>> describe(float | None)
        'a number or none'
    """
    origin = get_origin(annotation)
    if origin in (Union, types.UnionType):
        words = list(dict.fromkeys(describe(member) for member in members_of(annotation)))
        return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " or " + words[-1]
    if origin is Literal:
        choices = [repr(choice) for choice in get_args(annotation)]
        return choices[0] if len(choices) == 1 else "one of " + ", ".join(choices)
    if origin is tuple:
        return f"a sequence, each {describe(get_args(annotation)[0])}"
    words_of = {
        bool: "true or false",
        int: "an integer",
        float: "a number",
        str: "text",
        type(None): "none",
        dict: "a mapping",
        Linear: "a linear schedule",
        Adaptive: "'adaptive'",
        Callable: "a callable",
        Any: "anything",
    }
    name = words_of.get(origin or annotation)
    return name if name is not None else f"a {getattr(annotation, '__name__', annotation)}"


def members_of(annotation: Any) -> tuple[Any, ...]:
    """The members of a union, or the annotation itself."""
    if get_origin(annotation) in (Union, types.UnionType):
        return get_args(annotation)
    return (annotation,)


def choices_of(annotation: Any) -> list[str]:
    """The words that an annotation allows, in order.

    Example:
        >>> choices_of(Literal["a", "b"] | None)
        ['a', 'b']
    """
    literals = [one for one in members_of(annotation) if get_origin(one) is Literal]
    return [word for one in literals for word in get_args(one) if isinstance(word, str)]


def _to_member(value: Any, annotation: Any) -> Any:
    """The value as the member of a union that it already is, or else as the first it fits."""
    members = members_of(annotation)
    if type(value) in members and not _is_nan(value):
        return value
    attempts = [_attempt(value, member) for member in members]
    for attempt in attempts:
        if not isinstance(attempt, TypeError | ValueError):
            return attempt
    reason = f"must be {describe(annotation)}, got {value!r}{_meant(value, annotation)}"
    only_types = all(isinstance(attempt, TypeError) for attempt in attempts)
    raise TypeError(reason) if only_types else ValueError(reason)


def _attempt(value: Any, annotation: Any) -> Any:
    """The converted value, or the error that says why there is none."""
    try:
        return convert(value, annotation)
    except (TypeError, ValueError) as error:
        return error


def _to_literal(value: Any, annotation: Any) -> Any:
    for choice in get_args(annotation):
        if type(value) is type(choice) and value == choice:
            return choice
    raise ValueError(f"must be {describe(annotation)}, got {value!r}{_meant(value, annotation)}")


def _meant(value: Any, annotation: Any) -> str:
    """The end of an error message: a suggestion of the allowed word most like a misspelled one."""
    return did_you_mean(value, choices_of(annotation)) if isinstance(value, str) else ""


def _to_tuple(value: Any, element: Any) -> tuple[Any, ...]:
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, str) or not isinstance(value, Sequence):
        value = (value,)
    return tuple(convert(item, element) for item in value)


def _to_bool(value: Any) -> bool:
    if isinstance(value, bool | np.bool_):
        return bool(value)
    raise TypeError(f"must be true or false, got {value!r}")


def _to_int(value: Any) -> int:
    number = _to_float(value, "an integer")
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, str) and value.strip().lstrip("+-").replace("_", "").isdecimal():
        return int(value)
    if not number.is_integer():
        raise ValueError(f"must be an integer, got {value!r}")
    return int(number)


def _to_float(value: Any, expected: str = "a number") -> float:
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real | str):
        raise TypeError(f"must be {expected}, got {value!r}")
    try:
        number = float(value)
    except (ValueError, OverflowError):
        raise ValueError(f"must be {expected}, got {value!r}") from None
    if math.isnan(number):
        raise ValueError(f"must be {expected}, got {value!r}")
    return number


def _to_str(value: Any) -> str:
    if isinstance(value, str):
        return str(value)
    raise TypeError(f"must be text, got {value!r}")


def _to_none(value: Any) -> None:
    if value is not None:
        raise TypeError(f"must be none, got {value!r}")


def _to_dict(value: Any) -> dict[Any, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"must be a mapping, got {value!r}")


def _to_callable(value: Any) -> Callable[..., Any]:
    if callable(value):
        return value  # type: ignore[no-any-return]
    raise TypeError(f"must be a callable, got {value!r}")


def _to_linear(value: Any) -> Linear:
    schedule = schedule_from_json(value) if isinstance(value, str) else value
    if isinstance(schedule, Linear):
        return schedule
    raise TypeError(f"must be a linear schedule, got {value!r}")


def _to_adaptive(value: Any) -> Adaptive:
    if isinstance(value, str):
        return adaptive_from_text(value)
    if isinstance(value, Adaptive):
        return value
    raise TypeError(f"must be 'adaptive', got {value!r}")


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


_CONVERTERS: dict[Any, Callable[[Any], Any]] = {
    bool: _to_bool,
    int: _to_int,
    float: _to_float,
    str: _to_str,
    type(None): _to_none,
    dict: _to_dict,
    Callable: _to_callable,
    Linear: _to_linear,
    Adaptive: _to_adaptive,
}
