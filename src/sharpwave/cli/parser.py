"""A parser whose complaints name what was probably meant, and options made of a configuration."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import MISSING, Field, fields
from typing import Any, Literal, NoReturn, get_args, get_origin

from sharpwave.cli.terminal import UserError
from sharpwave.config.config import Config
from sharpwave.config.convert import from_text, members_of
from sharpwave.core.suggest import did_you_mean


class Parser(argparse.ArgumentParser):
    """Parses one command; every complaint is a `UserError`.

    Args:
        command: The words before the arguments, such as `train ppo`.
        description: Summary of the command.
    """

    def __init__(self, command: str, description: str) -> None:
        super().__init__(
            prog=f"sharpwave {command}",
            description=description,
            allow_abbrev=False,
            formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=32),
        )

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        """The arguments by name; underscores in options may stand for dashes.

        Raises:
            UserError: Something is unknown, missing or malformed.
        """
        spelled = [_with_dashes(argument) for argument in arguments]
        for argument in spelled:
            option = argument.partition("=")[0]
            if option.startswith("--") and option not in self._option_string_actions:
                close = did_you_mean(option, self._option_string_actions)
                self.error(f"unknown option {option}{close}")
        parsed, extra = self.parse_known_args(spelled)
        if extra:
            self.error(f"unexpected argument {extra[0]!r}")
        return parsed

    def error(self, message: str) -> NoReturn:
        """Refuse the arguments."""
        raise UserError(f"{message} (`{self.prog} --help` lists what there is)")


def one_of(what: str, known: Iterable[str]) -> Callable[[str], str]:
    """A type of argument: one of the known names, the nearest being named otherwise."""
    names = list(known)

    def choose(text: str) -> str:
        if text not in names:
            close = did_you_mean(text, names) or f" (there are {', '.join(names)})"
            raise argparse.ArgumentTypeError(f"unknown {what} {text!r}{close}")
        return text

    return choose


def count(least: int) -> Callable[[str], int]:
    """A type of argument: an integer such as `100000`, `100_000` or `1e5`, at least `least`."""

    def parse(text: str) -> int:
        try:
            number = int(from_text(text, int))
        except (TypeError, ValueError) as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        if number < least:
            raise argparse.ArgumentTypeError(f"must be at least {least}, got {number}")
        return number

    return parse


def add_config_options(
    parser: argparse.ArgumentParser,
    config: type[Config],
    title: str,
    *,
    only: Container[str] | None = None,
) -> None:
    """Add an option for every field, or for some, with its docstring as help.

    The parsed values stay texts, and those of options that are not given are absent: see
    `config_options`.
    """
    group = parser.add_argument_group(title)
    texts, annotations = config.field_help(), config.annotations()
    other_names: dict[str, list[str]] = {}
    for alias, name in config.aliases.items():
        other_names.setdefault(name, []).append(alias)
    for field in fields(config):
        if only is not None and field.name not in only:
            continue
        flags = [_flag(name) for name in (field.name, *other_names.get(field.name, ()))]
        for name, (said, _) in config.converted.items():
            if said == field.name:
                help_text = f"The same as {flags[0]}, in another unit."
                group.add_argument(
                    _flag(name), dest=name, default=argparse.SUPPRESS, metavar="X", help=help_text
                )
        options: dict[str, Any] = {
            "dest": field.name,
            "default": argparse.SUPPRESS,
            "metavar": _metavar(annotations[field.name]),
        }
        summary = f"{' '.join(texts[field.name].split())}{_default(field)}".replace("%", "%%")
        if bool not in members_of(annotations[field.name]):
            group.add_argument(*flags, help=summary, **options)
            continue
        group.add_argument(*flags, nargs="?", const="true", help=summary, **options)
        group.add_argument(
            *(flag.replace("--", "--no-", 1) for flag in flags),
            dest=field.name,
            action="store_const",
            const="false",
            default=argparse.SUPPRESS,
            help=argparse.SUPPRESS,
        )


def config_options(parsed: argparse.Namespace, config: type[Config]) -> dict[str, Any]:
    """The options of a configuration that were given, as values.

    Raises:
        TypeError: A text cannot be such a value.
        ValueError: A text cannot be such a value.
    """
    given = vars(parsed)
    names = [*config.annotations(), *config.converted]
    return config.parse({name: given[name] for name in names if name in given})


def _with_dashes(argument: str) -> str:
    if not argument.startswith("--"):
        return argument
    option, equals, value = argument.partition("=")
    return option.replace("_", "-") + equals + value


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _metavar(annotation: Any) -> str:
    members = members_of(annotation)
    choices = [str(choice) for member in members for choice in _choices(member)]
    if bool in members:
        choices = ["true", "false", *choices]
    elif float in members and choices:
        choices = ["X", *choices]
    if choices:
        return "|".join(choices + (["none"] if type(None) in members else []))
    if get_origin(annotation) is tuple:
        return "N,N"
    return "N" if int in members else "TEXT" if str in members else "X"


def _choices(annotation: Any) -> tuple[Any, ...]:
    if get_origin(annotation) is tuple:
        return _choices(get_args(annotation)[0])
    return get_args(annotation) if get_origin(annotation) is Literal else ()


def _default(field: Field[Any]) -> str:
    value = field.default
    if value is MISSING or value is None or value == ():
        return ""
    if isinstance(value, bool):
        value = "on" if value else "off"
    elif isinstance(value, tuple):
        value = ",".join(map(str, value))
    return f" (default: {value})"
