"""What every algorithm promises, one table over all of them."""

from __future__ import annotations

import inspect
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

import sharpwave as sw
from sharpwave.train.checkpoint import read_header, write_checkpoint
from tests.envs import resumable
from tests.learning import probes

REPLAY: dict[str, Any] = {
    "n_envs": 4,
    "train_freq": 4,
    "learning_starts": 40,
    "batch_size": 16,
    "hidden": (16, 16),
    "buffer_size": 5000,
    "log_interval": 64,
    "target_update_freq": 60,
    "save_buffer": True,
}


def without(options: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name not in names}


CASES: dict[str, Any] = {
    "ppo": partial(sw.PPO, n_envs=4, n_steps=32, batch_size=32, n_epochs=2),
    "ppo-recurrent": partial(
        sw.PPO, n_envs=4, n_steps=16, batch_size=32, n_epochs=2, recurrent="lstm"
    ),
    "ppo-normalized": partial(
        sw.PPO, n_envs=4, n_steps=32, batch_size=32, normalize_obs=True, normalize_rewards=True
    ),
    "a2c": partial(sw.A2C, n_envs=4),
    "a2c-recurrent": partial(sw.A2C, n_envs=4, recurrent="gru"),
    "dqn": partial(sw.DQN, **REPLAY),
    "dqn-rainbow": partial(
        sw.DQN, dueling=True, noisy=True, n_step=3, prioritized=True, normalize_obs=True, **REPLAY
    ),
    "c51": partial(sw.C51, n_atoms=11, v_max=50.0, prioritized=True, **REPLAY),
    "qr_dqn": partial(sw.QRDQN, n_quantiles=7, **REPLAY),
    "discrete_sac": partial(sw.DiscreteSAC, **without(REPLAY, "target_update_freq")),
}
METRICS = {
    "ppo": {"policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction", "mean_reward"},
    "a2c": {"policy_loss", "value_loss", "entropy", "mean_reward"},
    "dqn": {"loss", "q_value", "td_error", "grad_norm", "epsilon", "mean_reward"},
    "c51": {"loss", "q_value", "td_error", "grad_norm", "epsilon", "mean_reward"},
    "qr_dqn": {"loss", "q_value", "td_error", "grad_norm", "epsilon", "mean_reward"},
    "discrete_sac": {"critic_loss", "actor_loss", "alpha", "alpha_loss", "entropy", "mean_reward"},
}

ONLY_DISCRETE = {"dqn", "c51", "qr_dqn", "discrete_sac"}
ONLY_ONE_CHOICE = {"discrete_sac"}

algorithms = pytest.mark.parametrize("case", CASES)


def weights(algorithm: Any) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in algorithm.policy.parameters()])


@algorithms
class TestRun:
    def test_train_returns_the_documented_metrics_as_numbers(self, case: str) -> None:
        metrics = CASES[case]("CartPole-v1").train(300)
        assert METRICS[case.partition("-")[0]] <= metrics.keys()
        assert all(isinstance(value, float) for value in metrics.values())

    def test_mean_reward_is_the_mean_return_of_finished_episodes(self, case: str) -> None:
        algorithm = CASES[case](probes.ConstantValue)
        assert algorithm.train(256)["mean_reward"] == 1.0

    def test_timesteps_count_every_environment(self, case: str) -> None:
        algorithm = CASES[case]("CartPole-v1")
        algorithm.train(300)
        config = algorithm.config
        rows = config.train_freq if hasattr(config, "train_freq") else config.n_steps
        at_once = config.n_envs * rows
        per_update = getattr(config, "log_interval", at_once)
        assert algorithm.timesteps == -(-300 // at_once) * at_once
        assert algorithm.updates == -(-300 // per_update)

    def test_the_same_seed_gives_the_same_run(self, case: str) -> None:
        first, second = CASES[case]("CartPole-v1", seed=7), CASES[case]("CartPole-v1", seed=7)
        torch.manual_seed(1)
        first.train(300)
        torch.manual_seed(2)
        np.random.seed(3)  # noqa: NPY002
        second.train(300)
        torch.testing.assert_close(weights(first), weights(second), rtol=0, atol=0)

    def test_another_seed_gives_another_run(self, case: str) -> None:
        first, second = CASES[case]("CartPole-v1", seed=7), CASES[case]("CartPole-v1", seed=8)
        assert not torch.equal(weights(first), weights(second))

    def test_global_generators_and_threads_are_left_alone(self, case: str) -> None:
        threads = torch.get_num_threads()
        torch.manual_seed(5)
        expected = torch.rand(3)
        torch.manual_seed(5)
        CASES[case]("CartPole-v1").train(200)
        assert torch.equal(torch.rand(3), expected)
        assert torch.get_num_threads() == threads

    def test_a_second_train_goes_on(self, case: str) -> None:
        algorithm = CASES[case]("CartPole-v1")
        algorithm.train(256)
        steps, updates = algorithm.timesteps, algorithm.updates
        algorithm.train(256)
        assert algorithm.timesteps >= steps + 256
        assert algorithm.updates > updates

    def test_schedules_do_not_start_again_in_a_second_train(self, case: str) -> None:
        algorithm = CASES[case]("CartPole-v1", learning_rate=sw.Linear(1.0, 0.0))
        algorithm.train(256)
        assert algorithm.train(256)["learning_rate"] <= 0.5


@algorithms
class TestPredict:
    @pytest.mark.parametrize("deterministic", [True, False])
    def test_one_observation_gives_one_action(self, case: str, deterministic: bool) -> None:
        action = CASES[case]("CartPole-v1").predict(np.zeros(4), deterministic)
        assert type(action) is int
        assert action in (0, 1)

    def test_a_list_is_an_observation(self, case: str) -> None:
        assert CASES[case]("CartPole-v1").predict([0.0, 0.0, 0.0, 0.0]) in (0, 1)

    def test_a_batch_gives_an_array(self, case: str) -> None:
        actions = CASES[case]("CartPole-v1").predict(np.zeros((5, 4)))
        assert isinstance(actions, np.ndarray)
        assert actions.shape == (5,)

    def test_a_batch_of_one_stays_a_batch(self, case: str) -> None:
        assert CASES[case]("CartPole-v1").predict(np.zeros((1, 4))).shape == (1,)

    def test_a_wrong_shape_is_named(self, case: str) -> None:
        with pytest.raises(ValueError, match=r"obs.*\(4,\).*\(3,\)"):
            CASES[case]("CartPole-v1").predict(np.zeros(3))

    @pytest.mark.parametrize("squash", [True, False])
    def test_continuous_actions_are_inside_the_space(self, case: str, squash: bool) -> None:
        if case.partition("-")[0] in ONLY_DISCRETE:
            with pytest.raises(TypeError, match=r"Discrete.*, got Box"):
                CASES[case](probes.ContinuousIdentity)
            return
        algorithm = CASES[case](probes.ContinuousIdentity, squash_actions=squash, log_std_init=2.0)
        for _ in range(50):
            action = algorithm.predict(np.zeros(1), deterministic=False)
            assert algorithm.action_space.contains(action)

    @pytest.mark.parametrize("env", [probes.MultiIdentity, probes.BinaryIdentity])
    def test_composed_actions_are_inside_the_space(self, case: str, env: Any) -> None:
        if case in ONLY_ONE_CHOICE:
            with pytest.raises(TypeError, match=r"Discrete.*, got Multi"):
                CASES[case](env)
            return
        algorithm = CASES[case](env)
        assert algorithm.action_space.contains(algorithm.predict(np.zeros(1)))
        assert algorithm.predict(np.zeros((4, 1)), False).shape[0] == 4

    @pytest.mark.parametrize(
        "space", [spaces.Discrete(3), spaces.MultiDiscrete([3, 2]), spaces.MultiBinary(3)], ids=str
    )
    def test_masked_actions_are_never_taken(self, case: str, space: Any) -> None:
        if case in ONLY_ONE_CHOICE and space.shape:
            pytest.skip("has actions of one choice only")

        class Masked(probes.ConstantValue):
            action_space = space
            allowed = np.array([True, False, True, True, False][: 5 if space.shape == (2,) else 3])

            def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
                obs, info = super().reset(seed=seed, options=options)
                return obs, {**info, "action_mask": self.allowed}

            def step(self, action: Any) -> Any:
                taken = np.atleast_1d(action)
                assert taken[1 if space.shape == (3,) else 0] != 1
                assert space.shape != (2,) or taken[1] == 0
                *outcome, info = super().step(action)
                return *outcome, {**info, "action_mask": self.allowed}

        algorithm = CASES[case](Masked)
        algorithm.train(128)
        algorithm.evaluate(2)


@algorithms
class TestCheckpoint:
    def test_continues_bit_for_bit(self, case: str, tmp_path: Path) -> None:
        through = CASES[case](resumable, seed=3)
        through.train(1000)

        first = CASES[case](resumable, seed=3)
        first.train(1000, callbacks=stop_after(through.updates // 2))
        first.save(tmp_path / "half.safetensors")
        resumed = type(first).from_checkpoint(tmp_path / "half.safetensors", resumable)
        resumed.train()
        assert resumed.timesteps == through.timesteps
        torch.testing.assert_close(weights(resumed), weights(through), rtol=0, atol=0)
        assert list(resumed.episodes.returns) == list(through.episodes.returns)

    def test_predicts_the_same_without_being_told_the_environment(
        self, case: str, tmp_path: Path
    ) -> None:
        algorithm = CASES[case]("Acrobot-v1")
        algorithm.train(200)
        algorithm.save(tmp_path / "a")
        loaded = type(algorithm).from_checkpoint(tmp_path / "a")
        obs = np.random.default_rng(0).normal(size=(50, 6))
        np.testing.assert_array_equal(loaded.predict(obs), algorithm.predict(obs))
        assert loaded.env_id == "Acrobot-v1"
        assert loaded.config == algorithm.config

    def test_an_unfinished_run_is_finished(self, case: str, tmp_path: Path) -> None:
        algorithm = CASES[case]("CartPole-v1")
        algorithm.train(600, callbacks=stop_after(2))
        algorithm.save(tmp_path / "a")
        resumed = type(algorithm).from_checkpoint(tmp_path / "a")
        resumed.train()
        assert resumed.timesteps >= 600

    def test_another_algorithm_is_refused(self, case: str, tmp_path: Path) -> None:
        algorithm = CASES[case]("CartPole-v1")
        algorithm.save(tmp_path / "a")
        other = sw.A2C if isinstance(algorithm, sw.PPO) else sw.PPO
        with pytest.raises(ValueError, match=algorithm.name):
            other.from_checkpoint(tmp_path / "a")

    def test_another_space_is_refused(self, case: str, tmp_path: Path) -> None:
        algorithm = CASES[case]("CartPole-v1")
        algorithm.save(tmp_path / "a")
        with pytest.raises(ValueError, match="observation space"):
            type(algorithm).from_checkpoint(tmp_path / "a", "Acrobot-v1")

    def test_an_environment_without_an_id_must_be_given(self, case: str, tmp_path: Path) -> None:
        algorithm = CASES[case](probes.Identity)
        algorithm.save(tmp_path / "a")
        with pytest.raises(ValueError, match="env_id"):
            type(algorithm).from_checkpoint(tmp_path / "a")
        assert type(algorithm).from_checkpoint(tmp_path / "a", probes.Identity) is not None

    def test_saving_over_a_checkpoint_keeps_the_old_one_on_failure(
        self, case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        algorithm = CASES[case]("CartPole-v1")
        path = tmp_path / "a"
        algorithm.save(path)
        before = path.read_bytes()

        def full(*args: Any) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("os.fsync", full)
        with pytest.raises(sw.SharpwaveIOError, match="No space left"):
            algorithm.save(path)
        assert path.read_bytes() == before
        assert [entry.name for entry in tmp_path.iterdir()] == ["a"]


def stop_after(updates: int) -> sw.Callback:
    class Stop(sw.Callback):
        def on_train_batch(self, *, algo: Any, **kwargs: Any) -> bool:
            return bool(algo.updates < updates)

    return Stop()


@algorithms
class TestConstruction:
    def test_takes_ids_environments_factories_and_vector_environments(self, case: str) -> None:
        for env in (
            "CartPole-v1",
            lambda: gym.make("CartPole-v1"),
            gym.make_vec("CartPole-v1", 4, vectorization_mode="sync"),
        ):
            assert CASES[case](env).env.num_envs == 4
        algorithm = CASES[case].func(gym.make("CartPole-v1"))
        assert algorithm.config.n_envs == algorithm.env.num_envs == 1
        algorithm.train(20)

    def test_a_misspelt_option_names_the_nearest(self, case: str) -> None:
        with pytest.raises(TypeError, match=r"lerning_rate.*learning_rate"):
            CASES[case]("CartPole-v1", lerning_rate=1e-3)

    @pytest.mark.parametrize(
        ("option", "value"),
        [
            ("gamma", 1.5),
            ("n_envs", 0),
            ("learning_rate", "fast"),
            ("total_timesteps", 2.5),
            ("seed", -1),
        ],
    )
    def test_an_impossible_value_is_named(self, case: str, option: str, value: Any) -> None:
        with pytest.raises((TypeError, ValueError), match=option):
            CASES[case].func("CartPole-v1", **{option: value})

    def test_an_unknown_environment_names_the_nearest(self, case: str) -> None:
        with pytest.raises(Exception, match="CartPole-v1"):
            CASES[case]("CartPol-v1")

    def test_an_unsupported_space_is_named(self, case: str) -> None:
        class Text(probes.ConstantValue):
            observation_space = spaces.Text(5)

        with pytest.raises(TypeError, match="Text"):
            CASES[case](Text)

    def test_the_signature_shows_every_option_with_its_default(self, case: str) -> None:
        cls = CASES[case].func
        parameters = inspect.signature(cls).parameters
        assert list(parameters)[:6] == [
            "env_id", "n_envs", "seed", "policy", "logger", "callbacks",
        ]  # fmt: skip
        assert parameters["n_envs"].default == (1 if hasattr(cls.Config, "train_freq") else 8)
        assert parameters["seed"].default == 42
        assert parameters["gamma"].default == 0.99

    def test_config_and_overrides(self, case: str) -> None:
        cls = CASES[case].func
        config = cls.Config(gamma=0.5, total_timesteps=7)
        algorithm = cls("CartPole-v1", config=config, total_timesteps=9)
        assert (algorithm.config.gamma, algorithm.config.total_timesteps) == (0.5, 9)


class TestCheckpointFiles:
    def test_a_foreign_file_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "foreign"
        path.write_bytes(b"not a checkpoint")
        with pytest.raises(sw.SharpwaveIOError, match="foreign"):
            sw.PPO.from_checkpoint(path)

    def test_a_missing_file_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(sw.SharpwaveIOError, match="absent"):
            sw.PPO.from_checkpoint(tmp_path / "absent")

    def test_another_version_is_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("sharpwave.train.checkpoint.VERSION", 99)
        write_checkpoint(tmp_path / "a", {"algorithm": "ppo"}, {})
        monkeypatch.undo()
        with pytest.raises(sw.SharpwaveIOError, match="version 99"):
            read_header(tmp_path / "a")

    def test_a_cut_file_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "a"
        write_checkpoint(path, {"algorithm": "ppo"}, {"x": np.arange(100)})
        content = path.read_bytes()
        for length in (0, 5, 50, len(content) - 1):
            path.write_bytes(content[:length])
            with pytest.raises(sw.SharpwaveIOError):
                sw.PPO.from_checkpoint(path)
