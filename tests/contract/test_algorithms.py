"""The contract of every algorithm, one table over all of them."""

from __future__ import annotations

import inspect
from dataclasses import fields
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

import sharpwave as sw
from tests.contract.algorithm_cases import ANYTHING, CASES, Case
from tests.learning import probes

algorithms = pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))


def weights(algorithm: Any) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in algorithm.policy.parameters()])


def action_space(algorithm: Any) -> Any:
    space = algorithm.action_space
    return space["agent_0"] if isinstance(space, spaces.Dict) else space  # the only agent's


@algorithms
@pytest.mark.long(but=["ppo", "dqn"])
class TestRun:
    def test_train_returns_the_documented_metrics_as_numbers(self, case: Case) -> None:
        metrics = case().train(300)
        assert {*case.metrics.split(), "mean_return", "sps", "timesteps"} <= metrics.keys()
        assert all(isinstance(value, float) for value in metrics.values())

    def test_mean_return_is_the_mean_return_of_finished_episodes(self, case: Case) -> None:
        assert case(case.world.constant).train(256)["mean_return"] == 1.0

    def test_timesteps_count_every_environment(self, case: Case) -> None:
        algorithm = case()
        algorithm.train(300)
        assert algorithm.timesteps == -(-300 // case.steps_at_once) * case.steps_at_once
        assert algorithm.updates == -(-300 // case.steps_of_report)

    def test_the_same_seed_gives_the_same_run(self, case: Case) -> None:
        first, second = case(seed=7), case(seed=7)
        torch.manual_seed(1)
        first.train(300)
        torch.manual_seed(2)
        np.random.seed(3)  # noqa: NPY002
        second.train(300)
        torch.testing.assert_close(weights(first), weights(second), rtol=0, atol=0)

    def test_another_seed_gives_another_run(self, case: Case) -> None:
        assert not torch.equal(weights(case(seed=7)), weights(case(seed=8)))

    def test_global_generators_and_threads_are_left_alone(self, case: Case) -> None:
        threads = torch.get_num_threads()
        torch.manual_seed(5)
        expected = torch.rand(3)
        torch.manual_seed(5)
        case().train(200)
        assert torch.equal(torch.rand(3), expected)
        assert torch.get_num_threads() == threads

    def test_a_second_train_goes_on(self, case: Case) -> None:
        algorithm = case()
        algorithm.train(256)
        steps, updates = algorithm.timesteps, algorithm.updates
        algorithm.train(256)
        assert algorithm.timesteps >= steps + 256
        assert algorithm.updates > updates

    def test_schedules_do_not_start_again_in_a_second_train(self, case: Case) -> None:
        algorithm = case(learning_rate=sw.Linear(1e-3, 0.0))
        algorithm.train(256)
        assert algorithm.train(256)["learning_rate"] <= 0.5e-3

    def test_every_step_is_told_of(self, case: Case) -> None:
        steps: list[int] = []

        class Count(sw.Callback):
            def on_step(self, *, step: int, reward: float, **_: Any) -> None:
                assert np.isfinite(reward)
                steps.append(step)

        algorithm = case()
        algorithm.train(200, callbacks=Count())
        n_envs = algorithm.config.n_envs
        assert steps == list(range(n_envs, algorithm.timesteps + 1, n_envs))

    def test_stops_at_once_when_asked_to(self, case: Case) -> None:
        class Stop(sw.Callback):
            def on_step(self, *, step: int, **_: Any) -> bool:
                return step < 100

        algorithm = case()
        algorithm.train(1000, callbacks=Stop())
        assert 100 <= algorithm.timesteps < 100 + case.steps_at_once
        assert algorithm.stop_reason is not None


@algorithms
class TestPredict:
    @pytest.mark.parametrize("deterministic", [True, False])
    def test_one_observation_gives_one_action(self, case: Case, deterministic: bool) -> None:
        algorithm = case()
        action = algorithm.predict(np.zeros(case.world.sizes[0]), deterministic)
        assert action_space(algorithm).contains(action)
        if isinstance(action_space(algorithm), spaces.Discrete):
            assert type(action) is int

    def test_a_list_is_an_observation(self, case: Case) -> None:
        algorithm = case()
        action = algorithm.predict([0.0] * case.world.sizes[0])
        assert action_space(algorithm).contains(action)

    @pytest.mark.parametrize("n", [1, 5])
    def test_a_batch_gives_an_array(self, case: Case, n: int) -> None:
        algorithm = case()
        actions = algorithm.predict(np.zeros((n, case.world.sizes[0])))
        assert isinstance(actions, np.ndarray)
        assert actions.shape == (n, *action_space(algorithm).shape)
        assert actions.dtype == action_space(algorithm).dtype

    def test_a_wrong_shape_is_named(self, case: Case) -> None:
        size = case.world.sizes[0]
        with pytest.raises(ValueError, match=rf"obs.*\({size},\).*\({size + 1},\)"):
            case().predict(np.zeros(size + 1))

    @pytest.mark.parametrize(
        "env",
        [
            probes.Identity,
            probes.ContinuousIdentity,
            probes.MultiIdentity,
            probes.BinaryIdentity,
        ],
    )
    def test_actions_are_inside_the_space_or_it_is_refused(self, case: Case, env: Any) -> None:
        kind = type(env.action_space).__name__
        if kind not in case.world.spaces:
            with pytest.raises(TypeError, match=kind):
                case(env)
            return
        algorithm = case(env)
        for _ in range(20):
            action = algorithm.predict(np.zeros(1), deterministic=False)
            assert action_space(algorithm).contains(action)
        assert action_space(algorithm).contains(algorithm.predict(np.zeros(1)))
        assert algorithm.predict(np.zeros((4, 1)), False).shape[0] == 4

    @pytest.mark.parametrize("squash", [True, False])
    def test_wide_policies_stay_inside_the_space(self, case: Case, squash: bool) -> None:
        if case.world is not ANYTHING:
            pytest.skip("it has no such option")
        options = {"squash_actions": squash, "log_std_init": 2.0, "backend": "auto"}
        algorithm = case(probes.ContinuousIdentity, **options)
        for _ in range(50):
            action = algorithm.predict(np.zeros(1), deterministic=False)
            assert action_space(algorithm).contains(action)

    @pytest.mark.long(but=["ppo", "dqn"])
    @pytest.mark.parametrize(
        "space", [spaces.Discrete(3), spaces.MultiDiscrete([3, 2]), spaces.MultiBinary(3)], ids=str
    )
    def test_masked_actions_are_never_taken(self, case: Case, space: Any) -> None:
        if type(space).__name__ not in case.world.spaces:
            pytest.skip("it has no such actions")

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

        algorithm = case(Masked)
        algorithm.train(128)
        algorithm.evaluate(2)


@algorithms
@pytest.mark.long(but=["ppo", "dqn"])
class TestCheckpoint:
    def test_continues_bit_for_bit(self, case: Case, tmp_path: Path) -> None:
        make = case.world.resumable
        through = case(make, seed=3)
        through.train(600)

        first = case(make, seed=3)
        first.train(600, callbacks=stop_after(through.updates // 2))
        first.save(tmp_path / "half.safetensors")
        resumed = type(first).from_checkpoint(tmp_path / "half.safetensors", make)
        resumed.train()
        assert resumed.timesteps == through.timesteps
        torch.testing.assert_close(weights(resumed), weights(through), rtol=0, atol=0)
        assert list(resumed.episodes.returns) == list(through.episodes.returns)

    def test_predicts_the_same_without_being_told_the_environment(
        self, case: Case, tmp_path: Path
    ) -> None:
        algorithm = case(case.world.other_id)
        algorithm.train(200)
        algorithm.save(tmp_path / "a")
        loaded = type(algorithm).from_checkpoint(tmp_path / "a")
        obs = np.random.default_rng(0).normal(size=(50, case.world.sizes[1]))
        np.testing.assert_array_equal(loaded.predict(obs), algorithm.predict(obs))
        assert loaded.env_id == case.world.other_id
        assert loaded.config == algorithm.config

    def test_an_unfinished_run_is_finished(self, case: Case, tmp_path: Path) -> None:
        algorithm = case()
        algorithm.train(600, callbacks=stop_after(2))
        algorithm.save(tmp_path / "a")
        resumed = type(algorithm).from_checkpoint(tmp_path / "a")
        resumed.train()
        assert resumed.timesteps >= 600

    def test_another_algorithm_is_refused(self, case: Case, tmp_path: Path) -> None:
        algorithm = case()
        algorithm.save(tmp_path / "a")
        other = sw.A2C if isinstance(algorithm, sw.PPO) else sw.PPO
        with pytest.raises(ValueError, match=algorithm.name):
            other.from_checkpoint(tmp_path / "a")

    def test_another_space_is_refused(self, case: Case, tmp_path: Path) -> None:
        algorithm = case()
        algorithm.save(tmp_path / "a")
        with pytest.raises(ValueError, match="observation space"):
            type(algorithm).from_checkpoint(tmp_path / "a", case.world.other_id)

    def test_an_environment_without_an_id_must_be_given(self, case: Case, tmp_path: Path) -> None:
        algorithm = case(case.world.constant)
        algorithm.save(tmp_path / "a")
        with pytest.raises(ValueError, match="env must be given"):
            type(algorithm).from_checkpoint(tmp_path / "a")
        assert type(algorithm).from_checkpoint(tmp_path / "a", case.world.constant) is not None
        assert type(algorithm).from_checkpoint(tmp_path / "a", env=case.world.constant) is not None

    def test_saving_over_a_checkpoint_keeps_the_old_one_on_failure(
        self, case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        algorithm = case()
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
    @pytest.mark.long(but=["ppo", "dqn"])
    def test_takes_ids_environments_factories_and_vector_environments(self, case: Case) -> None:
        env_id = case.world.env_id
        for env in (
            env_id,
            lambda: gym.make(env_id),
            gym.make_vec(env_id, 4, vectorization_mode="sync"),
        ):
            assert case(env).env.num_envs == 4
        algorithm = case.cls(gym.make(env_id))
        assert algorithm.config.n_envs == algorithm.env.num_envs == 1
        algorithm.train(20)

    def test_a_misspelt_option_names_the_nearest(self, case: Case) -> None:
        with pytest.raises(TypeError, match=r"lerning_rate.*learning_rate"):
            case(lerning_rate=1e-3)

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
    def test_an_impossible_value_is_named(self, case: Case, option: str, value: Any) -> None:
        with pytest.raises((TypeError, ValueError), match=option):
            case(**{option: value})

    def test_an_unknown_environment_names_the_nearest(self, case: Case) -> None:
        with pytest.raises(Exception, match=case.world.env_id):
            case(case.world.misspelt)

    def test_an_unsupported_space_is_named(self, case: Case) -> None:
        class Text(case.world.constant):  # type: ignore[name-defined, misc]
            observation_space = spaces.Text(5)

        with pytest.raises(TypeError, match="Text"):
            case(Text)

    def test_the_signature_shows_every_option_with_its_default(self, case: Case) -> None:
        parameters = inspect.signature(case.cls).parameters
        leading = [name for name in parameters if name not in ("n_agents", "n_actors")][:6]
        assert leading == ["env_id", "n_envs", "seed", "policy", "logger", "callbacks"]
        if hasattr(case.cls.Config, "n_actors"):
            assert list(parameters)[1] == "n_actors"
        defaults = {field.name: field.default for field in fields(case.cls.Config)}
        assert defaults.items() <= {x.name: x.default for x in parameters.values()}.items()

    def test_config_and_overrides(self, case: Case) -> None:
        config = case.cls.Config(gamma=0.5, total_timesteps=7)
        algorithm = case.cls(case.world.env_id, config=config, total_timesteps=9)
        assert (algorithm.config.gamma, algorithm.config.total_timesteps) == (0.5, 9)
