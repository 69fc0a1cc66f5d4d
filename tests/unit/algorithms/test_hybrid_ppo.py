"""PPO with native collection: its data are the policy's own, and its runs do not depend on time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import sharpwave as sw
from sharpwave.collect import Rollout
from sharpwave.compat.rlox.algorithms.hybrid_ppo import HybridPPO as RloxHybridPPO
from tests.learning import probes

SMALL: dict[str, Any] = {"n_envs": 4, "n_steps": 32, "batch_size": 32, "n_epochs": 2, "seed": 3}


def make(env_id: Any = "CartPole-v1", **options: Any) -> sw.HybridPPO:
    return sw.HybridPPO(env_id, **{**SMALL, **options})


def weights(agent: Any) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in agent.policy.parameters()])


class Watch(sw.Callback):
    """Keeps what the updates of an agent are given, and the weights before each."""

    def __init__(self, agent: sw.HybridPPO) -> None:
        self.rollouts: list[Rollout] = []
        self.weights: list[torch.Tensor] = []
        collect = agent.collector.collect

        def kept(*arguments: Any) -> Rollout | None:
            rollout: Rollout | None = collect(*arguments)
            assert rollout is not None
            self.rollouts.append(rollout)
            self.weights.append(weights(agent).clone())
            return rollout

        agent.collector.collect = kept


@pytest.mark.long(but=["CartPole-v1-False-native"])
@pytest.mark.parametrize("backend", ["native", "torch"])
@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
def test_log_probs_of_a_batch_are_those_of_the_policy_that_acted(
    env_id: str, overlap: bool, backend: str
) -> None:
    agent = make(env_id, overlap=overlap, backend=backend, learning_rate=1e-2)
    watch = Watch(agent)
    agent.train(128 * 5)
    assert agent.backend == backend
    assert agent.collection == "native"
    for i, rollout in enumerate(watch.rollouts):
        behind = watch.weights[max(i - 1, 0) if overlap else i]
        agent.learner.block[:] = behind
        obs = torch.from_numpy(rollout.obs).flatten(0, 1)
        actions = torch.from_numpy(rollout.actions).flatten(0, 1)
        with torch.no_grad():
            log_probs, _, values = agent.policy.evaluate(obs, actions)
        np.testing.assert_allclose(rollout.log_probs.ravel(), log_probs, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(rollout.values.ravel(), values, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("overlap", [False, True])
def test_episodes_go_on_from_one_rollout_to_the_next(overlap: bool) -> None:
    agent = make(n_steps=8, overlap=overlap)
    watch = Watch(agent)
    agent.train(8 * 4 * 30)
    lengths = np.array(agent.episodes.lengths)
    assert lengths.max() > 8
    starts = np.concatenate([rollout.starts for rollout in watch.rollouts])
    ends = np.concatenate([r.terminated | r.truncated for r in watch.rollouts])
    np.testing.assert_array_equal(starts[1:], ends[:-1])
    assert starts[0].all()


@pytest.mark.parametrize("overlap", [False, True])
def test_the_same_seed_gives_the_same_run_whatever_the_threads(overlap: bool) -> None:
    agents = [make(n_envs=37, overlap=overlap, threads=threads) for threads in (1, 2, 4)]
    for agent in agents:
        agent.train(37 * 32 * 3)
    assert torch.equal(weights(agents[0]), weights(agents[1]))
    assert torch.equal(weights(agents[0]), weights(agents[2]))


def test_overlap_changes_the_data() -> None:
    first, second = make(), make(overlap=True)
    for agent in (first, second):
        agent.train(128 * 4)
    assert not torch.equal(weights(first), weights(second))


@pytest.mark.long(but=["native-False"])
@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("backend", ["native", "torch"])
def test_a_run_continues_bit_for_bit(tmp_path: Path, overlap: bool, backend: str) -> None:
    through = make(overlap=overlap, backend=backend)
    through.train(128 * 8)

    class Stop(sw.Callback):
        def on_train_batch(self, *, algo: Any, **_: Any) -> bool:
            return bool(algo.updates < 4)

    first = make(overlap=overlap, backend=backend)
    first.train(128 * 8, callbacks=Stop())
    first.save(tmp_path / "half")
    first.close()
    resumed = sw.HybridPPO.from_checkpoint(tmp_path / "half")
    resumed.train()
    assert resumed.timesteps == through.timesteps
    assert torch.equal(weights(resumed), weights(through))
    assert list(resumed.episodes.returns) == list(through.episodes.returns)


def test_saving_does_not_change_a_run(tmp_path: Path) -> None:
    class Save(sw.Callback):
        def on_train_batch(self, *, algo: Any, **_: Any) -> None:
            algo.save(tmp_path / "a")

    quiet, saving = make(overlap=True), make(overlap=True)
    quiet.train(128 * 5)
    saving.train(128 * 5, callbacks=Save())
    assert torch.equal(weights(quiet), weights(saving))


def test_time_is_counted() -> None:
    agent = make()
    assert agent.timing_summary()["collection_pct"] == 0.0
    metrics = agent.train(512)
    summary = agent.timing_summary()
    assert summary["collection_s"] > 0
    assert summary["training_s"] > 0
    assert summary["collection_pct"] + summary["training_pct"] == pytest.approx(100.0)
    assert metrics["collection_time_pct"] + metrics["training_time_pct"] == pytest.approx(100.0)


@pytest.mark.long(but=["Identity-options0-not native"])
@pytest.mark.parametrize(
    ("env_id", "options", "reason"),
    [
        (probes.Identity, {}, "not native"),
        ("CartPole-v1", {"normalize_obs": True}, "not native"),
        ("CartPole-v1", {"env_mode": "sync"}, "not native"),
        ("CartPole-v1", {"recurrent": "gru"}, "recurrent is 'gru'"),
        ("Pendulum-v1", {"use_gsde": True}, "use_gsde is on"),
        ("Pendulum-v1", {"squash_actions": True}, "squash_actions is on"),
    ],
)
def test_what_is_not_native_is_said(env_id: Any, options: dict[str, Any], reason: str) -> None:
    agent = make(env_id, **options)
    assert agent.collection == "python"
    assert agent.collection_reason is not None
    assert reason in agent.collection_reason
    agent.train(128)
    assert agent.timing_summary()["collection_s"] > 0
    agent.close()
    with pytest.raises(ValueError, match=r"overlap must be False"):
        make(env_id, overlap=True, **options)


def test_weights_that_are_none_stop_the_run() -> None:
    agent = make()
    agent.train(128)
    agent.flat.data[5] = float("nan")
    with pytest.raises(ValueError, match="weights must be finite, got nan at 5"):
        agent.train(128)


def test_one_number_is_two_layers() -> None:
    assert make(hidden=16).config.hidden == (16, 16)
    assert sw.HybridPPOConfig.parse({"hidden": "16"})["hidden"] == (16, 16)


def test_arguments_of_rlox() -> None:
    agent = RloxHybridPPO("CartPole-v1", 4, 7, 32, None, [], n_steps=16, learning_rate=1e-3)
    assert (agent.config.n_envs, agent.config.seed, agent.config.hidden) == (4, 7, (32, 32))
    assert agent.config.clip_vloss
    metrics = agent.train(total_timesteps=128)
    names = "policy_loss value_loss entropy approx_kl clip_fraction mean_return"
    assert {*names.split(), "collection_time_pct", "training_time_pct"} <= metrics.keys()
    assert type(agent.predict(np.zeros(4, np.float32))) is int
    default = RloxHybridPPO()
    assert (default.env_id, default.config.n_envs) == ("CartPole-v1", 16)
