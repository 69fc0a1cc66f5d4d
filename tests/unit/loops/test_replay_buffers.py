"""Buffers that a run may learn from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import sharpwave as sw
from sharpwave.buffers import MmapReplayBuffer, Schema
from sharpwave.buffers.offline_mixture import OfflineMixture
from sharpwave.loops.foreign_buffer import ForeignBuffer
from tests.envs import BoxActionEnv, CountingEnv, NestedEnv, numbered, vectorized
from tests.unit.loops.replay_runs import assert_same_run, spy


class ListBuffer:
    """Steps in a list, as somebody might write it."""

    def __init__(self) -> None:
        self.steps: list[Any] = []
        self.seeds: list[int] = []

    def push(self, *step: Any) -> None:
        self.steps.append(step)

    def __len__(self) -> int:
        return len(self.steps)

    def sample(self, batch_size: int, seed: int) -> dict[str, Any]:
        self.seeds.append(seed)
        rows = np.random.default_rng(seed).integers(0, len(self.steps), batch_size)
        names = ("obs", "actions", "rewards", "terminated", "truncated", "next_obs")
        columns = zip(*(self.steps[i] for i in rows), strict=True)
        return {name: np.array(column) for name, column in zip(names, columns, strict=True)}


class Unseeded(ListBuffer):
    """Draws by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.draws = 0

    def sample(self, batch_size: int) -> dict[str, Any]:  # type: ignore[override]
        self.draws += 1
        return super().sample(batch_size, self.draws)


def space_env() -> Any:
    return vectorized(numbered(2, lengths=(3, 5)), "same_step")


KINDS = (
    "flat",
    "prioritized flat",
    "in order",
    "prioritized in order",
    "on disk",
    "foreign",
    "foreign unseeded",
)


def given(kind: str, env: Any, path: Path) -> Any:
    cls = sw.PrioritizedReplayBuffer if "prioritized" in kind else sw.ReplayBuffer
    if "foreign" in kind:
        return Unseeded() if "unseeded" in kind else ListBuffer()
    if kind == "on disk":
        return sw.MmapReplayBuffer.for_env(env, 300, cold_path=path / "buffer")
    return cls(300, obs_dim=3, act_dim=1) if "flat" in kind else cls.for_env(env, 300)


class TestGiven:
    @pytest.mark.long(but=["flat"])
    @pytest.mark.parametrize("kind", KINDS)
    def test_steps_go_in_and_batches_come_out(self, kind: str, memory_path: Path) -> None:
        env = space_env()
        buffer = given(kind, env, memory_path)
        run = spy(env, buffer=buffer, gamma=0.9)
        run.train(60)
        assert run.buffer is buffer
        assert len(buffer) == 60
        assert len(run.batches) == 26
        for batch in run.batches:
            assert batch.obs.shape == (4, 3)
            steps = batch.obs[:, 2] + 1
            torch.testing.assert_close(batch.next_obs[:, 2], steps)
            rewards = 1 + batch.obs[:, 0] + steps / 10 + batch.actions / 100
            torch.testing.assert_close(batch.rewards.float(), rewards)
            length = torch.where(batch.obs[:, 1] % 2 == 0, 3, 5)
            discounts = torch.where(steps == length, 0.0, 0.9)
            torch.testing.assert_close(batch.discounts.float(), discounts)
            assert (batch.weights is not None) == ("prioritized" in kind)
        if isinstance(buffer, MmapReplayBuffer):
            run.close()
            assert not buffer.closed  # it is not the run's
            buffer.close()

    @pytest.mark.parametrize("kind", ["foreign", "foreign unseeded"])
    def test_every_draw_of_a_foreign_one_is_another(self, kind: str, tmp_path: Path) -> None:
        run = spy(buffer=given(kind, None, tmp_path))
        run.train(40)
        assert len(set(run.buffer.seeds)) == len(run.buffer.seeds) == 31

    def test_the_seeds_of_a_foreign_one_follow_from_the_run(self) -> None:
        first, second, other = (spy(buffer=ListBuffer(), seed=seed) for seed in (1, 1, 2))
        for run in (first, second, other):
            run.train(40)
        assert_same_run(first, second)
        assert set(first.buffer.seeds).isdisjoint(other.buffer.seeds)

    def test_seeds_go_on_after_a_checkpoint(self, tmp_path: Path) -> None:
        run = spy(buffer=(buffer := ListBuffer()))
        run.train(40)
        run.save(tmp_path / "a")
        again = type(run).from_checkpoint(tmp_path / "a", CountingEnv, buffer=buffer)
        again.train(20)
        assert len(set(buffer.seeds)) == len(buffer.seeds) == 51

    def test_nested_observations_reach_a_foreign_one_row_by_row(self) -> None:
        run = spy(NestedEnv, buffer=(buffer := ListBuffer()), learning_starts=100)
        run.train(5)
        assert set(buffer.steps[0][0]) == {"where", "parts"}
        assert buffer.steps[3][0]["parts"][0].shape == (2, 2)

    def test_what_is_missing_is_named(self) -> None:
        with pytest.raises(TypeError, match=r"int lacks push, sample, __len__"):
            spy(buffer=3)
        with pytest.raises(TypeError, match=r"dict lacks push, sample"):
            spy(buffer={})

    def test_an_episode_buffer_says_what_to_do(self, tmp_path: Path) -> None:
        episodes = sw.EpisodeBuffer(tmp_path, 10, 10, {"obs": ("float", 3)})
        with episodes, pytest.raises(TypeError, match="RecordVectorEpisodes"):
            spy(buffer=episodes)

    def test_an_entry_that_is_missing_is_named(self) -> None:
        class Poor(ListBuffer):
            def sample(self, batch_size: int, seed: int) -> dict[str, Any]:
                batch = super().sample(batch_size, seed)
                return {name: batch[name] for name in ("obs", "actions")}

        with pytest.raises(ValueError, match=r"rewards, next_obs, terminated too"):
            spy(buffer=Poor()).train(20)

    @pytest.mark.parametrize(
        ("option", "value"), [("n_step", 3), ("prioritized", True), ("her_goals", 4)]
    )
    def test_a_foreign_one_cannot_do_everything(self, option: str, value: Any) -> None:
        with pytest.raises(ValueError, match=option):
            spy(buffer=ListBuffer(), **{option: value})

    def test_what_does_not_fit_is_named(self) -> None:
        env = space_env()
        flat = sw.ReplayBuffer(300, obs_dim=3, act_dim=1)
        cases: list[tuple[Any, dict[str, Any], str]] = [
            (flat, {"n_step": 2}, "n_envs"),
            (flat, {"prioritized": True}, "prioritized"),
            (sw.ReplayBuffer(3, obs_dim=3, act_dim=1), {}, "batch of 4"),
        ]
        for buffer, options, message in cases:
            with pytest.raises(ValueError, match=message):
                spy(env, buffer=buffer, **options)
        misfits: list[tuple[Any, str]] = [
            (sw.ReplayBuffer(300, obs_dim=2, act_dim=1), r"obs has shape \(2,\), not \(3,\)"),
            (sw.ReplayBuffer(300, obs_dim=3, act_dim=2), r"action has shape \(2,\), not \(\)"),
            (sw.ReplayBuffer.for_env(env, 300, n_envs=3), "n_envs=2 like env, got 3"),
            (sw.ReplayBuffer.for_env(env, 300, extra={"cost": "float32"}), "cost"),
            (sw.ReplayBuffer(300, fields={"obs": ("f4", 3), "action": "i8"}), "reward is missing"),
        ]
        for buffer, message in misfits:
            with pytest.raises(ValueError, match=message):
                spy(space_env(), buffer=buffer).train(10)

    def test_continuous_actions_of_one_dimension(self) -> None:
        buffer = sw.ReplayBuffer(300, obs_dim=3, act_dim=1)
        sac = sw.SAC("Pendulum-v1", buffer=buffer, hidden=(4,), batch_size=8, learning_starts=10)
        sac.train(30)
        assert sac.sampler.sample().actions.shape == (8, 1)


class TestFolder:
    def test_goes_on_with_what_is_there(self, memory_path: Path) -> None:
        first = spy(buffer=memory_path / "buffer", seed=1)
        first.train(40)
        assert isinstance(first.buffer, MmapReplayBuffer)
        first.close()
        second = spy(buffer=str(memory_path / "buffer"), seed=2)
        second.train(20)
        assert len(second.buffer) == 60
        second.close()
        assert (memory_path / "buffer").is_dir()

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"buffer_size": 400}, "buffer_size 500, not 400"),
            ({"n_envs": 2}, "n_envs 1, not 2"),
            ({"prioritized": True}, "it is not prioritized"),
        ],
    )
    def test_another_kind_is_refused(
        self, options: dict[str, Any], message: str, memory_path: Path
    ) -> None:
        first = spy(buffer=memory_path / "buffer")
        first.train(20)
        first.close()
        with pytest.raises(ValueError, match=message):
            spy(buffer=memory_path / "buffer", **options).train(10)
        again = spy(buffer=memory_path / "buffer")
        assert len(again.buffer) == 20  # and nothing has happened to it
        again.close()

    def test_other_steps_are_refused(self, memory_path: Path) -> None:
        first = spy(buffer=memory_path / "buffer")
        first.train(20)
        first.close()
        with pytest.raises(ValueError, match=r"obs.where is missing"):
            spy(NestedEnv, buffer=memory_path / "buffer").train(10)

    def test_another_alpha_is_refused(self, memory_path: Path) -> None:
        first = spy(buffer=memory_path / "buffer", prioritized=True)
        first.train(20)
        first.close()
        with pytest.raises(ValueError, match=r"alpha 0.6, not 0.7"):
            spy(buffer=memory_path / "buffer", prioritized=True, alpha=0.7).train(10)
        with pytest.raises(ValueError, match="it is prioritized"):
            spy(buffer=memory_path / "buffer").train(10)

    def test_something_else_is_left_alone(self, memory_path: Path) -> None:
        (memory_path / "precious").write_text("mine")
        with pytest.raises(sw.SharpwaveIOError, match="precious"):
            spy(buffer=memory_path).train(10)
        assert (memory_path / "precious").read_text() == "mine"

    def test_two_runs_do_not_share_one(self, memory_path: Path) -> None:
        first = spy(buffer=memory_path / "buffer")
        first.train(20)
        with pytest.raises(sw.FolderLockedError):
            spy(buffer=memory_path / "buffer").train(10)
        first.close()


class TestMixture:
    @staticmethod
    def dataset(n: int = 50, **options: Any) -> sw.OfflineDatasetBuffer:
        """Steps of an environment of number 7."""
        obs = np.column_stack([np.full(n, 7), np.arange(n), np.zeros(n)]).astype(np.float32)
        ends = np.ones(n, np.bool_)
        return sw.OfflineDatasetBuffer(
            obs, obs + np.array([0, 0, 1]), np.zeros(n), np.zeros(n), ends, ~ends, **options
        )

    @pytest.mark.parametrize("n_step", [1, 3])
    def test_batches_hold_a_share_of_each(self, n_step: int) -> None:
        env = space_env()
        online = sw.ReplayBuffer.for_env(env, 300)
        mixture = OfflineMixture([(self.dataset(), 0.25), (online, 0.75)])
        run = spy(env, buffer=mixture, batch_size=16, n_step=n_step)
        run.train(80)
        assert len(online) == 80
        assert run.batches
        for batch in run.batches[-10:]:
            assert int((batch.obs[:, 0] == 7).sum()) == 4
            assert (batch.discounts[batch.obs[:, 0] == 7] == 0).all()
            assert batch.rewards[batch.obs[:, 0] == 7].abs().max() == 0

    def test_without_order(self) -> None:
        online = sw.ReplayBuffer(300, obs_dim=3, act_dim=1)
        run = spy(buffer=OfflineMixture([(self.dataset(), 0.5), (online, 0.5)]))
        run.train(40)
        assert run.batches[-1].obs.shape == (4, 3)

    def test_the_same_seed_gives_the_same_run(self) -> None:
        runs = []
        for _ in range(2):
            env = space_env()
            online = sw.ReplayBuffer.for_env(env, 300, seed=3)
            runs.append(spy(env, buffer=OfflineMixture([(self.dataset(), 1), (online, 1)])))
            runs[-1].train(60)
        assert_same_run(*runs)

    def test_the_part_that_grows_is_saved(self, tmp_path: Path) -> None:
        online = sw.ReplayBuffer(300, obs_dim=3, act_dim=1)
        run = spy(buffer=OfflineMixture([(self.dataset(), 1), (online, 1)]), save_buffer=True)
        run.train(40)
        run.save(tmp_path / "a")
        online = sw.ReplayBuffer(300, obs_dim=3, act_dim=1)
        again = type(run).from_checkpoint(
            tmp_path / "a", CountingEnv, buffer=OfflineMixture([(self.dataset(), 1), (online, 1)])
        )
        again.train(10)
        assert len(online) == 50
        assert again.learned_at[0] == 41

    def test_what_does_not_mix_is_named(self) -> None:
        online = sw.ReplayBuffer(300, obs_dim=3, act_dim=1)
        cases: list[tuple[Any, dict[str, Any], str]] = [
            ([(self.dataset(normalize=True), 1), (online, 1)], {}, "normalize"),
            ([(self.dataset(), 1)], {}, "pushed"),
            ([(ListBuffer(), 1), (online, 1)], {}, r"parts\[0\]"),
            ([(self.dataset(), 1), (online, 1)], {"prioritized": True}, "prioritized"),
            ([(self.dataset(), 1), (online, 1)], {"n_step": 3}, "n_envs"),
        ]
        for parts, options, message in cases:
            with pytest.raises((TypeError, ValueError), match=message):
                spy(buffer=OfflineMixture(parts), **options)


def test_a_foreign_buffer_is_asked_for_its_length() -> None:
    buffer = ForeignBuffer(ListBuffer(), seed=0)
    assert len(buffer) == 0
    buffer.push_batch(
        obs=np.zeros((2, 3)),
        actions=np.zeros(2),
        rewards=np.zeros(2),
        terminated=np.zeros(2),
        truncated=np.zeros(2),
        next_obs=np.zeros((2, 3)),
    )
    assert len(buffer) == 2


def test_the_schema_is_that_of_the_environment() -> None:
    sac = sw.SAC(BoxActionEnv, hidden=(4,))
    assert sac.buffer.schema == Schema.from_env(BoxActionEnv())
    assert sac.buffer.capacity == 1_000_000
