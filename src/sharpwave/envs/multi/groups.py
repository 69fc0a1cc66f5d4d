"""Groups of agents: those that have the same spaces and share a network."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from gymnasium import spaces

__all__ = ["checked_groups", "default_groups"]

Spaces = Mapping[str, tuple[spaces.Space[Any], spaces.Space[Any]]]
"""Observation and action space of each agent."""

EACH = "each"
NUMBERED = re.compile(r"(.*?)[_-]?\d+")


def default_groups(agents: Spaces) -> dict[str, tuple[str, ...]]:
    """Agents of equal spaces whose names differ only in their trailing number.

    A group has the name that its agents share, and a group of one agent that agent's own.

    Args:
        agents: Spaces by agent, in order.

    Example:
        >>> both = spaces.Box(-1, 1, (2,)), spaces.Discrete(5)
        >>> default_groups({"adversary_0": both, "adversary_1": both, "agent_0": both})
        {'adversary': ('adversary_0', 'adversary_1'), 'agent_0': ('agent_0',)}
    """
    found: list[list[str]] = []
    for agent in agents:
        alike = (
            members
            for members in found
            if _prefix(members[0]) == _prefix(agent) and agents[members[0]] == agents[agent]
        )
        members = next(alike, None)
        if members is None:
            found.append([agent])
        else:
            members.append(agent)
    prefixes = [_prefix(members[0]) for members in found if len(members) > 1]
    groups = {}
    for members in found:
        shared = _prefix(members[0]) or "agent"
        is_clear = prefixes.count(_prefix(members[0])) == 1 and shared not in agents
        name = shared if len(members) > 1 and is_clear else members[0]
        groups[name] = tuple(members)
    return groups


def checked_groups(groups: Any, agents: Spaces) -> dict[str, tuple[str, ...]]:
    """The groups that a user gave, or the default ones for None.

    Args:
        groups: Agents by the name of their group; "each" puts every agent into one of its own.
        agents: Spaces by agent, in order.

    Raises:
        TypeError: `groups` is no mapping of names to names.
        ValueError: An agent is unknown (the nearest is named), in two groups or in none, or the
            spaces of a group differ.

    Example:
        >>> both = spaces.Box(-1, 1, (2,)), spaces.Discrete(5)
        >>> checked_groups({"all": ["agent_1", "agent_0"]}, {"agent_0": both, "agent_1": both})
        {'all': ('agent_1', 'agent_0')}
    """
    if groups is None:
        return default_groups(agents)
    if isinstance(groups, str) and groups == EACH:
        return {agent: (agent,) for agent in agents}
    if not isinstance(groups, Mapping):
        raise TypeError(f'groups must be a mapping of names to agents or "each", got {groups!r}')
    home: dict[str, str] = {}
    for group, members in groups.items():
        _check_members(group, members, agents)
        for agent in members:
            if agent in home:
                raise ValueError(
                    f"groups must not overlap: {agent!r} is in {home[agent]!r} and in {group!r}"
                )
            home[agent] = group
    left_out = [agent for agent in agents if agent not in home]
    if left_out:
        raise ValueError(f"groups must have every agent, got none with {', '.join(left_out)}")
    return {group: tuple(members) for group, members in groups.items()}


def _check_members(group: Any, members: Any, agents: Spaces) -> None:
    if not isinstance(group, str):
        raise TypeError(f"groups must have strings as names, got {group!r}")
    if isinstance(members, str) or not isinstance(members, Sequence):
        raise TypeError(f"groups[{group!r}] must be a sequence of agents, got {members!r}")
    if not members:
        raise ValueError(f"groups[{group!r}] must have at least one agent, got none")
    for agent in members:
        if agent not in agents:
            nearest = difflib.get_close_matches(str(agent), agents, n=1, cutoff=0.0)
            raise ValueError(
                f"groups[{group!r}] must have agents of the environment, got {agent!r}; "
                f"the nearest is {nearest[0]!r}"
            )
        if agents[agent] != agents[members[0]]:
            raise ValueError(
                f"groups[{group!r}] must have agents of the same spaces: {agent!r} has "
                f"{_spaces(agents[agent])}, {members[0]!r} {_spaces(agents[members[0]])}"
            )


def _spaces(pair: tuple[Any, Any]) -> str:
    return f"observations {pair[0]} and actions {pair[1]}"


def _prefix(agent: str) -> str:
    match = NUMBERED.fullmatch(agent)
    return agent if match is None else match[1]
