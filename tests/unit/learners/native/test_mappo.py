"""Native MAPPO computes what torch's does."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

import sharpwave as sw
from sharpwave.collect import NonFiniteError
from sharpwave.collect.joint import JointView
from sharpwave.collect.multi_agent import MultiAgentCollector
from sharpwave.collect.native_teams import NativeTeamRollouts
from sharpwave.core.tree import map_leaves
from sharpwave.envs.multi import make_multi_env
from sharpwave.learners.batch import GroupBatch
from sharpwave.learners.groups import GroupRolloutActor
from tests.multi_envs import Fates, Masked

SPREAD = "mpe2/simple_spread_v3"
SMALL: dict[str, Any] = {"n_envs": 5, "n_steps": 12, "hidden": (8, 8), "seed": 0, "n_epochs": 3}

OPTIONS = [
    {},
    {"critic_input": "state"},
    {"critic_input": "agent"},
    {"critic_input": "obs"},
    {"agent_id": False},
    {"value_norm": False},
    {"value_norm": False, "value_loss": "mse", "clip_vloss": False},
    {"huber_delta": 0.3},
    {"normalize_advantages": "minibatch"},
    {"normalize_advantages": "none", "max_grad_norm": 0.05},
    {"n_minibatches": 3},
    {"critic_input": "agent", "n_minibatches": 3},
    {"critic_input": "obs", "batch_size": 50},
    {"env_kwargs": {"continuous_actions": True, "N": 2}},
    {"env_kwargs": {"N": 1}},
    {"env_kwargs": {"N": 1}, "critic_input": "state"},
    {"hidden": {"actor": (8,), "critic": (4,)}, "activation": "relu"},
    {"target_kl": 1e-6, "n_minibatches": 2},
    {"team_reward": True},
]
EVERY_OPTION = pytest.mark.parametrize(
    "options", OPTIONS, ids=lambda options: " ".join(map(str, options.values())) or "defaults"
)


@pytest.fixture
def agents() -> Iterator[Any]:
    made = []

    def make(backend: str = "native", env: Any = SPREAD, **options: Any) -> Any:
        agent = sw.MAPPO(env, backend=backend, **{**SMALL, **options})
        made.append(agent)
        return agent

    yield make
    for agent in made:
        agent.close()


def member(agent: Any) -> Any:
    (one,) = agent.learner.members.values()
    return one


def as_tensors(batch: GroupBatch) -> GroupBatch:
    columns: dict[str, Any] = {
        name: None if x is None else map_leaves(torch.as_tensor, x)
        for name, x in vars(batch).items()
    }
    return GroupBatch(**columns)


def same_orders(native: Any, torch_learner: Any, seed: int = 0) -> None:
    """Let both take the same minibatches."""
    rng = np.random.default_rng(seed)
    kept: list[Any] = []

    def orders(n_orders: int, n: int) -> Any:
        kept[:] = [rng.permutation(n) for _ in range(n_orders)]
        return np.stack(kept)

    def minibatches(batch: GroupBatch) -> Any:
        rows = len(batch.log_probs)
        size = torch_learner.config.minibatch_of(rows)
        if not kept:
            return [None]
        return torch.as_tensor(kept.pop(0)).split(size)

    vars(native)["orders"] = orders
    torch_learner.minibatches = minibatches


def assert_same(native: Any, theirs: Any, atol: float = 1e-5) -> None:
    ours, others = native.learner.state_dict(), theirs.learner.state_dict()
    for group, state in ours["groups"].items():
        for network, arrays in state["networks"].items():
            expected = others["groups"][group]["networks"][network]
            assert list(arrays) == list(expected)
            for name, array in arrays.items():
                np.testing.assert_allclose(array, expected[name], rtol=1e-5, atol=atol)


@EVERY_OPTION
def test_updates_are_those_of_torch(agents: Any, options: dict[str, Any]) -> None:
    native, theirs = agents("native", **options), agents("torch", **options)
    assert (native.backend, theirs.backend) == ("native", "torch")
    assert_same(native, theirs, atol=0)
    same_orders(member(native), member(theirs))
    for _ in range(3):
        (batch,) = native.loop.collect().values()
        metrics = member(native).update(batch)
        expected = member(theirs).update(as_tensors(batch))
        assert_same(native, theirs)
        for name, value in metrics.items():
            assert value == pytest.approx(float(expected[name]), rel=1e-3, abs=2e-5), name


@pytest.mark.parametrize("critic_input", ["concat", "agent", "state", "obs"])
@pytest.mark.parametrize("waits", [0.0, 0.3], ids=["at once", "in turns"])
def test_groups_with_masks_learn_as_in_torch(agents: Any, critic_input: str, waits: float) -> None:
    options: dict[str, Any] = {"critic_input": critic_input, "n_envs": 3, "n_minibatches": 2}
    native, theirs = (
        agents(kind, Masked(sizes={"left": 2, "right": 1}, waits=waits), **options)
        for kind in ("native", "torch")
    )
    for name in native.env.groups:
        same_orders(native.learner[name], theirs.learner[name])
    before = native.learner["left"].weights()
    for _ in range(3):
        batches = native.loop.collect()
        for name, batch in batches.items():
            assert not np.all(batch.masks)
            native.learner[name].update(batch)
            theirs.learner[name].update(as_tensors(batch))
        assert_same(native, theirs)
    assert not np.allclose(before, native.learner["left"].weights(), atol=1e-4)


def test_large_updates_are_those_of_torch(agents: Any) -> None:
    """There torch computes tanh and softmax in other ways than for few rows."""
    large: dict[str, Any] = {"n_envs": 32, "n_steps": 25, "hidden": (64, 64), "n_epochs": 2}
    native, theirs = agents("native", **large), agents("torch", **large)
    (batch,) = native.loop.collect().values()
    member(native).update(batch)
    member(theirs).update(as_tensors(batch))
    assert_same(native, theirs)


@EVERY_OPTION
def test_rollouts_are_those_of_the_python_collector(agents: Any, options: dict[str, Any]) -> None:
    """The same actions in the same environments: what is stored, and what it is worth."""
    agent = agents(**{**options, "n_steps": 30})
    learner, config = member(agent), agent.config
    if learner.norm is not None:
        learner.norm.data[:] = -0.2, 5.0, 0.01
    assert isinstance(agent.loop.collector, NativeTeamRollouts)
    collected = agent.loop.collector.collect(0, 0)
    assert collected is not None
    ((group, rollout),) = collected.items()
    columns = agent.loop.collector.columns(group, sequences=False)

    env = make_multi_env(SPREAD, config.n_envs, env_kwargs=options.get("env_kwargs"))
    python = MultiAgentCollector(
        env,
        {group: Replayed(learner, config.n_envs, rollout.actions)},
        n_steps=30,
        seed=learner.seeds.env,
        joint=JointView(env, config.critic_input),
        team_reward=config.team_reward,
    )
    played = python.collect(config.gamma, config.gae_lambda)
    assert played is not None
    for name in ("obs", "rewards", "terminated", "truncated", "starts", "valid"):
        np.testing.assert_array_equal(getattr(rollout, name), getattr(played[group], name), name)
    for name in ("log_probs", "values", "next_values", "advantages", "returns"):
        ours, theirs = getattr(rollout, name), getattr(played[group], name)
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4, err_msg=name)
    assert rollout.truncated.any()
    expected = python.columns(group, sequences=False)
    for name in ("agents", "joint", "joint_rows"):
        np.testing.assert_array_equal(columns[name], expected[name], name)
    if columns["joint"] is not None:
        assert np.shares_memory(columns["joint"], rollout.obs)  # once, and with no copy
    ours, theirs = agent.loop.collector.episodes.metrics(), python.episodes.metrics()
    assert ours == pytest.approx(theirs)


class Replayed(GroupRolloutActor):
    """Acts as somebody did before, and values what it sees as the learner does."""

    def __init__(self, learner: Any, n_envs: int, actions: Any) -> None:
        super().__init__(learner, n_envs, explore=True)
        self._actions = iter(actions)

    def act(self, obs: Any, joint: Any, starts: Any, masks: Any = None, acts: Any = None) -> Any:
        acted = super().act(obs, joint, starts, masks, acts)
        actions = next(self._actions)
        seen = self.learner.inputs(self.learner.view.inputs(obs, self._agents, joint))
        columns: dict[str, Any] = {"obs": seen.obs, "actions": actions, "joint": seen.joint}
        if seen.joint is not None and len(seen.joint) < len(seen.obs):
            columns["joint_rows"] = np.arange(len(seen.joint)).repeat(self.learner.view.n_agents)
        log_probs, _, _ = self.learner.actor.evaluate(columns)
        return acted._replace(actions=actions, log_probs=log_probs)


def test_agents_that_die_learn_as_in_torch(agents: Any) -> None:
    options: dict[str, Any] = {"n_steps": 30, "n_envs": 3}
    native, theirs = (agents(kind, Fates(), **options) for kind in ("native", "torch"))
    assert native.backend == "native"
    assert "not native ones" in native.loop.collection_reason
    same_orders(member(native), member(theirs))
    (batch,) = native.loop.collect().values()
    assert len(batch.log_probs) < 30 * 3 * len(native.env.agents)  # some were dead
    member(native).update(batch)
    member(theirs).update(as_tensors(batch))
    assert_same(native, theirs)


def test_the_same_actions_are_drawn_and_valued_as_in_torch(agents: Any) -> None:
    native, theirs = agents("native"), agents("torch")
    step = native.env.reset(seed=1)
    obs = step.groups["agent"].obs.reshape(15, 18)
    agent_numbers, starts = np.tile(np.arange(3), 5), np.ones(15, np.bool_)
    for joint in (step.state, None):
        seen = member(native).view.inputs(obs, agent_numbers, joint)
        ours = GroupRolloutActor(member(native), 5, explore=False).act(obs, joint, starts)
        other = GroupRolloutActor(member(theirs), 5, explore=False).act(obs, joint, starts)
        np.testing.assert_array_equal(ours.actions, other.actions)
        np.testing.assert_allclose(ours.log_probs, other.log_probs, atol=1e-5)
        np.testing.assert_allclose(ours.values, other.values, atol=1e-5)
        assert seen["agent"] is agent_numbers


@pytest.mark.parametrize("threads", [2, 3])
def test_the_number_of_threads_changes_nothing(agents: Any, threads: int) -> None:
    one, several = (agents(n_envs=37, threads=n, n_minibatches=2) for n in (1, threads))
    for agent in (one, several):
        agent.train(37 * 12 * 2)
    np.testing.assert_array_equal(member(one).flat.data, member(several).flat.data)


@pytest.mark.parametrize("backend", ["native", "torch"])
def test_a_run_goes_on_from_a_checkpoint(agents: Any, tmp_path: Path, backend: str) -> None:
    """In native code bit for bit, in torch with the same networks and normalization."""
    whole, first = agents(), agents()
    first.train(5 * 12 * 2)
    first.save(tmp_path / "checkpoint")
    resumed = sw.MAPPO.from_checkpoint(tmp_path / "checkpoint", backend=backend)
    assert_same(first, resumed, atol=0)
    norm = member(resumed).state_dict()["networks"]["value_norm"]
    assert float(norm["weight"]) == pytest.approx(1 - 0.99999**6)
    if backend == "native":
        whole.train(5 * 12 * 4)
        resumed.train(5 * 12 * 2)
        np.testing.assert_array_equal(member(whole).flat.data, member(resumed).flat.data)
        assert list(whole.loop.episodes.returns) == list(resumed.loop.episodes.returns)
    resumed.close()


def test_torch_sees_the_networks_that_native_code_changes(agents: Any) -> None:
    agent = agents()
    norm = member(agent).value_norm
    agent.train(5 * 12)
    assert float(norm.weight) > 0
    mean, deviation = norm.moments()
    assert member(agent).value_moments() == pytest.approx((float(mean), float(deviation)))
    assert (member(agent).policy.actor[0].bias.detach() != 0).any()


def test_weights_that_are_not_numbers_stop_the_run(agents: Any) -> None:
    agent = agents()
    agent.train(5 * 12)
    member(agent).flat.data[3] = np.nan
    with pytest.raises(NonFiniteError):
        agent.train(5 * 12 * 2)


def test_callbacks_see_every_step_by_group(agents: Any) -> None:
    seen = []

    class Sees(sw.Callback):
        def on_step(self, reward: float = 0.0, **kwargs: Any) -> bool:
            seen.append((reward, kwargs["transitions"]))
            return True

    agent = agents(callbacks=[Sees()], n_steps=30)
    agent.train(5 * 30)
    assert len(seen) == 30
    for (reward, step), (_, following) in itertools.pairwise(seen):
        assert step.rewards["agent"].mean() == pytest.approx(reward)
        ended = step.truncated["agent"]
        arrived = step.next_obs["agent"]
        np.testing.assert_array_equal(arrived[~ended], following.obs["agent"][~ended])
        if ended.any():  # by its velocities of before
            moved = step.obs["agent"][..., 2:4] + 0.1 * step.obs["agent"][..., :2]
            np.testing.assert_allclose(arrived[..., 2:4], moved, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"recurrent": "gru"}, "recurrent is 'gru'"),
        ({"feature_norm": True}, "feature_norm is on"),
    ],
)
def test_what_native_code_cannot_do_is_refused_by_name(
    agents: Any, options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ValueError, match=f"backend must be 'auto' or 'torch'.*{reason}"):
        agents("native", **options)


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1", lambda: gym.make("CartPole-v1")])
def test_one_agent_is_ppo_in_native_code_too(agents: Any, env: Any) -> None:
    """Native environments are stepped by native code alone, others one by one."""
    shared: dict[str, Any] = {
        "n_envs": 4,
        "n_steps": 16,
        "batch_size": 32,
        "n_epochs": 2,
        "vf_coef": 0.5,
        "max_grad_norm": 0.5,
        "learning_rate": 1e-3,
        "seed": 3,
        "hidden": (8,),
        "clip_vloss": False,
        "anneal_lr": True,
    }
    as_ppo = {"value_norm": False, "value_loss": "mse", "normalize_advantages": "minibatch"}
    mappo = agents(env=env, **shared, **as_ppo)
    ppo = sw.PPO(env, backend="native", **shared)
    is_native = isinstance(env, str)
    assert (mappo.loop.collection_reason is None) == is_native
    for agent in (mappo, ppo):
        agent.train(20 * 64)
    np.testing.assert_array_equal(member(mappo).flat.data, ppo.learner.flat.data)
    assert mappo.loop.episodes.mean_return == ppo.loop.episodes.mean_return
    ppo.close()


def test_one_agent_goes_on_from_a_checkpoint(agents: Any, tmp_path: Path) -> None:
    whole, first = agents(env="CartPole-v1"), agents(env="CartPole-v1")
    whole.train(240)
    first.train(120)
    first.save(tmp_path / "half")
    second = sw.MAPPO.from_checkpoint(tmp_path / "half")
    second.train(120)
    np.testing.assert_array_equal(member(second).flat.data, member(whole).flat.data)
    assert second.progress_metrics() == whole.progress_metrics()
    second.close()


@pytest.mark.long
def test_a_native_run_does_not_import_torch() -> None:
    program = (
        "import sys, sharpwave as sw; "
        f"agent = sw.MAPPO({SPREAD!r}, n_envs=4, n_steps=25, seed=0); agent.train(200); "
        "agent.predict([0.0] * 18, agent='agent_1'); agent.close(); "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
