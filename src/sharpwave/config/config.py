"""The base of every configuration: checked, immutable, and written to and read from files."""

from __future__ import annotations

import ast
import inspect
import json
import math
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, TypeVar, get_type_hints

from sharpwave.config import files as config_files
from sharpwave.config.convert import NONE_WORDS, convert, from_text
from sharpwave.config.elsewhere import said_elsewhere
from sharpwave.config.schedules import Adaptive, Linear, is_unwritten_callable, schedule_to_json
from sharpwave.core.suggest import did_you_mean

Self = TypeVar("Self", bound="Config")

INDENT = " " * 4
"""Of entries in a docstring."""


class _Constructor(type):
    """Lets `XConfig(...)` know aliases and name the nearest option of an unknown one."""

    def __call__(cls: type[Self], *args: Any, **options: Any) -> Self:  # type: ignore[misc]
        return super().__call__(*args, **cls._known(options))  # type: ignore[misc, no-any-return]

    @property
    def __signature__(cls) -> inspect.Signature:
        """The signature of the fields, which `help` and editors show."""
        parameters = inspect.signature(cls.__init__).parameters.values()  # type: ignore[misc]
        return inspect.Signature(list(parameters)[1:])

    @property
    def __doc__(cls) -> str | None:
        """The docstring of the class, and its options with their defaults and meanings."""
        own: str | None = vars(cls).get("__doc__")
        # `dataclass` asks before it has made the class, and sets `__match_args__` last.
        if not own or "__match_args__" not in vars(cls):
            return own
        return "\n".join([inspect.cleandoc(own), "", *cls.option_lines()])  # type: ignore[attr-defined]

    @__doc__.setter
    def __doc__(cls, text: str | None) -> None:
        type.__dict__["__doc__"].__set__(cls, text)


@dataclass(frozen=True, kw_only=True)
class Config(metaclass=_Constructor):
    """Base of the configurations.

    A subclass is `@dataclass(frozen=True, kw_only=True)`, has a docstring under each field, and
    checks ranges in `check`. Values are checked against the annotations, and converted where
    nothing is lost.

    Raises:
        TypeError: An option is unknown, or a value has the wrong type.
        ValueError: A value is out of its range.

    Example:
        >>> @dataclass(frozen=True, kw_only=True)
        ... class Coin(Config):
        ...     bias: float = 0.5
        ...     def check(self) -> None:
        ...         self.require_range("bias", 0, 1)
        >>> Coin(bias="1e-3").merge(bias=1).to_dict()
        {'bias': 1.0}
    """

    aliases: ClassVar[Mapping[str, str]] = {}
    """Other names of fields, accepted wherever a field's name is."""
    converted: ClassVar[Mapping[str, tuple[str, Callable[[float], float]]]] = {}
    """Names of numbers that say a field in another unit: the field, and the way to its unit."""

    def __post_init__(self) -> None:
        for name, annotation in self.annotations().items():
            object.__setattr__(self, name, _named(name, convert, getattr(self, name), annotation))
        self.check()

    def check(self) -> None:
        """Check ranges and combinations of values; subclasses raise ValueError here."""

    @classmethod
    def annotations(cls) -> dict[str, Any]:
        """The type of each field, in order."""
        return _annotations(cls)

    @classmethod
    def field_help(cls) -> dict[str, str]:
        """Descriptions of the fields by name: the docstrings under them."""
        return _field_help(cls)

    @classmethod
    def option_lines(cls) -> list[str]:
        """The part of a docstring that lists the options with their defaults and meanings."""
        lines = ["Options:"]
        meanings = cls.field_help()
        for field in fields(cls):
            lines.append(f"{INDENT}{field.name} = {field.default!r}")
            lines += [INDENT * 2 + line for line in meanings[field.name].splitlines()]
        return lines

    @classmethod
    def from_dict(cls: type[Self], options: Mapping[str, Any]) -> Self:
        """Make a configuration of named options; fields that are not named keep their defaults.

        Raises:
            TypeError: An option is unknown, or a value has the wrong type.
            ValueError: A value is out of its range, or was a callable when it was written.
        """
        for name, value in options.items():
            if is_unwritten_callable(value):
                raise ValueError(
                    f"{name} was the callable {value['callable']!r}, which a file cannot hold: "
                    f"pass {name} again"
                )
        return cls(**options)

    @classmethod
    def from_text(cls: type[Self], options: Mapping[str, str]) -> Self:
        """Make a configuration of texts, as a command line has them.

        Example:
            >>> Config.from_text({})
            Config()
        """
        return cls(**cls.parse(options))

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> dict[str, Any]:
        """Read texts as the values of the fields that they are for.

        Raises:
            TypeError: An option is unknown, or a text cannot be such a value.
            ValueError: A text cannot be such a value.
        """
        annotations = cls.annotations()
        return {
            name: _named(name, from_text, text, annotations[name])
            for name, text in cls._known(options).items()
        }

    @classmethod
    def from_file(cls: type[Self], path: str | Path) -> Self:
        """Read a `.yaml`, `.yml`, `.toml` or `.json` file.

        Raises:
            ValueError: The suffix is another, or the file does not hold named options.
        """
        return cls.from_dict(cls.read_options(path))

    @classmethod
    def read_options(cls, path: str | Path, language: str | None = None) -> dict[str, Any]:
        """The options that a file names, without the defaults of the others.

        Args:
            path: The file.
            language: yaml, toml or json; None goes by the suffix.
        """
        options = cls._known(config_files.read(Path(path), language))
        # TOML has no null, so `to_toml` writes the word.
        for name, value in options.items():
            if isinstance(value, str) and value.casefold() in NONE_WORDS:
                options[name] = from_text(value, cls.annotations()[name])
        return options

    @classmethod
    def from_yaml(cls: type[Self], path: str | Path) -> Self:
        """Read a YAML file."""
        return cls.from_dict(cls.read_options(path, "yaml"))

    @classmethod
    def from_toml(cls: type[Self], path: str | Path) -> Self:
        """Read a TOML file."""
        return cls.from_dict(cls.read_options(path, "toml"))

    def merge(self: Self, overrides: Mapping[str, Any] | None = None, /, **options: Any) -> Self:
        """The same configuration with other values of some fields, checked again.

        Args:
            overrides: Fields and their new values.
            **options: The same as keywords.
        """
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        changes = self._known({**(overrides or {}), **options})
        return type(self).from_dict({**values, **changes})

    def replace(self: Self, **options: Any) -> Self:
        """The same configuration with other values of some fields, checked again."""
        return self.merge(options)

    def to_dict(self) -> dict[str, Any]:
        """All fields as JSON values.

        A schedule becomes text, an infinity becomes `"inf"`, and a callable, which cannot be
        written, becomes `{"callable": name}`.
        """
        return {field.name: _to_json(getattr(self, field.name)) for field in fields(self)}

    def to_yaml(self, path: str | Path) -> None:
        """Write a YAML file."""
        config_files.write_yaml(Path(path), self.to_dict())

    def to_toml(self, path: str | Path) -> None:
        """Write a TOML file."""
        config_files.write_toml(Path(path), self.to_dict())

    def to_json(self, path: str | Path) -> None:
        """Write a JSON file."""
        Path(path).write_text(json.dumps(self.to_dict(), indent=2) + "\n", encoding="utf-8")

    def require_positive(self, *names: str) -> None:
        """Check that each of these fields is greater than 0; a line may end at 0.

        None, text and callables have no range.
        """
        for name in names:
            value = getattr(self, name)
            if isinstance(value, Linear):
                self.require_range(name, 0)
                value = value.start
            for number in _numbers(value):
                if not number > 0:
                    raise ValueError(f"{name} must be greater than 0, got {number}")

    def require_range(self, name: str, low: float, high: float = math.inf) -> None:
        """Check that a field is between `low` and `high`, both included.

        None, text and callables have no range.
        """
        for value in _numbers(getattr(self, name)):
            if not low <= value <= high:
                bounds = f"at least {low}" if high == math.inf else f"between {low} and {high}"
                raise ValueError(f"{name} must be {bounds}, got {value}")

    @classmethod
    def _known(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """The options by the names of their fields; unknown names and names given twice raise."""
        names = cls.annotations()
        known: dict[str, Any] = {}
        for given, value in options.items():
            name = cls.aliases.get(given, given)
            if given in cls.converted:
                name, to_field = cls.converted[given]
                number = to_field(_named(given, convert, value, float))
                value = str(number) if isinstance(value, str) else number
            if name not in names:
                others = [*names, *cls.aliases, *cls.converted]
                close = said_elsewhere(given) or did_you_mean(str(given), others)
                raise TypeError(f"unknown option {given!r} of {cls.__name__}{close}")
            if name in known:
                raise TypeError(f"option {name!r} of {cls.__name__} is given twice")
            known[name] = value
        return known


def _named(name: str, reader: Callable[[Any, Any], Any], value: Any, annotation: Any) -> Any:
    """Convert a value with `reader`; its errors name the field."""
    try:
        return reader(value, annotation)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name} {error}") from None


def _numbers(value: Any) -> list[float]:
    """The numbers in a value: each of a tuple, both ends of a line, none of a callable, a start."""
    if isinstance(value, bool | str) or value is None:
        return []
    if isinstance(value, tuple):
        return [number for item in value for number in _numbers(item)]
    if isinstance(value, Linear):
        return [value.start, value.end]
    if isinstance(value, Adaptive):
        return [value.start]
    return [] if callable(value) else [value]


def _to_json(value: Any) -> Any:
    if isinstance(value, float) and math.isinf(value):
        return str(value)
    if isinstance(value, tuple | list):
        return [_to_json(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _to_json(item) for key, item in value.items()}
    if callable(value):
        return schedule_to_json(value)
    return str(value) if isinstance(value, Adaptive) else value


@cache
def _annotations(cls: type[Config]) -> dict[str, Any]:
    hints = get_type_hints(cls)
    return {field.name: hints[field.name] for field in fields(cls)}


@cache
def _field_help(cls: type[Config]) -> dict[str, str]:
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        found.update(_docstrings_under_fields(base))
    return {name: found.get(name, "") for name in _annotations(cls)}


def _docstrings_under_fields(cls: type) -> dict[str, str]:
    """The docstrings under the annotated names of one class, by its source where there is one."""
    try:
        source = textwrap.dedent(inspect.getsource(cls))
    except (OSError, TypeError):
        return {}
    definition = ast.parse(source).body[0]
    body = definition.body if isinstance(definition, ast.ClassDef) else []
    return {
        field.target.id: inspect.cleandoc(below.value.value)
        for field, below in pairwise(body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
        and isinstance(below.value.value, str)
    }
