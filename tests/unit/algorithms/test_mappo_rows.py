"""Rows of MAPPO: what the dead, the absent and the order of agents may change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import sharpwave as sw
from sharpwave.envs.multi.toys import Mortal
from sharpwave.learners.batch import GroupBatch
from sharpwave.testing.bits import state_of
from tests.multi_envs import Fates

SMALL: dict[str, Any] = {"n_envs": 1, "n_steps": 3, "hidden": (8,), "n_epochs": 2, "seed": 0}
KINDS: dict[str, dict[str, Any]] = {
    "native": {"backend": "native"},
    "torch": {"backend": "torch"},
    "gru": {"backend": "torch", "recurrent": "gru", "recurrent_size": 4},
}
EVERY_KIND = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


@pytest.fixture
def mappo() -> Iterator[Any]:
    made = []

    def make(env: Any, **options: Any) -> Any:
        made.append(sw.MAPPO(env, **{**SMALL, **options}))
        return made[-1]

    yield make
    for agent in made:
        agent.close()


def norm_of(agent: Any, group: str) -> dict[str, float]:
    saved = agent.learner[group].networks["value_norm"].state_dict()
    return {name: float(number) for name, number in saved.items()}


@EVERY_KIND
def test_groups_of_which_nobody_acted_stay_as_they_are(mappo: Any, kind: dict[str, Any]) -> None:
    """The second agent dies after its first step, and the next rollout has no row of it."""
    agent = mappo(Mortal, share_policy=False, **kind)
    agent.train(3)
    before = {name: state_of(agent.learner[name]) for name in agent.env.groups}
    metrics = agent.train(3)
    assert state_of(agent.learner["agent_1"]) == before["agent_1"]
    assert state_of(agent.learner["agent_0"]) != before["agent_0"]
    assert metrics["policy_loss"] == metrics["policy_loss/agent_0"]
    assert "policy_loss/agent_1" not in metrics
    assert "policy_loss/agent_1" in agent.train(3)  # its next life has begun


@EVERY_KIND
def test_rollouts_in_which_no_learner_acted_change_nothing(
    mappo: Any, kind: dict[str, Any]
) -> None:
    agent = mappo(
        "pettingzoo.classic.tictactoe_v3",
        groups={"first": ["player_1"], "second": ["player_2"]},
        opponents={"first": None},
        critic_input="obs",
        n_steps=1,
        **kind,
    )
    before = state_of(agent.learner["second"])
    metrics = agent.train(1)
    assert state_of(agent.learner["second"]) == before
    assert "policy_loss" not in metrics
    assert metrics["updates"] == 1.0
    assert "policy_loss" in agent.train(1)


@EVERY_KIND
def test_values_are_normalized_by_the_rows_that_there_are(mappo: Any, kind: dict[str, Any]) -> None:
    """One row, and then none."""
    agent = mappo(Mortal, share_policy=False, **kind)
    agent.train(3)
    rollout = agent.collector.rollouts["agent_1"]
    assert rollout.real.sum() == 1
    norm = norm_of(agent, "agent_1")
    (earned,) = rollout.returns[rollout.real]
    assert norm["mean"] / norm["weight"] == pytest.approx(earned)
    assert norm["mean_square"] / norm["weight"] == pytest.approx(earned**2)
    agent.train(3)
    assert norm_of(agent, "agent_1") == norm


def test_sequences_without_a_row_are_no_sample_of_zeros(mappo: Any) -> None:
    agent = mappo(Mortal, share_policy=False, **KINDS["gru"])
    agent.train(3)
    agent.loop.collect()
    member = agent.learner["agent_1"]
    state = agent.loop.actors["agent_1"].state
    batch = GroupBatch.of(agent.collector.columns("agent_1", sequences=True), member.own, state)
    assert batch.real is not None
    assert not batch.real.any()
    before = norm_of(agent, "agent_1")
    member.update(batch)
    assert norm_of(agent, "agent_1") == before
    assert all(torch.isfinite(x).all() for x in member.policy.parameters())


class Seeing(Fates):
    """The agents of the second group look at images."""

    def __init__(self) -> None:
        super().__init__(sizes={"blind": 1, "seeing": 1})
        image = spaces.Box(0, 255, (36, 36, 3), np.uint8)
        self.observation_spaces = {**self.observation_spaces, "seeing": image}


def test_the_reason_for_torch_is_that_of_the_group_that_needs_it() -> None:
    """The first group was asked, which native code could learn."""
    agent = sw.IPPO(Seeing(), **{**SMALL, "n_envs": 3})
    assert [agent.learner[name].kind for name in agent.env.groups] == ["native", "torch"]
    assert agent.backend == "torch"
    assert agent.backend_reason.startswith("observations are images")
    agent.close()


def test_nobody_who_is_there_has_no_actions(mappo: Any) -> None:
    agent = mappo(Mortal)
    assert agent.predict({}) == {}
    assert agent.predict({}, episode_start=True) == ({}, {})
