"""VDN and QMIX: their losses, their equalities, and what they do around them."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import sharpwave as sw
from sharpwave.envs.multi.toys import Generations, Mortal, Roles
from sharpwave.learners.replay import ReplayBatch
from sharpwave.learners.team_sequences import TeamSequences
from sharpwave.testing.bits import state_of
from tests.envs import resumable
from tests.reference.mixers import monotonic

TICTACTOE = "pettingzoo.classic.tictactoe_v3"
SMALL: dict[str, Any] = {
    "n_envs": 2,
    "hidden": (8,),
    "learning_starts": 16,
    "batch_size": 8,
    "buffer_size": 500,
    "log_interval": 16,
    "target_update_freq": 20,
    "seed": 0,
}
RECURRENT: dict[str, Any] = {"recurrent": "gru", "recurrent_size": 4, "sequence_length": 5}
BOTH = pytest.mark.parametrize("kind", ["vdn", "qmix"])
KINDS = {"vdn": sw.VDN, "qmix": sw.QMIX}


@pytest.fixture
def make() -> Any:
    made = []

    def make(kind: str, env: Any, **options: Any) -> Any:
        agent = KINDS[kind](env, **{**SMALL, **options})
        made.append(agent)
        return agent

    yield make
    for agent in made:
        agent.close()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"double_dqn": False, "loss": "mse", "tau": 0.1},
        {"dueling": True, "n_step": 3, "prioritized": True},
        {"noisy": True, "overlap": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("env", ["CartPole-v1", resumable], ids=["native", "python"])
def test_one_agent_learns_as_dqn(make: Any, env: Any, options: dict[str, Any]) -> None:
    """Bit for bit: the sum of one value is that value."""
    one = make("vdn", env, **options)
    alone = sw.DQN(env, **{**SMALL, **options}, backend="torch", learning_rate=5e-4)
    for agent in (one, alone):
        agent.train(200)
    for ours, its in zip(one.policy.parameters(), alone.policy.parameters(), strict=True):
        assert torch.equal(ours, its)
    assert list(one.episodes.returns) == list(alone.episodes.returns)
    obs = np.random.default_rng(0).normal(size=(20, 4))
    np.testing.assert_array_equal(one.predict(obs), alone.predict(obs))
    alone.close()


def batch_of(agent: Any) -> ReplayBatch:
    agent.train(60)
    batch: ReplayBatch = agent.loop.sample()
    return batch


@pytest.mark.parametrize("double", [True, False])
@BOTH
def test_the_loss_is_that_of_the_paper(make: Any, kind: str, double: bool) -> None:
    """Row by row, from the networks of the agents alone; agents die and are born."""
    agent = make(kind, Generations, double_dqn=double, batch_size=32, target_update_freq=10**6)
    batch, learner = batch_of(agent), agent.learner
    with torch.no_grad():  # the target network lags behind
        learner.flats["target"].data.normal_()
    n = int(agent.env.action_spaces["agent"].n)
    size = len(agent.env.agents)

    def values(network: Any, obs: Any) -> Any:
        rows = obs["agents"]["agent"]
        seen = {"obs": rows.flatten(0, 1), "agent": torch.arange(size).repeat(len(rows))}
        return network.by_group["agent"](seen).reshape(len(rows), size, n)

    def mixed(network: Any, chosen: Any, obs: Any) -> Any:
        chosen = chosen * obs["acts"]
        if kind == "vdn":
            return chosen.sum(1).double()
        weights = {name: x.numpy() for name, x in network.mixer.state_dict().items()}
        states = learner.policy.state(obs)
        return torch.from_numpy(monotonic(weights, chosen, states))

    with torch.no_grad():
        following = values(learner.target, batch.next_obs)
        chooser = values(learner.policy, batch.next_obs) if double else following
        best = following.gather(2, chooser.argmax(2, keepdim=True)).squeeze(2)
        target = batch.rewards + batch.discounts * mixed(learner.target, best, batch.next_obs)
        now = values(learner.policy, batch.obs)
        taken = now.gather(2, batch.actions.unsqueeze(2)).squeeze(2)
        errors = mixed(learner.policy, taken, batch.obs) - target
        rows = torch.where(errors.abs() <= 1, 0.5 * errors**2, errors.abs() - 0.5)
    assert 0 < batch.obs["acts"].float().mean() < 1  # some were not there
    loss, _, found = learner.loss(batch)
    torch.testing.assert_close(found.double(), errors, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(loss.double(), rows.mean(), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("env", [Generations, Mortal])
@BOTH
def test_sequences_have_the_loss_of_their_steps(
    make: Any, kind: str, env: Any, double: bool
) -> None:
    """Step by step with the memory of each agent, within episodes alone."""
    agent = make(kind, env, double_dqn=double, target_update_freq=10**6, **RECURRENT)
    batch, learner = batch_of(agent), agent.learner
    assert isinstance(batch, TeamSequences)
    length, n = batch.obs["acts"].shape[:2]
    with torch.no_grad():
        learner.flats["target"].data.mul_(1.5)
        outputs = {}
        for name, network in (("policy", learner.policy), ("target", learner.target)):
            state, found = network.initial_state(n), []
            for t in range(length):
                obs = {"agents": {k: x[t] for k, x in batch.obs["agents"].items()}}
                obs |= {x: batch.obs[x][t] for x in ("begins", "acts")}
                now, state = network.step(obs, state)
                found.append(now)
            outputs[name] = torch.stack(found)
        errors = []
        for t in range(length - 1):
            for row in range(n):
                if not batch.valid[t, row]:
                    continue
                at, to = (
                    {
                        "agents": {k: x[i, row][None] for k, x in batch.obs["agents"].items()},
                        "acts": batch.obs["acts"][i, row][None],
                    }
                    for i in (t, t + 1)
                )
                chooser = outputs["policy" if double else "target"][t + 1, row][None]
                following = learner.branches.chosen(
                    outputs["target"][t + 1, row][None], learner.branches.greedy(chooser)
                )
                target = batch.rewards[t, row] + batch.discounts[t, row] * learner.target.mix(
                    following, to
                )
                chosen = learner.branches.chosen(
                    outputs["policy"][t, row][None], batch.actions[t, row][None]
                )
                errors.append(learner.policy.mix(chosen, at) - target)
    loss, _, found_errors = learner.loss(batch)
    assert not batch.valid.all()  # some sequences run on into another episode
    assert (batch.discounts[batch.valid] == 0).any() == (env is Mortal)  # others are cut
    expected = torch.cat(errors)
    torch.testing.assert_close(found_errors, expected, atol=1e-5, rtol=1e-4)
    rows = torch.where(expected.abs() <= 1, 0.5 * expected**2, expected.abs() - 0.5)
    torch.testing.assert_close(loss, rows.mean(), atol=1e-5, rtol=1e-4)


def test_sequences_are_the_steps_that_were_taken(make: Any) -> None:
    """Actions and rewards stand beside the observation that they belong to."""
    agent = make("vdn", Generations, **RECURRENT)
    rows: list[Any] = []

    class Keep(sw.Callback):
        def on_step(self, *, transitions: Any, **_: Any) -> None:
            rows.append(transitions)

    agent.train(60, callbacks=Keep())
    known: dict[bytes, list[Any]] = {}
    for row in rows:
        for env in range(2):
            key = row.obs["agents"]["agent"][env].tobytes() + row.obs["acts"][env].tobytes()
            known.setdefault(key, []).append(
                (row.actions[env].tolist(), float(row.rewards[env]), bool(row.terminated[env]))
            )
    for _ in range(10):
        batch = agent.loop.sample()
        for t, row in batch.valid.nonzero().tolist():
            seen = batch.obs["agents"]["agent"][t, row].numpy().tobytes()
            seen += batch.obs["acts"][t, row].numpy().tobytes()
            ended = float(batch.discounts[t, row]) == 0
            step = batch.actions[t, row].tolist(), float(batch.rewards[t, row]), ended
            assert any(
                step[0] == one[0] and step[1] == pytest.approx(one[1]) and step[2] == one[2]
                for one in known[seen]
            )


@BOTH
@pytest.mark.parametrize("options", [{}, RECURRENT], ids=["plain", "recurrent"])
def test_what_agents_do_alone_is_what_they_do_together(
    make: Any, kind: str, options: dict[str, Any]
) -> None:
    agent = make(kind, Generations, **options)
    agent.train(60)
    env, learner = agent.joint_env, agent.learner
    obs, _ = env.reset(seed=3)
    memory: Any = None
    state = learner.initial_state(2)
    for t in range(8):
        acted = learner.act(learner.inputs(obs), explore=False, state=state)
        state = acted.state
        apart = {
            name: obs["agents"]["agent"][:, i] for i, name in enumerate(agent.env.groups["agent"])
        }
        if options:
            starts = {name: obs.get("begins")[:, i] > 0 for i, name in enumerate(apart)}
            found, memory = {}, memory or {}
            for name, rows in apart.items():
                found[name], memory[name] = agent.predict(
                    rows, agent=name, state=memory.get(name), episode_start=starts[name]
                )
        else:
            found = agent.predict(apart)
        for i, name in enumerate(apart):
            np.testing.assert_array_equal(found[name], acted.actions[:, i], f"{name} at {t}")
        obs, *_ = env.step(acted.actions.numpy())


RESUMED: dict[str, dict[str, Any]] = {
    "vdn": {},
    "vdn recurrent": RECURRENT,
    "vdn overlap": {"overlap": True},
    "qmix": {},
    "qmix recurrent": {**RECURRENT, "recurrent": "lstm"},
    "qmix apart": {"share_policy": False},
}


@pytest.mark.parametrize(("name", "options"), RESUMED.items(), ids=RESUMED)
def test_a_run_is_resumed_bit_for_bit(
    make: Any, name: str, options: dict[str, Any], tmp_path: Path
) -> None:
    """Within episodes, with the memories of their agents."""
    kind = name.split()[0]
    whole, first = (make(kind, Generations, save_buffer=True, **options) for _ in "ab")
    whole.train(106)
    first.train(54)
    first.save(tmp_path / "half")
    second = KINDS[kind].from_checkpoint(tmp_path / "half", env=Generations)
    second.train(106 - first.timesteps)
    assert state_of(second.learner) == state_of(whole.learner)
    assert second.progress_metrics() == whole.progress_metrics()
    second.close()


@BOTH
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_go_on_alike(make: Any, kind: str, copied: Any) -> None:
    agent = make(kind, Roles)
    agent.train(40)
    other = copied(agent)
    for one in (agent, other):
        one.train(40)
    assert state_of(agent.learner) == state_of(other.learner)
    other.close()


@pytest.mark.parametrize("options", [{}, RECURRENT], ids=["plain", "recurrent"])
@BOTH
def test_forbidden_actions_are_neither_taken_nor_valued(
    make: Any, kind: str, options: dict[str, Any]
) -> None:
    agent = make(kind, TICTACTOE, **options)
    agent.train(120)  # an action that is not allowed would end a game with a penalty
    assert set(agent.episodes.returns) == {0.0}
    assert agent.evaluate(4).mean_length >= 5
    batch, learner = agent.loop.sample(), agent.learner
    masks = batch.next_masks if isinstance(batch, ReplayBatch) else batch.masks
    assert not masks.all()
    if isinstance(batch, ReplayBatch):
        _, best = learner.next_best(batch)
        chosen = learner.branches.chosen(masks, best)
        assert chosen.all()
        changed = replace(batch, next_masks=None)
        assert not torch.equal(learner.loss(changed)[2], learner.loss(batch)[2])


@pytest.mark.parametrize(
    "options", [{}, RECURRENT, {"prioritized": True, "n_step": 3}], ids=["steps", "memory", "best"]
)
@pytest.mark.parametrize("groups", [None, {"z": ["agent_1"], "a": ["agent_0"]}], ids=["1", "2"])
def test_steps_may_lie_on_the_device(make: Any, groups: Any, options: dict[str, Any]) -> None:
    agent = make("qmix", Mortal, buffer="device", groups=groups, **options)
    agent.train(60)
    batch = agent.loop.sample()
    assert batch.obs["agents"].keys() == set(agent.env.groups)
    assert set(batch.obs["acts"].flatten().tolist()) == {0, 1}
    survivor = "agent" if groups is None else "a"
    times = batch.obs["agents"][survivor][..., 0, 1]  # eighths of an episode
    assert set((8 * times).flatten().tolist()) <= set(range(9))
    if isinstance(batch, TeamSequences):
        passed = (times[1:] - times[:-1])[batch.valid]
        assert set(passed.tolist()) == {0.125}
    else:
        passed = batch.next_obs["agents"][survivor][..., 0, 1] - times
        goes_on = batch.discounts > 0
        steps = (batch.discounts[goes_on].log() / np.log(agent.config.gamma)).round()
        assert torch.equal(passed[goes_on], 0.125 * steps)


@BOTH
def test_agents_explore_apart_from_each_other(make: Any, kind: str) -> None:
    agent = make(kind, "mpe2/simple_spread_v3", n_envs=64)
    learner = agent.learner
    obs, _ = agent.joint_env.reset(seed=0)
    seen = learner.inputs(obs)
    learner.epsilon = 0.5
    greedy = learner.act(seen, explore=False).actions
    differs = torch.stack(
        [learner.act(seen, explore=True).actions != greedy for _ in range(60)]
    ).float()
    assert differs.mean() == pytest.approx(0.4, abs=0.03)  # a fifth of random ones are greedy
    both = (differs[..., 0] * differs[..., 1]).mean()
    assert both == pytest.approx(0.16, abs=0.03)


def test_the_mixer_looks_at_the_state_where_it_is_asked_to(make: Any) -> None:
    agent = make("qmix", "mpe2/simple_spread_v3", mixer_input="state")
    assert agent.joint_env.has_state
    agent.train(40)
    batch = agent.loop.sample()
    other = {**batch.obs, "state": batch.obs["state"] + 1}
    assert not torch.equal(
        agent.learner.loss(batch)[1], agent.learner.loss(replace(batch, obs=other))[1]
    )
    assert make("qmix", Roles).config.mixer_input == "concat"


def test_groups_have_networks_and_returns_of_their_own(make: Any) -> None:
    agent = make("qmix", "mpe2/simple_speaker_listener_v4")
    metrics = agent.train(60)
    assert len(agent.learner.members) == 2
    assert all(f"mean_return/{name}" in metrics for name in agent.env.agents)
    result = agent.evaluate(2)
    assert set(result.agents) == set(agent.env.agents)
    obs = {x: np.zeros(agent.env.observation_spaces[x].shape) for x in agent.env.groups}
    actions = agent.predict({agent.env.groups[x][0]: one for x, one in obs.items()})
    for group, (name,) in agent.env.groups.items():
        assert agent.env.action_spaces[group].contains(actions[name])


def test_every_agent_may_have_a_network_of_its_own(make: Any) -> None:
    shared, apart = make("vdn", Roles), make("vdn", Roles, share_policy=False)
    assert len(shared.learner.members) == 1
    assert list(apart.learner.members) == ["agent_0", "agent_1"]
    untold = make("vdn", Roles, agent_id=False)
    sizes = [x.policy.networks[0].features.size for x in (shared, apart, untold)]
    assert sizes[0] == sizes[1] + 2 == sizes[2] + 2


@BOTH
def test_who_died_is_paid_and_valued_no_more(make: Any, kind: str) -> None:
    """Actions of the dead are in no loss, whatever they are."""
    agent = make(kind, Mortal, batch_size=32)
    batch = batch_of(agent)
    gone = batch.obs["acts"] == 0
    assert gone.any()
    changed = replace(batch, actions=torch.where(gone, 1 - batch.actions, batch.actions))
    assert torch.equal(agent.learner.loss(changed)[2], agent.learner.loss(batch)[2])


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"n_agents": 3}, ValueError, "n_agents must be 2, as many as the environment has"),
        ({"opponents": {"agent": None}}, TypeError, "opponents must not be given: qmix learns"),
        ({"normalize_obs": True}, ValueError, "normalize_obs must be False"),
        ({"her_goals": 2}, ValueError, "her_goals must be 0"),
        ({"frame_stack": 2}, ValueError, "frame_stack must be 1"),
        ({"mixer_input": "obs"}, ValueError, "mixer_input must be one of"),
        ({"mixer_size": 0}, ValueError, "mixer_size must be"),
        ({"sequence_length": 1}, ValueError, "sequence_length must be at least 2, got 1"),
        ({**RECURRENT, "n_step": 3}, ValueError, "n_step must be 1 where recurrent is 'gru', got"),
        ({**RECURRENT, "prioritized": True}, ValueError, "prioritized must be False where recurr"),
        ({"recurrent": "rnn"}, ValueError, "recurrent must be"),
        ({"policy": torch.nn.Linear(1, 1)}, TypeError, "policy must not be given"),
        ({"mixer_sise": 3}, TypeError, "mixer_size"),
        ({"backend": "native"}, ValueError, "qmix has no native update"),
        ({"groups": {"agent": ["agent_0"]}}, ValueError, "agent_1"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_bad_options_are_named(options: dict[str, Any], error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        sw.QMIX(Roles, **{**SMALL, **options})


def test_a_state_that_is_missing_is_named() -> None:
    with pytest.raises(ValueError, match="mixer_input must be 'concat' or 'auto' here, got 'st"):
        sw.QMIX("CartPole-v1", mixer_input="state", **SMALL)


class Pictures(Roles):
    """Its observations are images, and it has no state."""

    observations = spaces.Box(0, 255, (40, 40, 3), np.uint8)

    def __init__(self) -> None:
        super().__init__()
        self.observations = Pictures.observations

    def observe(self, agent: str) -> Any:
        del agent
        return np.zeros((40, 40, 3), np.uint8)

    def state(self) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize("mixer_input", ["auto", "concat"])
def test_images_are_not_put_side_by_side(mixer_input: str) -> None:
    with pytest.raises(ValueError, match=r"mixer_input (needs a state|must be 'state' here, got)"):
        sw.QMIX(Pictures, mixer_input=mixer_input, **SMALL)
    vdn = sw.VDN(Pictures, **SMALL)
    vdn.train(24)
    vdn.close()


def test_continuous_actions_are_refused() -> None:
    with pytest.raises(TypeError, match="actions of all agents must be Discrete, got Box"):
        sw.VDN("mpe2/simple_spread_v3", env_kwargs={"continuous_actions": True})


@BOTH
def test_checkpoints_of_other_agents_are_refused(make: Any, kind: str, tmp_path: Path) -> None:
    make(kind, Roles).save(tmp_path / "roles")
    with pytest.raises(ValueError, match=r"agent_2|groups"):
        KINDS[kind].from_checkpoint(tmp_path / "roles", env="mpe2/simple_spread_v3")
