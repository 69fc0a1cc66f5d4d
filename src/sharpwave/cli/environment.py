"""The environment of a command: by an id, with arguments and wrappers, from a module of the user.

What the user names on the command line is imported, from the current folder too. What a file names
is not: see `env_of_file`.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sharpwave.algorithms.registry import is_of_many_agents
from sharpwave.cli.parser import Parser
from sharpwave.cli.run_plan import Plan
from sharpwave.cli.terminal import UserError, input_errors
from sharpwave.core.suggest import did_you_mean
from sharpwave.envs.named import WrappedEnv, entry_points, module_of_id, names_code

WORDS = {"True": True, "False": False, "None": None}
"""Literals of Python that JSON writes otherwise."""


def add_env_options(parser: Parser, *, replaces: bool = False) -> None:
    """Add the options of an environment.

    Args:
        parser: The parser to add to.
        replaces: The environment is known already: add `--env` too.
    """
    group = parser.add_argument_group("environment")
    if replaces:
        group.add_argument(
            "--env",
            metavar="ENV",
            help="environment with the same spaces; required if the run used a module of yours "
            "(my_module:My-v0), which is never imported from a file",
        )
    group.add_argument(
        "--env-kwargs",
        metavar="KEY=VALUE",
        nargs="+",
        action="extend",
        help="arguments of its constructor: size=5 mode=hard, or one JSON object '{\"size\": 5}'",
    )
    group.add_argument(
        "--wrapper",
        dest="wrappers",
        metavar="MODULE:CLASS",
        action="append",
        default=[],
        help="wrapper of each environment; repeat to nest wrappers",
    )
    add_import_option(group)


def add_import_option(parser: Any, registers: str = "environments or an algorithm") -> None:
    """Add the option of modules that register environments or algorithms."""
    parser.add_argument(
        "--import",
        dest="imports",
        metavar="MODULE",
        action="append",
        default=[],
        help=f"a module to import first, such as one that registers {registers}",
    )


def import_modules(names: Sequence[str]) -> None:
    """Import modules of the user, which may lie in the current folder.

    Raises:
        UserError: One cannot be found.
    """
    for name in names:
        _import(name)


def require_env(env_id: str, algorithm: Any = None) -> None:
    """Check that an environment exists; a module in its id is imported.

    Args:
        env_id: Its id.
        algorithm: The class of the agent; those of one agent know Gymnasium's ids alone.

    Raises:
        UserError: It does not; the nearest is named.
    """
    from sharpwave.envs.multi.make import check_multi_id, is_multi_id

    is_for_many = algorithm is not None and is_of_many_agents(algorithm)
    if is_for_many and is_multi_id(env_id):
        if names_code(env_id):
            _import(str(module_of_id(env_id)))
        with input_errors():
            check_multi_id(env_id)
        return
    _require_gymnasium(env_id, is_for_many=is_for_many)


def _require_gymnasium(env_id: str, *, is_for_many: bool) -> None:
    import gymnasium

    from sharpwave.envs.multi.make import is_multi_id, multi_env_ids

    module, _, name = env_id.rpartition(":")
    if module:
        _import(module)
    if name.startswith("ALE/"):
        from sharpwave.envs.make import register_atari

        with input_errors():
            register_atari()
    try:
        gymnasium.spec(name)
    except (gymnasium.error.Error, ImportError) as error:
        if name in gymnasium.registry:
            raise UserError(str(error)) from error
        if module:
            raise UserError(f"{module} registers no environment {name!r}") from error
        if is_multi_id(name) and not is_for_many:
            raise UserError(
                f"{name!r} has several agents, which mappo, ippo, vdn and qmix learn for"
            ) from error
        known = [*gymnasium.registry, *(multi_env_ids() if is_for_many else ())]
        reason = did_you_mean(name, known) or f": {error}"
        raise UserError(
            f"unknown environment {name!r}{reason} (`sharpwave list envs` lists them; "
            f"MODULE:{name} or --import MODULE finds one of your own)"
        ) from error


def parse_env_kwargs(texts: Sequence[str] | None) -> dict[str, Any] | None:
    """The arguments of an environment that were given, or None.

    Raises:
        UserError: A text is neither KEY=VALUE nor a JSON object.
    """
    if texts is None:
        return None
    found: dict[str, Any] = {}
    for text in texts:
        if text.lstrip().startswith("{"):
            try:
                found.update(json.loads(text))
            except ValueError as error:
                raise UserError(f"--env-kwargs {text}: not JSON: {error}") from None
            continue
        key, equals, value = text.partition("=")
        if not equals or not key.isidentifier():
            raise UserError(f"--env-kwargs must be KEY=VALUE or a JSON object, got {text!r}")
        found[key] = _value(value)
    return found


def env_of(plan: Plan) -> Any:
    """The environment of a plan for its algorithm: an id, or an id with wrappers."""
    if plan.env_id is None or not plan.wrappers:
        return plan.env_id
    return WrappedEnv(plan.env_id, [_wrapper(name) for name in plan.wrappers])


def given_env(parsed: argparse.Namespace, algorithm: Any) -> Any:
    """The environment that was given beside a file that has one, or None.

    Args:
        parsed: With the options of an environment.
        algorithm: The class of what plays there.

    Raises:
        UserError: There is no such environment or wrapper.
    """
    import_modules(parsed.imports)
    if parsed.env is None:
        if parsed.wrappers:
            raise UserError("--wrapper needs --env: the environment to put it around")
        return None
    require_env(parsed.env, algorithm)
    return env_of(Plan(algorithm="", env_id=parsed.env, wrappers=tuple(parsed.wrappers)))


def trusted(plan: Plan, parsed: argparse.Namespace, run_dir: Path) -> Plan:
    """The plan of a folder with the environment that was given on the command line.

    Raises:
        UserError: The folder names code that was not named on the command line.
    """
    plan = plan.replace(env_id=parsed.env or plan.env_id, imports=parsed.imports or plan.imports)
    if parsed.wrappers:
        plan = plan.replace(wrappers=parsed.wrappers)
    kwargs = parse_env_kwargs(parsed.env_kwargs)
    if kwargs is not None:
        plan = plan.replace(env_kwargs=kwargs)
    unknown = [
        names_code(plan.env_id) and parsed.env is None,
        bool(plan.wrappers) and not parsed.wrappers,
        bool(plan.imports) and not parsed.imports,
        any(entry_points(plan.env_kwargs)) and kwargs is None,
    ]
    if any(unknown):
        options = [f"--env {plan.env_id}"] if names_code(plan.env_id) or plan.wrappers else []
        options += [f"--wrapper {name}" for name in plan.wrappers]
        options += [f"--import {name}" for name in plan.imports]
        command = shlex.join(["sharpwave", "resume", str(run_dir), *" ".join(options).split()])
        if any(entry_points(plan.env_kwargs)) and kwargs is None:
            command += f" --env-kwargs {shlex.quote(json.dumps(plan.env_kwargs))}"
        raise UserError(
            f"{run_dir / Plan.file} names code that would be imported, and a file may not run "
            f"code: if you trust it, go on with `{command}`"
        )
    import_modules(plan.imports)
    return plan


def _import(name: str) -> Any:
    # As `python -m` does, which the installed command does not.
    if "" not in sys.path and os.getcwd() not in sys.path:  # noqa: PTH109 - an entry of sys.path
        sys.path.insert(0, os.getcwd())  # noqa: PTH109
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or name
        if name == missing or name.startswith(f"{missing}."):
            raise UserError(f"there is no module {name} here or among those installed") from error
        raise UserError(f"{name} cannot be imported: {error}") from error


def _wrapper(name: str) -> Any:
    found = named_object("--wrapper", name)
    if not callable(found):
        raise UserError(f"--wrapper must take an environment and give one, {name} is {found!r}")
    return found


def named_object(option: str, name: str) -> Any:
    """The object that MODULE:NAME names, in a module of the user's.

    Raises:
        UserError: There is no such thing.
    """
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise UserError(f"{option} must be MODULE:NAME, got {name!r}")
    found: Any = _import(module)
    for part in attribute.split("."):
        if not hasattr(found, part):
            close = did_you_mean(part, [one for one in vars(found) if one[0] != "_"])
            raise UserError(f"{module} has no {attribute}{close}")
        found = getattr(found, part)
    return found


def _value(text: str) -> Any:
    if text in WORDS:
        return WORDS[text]
    try:
        return json.loads(text)
    except ValueError:
        return text
