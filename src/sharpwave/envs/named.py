"""Environments that are named: by a file, which may not run code, or with wrappers around an id."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from sharpwave.errors import SharpwaveIOError

__all__ = [
    "WrappedEnv",
    "described_env",
    "entry_points",
    "env_of_file",
    "module_of_id",
    "names_code",
]

CODE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w./-]*")
"""Pattern of an id or entry point that names a module and something in it."""


MODULE = re.compile(r"[A-Za-z_]\w*(?:[./][A-Za-z_]\w*)+")
LIBRARIES = ("mpe2", "pettingzoo")
"""Libraries of multi-agent environments, which an id may name by their modules."""


def names_code(env_id: str | None) -> bool:
    """Return whether making an environment by its id imports a module that the id names.

    Modules of libraries that are known for their environments do not count.
    """
    if env_id is None:
        return False
    module = module_of_id(env_id)
    return ":" in env_id or (module is not None and module.partition(".")[0] not in LIBRARIES)


def module_of_id(env_id: str) -> str | None:
    """The module that an id of a multi-agent environment names; None for ids of another kind.

    Example:
        >>> module_of_id("mpe2/simple_spread_v3"), module_of_id("my_games.tag")
        ('mpe2.simple_spread_v3', 'my_games.tag')
        >>> module_of_id("CartPole-v1") is None, module_of_id("ALE/Pong-v5") is None
        (True, True)
    """
    if MODULE.fullmatch(env_id) is None:
        return None
    module = env_id.replace("/", ".")
    is_path = "/" not in env_id or module.partition(".")[0] in LIBRARIES
    return module if is_path else None


def env_of_file(
    path: str | os.PathLike[str], saved: Any, *, argument: str = "env"
) -> tuple[str, dict[str, Any]]:
    """The id and the arguments of the environment that a file names.

    A file must not decide which code runs: an id with a module in it, an argument that reads like
    an entry point, and wrappers are refused.

    Args:
        path: The file, as errors say it.
        saved: Its entry: `{"id": ..., "kwargs": {...}}`.
        argument: Name of the caller's argument for an environment.

    Raises:
        SharpwaveIOError: It says nothing that is an environment.
        ValueError: Its environment would import a module.
    """
    env_id, kwargs, wrappers = described_env(path, saved)
    arguments = list(entry_points(kwargs))
    if names_code(env_id) or arguments or wrappers:
        code = ", ".join([*([env_id] if names_code(env_id) else []), *arguments, *wrappers])
        given = repr(env_id) if not wrappers else "a function that makes it"
        options = [f"--env {env_id}", *(f"--wrapper {name}" for name in wrappers)]
        raise ValueError(
            f"{path} names code that would be imported ({code}), and a file may not run code: if "
            f"you trust it, pass {argument}={given} (on the command line {' '.join(options)})"
        )
    return env_id, kwargs


def described_env(
    path: str | os.PathLike[str], saved: Any
) -> tuple[str, dict[str, Any], list[str]]:
    """Id, arguments and wrappers of the environment that a file names; nothing is imported.

    Raises:
        SharpwaveIOError: It says nothing that is an environment.
    """
    if isinstance(saved, Mapping):
        env_id, kwargs = saved.get("id"), saved.get("kwargs", {})
        wrappers = saved.get("wrappers", [])
        names = isinstance(wrappers, list) and all(isinstance(name, str) for name in wrappers)
        if isinstance(env_id, str) and isinstance(kwargs, Mapping) and names:
            return env_id, dict(kwargs), list(wrappers)
    raise SharpwaveIOError(f"{path} is damaged: {saved!r:.200} is not an environment")


def entry_points(value: Any) -> Iterator[str]:
    """The texts in a tree of JSON values that read like `module:name`."""
    if isinstance(value, str) and CODE.fullmatch(value):
        yield value
    elif isinstance(value, Mapping):
        yield from (found for inner in value.values() for found in entry_points(inner))
    elif isinstance(value, list | tuple):
        yield from (found for inner in value for found in entry_points(inner))


class WrappedEnv:
    """Makes an environment by its id, with wrappers around it.

    Args:
        env_id: A Gymnasium id, or that of a multi-agent environment.
        wrappers: Each takes an environment and gives one; the first is the innermost.

    Example:
        >>> from gymnasium.wrappers import FlattenObservation
        >>> WrappedEnv("CartPole-v1", [FlattenObservation])(render_mode="rgb_array")
        <FlattenObservation<TimeLimit<OrderEnforcing<CartPoleEnv<CartPole-v1>>>>>
    """

    def __init__(self, env_id: str, wrappers: Sequence[Callable[[Any], Any]]) -> None:
        self.env_id = env_id
        self.wrappers = list(wrappers)

    def __call__(self, **kwargs: Any) -> Any:
        """A new environment; `kwargs` go to its constructor."""
        env: Any = self._made(kwargs)
        for wrap in self.wrappers:
            env = wrap(env)
        return env

    def _made(self, kwargs: dict[str, Any]) -> Any:
        from sharpwave.envs.multi.make import is_multi_id, make_one_by_id

        if is_multi_id(self.env_id):
            return make_one_by_id(self.env_id, **kwargs)
        import gymnasium

        return gymnasium.make(self.env_id, disable_env_checker=True, **kwargs)

    @property
    def wrapper_names(self) -> list[str]:
        """The wrappers as `module:Class`."""
        return [f"{wrap.__module__}:{wrap.__qualname__}" for wrap in self.wrappers]
