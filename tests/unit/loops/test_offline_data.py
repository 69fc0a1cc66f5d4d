"""Data of offline algorithms: every form of it, bounds of actions, normalization."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

import sharpwave as sw
from sharpwave.datasets import make_dataset
from sharpwave.loops.offline_data import name_of, open_dataset
from sharpwave.types import Array

N, OBS = 120, 3


def steps() -> dict[str, Any]:
    """Six episodes of 20 steps whose observations follow each other."""
    generator = np.random.default_rng(0)
    obs = generator.normal(size=(N + 1, OBS)).astype(np.float32)
    last = np.arange(N) % 20 == 19
    return {
        "obs": obs[:-1],
        "next_obs": obs[1:],
        "actions": generator.uniform(-2, 2, (N, 1)).astype(np.float32),
        "rewards": np.arange(N, dtype=np.float32),
        "terminated": last,
        "truncated": np.zeros(N, np.bool_),
    }


def replay(**options: Any) -> sw.ReplayBuffer:
    buffer = sw.ReplayBuffer(N, obs_dim=OBS, act_dim=1, **options)
    data = steps()
    for i in range(N):
        row = [data[name][i] for name in ("obs", "actions", "rewards", "terminated", "truncated")]
        buffer.push(*row, data["next_obs"][i])
    return buffer


def as_episodes(folder: Path) -> sw.EpisodeBuffer:
    data = steps()
    buffer = sw.EpisodeBuffer(
        folder,
        max_episodes=10,
        max_timesteps=20,
        fields={
            "obs": ("float", OBS),
            "action": ("float", 1),
            "reward": "float",
            "terminated": "bool",
        },
    )
    for first in range(0, N, 20):
        part = slice(first, first + 20)
        buffer.store_episode(
            obs=data["obs"][part],
            action=data["actions"][part],
            reward=data["rewards"][part],
            terminated=data["terminated"][part],
        )
    buffer.flush()
    return buffer


def small(dataset: Any, **options: Any) -> Any:
    return sw.TD3BC(dataset, hidden=8, batch_size=16, **options)


class TestForms:
    def test_all_forms_hold_the_same_steps(self, tmp_path: Path) -> None:
        data = steps()
        with as_episodes(tmp_path / "episodes") as episodes:
            episodes.to_hdf5(tmp_path / "d4rl.hdf5")
            replay().save(tmp_path / "replay")
            names = ("obs", "next_obs", "actions", "rewards", "terminated", "truncated")
            forms = {
                "dict": data,
                "tuple": tuple(data[name] for name in names),
                "tuple without truncations": tuple(data[name] for name in names[:-1]),
                "buffer": sw.OfflineDatasetBuffer(**data),
                "replay": replay(),
                "folder of a replay buffer": tmp_path / "replay",
                "EpisodeBuffer": episodes,
                "folder of episodes": str(tmp_path / "episodes"),
                "hdf5": tmp_path / "d4rl.hdf5",
            }
            for name, form in forms.items():
                dataset = open_dataset(form)
                assert len(dataset) == N, name
                rows = getattr(dataset, "rows", dataset)
                found = rows.gather(rows.indices())["rewards"]
                np.testing.assert_array_equal(found, data["rewards"], err_msg=name)
                assert small(form).train(3)["critic_loss"] > 0

    def test_replay_on_disk_is_read_and_not_written(self, tmp_path: Path) -> None:
        data = steps()
        with sw.MmapReplayBuffer(10, N, OBS, 1, tmp_path / "cold") as buffer:
            for i in range(N):
                buffer.push(
                    data["obs"][i],
                    data["actions"][i],
                    data["rewards"][i],
                    bool(data["terminated"][i]),
                    False,
                    data["next_obs"][i],
                )
            buffer.flush()
            algo = small(tmp_path / "cold")
            algo.train(3)
            assert len(algo.dataset) == N

    @pytest.mark.filterwarnings("ignore:Minari wants the observation")
    def test_a_minari_dataset_by_its_id(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pytest.importorskip("minari")
        monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
        with as_episodes(tmp_path / "episodes") as episodes:
            episodes.to_minari("test/steps-v0")
        dataset = open_dataset("minari:test/steps-v0")
        assert len(dataset) == N
        assert name_of("minari:test/steps-v0") == "minari:test/steps-v0"

    def test_columns_may_have_the_names_of_other_libraries(self) -> None:
        data = steps()
        renamed = {
            "observations": data["obs"],
            "next_observations": data["next_obs"],
            "actions": data["actions"],
            "rewards": data["rewards"],
            "terminals": data["terminated"],
            "timeouts": data["truncated"],
            "infos": np.zeros(N),
        }
        assert len(open_dataset(renamed)) == N

    def test_missing_columns_are_named(self) -> None:
        data = steps()
        del data["next_obs"]
        with pytest.raises(ValueError, match="next_obs"):
            open_dataset(data)

    def test_nothing_to_learn_from_is_an_error(self) -> None:
        with pytest.raises(ValueError, match="at least one step"):
            open_dataset(sw.ReplayBuffer(10, 3, 1))

    def test_a_missing_file_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(sw.SharpwaveIOError, match="absent"):
            small(tmp_path / "absent.hdf5")

    def test_a_generated_dataset(self) -> None:
        algo = small(make_dataset("Pendulum-v1", "mixed", n_steps=400), env="Pendulum-v1")
        algo.train(3)
        np.testing.assert_array_equal(algo.action_space.high, [2.0])

    def test_nested_observations_need_an_environment(self) -> None:
        env = gym.make("CartPole-v1")
        fields = {
            "obs": {"a": sw.Field("float32", (2,)), "b": sw.Field("float32", (1,))},
            "action": sw.Field("float32", (1,)),
            "reward": sw.Field("float32"),
            "terminated": sw.Field("bool"),
            "truncated": sw.Field("bool"),
        }
        buffer = sw.ReplayBuffer(50, fields=fields, n_envs=1)
        nested = {"a": np.zeros(2, np.float32), "b": np.zeros(1, np.float32)}
        for i in range(40):
            buffer.push(
                obs=nested,
                action=np.zeros(1, np.float32),
                reward=0.0,
                terminated=False,
                truncated=i % 10 == 9,
                next_obs=nested,
            )
        with pytest.raises(TypeError, match="env must be given"):
            small(buffer)

        class Nested(gym.Env[Any, Any]):
            observation_space = spaces.Dict(
                {"a": spaces.Box(-1, 1, (2,)), "b": spaces.Box(-1, 1, (1,))}
            )
            action_space = spaces.Box(-1, 1, (1,))

        algo = small(buffer, env=Nested)
        algo.train(3)
        assert algo.normalizer is None
        assert algo.predict(nested).shape == (1,)
        env.close()


class TestBounds:
    def bounds(self, data: Any, **options: Any) -> tuple[list[float], list[float]]:
        box = small(data, **options).action_space
        return box.low.tolist(), box.high.tolist()

    def test_actions_inside_the_unit_box_have_its_bounds(self) -> None:
        data = steps()
        data["actions"] = data["actions"] / 4
        assert self.bounds(data) == ([-1.0], [1.0])

    def test_actions_beyond_it_have_those_of_the_data(self) -> None:
        data = steps()
        low, high = data["actions"].min(), data["actions"].max()
        assert self.bounds(data) == ([low], [high])

    def test_given_bounds_win(self) -> None:
        assert self.bounds(steps(), act_high=3.0) == ([-3.0], [3.0])
        assert self.bounds(steps(), act_low=-1.0, act_high=4.0) == ([-1.0], [4.0])
        assert self.bounds(steps(), env="Pendulum-v1", act_high=3.0) == ([-3.0], [3.0])
        with pytest.raises(ValueError, match="act_low must be below act_high"):
            small(steps(), act_low=1.0, act_high=1.0)
        with pytest.raises(ValueError, match=r"act_high must be one number or have shape \(1,\)"):
            small(steps(), act_high=(1.0, 2.0))

    def test_networks_see_actions_scaled_by_the_bounds(self) -> None:
        data = steps()
        algo = small(data, act_low=-2.0, act_high=6.0)
        batch = algo.sampler.sample(0)
        row = int(batch.rewards[0])
        assert batch.actions[0, 0].item() == pytest.approx((data["actions"][row, 0] - 2.0) / 4.0)

    @pytest.mark.long
    def test_cloning_reproduces_actions_beyond_the_unit_box(self) -> None:
        data = steps()
        data["actions"] = 3.0 + np.tanh(data["obs"][:, :1])
        algo = sw.BC(data, hidden=64, learning_rate=1e-2)
        algo.train(300)
        assert np.abs(algo.predict(data["obs"]) - data["actions"]).mean() < 0.1


class TestNormalization:
    def test_what_hardly_varies_is_not_blown_up(self) -> None:
        data = steps()
        data["obs"] = data["obs"] * np.array([1.0, 0.0, 1.0], np.float32) + 5.0
        algo = small(data)
        assert algo.normalizer.std[1] == pytest.approx(1e-3)
        assert algo.sampler.sample(0).obs[:, 1].max() < 1e-2

    @pytest.mark.long
    @pytest.mark.parametrize("own", [False, True], ids=["by the algorithm", "by the dataset"])
    def test_a_constant_column_that_moves_a_little_at_play_changes_little(self, own: bool) -> None:
        """Normalized by the dataset it was divided by 1e-8, and drowned everything else."""
        data = steps()
        data["obs"] = data["obs"] * np.array([1.0, 0.0, 1.0], np.float32) + 5.0
        data["actions"] = np.tanh(data["obs"][:, :1] - 5.0)
        dataset = sw.OfflineDatasetBuffer(**data, normalize=True) if own else data
        algo = sw.BC(dataset, hidden=64, learning_rate=1e-2, seed=0)
        algo.train(200)
        assert algo.normalizer is not None
        assert algo.normalizer.std[1] == pytest.approx(1e-3)
        moved = data["obs"] + np.array([0.0, 1e-3, 0.0], np.float32)
        still, shifted = (
            np.abs(algo.predict(obs) - data["actions"]).mean() for obs in (data["obs"], moved)
        )
        assert still < 0.05
        assert shifted < 0.25

    def test_it_is_refused_where_observations_can_only_be_drawn(self) -> None:
        class Drawn:
            def sample(self, batch_size: int, seed: int | None = None) -> dict[str, Array]:
                return sw.OfflineDatasetBuffer(**steps()).sample(batch_size, seed)

            def __len__(self) -> int:
                return N

        assert small(Drawn()).normalizer is None
        with pytest.raises(TypeError, match="Drawn"):
            small(Drawn(), normalize_obs=True)

    def test_a_mixture_has_the_moments_of_its_batches(self) -> None:
        first, second = steps(), steps()
        second["obs"] = second["obs"] * 3 + 10
        mixture = sw.OfflineMixture(
            [(sw.OfflineDatasetBuffer(**first), 0.25), (sw.OfflineDatasetBuffer(**second), 0.75)]
        )
        algo = small(mixture, normalize_obs=True)
        obs = np.concatenate([first["obs"], *[second["obs"]] * 3]).astype(float)
        np.testing.assert_allclose(algo.normalizer.mean, obs.mean(0), rtol=1e-4)
        np.testing.assert_allclose(algo.normalizer.std, obs.std(0) + 1e-3, rtol=1e-4)


class TestRewards:
    def test_are_scaled_then_shifted(self) -> None:
        plain = small(steps()).sampler.sample(3).rewards
        scaled = small(steps(), reward_scale=2.0, reward_shift=-1.0).sampler.sample(3).rewards
        torch.testing.assert_close(scaled, 2 * plain - 1)

    def test_returns_of_the_dataset_span_a_thousand(self) -> None:
        returns = steps()["rewards"].reshape(6, 20).sum(1)
        plain = small(steps()).sampler.sample(3).rewards
        scaled = small(steps(), reward_scale="returns").sampler.sample(3).rewards
        factor = 1000 / float(returns.max() - returns.min())
        torch.testing.assert_close(scaled, factor * plain)
        with pytest.raises(TypeError, match="whole episodes"):
            small(replay(), reward_scale="returns").train(1)
        same = {**steps(), "rewards": np.zeros(N)}
        with pytest.raises(ValueError, match="differ"):
            small(same, reward_scale="returns").train(1)


class TestBestEpisodes:
    def test_are_those_with_the_highest_returns(self) -> None:
        algo = sw.BC(steps(), top_share=0.34, hidden=8)
        rewards = algo.dataset.rows.gather(algo.dataset.rows.indices())["rewards"]
        np.testing.assert_array_equal(rewards, np.arange(80, 120))

    def test_returns_are_discounted(self) -> None:
        data = steps()
        data["rewards"] = np.zeros(N, np.float32)
        data["rewards"][19] = 10.0  # late in the first episode
        data["rewards"][20] = 5.0  # at once in the second
        for gamma, first in ((1.0, 0), (0.9, 20)):
            best = sw.OfflineDatasetBuffer(**data).best_episodes(1 / 6, gamma)
            obs = best.rows.gather(best.rows.indices())["obs"]
            np.testing.assert_array_equal(obs, data["obs"][first : first + 20])

    def test_need_whole_episodes(self) -> None:
        with pytest.raises(TypeError, match="top_share needs a dataset of whole episodes"):
            sw.BC(replay(), top_share=0.5)


class TestMixture:
    def test_every_batch_has_the_shares(self) -> None:
        first, second = steps(), steps()
        second["rewards"] = second["rewards"] + 1000
        parts = [(sw.OfflineDatasetBuffer(**first), 1), (sw.OfflineDatasetBuffer(**second), 3)]
        mixture = sw.OfflineMixture(parts)
        for seed in range(5):
            batch = mixture.sample(10, seed)
            assert (batch["rewards"] >= 1000).sum() in (7, 8)
        assert len(mixture) == 2 * N

    def test_the_same_seed_gives_the_same_batch(self) -> None:
        mixture = sw.OfflineMixture([(sw.OfflineDatasetBuffer(**steps()), 1), (replay(), 1)])
        first, second = mixture.sample(20, 5), mixture.sample(20, 5)
        for name, values in first.items():
            np.testing.assert_array_equal(values, second[name])
        assert not np.array_equal(mixture.sample(20)["obs"], mixture.sample(20)["obs"])

    def test_parts_of_one_dataset_do_not_give_the_same_steps(self) -> None:
        data = sw.OfflineDatasetBuffer(**steps())
        batch = sw.OfflineMixture([(data, 1), (data, 1)]).sample(20, 5)
        assert not np.array_equal(batch["rewards"][:10], batch["rewards"][10:])

    def test_a_part_that_is_short_of_steps_leaves_its_share_to_the_others(self) -> None:
        online = sw.ReplayBuffer(100, OBS, 1)
        mixture = sw.OfflineMixture([(sw.OfflineDatasetBuffer(**steps()), 0.5), (online, 0.5)])
        assert mixture.sample(10, 0)["obs"].shape == (10, OBS)
        mixture.push(np.zeros(OBS), 0.0, -1.0, False, False, np.zeros(OBS))
        assert len(online) == 1
        assert (mixture.sample(10, 0)["rewards"] == -1.0).sum() == 1
        with pytest.raises(ValueError, match="batch_size"):
            sw.OfflineMixture([(online, 1.0)]).sample(10)

    def test_algorithms_learn_from_it(self) -> None:
        mixture = sw.OfflineMixture([(sw.OfflineDatasetBuffer(**steps()), 1), (replay(), 1)])
        algo = small(mixture, seed=42)
        algo.train(5)
        same = sw.OfflineMixture([(sw.OfflineDatasetBuffer(**steps()), 1), (replay(), 1)])
        again = small(same, seed=42)
        again.train(5)
        obs = steps()["obs"]
        np.testing.assert_array_equal(algo.predict(obs), again.predict(obs))

    def test_an_online_algorithm_goes_on_with_it(self) -> None:
        data = make_dataset("Pendulum-v1", "mixed", n_steps=400)
        offline, online = sw.OfflineDatasetBuffer(**data), sw.ReplayBuffer(1000, 3, 1)
        mixture = sw.OfflineMixture([(offline, 0.5), (online, 0.5)])
        sac = sw.SAC("Pendulum-v1", buffer=mixture, hidden=8, batch_size=32, learning_starts=50)
        sac.train(100)
        assert len(online) == 100
        assert len(offline) == 400

    def test_bad_parts_are_named(self) -> None:
        with pytest.raises(ValueError, match="parts"):
            sw.OfflineMixture([])
        with pytest.raises(TypeError, match=r"parts\[0\]"):
            sw.OfflineMixture([(3, 1.0)])
        with pytest.raises(ValueError, match="shares"):
            sw.OfflineMixture([(replay(), -1.0)])
        with pytest.raises(TypeError, match="pushed"):
            sw.OfflineMixture([(sw.OfflineDatasetBuffer(**steps()), 1.0)]).push()


@pytest.mark.long
def test_many_rows_take_several_threads_and_few_take_one() -> None:
    threads: list[int] = []

    class Watch(sw.Callback):
        def on_train_batch(self, **_: Any) -> None:
            threads.append(torch.get_num_threads())

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for batch_size in (8, 400):
            algo = sw.CQL(steps(), hidden=96, callbacks=Watch(), batch_size=batch_size)
            algo.train(1)
    finally:
        torch.set_num_threads(before)
    assert threads == [1, 2]
