"""Learning without acting: on the buffer, and on datasets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sharpwave as sw
from tests.unit.agents.dreaming import Lamp, dreamer, weights

N = 60


def columns(n_obs: int = 4, **changed: Any) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(N + 1, n_obs)).astype(np.float32)
    done = np.arange(N) % 10 == 9
    found = {
        "obs": obs[:-1],
        "next_obs": obs[1:],
        "actions": rng.integers(0, 2, N),
        "rewards": np.ones(N),
        "terminated": done,
        "truncated": np.zeros(N, bool),
    }
    return {**found, **changed}


def test_learning_takes_gradient_steps_and_no_others() -> None:
    agent = dreamer()
    agent.train(60)
    before, steps, updates = weights(agent), agent.timesteps, agent.gradient_steps
    metrics = agent.learn(gradient_steps=3)
    assert (weights(agent) != before).any()
    assert (agent.timesteps, agent.gradient_steps) == (steps, updates + 3)
    assert np.isfinite(list(metrics.values())).all()
    assert {"reconstruction_loss", "actor_loss", "critic_loss"} <= metrics.keys()
    assert not {"deter", "stoch"} & metrics.keys()


def test_learning_is_that_of_training() -> None:
    """The next batch of the buffer is learned from, and its latent states are written over."""
    learned, by_hand = dreamer(), dreamer()
    for agent in (learned, by_hand):
        agent.train(60)
    found = learned.learn(2)
    measured = []
    for _ in range(2):
        batch = by_hand.loop.sample()
        measured.append(by_hand.learner.update(batch))
        by_hand.loop.report(batch, measured[-1])
    np.testing.assert_array_equal(weights(learned), weights(by_hand))
    mean = float(np.mean([one["reconstruction_loss"] for one in measured]))
    assert found["reconstruction_loss"] == pytest.approx(mean)
    columns = [agent.buffer.sample(8, 1) for agent in (learned, by_hand)]
    np.testing.assert_array_equal(columns[0]["deter"], columns[1]["deter"])


def test_actions_may_begin_at_any_number() -> None:
    agent = dreamer(Lamp, train_ratio=None, gradient_steps=1, train_freq=48)
    agent.train(48)
    assert agent.gradient_steps == 1
    batch = agent.loop.sample()
    assert set(batch.prev_actions.unique().tolist()) == {0, 1}
    assert batch.is_first.any()
    assert not batch.prev_actions[batch.is_first].any()


def test_ids_of_steps_may_be_arrays() -> None:
    """As they are where the learner is on another device than the buffer."""
    agent = dreamer()
    agent.train(60)
    drawn = agent.loop.sampler.draw()
    arrays = {**drawn, "indices": np.asarray(drawn["indices"]).copy()}
    found, expected = (agent.loop.sampler.as_batch(one).indices for one in (arrays, drawn))
    assert found.shape == (8, 4)
    np.testing.assert_array_equal(found, np.asarray(expected))


def test_without_a_batch_there_is_nothing_to_learn() -> None:
    agent = dreamer()
    with pytest.raises(ValueError, match="buffer must hold a batch of 32 steps, got 0: train"):
        agent.learn(gradient_steps=1)
    with pytest.raises(ValueError, match="gradient_steps must be"):
        agent.learn(gradient_steps=0)


def test_pretraining_moves_model_policy_and_values() -> None:
    agent = dreamer(warmup=0)
    before = {name: p.detach().clone() for name, p in agent.learner.policy.named_parameters()}
    metrics = agent.pretrain(sw.OfflineDatasetBuffer(**columns()), gradient_steps=4)
    after = dict(agent.learner.policy.named_parameters())
    for part in ("world.encoder", "world.rssm.prior_head", "world.reward_head", "actor", "critic"):
        moved = [(after[k] != x).any() for k, x in before.items() if k.startswith(part)]
        assert any(moved), part
    assert (agent.timesteps, agent.gradient_steps) == (0, 4)
    assert np.isfinite(list(metrics.values())).all()


def test_pretraining_is_a_function_of_the_seed() -> None:
    first, second, other = dreamer(), dreamer(), dreamer(seed=1)
    for agent in (first, second, other):
        agent.pretrain(columns(), gradient_steps=2)
    np.testing.assert_array_equal(weights(first), weights(second))
    assert (weights(first) != weights(other)).any()


def test_pretraining_makes_the_model_better() -> None:
    agent = dreamer(learning_rate=1e-2, warmup=0)
    data = columns(obs=np.full((N, 4), 3.0), next_obs=np.full((N, 4), 3.0))
    first = agent.pretrain(data, gradient_steps=2)
    agent.pretrain(data, gradient_steps=40)
    last = agent.pretrain(data, gradient_steps=2)
    assert last["reconstruction_loss"] < 0.3 * first["reconstruction_loss"]
    assert last["reward_loss"] < first["reward_loss"]


def as_episodes(path: Path) -> sw.EpisodeBuffer:
    fields = {"obs": ("float", 4), "action": "int", "reward": "float", "terminated": "bool"}
    rng = np.random.default_rng(0)
    episodes = sw.EpisodeBuffer(path, 10, 20, fields)
    for _ in range(4):
        with episodes.one_episode():
            for t in range(12):
                step = {"obs": rng.normal(size=4), "action": t % 2, "reward": 1.0}
                episodes.store(**step, terminated=t == 11)
    return episodes


def test_episodes_on_disk_are_a_dataset(tmp_path: Path) -> None:
    agent, other = dreamer(), dreamer()
    before = weights(agent)
    with as_episodes(tmp_path / "episodes") as episodes:
        agent.pretrain(episodes, gradient_steps=2)
    other.pretrain(tmp_path / "episodes", gradient_steps=2)
    assert (weights(agent) != before).any()
    np.testing.assert_array_equal(weights(agent), weights(other))


@pytest.mark.filterwarnings("ignore:Minari wants the observation")
def test_minari_has_datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    with as_episodes(tmp_path / "episodes") as episodes:
        episodes.to_minari("test/steps-v0")
    agent = dreamer()
    before = weights(agent)
    agent.pretrain("minari:test/steps-v0", gradient_steps=2)
    assert (weights(agent) != before).any()


def test_training_goes_on_after_pretraining() -> None:
    agent = dreamer()
    agent.pretrain(columns(), gradient_steps=2)
    agent.train(60)
    assert agent.timesteps == 60
    assert agent.gradient_steps > 2


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"terminated": np.zeros(N)}, "dataset must tell where its episodes end"),
        ({"actions": np.full(N, 2)}, "dataset must have actions from 0 to 1"),
        ({"obs": np.zeros((N, 3)), "next_obs": np.zeros((N, 3))}, "dataset must have observations"),
    ],
)
def test_what_does_not_fit_is_refused(changed: dict[str, Any], expected: str) -> None:
    agent = dreamer()
    before = weights(agent)
    with pytest.raises(ValueError, match=expected):
        agent.pretrain(columns(**changed), gradient_steps=1)
    np.testing.assert_array_equal(weights(agent), before)


def test_other_datasets_are_refused() -> None:
    agent = dreamer()
    with pytest.raises(ValueError, match="as the environment gives them, got normalize=True"):
        agent.pretrain(sw.OfflineDatasetBuffer(**columns(), normalize=True), 1)
    short = {name: column[:8] for name, column in columns(terminated=np.ones(N)).items()}
    with pytest.raises(ValueError, match="longer than a sequence of 8 rows, got 8 steps"):
        agent.pretrain(short, 1)
    unordered = sw.ReplayBuffer(N, obs_dim=4, act_dim=1)
    unordered.push_batch(**columns())
    with pytest.raises(TypeError, match="dataset must keep its steps in order, got ReplayBuffer"):
        agent.pretrain(unordered, 1)
