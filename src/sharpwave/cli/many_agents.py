"""The options of several agents: their groups, and who plays those that do not learn."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sharpwave.cli.folders import find_checkpoint
from sharpwave.cli.parser import Parser
from sharpwave.cli.terminal import UserError

FROZEN = "frozen"
"""Stands for an opponent that stays as it begins."""


def add_agent_options(parser: Parser, algorithm: Any) -> None:
    """Add the options of several agents that an algorithm has."""
    group = parser.add_argument_group("agents")
    group.add_argument(
        "--groups",
        metavar="NAME=AGENT,AGENT",
        nargs="+",
        action="extend",
        help="agents that share a policy, by the name of their group, such as runners=agent_0,"
        "agent_1 (default: those of equal spaces whose names differ in the trailing number)",
    )
    if "opponents" not in algorithm.__signature__.parameters:
        return
    group.add_argument(
        "--opponents",
        metavar="NAME=RUN",
        nargs="+",
        action="extend",
        help="groups that do not learn, each with the checkpoint or run folder that plays it, or "
        f"{FROZEN} for one that stays as it begins",
    )


def agents_of(parsed: argparse.Namespace) -> dict[str, Any]:
    """The options of several agents that were given, as a plan keeps them.

    Raises:
        UserError: One is malformed, or there is no such checkpoint.
    """
    found: dict[str, Any] = {}
    groups, opponents = getattr(parsed, "groups", None), getattr(parsed, "opponents", None)
    if groups is not None:
        found["groups"] = _by_name("--groups", groups, "NAME=AGENT,AGENT", _agents)
    if opponents is not None:
        found["opponents"] = _by_name("--opponents", opponents, "NAME=RUN", _opponent)
    return found


def _by_name(
    option: str, texts: Sequence[str], form: str, parse: Callable[[str], Any]
) -> dict[str, Any]:
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals or not value:
            raise UserError(f"{option} must be {form}, got {text!r}")
        found[name] = parse(value)
    return found


def _agents(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


def _opponent(text: str) -> str | None:
    return None if text == FROZEN else str(Path(find_checkpoint(text)).absolute())
