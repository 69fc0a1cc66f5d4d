"""Arguments of agents of several: what they must be, said where they are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sharpwave as sw
from sharpwave.envs.multi.toys import Roles

AGENTS: dict[str, Any] = {
    "mappo": (sw.MAPPO, {"n_steps": 8, "recurrent": "gru", "recurrent_size": 4}),
    "vdn": (sw.VDN, {"recurrent": "gru", "recurrent_size": 4}),
}
EVERY = np.ones((2, 2), np.bool_)


@pytest.fixture(params=AGENTS)
def agent(request: pytest.FixtureRequest) -> Any:
    make, options = AGENTS[request.param]
    made = make(Roles, n_envs=2, hidden=(8,), **options)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"action_masks": EVERY}, TypeError, "action_masks must be a dict by agent .* got ndarray"),
        ({"state": EVERY}, TypeError, "state must be a dict by agent .* got ndarray"),
        ({"agent": "agent_1"}, ValueError, "agent must be None where obs .*, got 'agent_1'"),
    ],
    ids=["masks", "state", "agent"],
)
def test_all_agents_are_predicted_by_name(
    agent: Any, options: dict[str, Any], kind: Any, message: str
) -> None:
    shape = agent.env.observation_spaces["agent"].shape
    with pytest.raises(kind, match=message):
        agent.predict({name: np.zeros(shape) for name in agent.env.agents}, **options)


def test_the_masks_of_some_agents_are_enough(agent: Any) -> None:
    shape = agent.env.observation_spaces["agent"].shape
    obs = {name: np.zeros(shape) for name in agent.env.agents}
    for allowed in range(2):
        masks = {"agent_1": np.arange(2) == allowed}
        assert agent.predict(obs, action_masks=masks)["agent_1"] == allowed


def test_the_number_of_an_agent_is_an_integer(agent: Any) -> None:
    obs = np.zeros(agent.env.observation_spaces["agent"].shape)
    with pytest.raises(TypeError, match=r"agent_idx must be an integer, got 1\.0"):
        agent.predict(obs, agent_idx=1.0)
    assert agent.predict(obs, agent_idx=np.int64(1)) == agent.predict(obs, agent="agent_1")


@pytest.mark.parametrize("make", [sw.MAPPO, sw.VDN])
def test_the_number_of_agents_is_an_integer(make: Any) -> None:
    with pytest.raises(TypeError, match="n_agents must be an integer, got '2'"):
        make(Roles, "2")
    with pytest.raises(ValueError, match="n_agents must be at least 1, got 0"):
        make(Roles, 0)
