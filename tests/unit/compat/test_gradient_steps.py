"""Callbacks of a program hear of every gradient step, and change nothing by it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sharpwave as sw
import sharpwave.compat.rlox as rlox
from sharpwave.compat.rlox.algorithms.hybrid_ppo import HybridPPO

ROLLOUTS: dict[str, Any] = {"n_envs": 2, "n_steps": 16}
REPLAY: dict[str, Any] = {"learning_starts": 16, "batch_size": 8, "hidden": 16, "train_freq": 4}
STEPS = 64
ONLINE: dict[str, Any] = {  # with the gradient steps of a run
    "ppo": (rlox.PPO, "CartPole-v1", {**ROLLOUTS, "batch_size": 16, "n_epochs": 2}, 8),
    "hybrid_ppo": (HybridPPO, "CartPole-v1", {**ROLLOUTS, "batch_size": 16, "n_epochs": 2}, 8),
    "a2c": (rlox.A2C, "CartPole-v1", ROLLOUTS, 2),
    "dqn": (rlox.DQN, "CartPole-v1", REPLAY, 13),
    "sac": (rlox.SAC, "Pendulum-v1", REPLAY, 13),
    "td3": (rlox.TD3, "Pendulum-v1", REPLAY, 13),
}
OFFLINE: dict[str, Any] = {"td3_bc": rlox.TD3BC, "iql": rlox.IQL, "cql": rlox.CQL, "bc": rlox.BC}


class Spy(rlox.Callback):
    """Remembers what it hears of gradient steps."""

    def __init__(self) -> None:
        self.heard: list[dict[str, float]] = []

    def on_train_batch(self, algo: Any, step: int, **metrics: float) -> None:
        self.heard.append(metrics)


def weights(agent: Any) -> dict[str, Any]:
    networks = agent.learner.state_dict()["networks"].items()
    return {f"{name}.{k}": np.asarray(x) for name, net in networks for k, x in net.items()}


def assert_same_weights(mine: Any, theirs: Any) -> None:
    left, right = weights(mine), weights(theirs)
    assert left.keys() == right.keys()
    for name in left:
        np.testing.assert_array_equal(left[name], right[name], err_msg=name)


@pytest.mark.long(but=["ppo-native"])
@pytest.mark.parametrize("backend", ["native", "torch"])
@pytest.mark.parametrize("name", ONLINE)
def test_every_gradient_step_is_told_of_and_is_the_same(name: str, backend: str) -> None:
    kind, env, options, expected = ONLINE[name]
    spy = Spy()
    watched = kind(env, callbacks=[spy], seed=3, backend=backend, **options)
    alone = kind(env, seed=3, backend=backend, **options)
    metrics, quiet = watched.train(STEPS), alone.train(STEPS)
    assert watched.backend == alone.backend == backend
    assert len(spy.heard) == expected
    assert all(isinstance(x, float) for heard in spy.heard for x in heard.values())
    assert_same_weights(watched, alone)
    for key in ("loss", "policy_loss", "critic_loss", "explained_variance"):
        if key in metrics:
            assert metrics[key] == pytest.approx(quiet[key], rel=1e-5), key


@pytest.mark.parametrize("name", OFFLINE)
def test_offline_too(name: str) -> None:
    draw = np.random.default_rng(0)
    data = {
        "obs": draw.normal(size=(64, 3)).astype(np.float32),
        "actions": draw.uniform(-1, 1, (64, 2)).astype(np.float32),
        "rewards": draw.normal(size=64).astype(np.float32),
        "next_obs": draw.normal(size=(64, 3)).astype(np.float32),
        "terminated": np.zeros(64, bool),
    }
    spy = Spy()
    agent = OFFLINE[name](data, 3, 2, hidden=16, batch_size=8, callbacks=[spy], log_interval=5)
    agent.train(7)
    assert len(spy.heard) == 7
    assert len({tuple(heard.values()) for heard in spy.heard}) == 7


@pytest.mark.parametrize("backend", ["native", "torch"])
def test_minibatches_that_go_too_far_end_an_update(backend: str) -> None:
    options = {**ROLLOUTS, "batch_size": 8, "n_epochs": 4, "target_kl": 1e-7, "learning_rate": 0.05}
    spy = Spy()
    watched = rlox.PPO("CartPole-v1", callbacks=[spy], seed=1, backend=backend, **options)
    alone = rlox.PPO("CartPole-v1", seed=1, backend=backend, **options)
    watched.train(32)
    alone.train(32)
    assert 0 < len(spy.heard) < 16
    assert_same_weights(watched, alone)


def test_a_callback_ends_the_run_at_a_gradient_step() -> None:
    class Enough(rlox.Callback):
        def on_train_batch(self, **kwargs: Any) -> bool:
            return False

    agent = rlox.PPO("CartPole-v1", callbacks=[Enough()], **ROLLOUTS)
    agent.train(STEPS)
    assert agent.timesteps == 32


def test_callbacks_of_the_library_hear_of_updates() -> None:
    heard: list[int] = []
    spy, ours = Spy(), Spy()
    ours.on_train_batch = told = lambda step, **_: heard.append(step)  # type: ignore
    told.__module__ = "sharpwave.runs.callbacks"
    agent = rlox.PPO("CartPole-v1", callbacks=[spy, ours], **ROLLOUTS, batch_size=8, n_epochs=1)
    agent.train(STEPS)
    assert heard == [32, 64]
    assert len(spy.heard) == 8


def test_a_learner_of_ones_own_is_watched_too() -> None:
    class Mine(sw.PPOLearner):
        calls = 0

        def loss(self, batch: Any) -> Any:
            type(self).calls += 1
            return super().loss(batch)

    spy = Spy()
    agent = rlox.PPO("CartPole-v1", learner=Mine, callbacks=[spy], **ROLLOUTS, batch_size=16)
    agent.train(32)
    assert agent.backend == "torch"
    assert len(spy.heard) == Mine.calls == 8
    step = agent.learner.step
    agent.train(32, callbacks=[Spy()])
    assert agent.learner.step == step  # nobody is told after the run


def test_mean_reward_is_a_number_before_an_episode_has_ended() -> None:
    class Ends(rlox.Callback):
        def on_rollout_end(self, mean_reward: float) -> None:
            self.mean_reward = mean_reward

    for kind in (rlox.PPO, rlox.A2C):
        ends = Ends()
        metrics = kind("Pendulum-v1", callbacks=[ends], **ROLLOUTS).train(32)
        assert metrics["mean_reward"] == ends.mean_reward == 0.0
