"""The smaller parts of rlox do what rlox's do."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import sharpwave as sw
import sharpwave.compat.rlox as rlox
from sharpwave.compat.rlox.algorithms.hybrid_ppo import HybridPPO


@pytest.mark.parametrize(
    "make", [rlox.VecEnv, lambda n, seed: rlox.GymVecEnv("CartPole-v1", n, seed)]
)
def test_environments_step_before_they_were_reset(make: Any) -> None:
    """It raised that reset has to be called first; rlox's environments begin by themselves."""
    env, twin = make(3, seed=5), make(3, seed=5)
    twin.reset_all()
    for actions in ([0, 1, 0], [1, 1, 0]):
        ours, theirs = env.step_all(actions), twin.step_all(actions)
        np.testing.assert_array_equal(ours["obs"], theirs["obs"])
    assert env.reset_all(seed=1).shape == (3, 4)


def test_running_stats() -> None:
    stats = rlox.RunningStats()
    assert (stats.mean(), stats.var(), stats.std(), stats.count()) == (0.0, 0.0, 0.0, 0)
    stats.update(1.0)
    assert stats.normalize(5.0) == 0.0
    stats.update(3.0)
    stats.batch_update(np.array([1.0, 2.0, 3.0]))
    assert (stats.mean(), stats.count()) == (2.0, 5)
    assert stats.var() == pytest.approx(0.8)
    assert stats.normalize(2.5) == pytest.approx(0.5 / np.sqrt(0.8))
    stats.reset()
    assert (stats.mean(), stats.count(), stats.normalize(2.0)) == (0.0, 0, 0.0)


def test_running_stats_of_vectors() -> None:
    stats = rlox.RunningStatsVec(2)
    assert stats.var().tolist() == [0.0, 0.0]
    stats.update(np.array([1.0, 2.0]))
    stats.batch_update(np.array([1.0, 2.0, 3.0, 4.0]), 2)
    assert (stats.count(), stats.dim()) == (3, 2)
    np.testing.assert_allclose(stats.mean(), [5 / 3, 8 / 3])
    np.testing.assert_allclose(stats.var(), [8 / 9, 8 / 9])
    expected = (np.array([[1.0, 1.0], [2.0, 2.0]]) - stats.mean()) / stats.std()
    np.testing.assert_allclose(stats.normalize([1.0, 1.0]), expected[0])
    np.testing.assert_allclose(stats.normalize_batch([1.0, 1.0, 2.0, 2.0], 2), expected.ravel())
    with pytest.raises(ValueError, match="values must have 2 numbers"):
        stats.update([1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="data must have 4 numbers"):
        stats.batch_update([1.0, 2.0, 3.0], 2)


def test_single_environments() -> None:
    env = rlox.CartPole(seed=1)
    step = env.step(1)
    assert step["obs"].shape == (4,)
    assert (step["reward"], step["terminated"], step["truncated"]) == (1.0, False, False)
    assert "step=1" in env.render()
    while not step["terminated"]:
        step = env.step(1)
    with pytest.raises(RuntimeError, match="reset"):
        env.step(1)
    np.testing.assert_array_equal(env.reset(seed=3), gym.make("CartPole-v1").reset(seed=3)[0])
    assert rlox.GymEnv(gym.make("CartPole-v1")).reset(seed=0).shape == (4,)


def test_small_stores() -> None:
    table = rlox.ExperienceTable(2, 1)
    assert table.observations().shape == (0, 2)
    table.push(np.zeros(2), np.ones(1), 1.5, False, False)
    assert (len(table), table.rewards().tolist()) == (1, [1.5])
    assert table.rewards().dtype == np.float32
    with pytest.raises(ValueError, match="obs must have length 2"):
        table.push(np.zeros(3), np.ones(1), 1.5, False, False)
    table.clear()
    assert len(table) == 0
    store = rlox.VarLenStore()
    store.push(np.array([1, 2, 3], np.uint32))
    assert (store.get(0).tolist(), store.num_sequences(), store.total_elements()) == (
        [1, 2, 3],
        1,
        3,
    )
    with pytest.raises(IndexError):
        store.get(1)
    pair = rlox.DPOPair([1], [1, 2], [3])
    assert (pair.chosen_len(), pair.rejected_len()) == (2, 1)


def test_functions() -> None:
    shaped = rlox.shape_rewards_pbrs([1, 1, 1], [1, 2, 3], [2, 3, 4], 0.9, [0, 0, 1])
    np.testing.assert_allclose(shaped, [1.8, 1.7, 1.0])
    potentials = rlox.compute_goal_distance_potentials([0, 1, 2, 3, 4, 5], [1, 1], 3, 1, 2, 1.0)
    np.testing.assert_allclose(potentials, [-1.0, -5.0])
    weights = np.array([1.0, 2.0], np.float32)
    rlox.reptile_update(weights, [3.0, 4.0], 0.25)
    assert weights.tolist() == [1.5, 2.5]
    assert rlox.average_weight_vectors([[1, 2], [3, 4]]).tolist() == [2.0, 3.0]
    with pytest.raises(ValueError, match="at least one"):
        rlox.average_weight_vectors([])
    images = np.arange(1, 51, dtype=np.float32)
    moved = rlox.random_shift_batch(images, 2, 1, 5, 5, 2, 7).reshape(2, 5, 5)
    assert rlox.random_shift_batch(images, 2, 1, 5, 5, 0, 7).tolist() == images.tolist()
    padded = np.pad(images.reshape(2, 5, 5), ((0, 0), (2, 2), (2, 2)))
    for i in range(2):
        windows = [padded[i, y : y + 5, x : x + 5] for y in range(5) for x in range(5)]
        assert any(np.array_equal(moved[i], window) for window in windows)


def test_mixed_batches() -> None:
    first, second = rlox.ReplayBuffer(10, 2, 1), rlox.ReplayBuffer(10, 2, 1)
    for i in range(5):
        first.push([i, i], [1.0], 1.0, False, False, [0, 0])
        second.push([i, i], [1.0], -1.0, False, False, [0, 0])
    batch = rlox.py_sample_mixed(first, second, 0.6, 4, 1)
    assert batch["rewards"].tolist() == [1.0, 1.0, 1.0, -1.0]
    assert batch["obs"].shape == (4, 2)


def test_windows_of_episodes() -> None:
    buffer = rlox.SequenceReplayBuffer(100, 2, 1)
    for i in range(25):
        buffer.push([i, i], [i + 1, i + 1], [1.0], float(i), i % 10 == 9, False)
    assert (len(buffer), buffer.num_complete_episodes()) == (25, 2)
    batch = buffer.sample_sequences(50, 5, 1)
    assert {name: (array.shape, array.dtype.name) for name, array in batch.items()} == {
        "obs": ((50, 5, 2), "float32"),
        "next_obs": ((50, 5, 2), "float32"),
        "actions": ((50, 5, 1), "float32"),
        "rewards": ((50, 5), "float32"),
        "terminated": ((50, 5), "uint8"),
        "truncated": ((50, 5), "uint8"),
    }
    np.testing.assert_array_equal(np.diff(batch["rewards"], axis=1), 1)
    assert (batch["rewards"][:, 0] // 10 == batch["rewards"][:, -1] // 10).all()
    with pytest.raises(ValueError, match="view"):
        buffer.sample_sequences(3, 11, 1)
    assert buffer.sample(3, 1)["actions"].shape == (3,)


def test_goals_in_hindsight() -> None:
    buffer = rlox.HERBuffer(2000, 6, 1, goal_dim=2, achieved_goal_start=2, desired_goal_start=4)
    for i in range(1000):
        obs, after = [i, i, i, i, -9, -9], [i + 1] * 4 + [-9, -9]
        buffer.push(obs, after, [1.0], -5.0, i % 10 == 9, False)
    batch = buffer.sample(500, 0.8, seed=3)
    changed = batch["obs"][:, 4] != -9
    assert 0.7 < changed.mean() < 0.9
    assert (batch["rewards"][~changed] == -5).all()
    np.testing.assert_array_equal(batch["obs"][:, 4:], batch["next_obs"][:, 4:])
    ahead = batch["obs"][changed, 4] - batch["next_obs"][changed, 0]
    assert (ahead >= 0).all()
    np.testing.assert_array_equal(batch["rewards"][changed], np.where(ahead == 0, 0.0, -1.0))
    np.testing.assert_array_equal(batch["terminated"][changed], ahead == 0)
    assert not (buffer.sample(100, 0.0, seed=1)["obs"][:, 4] != -9).any()


CONFIG = {"total_timesteps": 64, "n_envs": 2, "hyperparameters": {"n_steps": 16, "n_epochs": 1}}


@pytest.mark.parametrize("suffix", [None, "yaml", "toml"])
def test_training_from_a_configuration(
    suffix: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = {"algorithm": "ppo", "env_id": "CartPole-v1", **CONFIG, "callbacks": ["checkpoint"]}
    config: Any = rlox.TrainingConfig.from_dict({**given, "checkpoint_freq": 32})
    if suffix is not None:
        getattr(config, f"to_{suffix}")(tmp_path / f"run.{suffix}")
        assert getattr(config, f"from_{suffix}")(tmp_path / f"run.{suffix}") == config
        config = tmp_path / f"run.{suffix}"
    metrics = rlox.train_from_config(config)
    assert metrics["timesteps"] == 64
    assert len(list((tmp_path / "checkpoints").iterdir())) == 2


def test_configurations_that_cannot_be_are_refused() -> None:
    with pytest.raises(TypeError, match="did you mean 'env_id'"):
        rlox.TrainingConfig.from_dict({"algorithm": "ppo", "env_ids": "CartPole-v1"})
    with pytest.raises(ValueError, match="n_envs must be at least 1"):
        rlox.TrainingConfig("ppo", "CartPole-v1", n_envs=0)
    with pytest.raises(ValueError, match="did you mean 'eval'"):
        rlox.train_from_config(rlox.TrainingConfig("ppo", "CartPole-v1", callbacks=["evals"]))


class Spy(rlox.Callback):
    """Its hooks name what they want."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.losses: list[float] = []

    def on_training_start(self) -> None:
        self.calls["start"] += 1

    def on_step(self, reward: float, step: int) -> bool:
        self.calls["step"] += 1
        return step > 0 and reward is not None

    def on_rollout_end(self, mean_reward: float) -> None:
        self.calls["rollout"] += 1
        assert np.isfinite(mean_reward)

    def on_train_batch(self, algo: Any, step: int, **metrics: float) -> None:
        assert algo.timesteps == step
        self.calls["batch"] += 1
        self.losses.append(metrics.get("loss", metrics.get("critic_loss", np.nan)))


def weights(agent: Any) -> Any:
    return np.concatenate([p.detach().numpy().ravel() for p in agent.policy.parameters()])


@pytest.mark.long(but=["PPO-native"])
@pytest.mark.parametrize("backend", ["native", "torch"])
@pytest.mark.parametrize("name", ["PPO", "HybridPPO", "A2C"])
def test_every_minibatch_of_a_rollout_is_told_of(name: str, backend: str) -> None:
    """`on_train_batch` was called once an update, with the means of its minibatches."""
    cls: Any = HybridPPO if name == "HybridPPO" else getattr(rlox, name)
    options: dict[str, Any] = {"n_envs": 2, "n_steps": 32, "seed": 3, "backend": backend}
    if name != "A2C":
        options |= {"n_epochs": 3, "batch_size": 24}
    spy = Spy()
    agent = cls("CartPole-v1", callbacks=[spy], **options)
    assert agent.train(128)["loss"] == pytest.approx(
        np.mean(spy.losses[len(spy.losses) // 2 :]), rel=1e-4
    )
    per_update = 1 if name == "A2C" else 3 * 3
    assert spy.calls == {"start": 1, "step": 64, "rollout": 2, "batch": 2 * per_update}
    assert agent.backend == backend
    alone = cls("CartPole-v1", **options)
    alone.train(128)
    np.testing.assert_array_equal(weights(agent), weights(alone))


@pytest.mark.long(but=["DQN-native"])
@pytest.mark.parametrize("backend", ["native", "torch"])
@pytest.mark.parametrize("name", ["DQN", "SAC", "TD3"])
def test_every_gradient_step_from_replay_is_told_of(name: str, backend: str) -> None:
    """`on_train_batch` was called once a report."""
    spy = Spy()
    env = "CartPole-v1" if name == "DQN" else "Pendulum-v1"
    options: dict[str, Any] = {"learning_starts": 20, "batch_size": 8, "hidden": 8, "seed": 3}
    agent = getattr(rlox, name)(env, callbacks=[spy], backend=backend, **options)
    metrics = agent.train(50)
    assert spy.calls["batch"] == agent.gradient_steps == 31
    assert agent.backend == backend
    assert len(set(spy.losses)) > 20
    if name != "DQN":
        assert metrics["mean_reward"] == 0.0  # no episode has ended
        assert np.isnan(getattr(sw, name)(env, **options).train(50)["mean_return"])


@pytest.mark.parametrize("name", ["TD3BC", "IQL", "CQL", "BC"])
def test_every_gradient_step_on_a_dataset_is_told_of(name: str) -> None:
    """`on_train_batch` was called once a report."""
    draws = np.random.default_rng(0).standard_normal((60, 3)).astype(np.float32)
    ends = np.arange(60) % 20 == 19
    data = rlox.OfflineDatasetBuffer(draws, draws, draws[:, :1], draws[:, 0], ends, ~ends & False)

    class Counting(rlox.Callback):
        calls = 0

        def on_train_batch(self, **metrics: Any) -> None:
            self.calls += 1
            assert len(metrics) > 2

    spy = Counting()
    getattr(rlox, name)(data, 3, 1, hidden=8, batch_size=8, callbacks=[spy]).train(12)
    assert spy.calls == 12


def test_callbacks_of_the_library_are_called_at_update_boundaries() -> None:
    """Evaluation and checkpoints go on to happen where a run can be resumed."""
    spy, evaluation = Spy(), rlox.EvalCallback(eval_freq=64, n_eval_episodes=1, verbose=False)
    agent = rlox.PPO("CartPole-v1", n_envs=2, n_steps=32, callbacks=[spy, evaluation])
    evaluations: list[int] = []

    class Counting(rlox.Callback):
        def on_eval(self, step: int) -> None:
            evaluations.append(step)

    agent.train(192, callbacks=Counting())
    assert evaluations == [64, 128, 192]
    assert spy.calls["batch"] > 3
