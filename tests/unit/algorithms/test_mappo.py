from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import sharpwave as sw
from sharpwave.envs.multi.toys import MatrixGame, Mortal, Roles
from sharpwave.testing.bits import state_of
from tests.multi_envs import Fates

SPREAD = "mpe2/simple_spread_v3"
AS_PPO: dict[str, Any] = {
    "value_norm": False,
    "value_loss": "mse",
    "clip_vloss": False,
    "normalize_advantages": "minibatch",
}
SMALL: dict[str, Any] = {"n_envs": 3, "n_steps": 8, "hidden": (8,), "seed": 0}


def weights(agent: Any, group: str = "agent") -> Any:
    return agent.learner[group].flat.data.clone()


@pytest.fixture
def mappo() -> Any:
    made = []

    def make(env: Any, *args: Any, **options: Any) -> Any:
        agent = sw.MAPPO(env, *args, **{**SMALL, "backend": "torch", **options})
        made.append(agent)
        return agent

    yield make
    for agent in made:
        agent.close()


@pytest.mark.parametrize("n_agents", [None, 1])
def test_one_agent_learns_as_ppo(mappo: Any, n_agents: int | None) -> None:
    shared: dict[str, Any] = {
        "n_envs": 4,
        "n_steps": 16,
        "batch_size": 32,
        "n_epochs": 2,
        "vf_coef": 0.5,
        "max_grad_norm": 0.5,
        "anneal_lr": True,
        "learning_rate": 1e-3,
        "hidden": (8,),
        "seed": 3,
    }
    one = mappo("CartPole-v1", n_agents, **shared, **AS_PPO)
    other = sw.PPO("CartPole-v1", backend="torch", **shared)
    one.train(20 * 64)
    other.train(20 * 64)
    (group,) = one.env.groups
    assert torch.equal(one.learner[group].flat.data, other.learner.flat.data)
    assert one.loop.episodes.mean_return == other.loop.episodes.mean_return
    other.close()


DEATHS: dict[str, dict[str, Any]] = {
    "plain": {},
    "native": {"backend": "native"},
    "gru": {"recurrent": "gru", "recurrent_size": 4},
    "lstm": {"recurrent": "lstm", "recurrent_size": 4},
    "minibatches": {"n_minibatches": 3},
    "native minibatches": {"backend": "native", "n_minibatches": 3},
    "gru minibatches": {"recurrent": "gru", "recurrent_size": 4, "n_minibatches": 2},
    "normalized apart": {"n_minibatches": 3, "normalize_advantages": "minibatch"},
    "team": {"team_reward": True},
}


@pytest.mark.parametrize("critic_input", ["obs", "state"])
@pytest.mark.parametrize("options", DEATHS.values(), ids=DEATHS)
def test_rows_of_the_dead_change_nothing(
    mappo: Any, critic_input: str, options: dict[str, Any]
) -> None:
    agents = [
        mappo(Fates(dead=dead), critic_input=critic_input, n_epochs=2, **options)
        for dead in (0.0, 5.0)
    ]
    for agent in agents:
        agent.train(72)
    assert not agents[0].collector.rollouts["agent"].valid.all()
    assert state_of(agents[0].learner) == state_of(agents[1].learner)  # with moments and norm
    assert agents[0].progress_metrics() == agents[1].progress_metrics()


@pytest.mark.parametrize("recurrent", [None, "gru", "lstm"])
@pytest.mark.parametrize("critic_input", ["concat", "agent", "state", "obs"])
@pytest.mark.parametrize("waits", [0.0, 0.4], ids=["at once", "in turns"])
def test_nothing_has_moved_before_the_first_gradient_step(
    mappo: Any, waits: float, critic_input: str, recurrent: str | None
) -> None:
    options = {"critic_input": critic_input, "recurrent": recurrent, "recurrent_size": 4}
    agent = mappo(Fates(waits=waits), **options)
    agent.train(24)  # some values are normalized by now
    batch, learner = agent.loop.collect()["agent"], agent.learner["agent"]
    with torch.no_grad():
        log_probs, _, values = learner.policy.evaluate(
            learner._seen(batch),
            batch.actions,
            state=batch.state,
            starts=batch.starts,
            valid=batch.valid,
        )
    if len(values) != len(log_probs):
        values = values[batch.joint_rows]
    valid = slice(None) if batch.valid is None else batch.valid
    torch.testing.assert_close(log_probs[valid], batch.log_probs[valid], atol=1e-5, rtol=1e-4)
    valued = learner.value_norm.denormalize(values)
    torch.testing.assert_close(valued[valid], batch.values[valid], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("recurrent", [None, "gru"])
def test_minibatches_have_the_rows_of_their_critics(mappo: Any, recurrent: str | None) -> None:
    agent = mappo(Fates(), recurrent=recurrent, recurrent_size=4, critic_input="agent")
    batch, learner = agent.loop.collect()["agent"], agent.learner["agent"]
    axis = 0 if recurrent is None else 1
    chosen = torch.tensor([5, 0, 3])
    part = batch.rows(chosen)
    with torch.no_grad():
        whole, some = (
            learner.policy.evaluate(
                learner._seen(x), x.actions, state=x.state, starts=x.starts
            ).values
            for x in (batch, part)
        )
    torch.testing.assert_close(some, whole.index_select(axis, chosen))


def test_the_loss_is_that_of_the_paper(mappo: Any) -> None:
    agent = mappo(Fates(num_envs=4), n_envs=4, n_steps=12, huber_delta=0.3)
    agent.train(48)
    learner, config = agent.learner["agent"], agent.config
    batch = agent.loop.collect()["agent"]
    policy, norm = learner.policy, learner.value_norm
    joint = batch.joint[batch.joint_rows]
    mean, deviation = norm.moments()

    ids = torch.nn.functional.one_hot(batch.agents, 2).float()
    logits = policy.actor(torch.cat((ids, batch.obs), 1)).log_softmax(1)
    values = policy.critic(joint).squeeze(1)
    log_probs = logits.gather(1, batch.actions.long()[:, None]).squeeze(1)
    ratio = (log_probs - batch.log_probs).exp()
    surrogate = -torch.minimum(
        ratio * batch.advantages, ratio.clamp(0.8, 1.2) * batch.advantages
    ).mean()
    returns, old = (batch.returns - mean) / deviation, (batch.values - mean) / deviation
    near = old + (values - old).clamp(-0.2, 0.2)

    def huber(error: Any) -> Any:
        size = error.abs()
        return torch.where(size <= 0.3, 0.5 * error**2, 0.3 * (size - 0.15))

    value_loss = torch.maximum(huber(values - returns), huber(near - returns)).mean()
    entropy = -(logits.exp() * logits).sum(1).mean()
    expected = surrogate + config.vf_coef * value_loss - config.ent_coef * entropy
    loss, _ = learner.loss(batch)
    torch.testing.assert_close(loss, expected, atol=1e-5, rtol=1e-4)


def test_critics_of_agents_have_their_own_observation_first(mappo: Any) -> None:
    agent = mappo(Fates(sizes={"agent": 3}), critic_input="agent")
    batch, learner = agent.loop.collect()["agent"], agent.learner["agent"]
    seen = learner._seen(batch)["joint"]
    torch.testing.assert_close(seen[:, :2], batch.obs)
    others = batch.joint[batch.joint_rows].reshape(-1, 3, 2)
    for row, number in enumerate(batch.agents.tolist()):
        rest = [i for i in range(3) if i != number]
        torch.testing.assert_close(seen[row, 2:], others[row, rest].reshape(-1))


def test_advantages_are_normalized_over_the_rollout(mappo: Any) -> None:
    agent = mappo(Fates(), n_minibatches=3, n_epochs=1)
    learner, batch = agent.learner["agent"], agent.loop.collect()["agent"]
    seen: list[Any] = []
    loss = learner.loss

    def watched(part: Any) -> Any:
        seen.append(part.advantages)
        return loss(part)

    learner.loss = watched
    learner.update(batch)
    rows, size = len(batch.obs), -(-len(batch.obs) // 3)
    assert rows < 3 * 8 * 2  # some of them were dead
    assert [len(part) for part in seen] == [size, size, rows - 2 * size]
    whole = torch.cat(seen)
    assert abs(whole.mean()) < 1e-5
    assert whole.std().item() == pytest.approx(1.0, abs=1e-4)
    assert abs(seen[0].mean()) > 1e-3


@pytest.mark.parametrize(
    ("options", "expected"),
    [({"n_minibatches": 2}, [12, 12]), ({"batch_size": 10}, [10, 10, 4])],
    ids=["number", "size"],
)
def test_minibatches_follow_the_options(
    mappo: Any, options: dict[str, int], expected: list[int]
) -> None:
    agent = mappo(Fates(num_envs=2, seed=1), n_envs=2, n_steps=6, **options)
    learner, batch = agent.learner["agent"], agent.loop.collect()["agent"]
    full = replace(
        batch,
        **{
            name: torch.zeros(24, *getattr(batch, name).shape[1:], dtype=getattr(batch, name).dtype)
            for name in ("obs", "actions", "log_probs", "values", "advantages", "returns", "agents")
        },
        joint_rows=torch.zeros(24, dtype=torch.long),
    )
    assert [len(rows) for rows in learner.minibatches(full)] == expected


def test_agents_without_ties_learn_as_alone(mappo: Any) -> None:
    """Two agents whose lives are apart, each with its own network, are two runs of PPO."""
    agent = mappo(
        Fates(sizes={"left": 1, "right": 1}),
        critic_input="obs",
        **AS_PPO,
        batch_size=6,
    )
    batches = agent.loop.collect()
    first = {name: weights(agent, name) for name in agent.env.groups}
    runs = {}
    for number, name in enumerate(agent.env.groups):
        member = agent.learner[name]
        runs[name] = alone = sw.PPOLearner(
            sw.PPOConfig(
                **{
                    k: getattr(agent.config, k)
                    for k in ("n_steps", "n_epochs", "hidden", "vf_coef")
                },
                max_grad_norm=agent.config.max_grad_norm,
                learning_rate=agent.config.learning_rate,
                anneal_lr=False,
                batch_size=6,
            ),
            member.observation_space,
            member.action_space,
            seeds=agent._seeds_of(number),
        )
        assert torch.equal(alone.flat.data, member.flat.data)
    for _ in range(5):
        for name, alone in runs.items():  # one of them has acted
            alone.generator.set_state(agent.learner[name].generator.get_state())
            agent.learner[name].update(batches[name])
            alone.update(batches[name])
            assert torch.equal(alone.flat.data, weights(agent, name))
        batches = agent.loop.collect()
    assert not any(torch.equal(first[name], weights(agent, name)) for name in runs)


def test_shuffling_the_agents_of_a_group_permutes_what_they_do(mappo: Any) -> None:
    agent = mappo(Fates(sizes={"agent": 3}), critic_input="agent")
    learner = agent.learner["agent"]
    obs, order = torch.randn(3, 2), torch.tensor([2, 0, 1])
    numbers, joint = torch.arange(3), obs.reshape(1, 6)
    seen = {"obs": obs, "agent": numbers, "joint": joint}
    shuffled = {"obs": obs[order], "agent": numbers[order], "joint": joint.repeat(3, 1)}
    one, other = (learner.act(x, explore=False) for x in (seen, shuffled))
    assert torch.equal(one.actions[order], other.actions)
    torch.testing.assert_close(one.values[order], other.values)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"recurrent": "gru", "recurrent_size": 4},
        {"share_policy": False},
        {"share_policy": False, "team_reward": True},
    ],
    ids=["shared", "recurrent", "apart", "apart-team"],
)
def test_a_run_is_resumed_bit_for_bit(mappo: Any, options: dict[str, Any], tmp_path: Path) -> None:
    whole = mappo(Roles, **options)
    whole.train(96)
    first = mappo(Roles, **options)
    first.train(48)
    first.save(tmp_path / "half")
    second = sw.MAPPO.from_checkpoint(tmp_path / "half", env=Roles)
    second.train(48)
    for group in whole.env.groups:
        assert torch.equal(weights(whole, group), weights(second, group))
        norms = [x.learner[group].value_norm.state_dict() for x in (whole, second)]
        assert norms[0] == norms[1]
    assert whole.progress_metrics() == second.progress_metrics()
    second.close()


@pytest.mark.parametrize("options", [{}, {"use_gsde": True}, {"squash_actions": True}], ids=str)
def test_actions_may_be_continuous(mappo: Any, options: dict[str, Any]) -> None:
    kwargs = {"continuous_actions": True}
    agent = mappo(SPREAD, n_envs=2, env_kwargs=kwargs, **options)
    before = weights(agent)
    agent.train(16)
    assert not torch.equal(before, weights(agent))
    space = agent.env.action_spaces["agent"]
    actions = agent.predict({"agent_1": np.zeros(18, np.float32)}, deterministic=False)
    assert space.contains(actions["agent_1"])


def test_policies_are_told_which_agent_they_act_for(mappo: Any) -> None:
    told, untold = mappo(Roles), mappo(Roles, agent_id=False)
    sizes = [agent.policy.actor[0].in_features for agent in (told, untold)]
    assert sizes[0] == sizes[1] + 2
    assert (
        mappo(Roles, share_policy=False).learner["agent_0"].policy.actor[0].in_features == sizes[1]
    )


@pytest.mark.long
def test_roles_are_learned_by_agents_that_know_who_they_are(mappo: Any) -> None:
    agent = mappo(Roles, n_envs=16, n_steps=16, hidden=(64, 64))
    agent.train(10_000)
    assert agent.evaluate(20).mean == 1.0


def test_the_dead_are_not_paid(mappo: Any) -> None:
    agent = mappo(lambda: Mortal(careless=True), n_steps=32)
    agent.train(200)
    rollout = agent.collector.rollouts["agent"]
    assert not rollout.valid.all()
    paid = agent.evaluate(4).agents
    assert all(np.min(returns) > -5.0 for returns in paid.values())


def test_predictions_of_one_agent_and_of_all(mappo: Any) -> None:
    agent = mappo(SPREAD, n_envs=2)
    obs = {name: np.full(18, i, np.float32) for i, name in enumerate(agent.env.agents)}
    every = agent.predict(obs)
    assert set(every) == set(agent.env.agents)
    for i, name in enumerate(agent.env.agents):
        assert agent.predict(obs[name], agent=name) == every[name]
        assert agent.predict(obs[name], agent_idx=i) == every[name]
    assert agent.predict(np.zeros((4, 18)), agent_idx=1).shape == (4,)
    masks = np.zeros(5, bool)
    masks[3] = True
    assert agent.predict(obs["agent_0"], action_masks=masks) == 3
    with pytest.raises(ValueError, match=r"agent must be one of agent_0, .* got 'agent_9'"):
        agent.predict(obs["agent_0"], agent="agent_9")
    with pytest.raises(ValueError, match="agent_idx must be below 3, got 3"):
        agent.predict(obs["agent_0"], agent_idx=3)
    with pytest.raises(ValueError, match=r"obs must be of agents among agent_0, .* got 'agent_9'"):
        agent.predict({"agent_0": obs["agent_0"], "agent_9": obs["agent_0"]})


def test_observations_may_bring_their_masks_along(mappo: Any) -> None:
    agent = mappo("pettingzoo.classic.tictactoe_v3", critic_input="obs")
    board, mask = np.zeros((3, 3, 2), np.int8), np.zeros(9, np.int8)
    mask[5] = 1
    seen = {"observation": board, "action_mask": mask}
    assert agent.predict(seen, agent="player_2") == 5
    assert agent.predict({"player_1": seen}) == {"player_1": 5}
    assert agent.predict(seen, action_masks=np.arange(9) == 7) == 7
    assert agent.predict(board) in range(9)


def test_memories_are_passed_from_prediction_to_prediction(mappo: Any) -> None:
    agent = mappo(Roles, recurrent="gru", recurrent_size=4)
    size = agent.env.observation_spaces["agent"].shape[0]
    obs = {name: np.ones(size, np.float32) for name in agent.env.agents}
    _, memory = agent.predict(obs, episode_start=True)
    _, later = agent.predict(obs, state=memory)
    assert set(memory) == {"agent_0", "agent_1"}
    assert not torch.equal(memory["agent_0"], later["agent_0"])


def test_groups_of_other_spaces_have_networks_of_their_own(mappo: Any) -> None:
    agent = mappo("mpe2/simple_speaker_listener_v4")
    metrics = agent.train(24)
    assert len(agent.env.groups) == 2
    assert all(f"policy_loss/{name}" in metrics for name in agent.env.groups)
    assert all(f"mean_return/{name}" in agent.progress_metrics() for name in agent.env.groups)
    shapes = [agent.learner[name].policy.actor[0].in_features for name in agent.env.groups]
    assert shapes[0] != shapes[1]


def test_agents_take_turns_with_masks(mappo: Any) -> None:
    agent = mappo("pettingzoo.classic.tictactoe_v3", n_envs=2, n_steps=24, critic_input="obs")
    agent.train(96)
    rollout = next(iter(agent.collector.rollouts.values()))
    assert rollout.masks is not None
    valid, allowed = rollout.valid, rollout.masks
    chosen = np.take_along_axis(allowed, rollout.actions[..., None].astype(int), -1)[..., 0]
    assert chosen[valid].all()
    assert agent.evaluate(4).mean_length <= 9


@pytest.mark.long
def test_groups_that_are_played_by_others_do_not_learn(mappo: Any, tmp_path: Path) -> None:
    tag = "mpe2/simple_tag_v3"
    first = mappo(tag)
    first.train(24)
    first.save(tmp_path / "first")
    adversary, good = first.env.groups
    asked: list[int] = []

    def still(obs: Any) -> Any:
        asked.append(len(obs))
        return np.zeros(len(obs), np.int64)

    for opponent in (tmp_path / "first", first, still, None):
        agent = mappo(tag, opponents={adversary: opponent}, seed=7)
        before = {name: weights(agent, name) for name in agent.env.groups}
        agent.train(24)
        assert torch.equal(before[adversary], weights(agent, adversary))
        assert not torch.equal(before[good], weights(agent, good))
        agent.evaluate(1)
    assert asked
    played = mappo(tag, opponents={adversary: tmp_path / "first"}, seed=7)
    same = torch.equal(weights(first, adversary), played._opposing[adversary].flat.data)
    assert same


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_agents": 3}, "n_agents must be 2, as many as the environment has .* got 3"),
        ({"opponents": {"foe": None}}, r"opponents must name groups, \['agent'\], got 'foe'"),
        ({"opponents": {"agent": None}}, "opponents must leave a group that learns"),
        ({"normalize_obs": True}, "normalize_obs must be False"),
        ({"critic_obs": "state"}, "critic_obs must be None: critic_input says"),
        ({"cuda_graph": True}, "cuda_graph must be False"),
        ({"critic_input": "all"}, "critic_input must be"),
        ({"huber_delta": 0}, "huber_delta must be"),
        ({"n_minibatches": 0}, "n_minibatches must be"),
        ({"n_minibatches": 4, "batch_size": 8}, "n_minibatches must be 1 where batch_size is"),
        ({"policy": torch.nn.Linear(1, 1)}, "policy must be for one group"),
        ({"groups": {"agent": ["agent_0"]}}, "agent_1"),
    ],
    ids=lambda value: "" if isinstance(value, str) else next(iter(value)),
)
def test_bad_options_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sw.MAPPO(Roles, **{**SMALL, **options})


def test_checkpoints_of_other_agents_are_refused(mappo: Any, tmp_path: Path) -> None:
    agent = mappo(Roles)
    agent.save(tmp_path / "roles")
    with pytest.raises(
        ValueError, match=r"roles: groups must have every agent, got none with agent_2"
    ):
        sw.MAPPO.from_checkpoint(tmp_path / "roles", env=SPREAD)


def test_a_state_that_is_missing_is_named() -> None:
    with pytest.raises(ValueError, match="critic_input must be 'concat', 'agent' or 'obs' here"):
        sw.MAPPO("CartPole-v1", critic_input="state", **SMALL)


def test_every_option_of_ippo_is_mappos(mappo: Any) -> None:
    ippo = sw.IPPO(Roles, backend="torch", **SMALL)
    same = mappo(Roles, critic_input="obs")
    for agent in (ippo, same):
        agent.train(48)
    assert torch.equal(weights(ippo), weights(same))
    ippo.close()


@pytest.mark.parametrize("share_policy", [True, False])
def test_teams_are_paid_together_whether_or_not_they_share_a_policy(
    mappo: Any, share_policy: bool
) -> None:
    """Agents with policies of their own were teams of one."""
    payoff = np.zeros((3, 2, 2, 2))
    payoff[0], payoff[1], payoff[2] = 4.0, -2.0, 10.0
    agent = mappo(
        lambda: MatrixGame(payoff, shared=False),
        groups={"pair": ["agent_0", "agent_1"], "third": ["agent_2"]},
        share_policy=share_policy,
        team_reward=True,
    )
    agent.train(24)
    paid = {name: set(x.rewards.flat) for name, x in agent.collector.rollouts.items()}
    if share_policy:
        assert paid == {"pair": {1.0}, "third": {10.0}}
    else:
        assert paid == {"agent_0": {1.0}, "agent_1": {1.0}, "agent_2": {10.0}}


@pytest.mark.parametrize("env", ["CartPole-v1", SPREAD])
def test_every_agent_may_have_its_own_policy_anywhere(mappo: Any, env: str) -> None:
    agent = mappo(env, share_policy=False)
    agent.train(24)
    assert agent.env.groups == {name: (name,) for name in agent.env.agents}
