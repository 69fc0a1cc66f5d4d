"""Groups of agents by default and as given."""

from __future__ import annotations

from typing import Any

import pytest
from gymnasium import spaces

from sharpwave.envs.multi.groups import checked_groups, default_groups

SMALL = (spaces.Box(-1, 1, (2,)), spaces.Discrete(3))
LARGE = (spaces.Box(-1, 1, (4,)), spaces.Discrete(3))


@pytest.mark.parametrize(
    ("agents", "groups"),
    [
        ({"agent_0": SMALL, "agent_1": SMALL}, {"agent": ("agent_0", "agent_1")}),
        ({"agent0": SMALL, "agent1": SMALL}, {"agent": ("agent0", "agent1")}),
        ({"team-1": SMALL, "team-2": SMALL}, {"team": ("team-1", "team-2")}),
        ({"0": SMALL, "1": SMALL}, {"agent": ("0", "1")}),
        ({"speaker_0": SMALL, "listener_0": LARGE}, None),
        ({"left": SMALL, "right": SMALL}, None),
        (
            {"tag_0": SMALL, "agent_0": SMALL, "tag_1": SMALL},
            {"tag": ("tag_0", "tag_1"), "agent_0": ("agent_0",)},
        ),
        (
            {"a_0": SMALL, "a_1": SMALL, "a_2": LARGE},
            {"a": ("a_0", "a_1"), "a_2": ("a_2",)},
        ),
        (
            {"a_0": SMALL, "a_1": LARGE, "a_2": SMALL, "a_3": LARGE},
            {"a_0": ("a_0", "a_2"), "a_1": ("a_1", "a_3")},
        ),
        (
            {"a": LARGE, "a_0": SMALL, "a_1": SMALL},
            {"a": ("a",), "a_0": ("a_0", "a_1")},
        ),
    ],
)
def test_agents_of_equal_spaces_and_names_up_to_a_number_are_one_group(
    agents: Any, groups: Any
) -> None:
    assert default_groups(agents) == (groups or {name: (name,) for name in agents})


def test_groups_may_be_given_in_any_order() -> None:
    agents = {"agent_0": SMALL, "agent_1": SMALL, "other": LARGE}
    given = {"b": ["other"], "a": ("agent_1", "agent_0")}
    assert checked_groups(given, agents) == {"b": ("other",), "a": ("agent_1", "agent_0")}
    assert list(checked_groups(given, agents)) == ["b", "a"]


@pytest.mark.parametrize(
    ("groups", "error", "message"),
    [
        ({"a": ["agnet_0"]}, ValueError, "got 'agnet_0'; the nearest is 'agent_0'"),
        ({"a": ["agent_0", "agent_1"], "b": ["agent_1"]}, ValueError, "must not overlap"),
        ({"a": ["agent_0", "agent_0", "agent_1"], "b": ["other"]}, ValueError, "must not overlap"),
        ({"a": ["agent_0", "agent_1", "other"]}, ValueError, "'other' has .* Box.*4.*'agent_0'"),
        ({"a": ["agent_0"], "b": ["other"]}, ValueError, "every agent, got none with agent_1"),
        ({"a": []}, ValueError, r"groups\['a'\] must have at least one agent"),
        ({"a": "agent_0"}, TypeError, "must be a sequence of agents, got 'agent_0'"),
        ({1: ["agent_0"]}, TypeError, "must have strings as names, got 1"),
        (["agent_0"], TypeError, "must be a mapping of names to agents"),
    ],
)
def test_groups_that_do_not_fit_are_named(groups: Any, error: Any, message: str) -> None:
    agents = {"agent_0": SMALL, "agent_1": SMALL, "other": LARGE}
    with pytest.raises(error, match=message):
        checked_groups(groups, agents)
