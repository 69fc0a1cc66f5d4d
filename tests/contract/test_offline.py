"""The contract of every algorithm that learns from a dataset, one table over all of them."""

from __future__ import annotations

import inspect
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

import sharpwave as sw
from sharpwave.collect import NonFiniteError
from sharpwave.types import Array

OBS, ACT, STEPS = 3, 2, 400


def columns(*, discrete: bool = False) -> dict[str, Array]:
    """A dataset as dict: episodes of 20 steps, every second one truncated."""
    generator = np.random.default_rng(0)
    last = np.arange(STEPS) % 20 == 19
    actions = generator.uniform(-1, 1, (STEPS, ACT)).astype(np.float32)
    return {
        "obs": generator.normal(2.0, 3.0, (STEPS, OBS)).astype(np.float32),
        "next_obs": generator.normal(2.0, 3.0, (STEPS, OBS)).astype(np.float32),
        "actions": generator.integers(0, 3, STEPS) if discrete else actions,
        "rewards": generator.normal(size=STEPS).astype(np.float32),
        "terminated": last & (np.arange(STEPS) // 20 % 2 == 0),
        "truncated": last & (np.arange(STEPS) // 20 % 2 == 1),
    }


SMALL: dict[str, Any] = {"hidden": 8, "batch_size": 32, "log_interval": 10}
CASES: dict[str, Any] = {
    "bc": partial(sw.BC, **SMALL),
    "bc-best": partial(sw.BC, top_share=0.3, **SMALL),
    "bc-discrete": partial(sw.BC, **SMALL),
    "td3_bc": partial(sw.TD3BC, backend="torch", **SMALL),
    "td3_bc-native": partial(sw.TD3BC, backend="native", **SMALL),
    "rebrac": partial(sw.ReBRAC, **SMALL),
    "iql": partial(sw.IQL, **SMALL),
    "iql-deterministic": partial(sw.IQL, actor="deterministic", **SMALL),
    "cql": partial(sw.CQL, n_random_actions=3, **SMALL),
    "cql-lagrange": partial(sw.CQL, n_random_actions=3, auto_alpha=True, **SMALL),
}
METRICS = {
    "bc": {"loss"},
    "td3_bc": {"critic_loss", "actor_loss"},
    "rebrac": {"critic_loss", "actor_loss"},
    "iql": {"value_loss", "q_loss", "actor_loss"},
    "cql": {"critic_loss", "cql_loss", "actor_loss", "alpha", "cql_alpha"},
}

algorithms = pytest.mark.parametrize("case", CASES)


def data_of(case: str) -> dict[str, Array]:
    return columns(discrete=case == "bc-discrete")


def make(case: str, **options: Any) -> Any:
    return CASES[case](data_of(case), **options)


def weights(algorithm: Any) -> torch.Tensor:
    states = (net.state_dict() for net in algorithm.networks.values())
    return torch.cat([torch.as_tensor(x).flatten() for state in states for x in state.values()])


def stop_after(steps: int) -> sw.Callback:
    class Stop(sw.Callback):
        def on_train_batch(self, *, step: int, **kwargs: Any) -> bool:
            return step < steps

    return Stop()


@algorithms
class TestRun:
    @pytest.mark.long(but=["bc"])
    def test_train_returns_the_documented_metrics_as_numbers(self, case: str) -> None:
        metrics = make(case).train(20)
        assert METRICS[case.partition("-")[0]] <= metrics.keys()
        assert all(isinstance(value, float) for value in metrics.values())
        assert "mean_return" not in metrics

    @pytest.mark.long(but=["bc"])
    def test_steps_are_gradient_steps(self, case: str) -> None:
        steps: list[int] = []

        class Watch(sw.Callback):
            def on_step(self, *, algo: Any, step: int, **kwargs: Any) -> None:
                assert METRICS[case.partition("-")[0]] <= kwargs.keys()
                steps.append(step)

        algorithm = make(case)
        metrics = algorithm.train(25, callbacks=Watch())
        assert steps == list(range(1, 26))
        assert algorithm.timesteps == metrics["timesteps"] == 25

    @pytest.mark.long(but=["bc"])
    def test_metrics_are_reported_every_so_many_steps_and_at_the_end(self, case: str) -> None:
        logged: list[int] = []

        class Log(sw.LoggerCallback):
            def on_train_step(self, step: int, metrics: Any) -> None:
                logged.append(step)

        make(case, logger=Log()).train(25)
        assert logged == [10, 20, 25]

    @pytest.mark.long(but=["bc"])
    def test_the_same_seed_gives_the_same_run(self, case: str) -> None:
        first, second = make(case, seed=7), make(case, seed=7)
        torch.manual_seed(1)
        first.train(30)
        torch.manual_seed(2)
        second.dataset.sample(5)  # draws of others do not matter
        second.train(30)
        torch.testing.assert_close(weights(first), weights(second), rtol=0, atol=0)

    def test_another_seed_gives_another_run(self, case: str) -> None:
        assert not torch.equal(weights(make(case, seed=7)), weights(make(case, seed=8)))

    @pytest.mark.long(but=["bc"])
    def test_global_generators_and_threads_are_left_alone(self, case: str) -> None:
        threads = torch.get_num_threads()
        torch.manual_seed(5)
        expected = torch.rand(3)
        torch.manual_seed(5)
        make(case).train(10)
        assert torch.equal(torch.rand(3), expected)
        assert torch.get_num_threads() == threads

    @pytest.mark.long(but=["bc"])
    def test_no_batch_comes_twice(self, case: str) -> None:
        algorithm = make(case)
        seen = []
        as_batch = algorithm.sampler.as_batch

        def watched(drawn: Any) -> Any:
            batch = as_batch(drawn)
            seen.append(np.asarray(batch.obs).tobytes())
            return batch

        algorithm.sampler.as_batch = watched
        algorithm.train(15)
        algorithm.train(15)
        assert len(set(seen)) == 30

    @pytest.mark.long(but=["bc"])
    def test_a_second_train_goes_on(self, case: str) -> None:
        algorithm = make(case)
        algorithm.train(10)
        algorithm.train(15)
        assert algorithm.timesteps == 25

    @pytest.mark.long(but=["bc"])
    def test_schedules_do_not_start_again_in_a_second_train(self, case: str) -> None:
        algorithm = make(case, learning_rate=sw.Linear(1e-3, 0.0))
        algorithm.train(20)
        assert algorithm.train(20)["learning_rate"] <= 5.1e-4

    def test_learning_that_diverges_is_an_error(self, case: str) -> None:
        data = data_of(case)
        data["obs"][:] = np.inf
        data["next_obs"][:] = np.inf
        algorithm = CASES[case](data, normalize_obs=False)
        with pytest.raises(NonFiniteError, match="loss"):
            algorithm.train(10)


@algorithms
class TestPredict:
    @pytest.mark.parametrize("deterministic", [True, False])
    def test_one_observation_gives_one_action(self, case: str, deterministic: bool) -> None:
        action = make(case).predict(np.zeros(OBS), deterministic)
        if case == "bc-discrete":
            assert type(action) is int
        else:
            assert action.shape == (ACT,)

    def test_a_list_is_an_observation(self, case: str) -> None:
        algorithm = make(case)
        expected = algorithm.predict(np.zeros(OBS))
        np.testing.assert_array_equal(algorithm.predict([0.0] * OBS), expected)

    @pytest.mark.parametrize("n", [1, 5])
    def test_a_batch_gives_an_array(self, case: str, n: int) -> None:
        actions = make(case).predict(np.zeros((n, OBS)))
        assert isinstance(actions, np.ndarray)
        assert len(actions) == n

    def test_a_wrong_shape_is_named(self, case: str) -> None:
        with pytest.raises(ValueError, match=r"obs.*\(3,\).*\(4,\)"):
            make(case).predict(np.zeros(4))

    def test_actions_are_inside_the_space(self, case: str) -> None:
        data = data_of(case)
        if case != "bc-discrete":
            data["actions"] = data["actions"] * np.array([5.0, 0.5], np.float32) + 3.0
        algorithm = CASES[case](data)
        for obs in np.random.default_rng(1).normal(0, 100, (20, OBS)):
            for deterministic in (True, False):
                assert algorithm.action_space.contains(algorithm.predict(obs, deterministic))

    def test_the_batch_does_not_change_the_prediction(self, case: str) -> None:
        algorithm = make(case)
        obs = np.random.default_rng(1).normal(size=(40, OBS))
        alone = np.stack([algorithm.predict(row) for row in obs])
        np.testing.assert_allclose(algorithm.predict(obs), alone, rtol=1e-4, atol=1e-6)


@algorithms
class TestNormalization:
    def test_observations_are_normalized_by_the_dataset(self, case: str) -> None:
        algorithm = make(case, normalize_obs=True)
        obs = algorithm.dataset.rows.gather(algorithm.dataset.rows.indices())["obs"]
        np.testing.assert_allclose(algorithm.normalizer.mean, obs.mean(0), rtol=1e-5)
        np.testing.assert_allclose(algorithm.normalizer.std, obs.std(0) + 1e-3, rtol=1e-5)
        batch = algorithm.sampler.sample(0)
        assert abs(batch.obs).mean() < 1.5
        assert abs(batch.next_obs).mean() < 1.5

    def test_prediction_normalizes_too(self, case: str) -> None:
        algorithm = make(case, normalize_obs=True)
        raw = make(case, normalize_obs=False)
        raw.policy.load_state_dict(algorithm.policy.state_dict())
        obs = np.random.default_rng(1).normal(2, 3, (10, OBS))
        np.testing.assert_allclose(
            algorithm.predict(obs),
            raw.predict(algorithm.normalizer.normalize_obs(obs)),
            rtol=1e-5,
            atol=1e-6,
        )

    def test_a_dataset_that_normalizes_itself_is_not_normalized_twice(self, case: str) -> None:
        given: dict[str, Any] = data_of(case)
        own = sw.OfflineDatasetBuffer(**given, normalize=True)
        options = {} if case != "bc-discrete" else {"continuous": False}
        algorithm = CASES[case](own, **options)
        drawn = algorithm.dataset.rows.sample(32, algorithm.learner.seeds.drawing << 32)["obs"]
        batch = algorithm.sampler.sample()
        np.testing.assert_array_equal(batch.obs, drawn)
        np.testing.assert_array_equal(algorithm.normalizer.mean, own.obs_mean)
        np.testing.assert_array_equal(algorithm.normalizer.std, own.obs_std)

    @pytest.mark.long(but=["bc"])
    def test_the_checkpoint_carries_it(self, case: str, tmp_path: Path) -> None:
        algorithm = make(case, normalize_obs=True)
        algorithm.train(10)
        algorithm.save(tmp_path / "a")
        loaded = type(algorithm).from_checkpoint(tmp_path / "a")
        np.testing.assert_array_equal(loaded.normalizer.mean, algorithm.normalizer.mean)
        obs = np.random.default_rng(1).normal(2, 3, (10, OBS))
        np.testing.assert_array_equal(loaded.predict(obs), algorithm.predict(obs))


@algorithms
class TestCheckpoint:
    @pytest.mark.long(but=["bc", "td3_bc-native", "iql-deterministic"])
    def test_continues_bit_for_bit(self, case: str, tmp_path: Path) -> None:
        options = {"learning_rate": sw.Linear(1e-2, 1e-4), "seed": 3}
        through = make(case, **options)
        through.train(60)

        first = make(case, **options)
        first.train(60, callbacks=stop_after(30))
        first.save(tmp_path / "half.safetensors")
        cls = type(first)
        resumed = cls.from_checkpoint(tmp_path / "half.safetensors", data_of(case))
        resumed.train()
        assert resumed.timesteps == through.timesteps
        torch.testing.assert_close(weights(resumed), weights(through), rtol=0, atol=0)
        assert resumed.config == through.config

    def test_predicts_without_the_dataset_but_does_not_learn(
        self, case: str, tmp_path: Path
    ) -> None:
        algorithm = make(case)
        algorithm.save(tmp_path / "a")
        loaded = type(algorithm).from_checkpoint(tmp_path / "a")
        loaded.predict(np.zeros(OBS))
        with pytest.raises(ValueError, match="dataset must be given"):
            loaded.train(10, run_dir=tmp_path / "run")
        assert not (tmp_path / "run").exists()

    @pytest.mark.long(but=["bc"])
    def test_a_dataset_that_was_named_is_found_again(self, case: str, tmp_path: Path) -> None:
        np.savez(
            tmp_path / "data.npz",
            observations=data_of(case)["obs"],
            actions=data_of(case)["actions"],
            rewards=data_of(case)["rewards"],
            terminals=data_of(case)["terminated"],
            timeouts=data_of(case)["truncated"],
        )
        algorithm = CASES[case](tmp_path / "data.npz")
        algorithm.train(10)
        algorithm.save(tmp_path / "a")
        loaded = type(algorithm).from_checkpoint(tmp_path / "a")
        loaded.train(10)
        algorithm.train(10)
        torch.testing.assert_close(weights(loaded), weights(algorithm), rtol=0, atol=0)

    def test_another_algorithm_is_refused(self, case: str, tmp_path: Path) -> None:
        algorithm = make(case)
        algorithm.save(tmp_path / "a")
        other = sw.IQL if isinstance(algorithm, sw.BC) else sw.BC
        with pytest.raises(ValueError, match=algorithm.name):
            other.from_checkpoint(tmp_path / "a")

    def test_a_dataset_of_another_shape_is_refused(self, case: str, tmp_path: Path) -> None:
        algorithm = make(case)
        algorithm.save(tmp_path / "a")
        other = data_of(case)
        other["obs"] = other["next_obs"] = np.zeros((STEPS, OBS + 1), np.float32)
        with pytest.raises(ValueError, match=r"observations of shape \(3,\)"):
            type(algorithm).from_checkpoint(tmp_path / "a", other)


@algorithms
class TestConstruction:
    def test_dims_are_optional_and_checked(self, case: str) -> None:
        n = 3 if case == "bc-discrete" else ACT
        assert CASES[case](data_of(case), OBS, n).action_space == make(case).action_space
        with pytest.raises(ValueError, match=r"obs_dim must be 3 .* got 4"):
            CASES[case](data_of(case), OBS + 1, n)
        with pytest.raises(ValueError, match=r"act_dim must be 2 .* got 1|actions from 0 to 1"):
            CASES[case](data_of(case), OBS, n - 1)

    def test_a_misspelt_option_names_the_nearest(self, case: str) -> None:
        with pytest.raises(TypeError, match=r"lerning_rate.*learning_rate"):
            make(case, lerning_rate=1e-3)

    @pytest.mark.parametrize(
        ("option", "value"),
        [
            ("gamma", 1.5),
            ("batch_size", 0),
            ("learning_rate", "fast"),
            ("seed", -1),
            ("hidden", 0),
            ("log_interval", 0),
        ],
    )
    def test_an_impossible_value_is_named(self, case: str, option: str, value: Any) -> None:
        with pytest.raises((TypeError, ValueError), match=option):
            CASES[case].func(data_of(case), **{option: value})

    @pytest.mark.parametrize("steps", [0, -5, 2.5, "many"])
    def test_an_impossible_number_of_steps_is_named(self, case: str, steps: Any) -> None:
        with pytest.raises((TypeError, ValueError), match="n_gradient_steps"):
            make(case).train(steps)

    def test_what_is_no_dataset_is_named(self, case: str) -> None:
        with pytest.raises(TypeError, match="dataset"):
            CASES[case](3)

    def test_the_signature_shows_every_option_with_its_default(self, case: str) -> None:
        parameters = inspect.signature(CASES[case].func).parameters
        assert list(parameters)[:3] == ["dataset", "obs_dim", "act_dim"]
        assert parameters["seed"].default is None
        assert parameters["gamma"].default == 0.99
        assert parameters["env"].default is None

    def test_one_number_stands_for_two_hidden_layers(self, case: str) -> None:
        assert make(case).config.hidden == (8, 8)

    def test_config_and_overrides(self, case: str) -> None:
        cls = CASES[case].func
        algorithm = cls(data_of(case), config=cls.Config(gamma=0.5, batch_size=7), batch_size=9)
        assert (algorithm.config.gamma, algorithm.config.batch_size) == (0.5, 9)


@pytest.mark.parametrize("case", [case for case in CASES if case != "bc-discrete"])
class TestEvaluation:
    def pendulum(self) -> dict[str, Array]:
        data = columns()
        data["actions"] = data["actions"][:, :1] * 2
        return data

    @pytest.mark.long(but=["bc"])
    def test_in_the_course_of_a_run(self, case: str) -> None:
        evaluated: list[int] = []

        class Watch(sw.Callback):
            def on_eval(self, *, step: int, result: Any, **kwargs: Any) -> None:
                assert len(result.returns) == 2
                evaluated.append(step)

        algorithm = CASES[case](
            self.pendulum(),
            env="Pendulum-v1",
            eval_freq=20,
            n_eval_episodes=2,
            callbacks=Watch(),
        )
        algorithm.train(50)
        assert evaluated == [20, 40, 50]
        assert algorithm.env_id == "Pendulum-v1"
        np.testing.assert_array_equal(algorithm.action_space.high, [2.0])

    @pytest.mark.long(but=["bc"])
    def test_in_an_environment_given_later(self, case: str) -> None:
        algorithm = CASES[case](self.pendulum())
        with pytest.raises(ValueError, match="env must be given"):
            algorithm.evaluate(1)
        assert len(algorithm.evaluate(2, env="Pendulum-v1").returns) == 2
        with pytest.raises(ValueError, match="observation_space"):
            algorithm.evaluate(2, env="CartPole-v1")

    @pytest.mark.long(but=["bc"])
    def test_in_the_environment_itself_where_it_cannot_be_made_again(self, case: str) -> None:
        env = gym.wrappers.TransformReward(
            gym.make("Pendulum-v1"), lambda reward: float(reward) + 1.0
        )
        algorithm = CASES[case](self.pendulum(), env=env)
        assert len(algorithm.evaluate(1).returns) == 1

    def test_an_environment_with_other_spaces_is_refused(self, case: str) -> None:
        with pytest.raises((TypeError, ValueError), match=r"dataset must have|continuous"):
            CASES[case](self.pendulum(), env="CartPole-v1")

    def test_an_evaluation_without_an_environment_is_refused(self, case: str) -> None:
        with pytest.raises(ValueError, match="eval_freq needs an env"):
            CASES[case](self.pendulum(), eval_freq=10)
