"""MAPPO and its collector under rlox's names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import sharpwave.compat.rlox as rlox
from sharpwave.compat.rlox.algorithms.mappo import MultiAgentCollector, MultiAgentRolloutBatch
from sharpwave.envs.multi.toys import MatrixGame, Mortal, Roles
from sharpwave.testing.bits import state_of

SMALL: dict[str, Any] = {"n_envs": 2, "n_steps": 16, "n_epochs": 2, "batch_size": 8}
AGENTS = ("agent_0", "agent_1")


class Spy(rlox.Callback):
    """Remembers what it hears of gradient steps."""

    def __init__(self) -> None:
        self.heard: list[dict[str, float]] = []

    def on_train_batch(self, algo: Any, step: int, **metrics: float) -> None:
        self.heard.append(metrics)


class Cut(Mortal):
    """Ends by a time limit."""

    def step(self, actions: Any) -> Any:
        obs, rewards, terminated, truncated, infos = super().step(actions)
        if not self.agents:
            terminated, truncated = dict.fromkeys(terminated, False), dict.fromkeys(truncated, True)
        return obs, rewards, terminated, truncated, infos


def policies() -> dict[str, Any]:
    torch.manual_seed(0)
    return {name: rlox.DiscretePolicy(2, 2) for name in AGENTS}


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("backend", ["native", "torch"])
def test_every_gradient_step_of_every_agent_is_told_of_and_is_the_same(
    backend: str, shared: bool
) -> None:
    spy = Spy()
    options = {**SMALL, "backend": backend, "share_policy": shared}
    watched, alone = (
        rlox.MAPPO("any", 2, env_fn=Roles, callbacks=callbacks, **options)
        for callbacks in ([spy], None)
    )
    metrics, quiet = watched.train(32), alone.train(32)
    assert watched.backend == alone.backend == backend
    assert len(spy.heard) == 2 * 2 * 4  # agents, epochs, minibatches of 8 among 32 steps of each
    assert all(isinstance(x, float) for heard in spy.heard for x in heard.values())
    assert state_of(watched.learner) == state_of(alone.learner)
    for name in ("policy_loss", "value_loss", "entropy", "mean_reward"):
        assert metrics[name] == pytest.approx(quiet[name], rel=1e-5)
    for agent in (watched, alone):
        agent.close()


def test_batch_size_is_obeyed() -> None:
    sizes: list[int] = []
    agent = rlox.MAPPO("any", 2, env_fn=Roles, backend="torch", **SMALL)
    for member in agent.learner.members.values():

        def watched(batch: Any, loss: Any = member.loss) -> Any:
            sizes.append(len(batch.actions))
            return loss(batch)

        member.loss = watched
    agent.train(32)
    assert set(sizes) == {8}
    agent.close()


def test_agents_have_policies_of_their_own_and_are_paid_together() -> None:
    payoff = np.zeros((2, 2, 2))
    payoff[0], payoff[1] = 4.0, -2.0
    agent = rlox.MAPPO("any", 2, env_fn=lambda: MatrixGame(payoff, shared=False), **SMALL)
    assert set(agent.learner.members) == set(AGENTS)
    agent.train(32)
    for name in AGENTS:
        assert (agent.collector.rollouts[name].rewards == 1.0).all()
    agent.close()


def test_the_environment_is_that_of_env_fn_alone(tmp_path: Path) -> None:
    """Spaces were those of a Gymnasium id that had to be of the same dimensions."""
    agent = rlox.MAPPO("Pendulum-v1", n_agents=2, env_fn=Mortal, **SMALL)
    agent.train(32)
    agent.save(str(tmp_path / "agent"))
    loaded = rlox.MAPPO.from_checkpoint(str(tmp_path / "agent"), env_fn=Mortal)
    assert loaded.config == agent.config
    for one in (agent, loaded):
        one.train(32)
    assert state_of(loaded.learner) == state_of(agent.learner)
    obs = np.zeros(2)
    assert [loaded.predict(obs, True, i) for i in (0, 1)] == [
        agent.predict(obs, agent_idx=i) for i in (0, 1)
    ]
    with pytest.raises(ValueError, match="env must be given"):
        rlox.MAPPO.from_checkpoint(str(tmp_path / "agent"))
    for one in (agent, loaded):
        one.close()


def test_one_agent_is_that_of_a_gymnasium_id(tmp_path: Path) -> None:
    agent = rlox.MAPPO("CartPole-v1", **SMALL)
    agent.train(32)
    agent.save(tmp_path / "agent")
    loaded = rlox.MAPPO.from_checkpoint(tmp_path / "agent")
    assert type(loaded.predict(np.zeros(4))) is int
    with pytest.raises(ValueError, match="n_agents must be 1, as many as the environment has"):
        rlox.MAPPO("CartPole-v1", 2, **SMALL)
    for one in (agent, loaded):
        one.close()


def test_batches_are_flat_step_by_step() -> None:
    collector = MultiAgentCollector(Mortal, n_envs=3)
    critic = torch.nn.Linear(4, 1)
    batch = collector.collect(policies(), critic, 5)
    assert isinstance(batch, MultiAgentRolloutBatch)
    for name in AGENTS:
        assert batch.agent_obs[name].shape == (15, 2)
        assert batch.agent_actions[name].shape == batch.agent_log_probs[name].shape == (15,)
        assert batch.rewards[name].shape == (15,)
    joint = torch.cat([batch.agent_obs[name] for name in AGENTS], 1)
    assert torch.equal(batch.joint_obs, joint)
    torch.testing.assert_close(batch.values, critic(joint).squeeze(1))
    torch.testing.assert_close(batch.returns, batch.advantages + batch.values)
    for column in (batch.dones, batch.values, batch.advantages, batch.returns):
        assert column.shape == (15,)
        assert column.dtype == torch.float32
    gone = batch.agent_obs["agent_1"].reshape(5, 3, 2)[1:]  # who dies in the first step
    assert (gone == 0).all()


@pytest.mark.parametrize("env", [Mortal, Cut])
def test_advantages_are_those_of_the_mean_reward(env: Any) -> None:
    gamma, lam = 0.9, 0.8
    collector, critic = MultiAgentCollector(env, n_envs=2), torch.nn.Linear(4, 1)
    batch = collector.collect(policies(), critic, 12, gamma, lam)
    shape = (12, 2)
    rewards = torch.stack([batch.rewards[name] for name in AGENTS]).mean(0).reshape(shape)
    values, done = batch.values.detach().reshape(shape), batch.dones.reshape(shape)
    assert done.sum() == 2  # episodes of 8 steps
    advantages = batch.advantages.reshape(shape)
    for n in range(2):
        for t in range(11):
            if done[t, n]:
                if env is Mortal:
                    expected = rewards[t, n] - values[t, n]
                    torch.testing.assert_close(advantages[t, n], expected, atol=1e-5, rtol=1e-4)
                else:  # the value of where the time limit left them is not that of nothing
                    assert abs(advantages[t, n] - (rewards[t, n] - values[t, n])) > 1e-4
                continue
            delta = rewards[t, n] + gamma * values[t + 1, n] - values[t, n]
            expected = delta + gamma * lam * advantages[t + 1, n]
            torch.testing.assert_close(advantages[t, n], expected, atol=1e-5, rtol=1e-4)


def test_episodes_go_on_from_rollout_to_rollout() -> None:
    """Environments were reset at every rollout, so that long episodes never ended."""
    collector = MultiAgentCollector(Mortal)
    critic = torch.nn.Linear(4, 1)
    dones = torch.cat([collector.collect(policies(), critic, 3).dones for _ in range(6)])
    assert dones.nonzero().flatten().tolist() == [7, 15]


def test_bad_input_is_named() -> None:
    with pytest.raises(ValueError, match=r"n_agents must be 2 \(agent_0, agent_1\), got 3"):
        MultiAgentCollector(Mortal, n_agents=3)
    collector = MultiAgentCollector(Mortal)
    given = {"agent_0": policies()["agent_0"]}
    with pytest.raises(ValueError, match=r"policies must be of \('agent_0', 'agent_1'\)"):
        collector.collect(given, torch.nn.Linear(4, 1), 2)


def test_agents_may_be_gone_for_whole_rollouts() -> None:
    """The one that dies first stopped the training of all."""
    agent = rlox.MAPPO(
        "any", 2, env_fn=lambda: Mortal(horizon=200), **{**SMALL, "n_steps": 4, "batch_size": 4}
    )
    dead, living = agent.learner["agent_1"], agent.learner["agent_0"]
    agent.train(8)
    before = state_of(dead), state_of(living)
    agent.train(8)
    assert state_of(dead) == before[0]
    assert state_of(living) != before[1]
    agent.close()


@pytest.mark.parametrize("backend", ["native", "torch"])
def test_the_critic_of_one_agent_learns(backend: str) -> None:
    """rlox never trained it: with one agent its values stayed those of the beginning."""
    agent = rlox.MAPPO("CartPole-v1", backend=backend, **SMALL)
    (member,) = agent.learner.members.values()
    before = state_of(member)
    agent.train(32)
    critic = [name for name in before if name.startswith("policy.critic")]
    assert critic
    assert all(state_of(member)[name] != before[name] for name in critic)
    agent.close()
