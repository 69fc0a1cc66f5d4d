"""Options that every algorithm has, and the signature of their constructors."""

from __future__ import annotations

import inspect
import re
from abc import ABCMeta
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np

from sharpwave.config.config import INDENT, Config

ARGUMENTS = re.compile(rf"^Args:\n((?:{INDENT}.*\n)+)\n?", re.MULTILINE)
"""The section of arguments in a docstring."""


@dataclass(frozen=True, kw_only=True)
class RunConfig(Config):
    """Options of every run."""

    seed: int | None = None
    """Random seed of weights, actions and environments; when None, every run draws one of its own
    and keeps it in its configuration."""
    total_timesteps: int = 100_000
    """Number of steps of `train()` when it is given none."""

    def check(self) -> None:
        """Check the values."""
        self.require_positive("total_timesteps")
        self.require_range("seed", 0, 2**63)


@dataclass(frozen=True, kw_only=True)
class AlgorithmConfig(RunConfig):
    """Options of every algorithm."""

    gamma: float = 0.99
    """Discount factor γ of future rewards."""
    device: str = "auto"
    """Device of the networks; "auto" takes a GPU that torch has where the networks gain from it
    (images, a memory, layers of 1024 and more), and the CPU elsewhere."""
    backend: Literal["auto", "native", "torch"] = "auto"
    """Implementation of updates and actions: native code or torch; "auto" takes native code where
    it supports networks, device and options."""
    threads: int = 0
    """Number of threads of an update; 0 takes one for small networks and as many as help for large
    ones."""

    def check(self) -> None:
        """Check the values."""
        super().check()
        self.require_range("gamma", 0, 1)
        self.require_range("threads", 0, 4096)


def draw_seed() -> int:
    """A seed that nobody chose; `config.seed` of a run says which it was."""
    return int(np.random.SeedSequence().generate_state(1)[0])


def constructor_signature(
    leading: Mapping[str, Any], options: Mapping[str, Any], config: type[RunConfig]
) -> inspect.Signature:
    """A constructor's signature with every option and its default, which `config` alone knows.

    Args:
        leading: Arguments by position, with their defaults; those of fields come from `config`.
        options: More arguments by name, with their defaults.
        config: The fields.
    """
    kind = inspect.Parameter
    defaults = {field.name: field.default for field in fields(config)}
    positional = [
        kind(name, kind.POSITIONAL_OR_KEYWORD, default=defaults.pop(name, default))
        for name, default in leading.items()
    ]
    named = [
        kind(name, kind.KEYWORD_ONLY, default=default)
        for name, default in {"config": None, **options, **defaults}.items()
        if name not in leading
    ]
    return inspect.Signature([*positional, *named])


class DocumentedOptions(ABCMeta):
    """The metaclass of agents: `help` of a class has all arguments and options of its constructor.

    Arguments are described where they are introduced, by the class or by a base. The meanings of
    options are read from their source when somebody asks for help, not at import.
    """

    @property
    def __doc__(cls) -> str | None:  # type: ignore[override]
        """The docstring of the class, its arguments, and its options with their defaults."""
        own: str | None = vars(cls).get("__doc__")
        config: type[RunConfig] | None = getattr(cls, "Config", None)
        if own is None or config is None:
            return own
        arguments: dict[str, str] = {}
        for base in reversed(cls.__mro__):
            arguments |= _split_docstring(vars(base).get("__doc__") or "")[1]
        names = inspect.signature(cls).parameters
        lines = [_split_docstring(own)[0], "", "Args:"]
        lines += [arguments[name] for name in names if name in arguments]
        return "\n".join([*lines, "", *config.option_lines()])


def _split_docstring(docstring: str) -> tuple[str, dict[str, str]]:
    """A docstring without its arguments, and the lines about each of them by its name."""
    text = inspect.cleandoc(docstring) + "\n"
    found = ARGUMENTS.search(text)
    entries = re.split(rf"^(?={INDENT}\S)", found[1], flags=re.MULTILINE) if found else []
    arguments = {entry.partition(":")[0].strip(): entry.rstrip() for entry in entries if entry}
    return ARGUMENTS.sub("", text).rstrip(), arguments


def resolve_config(cls: type[RunConfig], config: Any, overrides: dict[str, Any]) -> Any:
    """The configuration that a constructor was given: all options at once, single ones, or both.

    Raises:
        TypeError: `config` is neither of `cls` nor a dict, or an option does not exist.
    """
    if config is None:
        return cls(**overrides)
    if isinstance(config, dict):
        return cls.from_dict({**config, **overrides})
    if not isinstance(config, cls):
        raise TypeError(f"config must be a {cls.__name__} or a dict, got {type(config).__name__}")
    return config.merge(**overrides)
