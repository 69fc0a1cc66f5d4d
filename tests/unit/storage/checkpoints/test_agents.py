"""Agents whose networks hold what NumPy lacks, or one weight under two names."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch

import sharpwave as sw
from sharpwave.nn import DiscretePolicy
from sharpwave.storage.checkpoints import CheckpointReader


class Scaled(DiscretePolicy):
    """A policy with a factor in bfloat16, and a layer that actor and critic share."""

    def __init__(self, factor: float) -> None:
        super().__init__(4, 2, hidden=8, seed=0)
        self.critic[0].weight = self.actor[0].weight
        self.register_buffer("factor", torch.full((8,), factor, dtype=torch.bfloat16))


def make(policy: Scaled) -> sw.PPO:
    return sw.PPO("CartPole-v1", n_envs=2, n_steps=16, batch_size=16, seed=0, policy=policy)


@pytest.mark.long
def test_an_agent_with_bfloat16_and_a_tied_layer_goes_on(tmp_path: Path) -> None:
    agent = make(Scaled(1.5))
    agent.train(64)
    agent.save(tmp_path / "a")
    with CheckpointReader(tmp_path / "a") as checkpoint:
        name = "state.learner.networks.policy.module."
        assert checkpoint.dtype(f"{name}factor") == "bfloat16"
        tied = {f"{name}actor.0.weight", f"{name}critic.0.weight"}
        assert any({alias, of} == tied for alias, of in checkpoint.aliases.items())
    again = sw.PPO.from_checkpoint(tmp_path / "a", policy=Scaled(0.0))
    other = copy.deepcopy(agent)
    for one in (agent, again, other):
        one.train(64)
    expected = agent.policy.state_dict()
    assert expected["module.factor"].dtype == torch.bfloat16
    assert torch.equal(expected["module.actor.0.weight"], expected["module.critic.0.weight"])
    for found in (again.policy.state_dict(), other.policy.state_dict()):
        assert all(torch.equal(found[key], expected[key]) for key in expected)
        assert found["module.factor"].tolist() == [1.5] * 8
