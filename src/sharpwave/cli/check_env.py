"""`sharpwave check-env`."""

from __future__ import annotations

import argparse
import functools
from typing import Any

from sharpwave.algorithms.registry import algorithm_class
from sharpwave.cli.environment import (
    add_env_options,
    env_of,
    import_modules,
    parse_env_kwargs,
    require_env,
)
from sharpwave.cli.parser import Parser, count
from sharpwave.cli.run_plan import Plan
from sharpwave.cli.terminal import input_errors, say

BROKEN = 1


def run(arguments: list[str]) -> int:
    """Check an environment, and return the exit status."""
    from sharpwave import testing
    from sharpwave.envs.multi.make import is_multi_id

    parsed = _parser().parse(arguments)
    import_modules(parsed.imports)
    has_many = is_multi_id(parsed.env)
    require_env(parsed.env, algorithm_class("mappo") if has_many else None)
    check = testing.check_multi_env if has_many else testing.check_env
    rules = testing.MULTI_ENV_RULES if has_many else testing.ENV_RULES
    try:
        with input_errors():
            kept = check(_source(parsed), n_steps=parsed.steps)
    except testing.ContractError as error:
        for name, reason in error.broken.items():
            say(f"{name}: {reason}")
        say(f"{parsed.env} breaks {len(error.broken)} of {len(rules)} rules")
        return BROKEN
    say(f"{parsed.env} keeps {len(kept)} rules; {len(rules) - len(kept)} do not apply to it")
    return 0


def _source(parsed: argparse.Namespace) -> Any:
    """The id alone, which native code may know, or what makes the environment as asked."""
    kwargs = parse_env_kwargs(parsed.env_kwargs) or {}
    plan = Plan(algorithm="", env_id=parsed.env, wrappers=tuple(parsed.wrappers))
    if not kwargs and not plan.wrappers:
        return parsed.env
    return functools.partial(_made, env_of(plan), kwargs)


def _made(env: Any, kwargs: dict[str, Any]) -> Any:
    from sharpwave.envs.named import WrappedEnv

    return (WrappedEnv(env, []) if isinstance(env, str) else env)(**kwargs)


def _parser() -> Parser:
    parser = Parser(
        "check-env",
        "Play an environment with random actions, and say in a line for each fault what does not "
        "fit what training needs.",
    )
    parser.add_argument("env", metavar="ENV", help="an id, or my_module:My-v0")
    parser.add_argument(
        "--steps",
        type=count(1),
        metavar="N",
        help="steps to look at (default: a little more than the time limit)",
    )
    add_env_options(parser)
    return parser
