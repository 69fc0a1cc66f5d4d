"""Rows of MAPPO: what the dead, the absent and the order of agents may change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import sharpwave as sw
from sharpwave.envs.multi import MultiStep
from sharpwave.envs.multi.toys import Mortal
from sharpwave.learners.batch import GroupBatch
from sharpwave.testing.bits import state_of
from tests.multi_envs import Fates, Masked

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


@pytest.mark.parametrize("kind", ["native", "torch"])
def test_batches_without_rows_change_nothing(mappo: Any, kind: str) -> None:
    agent = mappo(Mortal, share_policy=False, **KINDS[kind])
    agent.train(3)
    batches = agent.loop.collect()
    assert list(batches) == ["agent_0"]
    member, collector = agent.learner["agent_1"], agent.collector
    columns = collector.columns("agent_1", sequences=False)
    batches["agent_1"] = GroupBatch.of(columns, member.own)
    before = state_of(member)
    assert "policy_loss/agent_1" not in agent.learner.update(batches)
    assert state_of(member) == before


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
    assert rollout.valid.sum() == 1
    norm = norm_of(agent, "agent_1")
    (earned,) = rollout.returns[rollout.valid]
    assert norm["mean"] / norm["weight"] == pytest.approx(earned)
    assert norm["mean_square"] / norm["weight"] == pytest.approx(earned**2)
    agent.train(3)
    assert norm_of(agent, "agent_1") == norm


def spoil(collector: Any) -> None:
    """Write what is of no use into the rows of agents that are gone."""
    write = collector._write

    def written(name: str, t: int, *step: Any) -> None:
        write(name, t, *step)
        rollout = collector.rollouts[name]
        gone = ~rollout.valid[t]
        rollout.rewards[t, gone] = 7.0
        rollout.values[t, gone] = -9.0
        rollout.log_probs[t, gone] = -3.0
        rollout.actions[t, gone] = 2
        rollout.masks[t, gone] = [True, False, True]

    collector._write = written


@EVERY_KIND
@pytest.mark.parametrize("critic_input", ["concat", "agent", "obs"])
def test_nothing_of_the_rows_of_the_dead_is_learned(
    mappo: Any, kind: dict[str, Any], critic_input: str
) -> None:
    options = {**kind, "critic_input": critic_input, "n_envs": 3, "n_steps": 12}
    agents = [mappo(Masked(), n_minibatches=2, **options) for _ in range(2)]
    spoil(agents[1].collector)
    for agent in agents:
        agent.train(3 * 36)
    assert not agents[1].collector.rollouts["agent"].valid.all()
    assert state_of(agents[0].learner) == state_of(agents[1].learner)


def test_sequences_without_a_row_are_no_sample_of_zeros(mappo: Any) -> None:
    agent = mappo(Mortal, share_policy=False, **KINDS["gru"])
    agent.train(3)
    agent.loop.collect()
    member = agent.learner["agent_1"]
    state = agent.loop.actors["agent_1"].state
    batch = GroupBatch.of(agent.collector.columns("agent_1", sequences=True), member.own, state)
    assert batch.valid is not None
    assert not batch.valid.any()
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


def relabeled(batch: GroupBatch, numbers: Any, rows: Any) -> GroupBatch:
    """The same rollout in another order of rows, with other numbers for the agents."""
    chosen = {
        name: getattr(batch, name)[rows]
        for name in ("obs", "actions", "log_probs", "values", "advantages", "returns")
    }
    joint, joint_rows = batch.joint, batch.joint_rows
    if joint is not None and joint_rows is not None:
        blocks = joint.reshape(len(joint), len(numbers), -1)
        joint, joint_rows = moved(blocks, numbers, 1).flatten(1), joint_rows[rows]
    assert batch.agents is not None
    agents = numbers[batch.agents[rows]]
    return replace(batch, **chosen, agents=agents, joint=joint, joint_rows=joint_rows)


def moved(x: Any, numbers: Any, axis: int) -> Any:
    """The entries of an axis in a new order: entry i moves to numbers[i]."""
    return x.index_select(axis, numbers.argsort())


def moved_columns(policy: Any, numbers: Any, has_joint: bool) -> dict[str, Any]:
    """The weights for agents of other numbers."""
    found = {name: weight.clone() for name, weight in policy.state_dict().items()}
    n = len(numbers)
    names = ["actor.0.weight"] if has_joint else ["actor.0.weight", "critic.0.weight"]
    for name in names:
        found[name][:, :n] = moved(found[name][:, :n], numbers, 1)
    if has_joint:
        blocks = found["critic.0.weight"].unflatten(1, (n, -1))
        found["critic.0.weight"] = moved(blocks, numbers, 1).flatten(1)
    return found


@pytest.mark.parametrize("critic_input", ["obs", "concat"])
def test_an_update_does_not_depend_on_the_numbers_of_agents(mappo: Any, critic_input: str) -> None:
    options: dict[str, Any] = {"backend": "torch", "critic_input": critic_input, "n_envs": 3}
    agents = [mappo(Fates(sizes={"agent": 3}), **{**options, "n_steps": 12}) for _ in range(2)]
    one, other = (agent.learner["agent"] for agent in agents)
    numbers = torch.tensor([2, 0, 1])
    has_joint = critic_input == "concat"
    batch = agents[0].loop.collect()["agent"]
    rows = torch.randperm(len(batch.obs), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        for name, weight in moved_columns(one.policy, numbers, has_joint).items():
            other.policy.state_dict()[name].copy_(weight)
    before = moved_columns(one.policy, numbers, has_joint)
    one.update(batch)
    other.update(relabeled(batch, numbers, rows))
    after = moved_columns(one.policy, numbers, has_joint)
    for name, weight in other.policy.state_dict().items():
        torch.testing.assert_close(weight, after[name], atol=1e-5, rtol=0.0)
        assert not torch.equal(weight, before[name])


class OwnStates(Fates):
    """Every agent has a state of its own."""

    def __init__(self, sizes: dict[str, int]) -> None:
        super().__init__(sizes=sizes)
        self.states: list[Any] = []

    def _told(self, fates: dict[str, Any], ended: Any) -> MultiStep:
        step = super()._told(fates, ended)
        shape = (2, self.num_envs, len(self.agents), 4)
        state, after = self.rng.normal(size=shape).astype(np.float32)
        self.states.append(state)
        return replace(step, state=state, next_state=after)


@EVERY_KIND
@pytest.mark.parametrize("sizes", [(2, 1), (2, 2), (1, 1)], ids=str)
def test_critics_look_at_the_state_of_their_agent(
    mappo: Any, kind: dict[str, Any], sizes: tuple[int, int]
) -> None:
    env = OwnStates(dict(zip(("left", "right"), sizes, strict=True)))
    agent = mappo(env, critic_input="state", **{**kind, "n_envs": 3, "n_steps": 6})
    before = state_of(agent.learner)
    batches = agent.loop.collect()
    seen = np.stack(env.states[:6])  # [T, N, A, S]
    for name, members in agent.env.groups.items():
        own = seen[:, :, [env.agents.index(member) for member in members]]
        rollout = agent.collector.rollouts[name]
        joint = np.asarray(agent.collector.joints[name])
        np.testing.assert_array_equal(joint, own.reshape(joint.shape))
        if kind.get("recurrent") is None:
            batch = batches[name]
            rows = np.asarray(batch.joint)[np.asarray(batch.joint_rows)]
            np.testing.assert_array_equal(rows, own.reshape(-1, 4)[rollout.valid.reshape(-1)])
    agent.learner.update(batches)
    agent.train(36)
    assert state_of(agent.learner) != before


def test_critics_of_all_groups_share_what_an_environment_has_once(mappo: Any) -> None:
    agent = mappo(Fates(sizes={"left": 2, "right": 1}), n_envs=3, critic_input="state")
    agent.loop.collect()
    assert agent.collector.joints["left"] is agent.collector.joints["right"]


def test_inputs_of_both_networks_may_be_normalized(mappo: Any) -> None:
    agent = mappo(Fates(), feature_norm=True, **{**KINDS["torch"], "n_envs": 3})
    policy = agent.learner["agent"].policy
    scales = [norm.weight.detach().clone() for norm in (policy.actor_norm, policy.critic_norm)]
    agent.train(27)
    assert agent.backend == "torch"
    for norm, scale in zip((policy.actor_norm, policy.critic_norm), scales, strict=True):
        assert not torch.equal(norm.weight, scale)
