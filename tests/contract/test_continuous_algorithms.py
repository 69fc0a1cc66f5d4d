"""The contract of the algorithms for continuous actions, one table over all of them."""

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
from tests.contract.test_algorithms import stop_after, weights
from tests.envs import ResumablePush
from tests.learning import probes

SMALL: dict[str, Any] = {
    "n_envs": 2,
    "learning_starts": 40,
    "batch_size": 16,
    "hidden": 16,
    "buffer_size": 2000,
    "train_freq": 2,
    "log_interval": 40,
    "learning_rate": 3e-3,
    "save_buffer": True,
}
CASES: dict[str, Any] = {
    "sac": partial(sw.SAC, backend="torch", **SMALL),
    "sac-native": partial(sw.SAC, backend="native", **SMALL),
    "sac-prioritized": partial(sw.SAC, prioritized=True, n_step=3, n_critics=3, **SMALL),
    "sac-gsde": partial(sw.SAC, use_gsde=True, sde_sample_freq=7, **SMALL),
    "sac-overlap": partial(sw.SAC, overlap=True, use_gsde=True, **SMALL),
    "sac-native-overlap": partial(sw.SAC, overlap=True, backend="native", **SMALL),
    "td3": partial(sw.TD3, backend="torch", **SMALL),
    "td3-native": partial(sw.TD3, backend="native", **SMALL),
    "td3-ou": partial(sw.TD3, noise_type="ou", exploration_noise=0.5, backend="torch", **SMALL),
    "td3-native-ou": partial(
        sw.TD3, noise_type="ou", exploration_noise=0.5, backend="native", **SMALL
    ),
    "ddpg": partial(sw.DDPG, normalize_obs=True, **SMALL),
    "tqc": partial(sw.TQC, **SMALL),
    "crossq": partial(sw.CrossQ, critic_hidden=(16, 16), **SMALL),
}
SOFT = {"critic_loss", "actor_loss", "alpha", "alpha_loss", "entropy", "mean_return"}
METRICS = {
    "sac": SOFT,
    "tqc": SOFT,
    "crossq": SOFT,
    "td3": {"critic_loss", "actor_loss", "mean_return"},
    "ddpg": {"critic_loss", "actor_loss", "mean_return"},
}

algorithms = pytest.mark.parametrize("case", CASES)


def all_weights(algorithm: Any) -> torch.Tensor:
    networks = algorithm.networks.values()
    states = (net.state_dict() for net in networks)
    return torch.cat([torch.as_tensor(x).flatten() for state in states for x in state.values()])


@algorithms
class TestRun:
    @pytest.mark.long(but=["sac"])
    def test_train_returns_the_documented_metrics_as_numbers(self, case: str) -> None:
        metrics = CASES[case](ResumablePush).train(120)
        assert METRICS[case.partition("-")[0]] <= metrics.keys()
        assert all(isinstance(value, float) for value in metrics.values())
        assert all(np.isfinite(value) for value in metrics.values())

    @pytest.mark.long(but=["sac"])
    def test_timesteps_count_every_environment(self, case: str) -> None:
        algorithm = CASES[case](ResumablePush)
        algorithm.train(101)
        assert algorithm.timesteps == 104
        assert len(algorithm.buffer) == 104

    @pytest.mark.long(but=["sac"])
    def test_the_same_seed_gives_the_same_run(self, case: str) -> None:
        first, second = (CASES[case](ResumablePush, seed=7) for _ in range(2))
        torch.manual_seed(1)
        first.train(120)
        torch.manual_seed(2)
        second.train(120)
        assert torch.equal(all_weights(first), all_weights(second))
        assert not torch.equal(weights(first), weights(CASES[case](ResumablePush, seed=8)))

    @pytest.mark.long(but=["sac"])
    def test_global_generators_are_left_alone(self, case: str) -> None:
        torch.manual_seed(5)
        expected = torch.rand(3)
        torch.manual_seed(5)
        CASES[case](ResumablePush).train(100)
        assert torch.equal(torch.rand(3), expected)

    @pytest.mark.long(but=["sac-native"])
    def test_a_gradient_step_waits_for_no_number(self, case: str) -> None:
        from tests.unit.learners.test_update import NoNumbers

        algorithm = CASES[case](ResumablePush)
        algorithm.train(60)
        for _ in range(6):  # with and without the actor
            batch = algorithm.sampler.sample()
            with NoNumbers():  # type: ignore[no-untyped-call]
                measured = algorithm.learner.update(batch)
            losses = {"critic_loss", "actor_loss", "td_errors"}
            assert losses <= measured.keys()
            assert all(np.shape(x) == () for name, x in measured.items() if name != "td_errors")
            assert measured["td_errors"].shape == (len(batch.rewards),)


@algorithms
class TestPredict:
    def test_one_observation_and_a_batch(self, case: str) -> None:
        algorithm = CASES[case](ResumablePush)
        assert algorithm.predict([0.0, 0.0, 0.0]).shape == (2,)
        assert algorithm.predict(np.zeros((1, 3))).shape == (1, 2)
        assert algorithm.predict(np.zeros((5, 3)), deterministic=False).shape == (5, 2)

    @pytest.mark.parametrize("sign", [-1, 1])
    def test_actions_reach_the_bounds_and_never_pass_them(self, case: str, sign: int) -> None:
        algorithm = CASES[case](ResumablePush)
        head = list(algorithm.policy.net)[-1]
        with torch.no_grad():
            head.bias[:2] = 50.0 * sign
        box = algorithm.action_space
        bound = box.low if sign < 0 else box.high
        actions = algorithm.predict(np.random.default_rng(0).normal(size=(20, 3)))
        assert all(box.contains(action) for action in actions)
        if not algorithm.config.to_dict().get("use_gsde"):  # which leaves room for noise
            np.testing.assert_array_equal(actions, np.broadcast_to(bound, actions.shape))

    @pytest.mark.long(but=["sac"])
    def test_playing_does_not_change_a_run(self, case: str) -> None:
        class Play(sw.Callback):
            def on_train_batch(self, *, algo: Any, **_: Any) -> None:
                algo.evaluate(2, deterministic=False)
                algo.predict(np.zeros((2, 3)), deterministic=False)

        first, second = (CASES[case](ResumablePush, seed=7) for _ in range(2))
        first.train(120, callbacks=Play())
        second.train(120)
        assert torch.equal(all_weights(first), all_weights(second))


@algorithms
class TestCheckpoint:
    @pytest.mark.long(but=["1-sac"])
    @pytest.mark.parametrize("reports", [1, 3])
    def test_continues_bit_for_bit(self, case: str, reports: int, tmp_path: Path) -> None:
        through = CASES[case](ResumablePush, seed=3)
        expected = through.train(160)
        first = CASES[case](ResumablePush, seed=3)
        first.train(160, callbacks=stop_after(reports))
        first.save(tmp_path / "a")
        resumed = type(first).from_checkpoint(tmp_path / "a", ResumablePush)
        metrics = resumed.train()
        assert torch.equal(all_weights(resumed), all_weights(through))
        assert list(resumed.episodes.returns) == list(through.episodes.returns)
        for name in METRICS[case.partition("-")[0]]:
            assert metrics[name] == expected[name]

    @pytest.mark.long(but=["sac"])
    def test_predicts_the_same_without_being_told_the_environment(
        self, case: str, tmp_path: Path
    ) -> None:
        algorithm = CASES[case]("Pendulum-v1")
        algorithm.train(60)
        algorithm.save(tmp_path / "a")
        loaded = type(algorithm).from_checkpoint(tmp_path / "a")
        obs = np.random.default_rng(0).normal(size=(50, 3))
        np.testing.assert_array_equal(loaded.predict(obs), algorithm.predict(obs))
        assert loaded.config == algorithm.config

    @pytest.mark.long(but=["sac"])
    def test_goes_on_with_another_number_of_environments(self, case: str, tmp_path: Path) -> None:
        algorithm = CASES[case](ResumablePush)
        algorithm.train(60)
        algorithm.save(tmp_path / "a")
        wider = type(algorithm).from_checkpoint(tmp_path / "a", ResumablePush, n_envs=5)
        wider.train(60)
        assert wider.timesteps == 120


@algorithms
class TestConstruction:
    def test_discrete_actions_are_refused(self, case: str) -> None:
        with pytest.raises(TypeError, match=r"action_space must be Box for \w+, got Discrete"):
            CASES[case]("CartPole-v1")

    def test_actions_without_bounds_are_refused(self, case: str) -> None:
        class Unbounded(probes.ContinuousIdentity):
            action_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)

        with pytest.raises(ValueError, match="action_space must have bounds"):
            CASES[case](Unbounded)

    def test_takes_ids_environments_factories_and_vector_environments(self, case: str) -> None:
        for env in (
            "Pendulum-v1",
            lambda: gym.make("Pendulum-v1"),
            gym.make_vec("Pendulum-v1", 2, vectorization_mode="sync"),
        ):
            assert CASES[case](env).env.num_envs == 2

    def test_a_misspelt_option_names_the_nearest(self, case: str) -> None:
        with pytest.raises(TypeError, match=r"lerning_rate.*learning_rate"):
            CASES[case](ResumablePush, lerning_rate=1e-3)

    def test_one_number_of_hidden_units_stands_for_two_layers(self, case: str) -> None:
        cls = CASES[case].func
        assert cls.Config(hidden=7).hidden == (7, 7)
        assert cls.Config.from_text({"hidden": "7"}).hidden == (7, 7)
        assert cls.Config.from_text({"hidden": "7,"}).hidden == (7,)
        assert inspect.signature(cls).parameters["hidden"].default == (256, 256)

    def test_nested_observations(self, case: str) -> None:
        class Nested(ResumablePush):
            observation_space: Any = spaces.Dict(
                {"where": spaces.Box(-9, 9, (3,)), "which": spaces.Discrete(2)}
            )

            def observation(self) -> Any:
                return {"where": super().observation(), "which": 1}

        algorithm = CASES[case](Nested, normalize_obs=False)
        algorithm.train(60)
        assert algorithm.gradient_steps > 0
