"""Checkpoints of runs that learn from replay."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sharpwave as sw
from sharpwave.storage.run_folder import RunFolder
from tests.envs import CountingEnv, MaskedEnv, RandomWalkEnv
from tests.unit.loops.replay_runs import Spy, assert_same_run, spy

VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "several": {"n_envs": 3, "train_freq": 2, "gradient_steps": -1},
    "prioritized": {"prioritized": True, "n_step": 3},
    "overlap": {"overlap": True, "train_freq": 3},
    "normalized": {"normalize_obs": True, "normalize_rewards": True},
    "normalized overlap": {"normalize_obs": True, "overlap": True, "n_envs": 2},
    "small": {"buffer_size": 20, "prioritized": True},
}


class Stop(sw.Callback):
    """Stops at a step, and counts those that it saw."""

    def __init__(self, at: int) -> None:
        self.at = at

    def on_step(self, *, step: int, **_: Any) -> bool:
        return step < self.at


def resumed(path: Path, env: Any, **options: Any) -> Spy:
    return Spy.from_checkpoint(path, env, **options)


class TestExact:
    @pytest.mark.long(but=["5-plain"])
    @pytest.mark.parametrize("variant", VARIANTS)
    @pytest.mark.parametrize("at", [5, 12, 33])
    def test_goes_on_as_if_never_stopped(self, variant: str, at: int, tmp_path: Path) -> None:
        options = {**VARIANTS[variant], "save_buffer": True}
        env = partial(RandomWalkEnv, ends=("terminated", "truncated"))
        through, first = spy(env, **options), spy(env, **options)
        through.train(72)
        first.train(72, callbacks=Stop(at))
        first.save(tmp_path / "a")
        again = resumed(tmp_path / "a", env)
        again.train()
        assert len(again.batches) > 10
        assert_same_run(through, again)
        ids = through.buffer.indices()
        np.testing.assert_array_equal(again.buffer.indices(), ids)
        for name in ("obs", "actions", "rewards"):
            np.testing.assert_array_equal(
                again.buffer.gather(ids)[name], through.buffer.gather(ids)[name]
            )
        if through.config.prioritized:
            ours, theirs = (
                run.buffer._engine.save_priorities()["leaves"] for run in (through, again)
            )
            np.testing.assert_array_equal(ours, theirs)
            assert again.buffer.beta == through.buffer.beta

    @pytest.mark.long
    @pytest.mark.parametrize("backend", ["native", "torch"])
    def test_with_masks(self, tmp_path: Path, backend: str) -> None:
        class Masked(MaskedEnv):
            def step(self, action: Any) -> Any:
                self.step_number, before = self.step_number, self.step_number
                assert action != before % 3 or before in self.silent
                return super().step(action)

        env = partial(Masked, (4,))
        runs = [
            sw.DQN(
                env, batch_size=8, learning_starts=10, hidden=(4,), seed=1, save_buffer=True,
                log_interval=10, backend=backend,
            )
            for _ in range(2)
        ]  # fmt: skip
        through, first = runs
        through.train(60)
        first.train(60, callbacks=Stop(30))
        first.save(tmp_path / "a")
        again = sw.DQN.from_checkpoint(tmp_path / "a", env)
        again.train()
        for key, weight in through.networks["q_network"].state_dict().items():
            np.testing.assert_array_equal(again.networks["q_network"].state_dict()[key], weight)

    def test_before_the_first_step(self, tmp_path: Path) -> None:
        through = spy(RandomWalkEnv)
        through.train(40)
        spy(RandomWalkEnv).save(tmp_path / "a")
        again = resumed(tmp_path / "a", RandomWalkEnv)
        again.train(40)
        assert_same_run(through, again)

    @pytest.mark.long
    def test_from_the_folder_of_a_run(self, tmp_path: Path) -> None:
        options: dict[str, Any] = {"save_buffer": True, "log_interval": 20}
        through = spy(RandomWalkEnv, **options)
        through.train(80)
        first = spy(RandomWalkEnv, **options)
        first.train(80, run_dir=tmp_path / "run", callbacks=Stop(30))
        latest = RunFolder(tmp_path / "run").latest_checkpoint
        again = resumed(latest, RandomWalkEnv)
        assert again.timesteps == 30
        again.train(run_dir=tmp_path / "run")
        assert_same_run(through, again)
        rows = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
        assert [json.loads(row)["step"] for row in rows] == [20, 30, 50, 70, 80]

    @pytest.mark.long
    def test_every_checkpoint_of_a_run_goes_on_exactly(self, tmp_path: Path) -> None:
        checkpoints = sw.CheckpointCallback(25, tmp_path)
        through = spy(RandomWalkEnv, save_buffer=True, train_freq=2)
        through.train(80, callbacks=checkpoints)
        for path in checkpoints.paths:
            again = resumed(path, RandomWalkEnv)
            again.train()
            assert_same_run(through, again)

    def test_loading_and_saving_keeps_the_buffer(self, tmp_path: Path) -> None:
        through, first = spy(RandomWalkEnv), spy(RandomWalkEnv, save_buffer=True)
        through.train(60)
        first.train(60, callbacks=Stop(30))
        first.save(tmp_path / "a")
        resumed(tmp_path / "a", RandomWalkEnv).save(tmp_path / "b")
        again = resumed(tmp_path / "b", RandomWalkEnv)
        again.train()
        assert_same_run(through, again)


class TestWithoutBuffer:
    def test_learning_waits_until_the_buffer_is_filled_again(self, tmp_path: Path) -> None:
        first = spy(learning_starts=15)
        first.train(40)
        first.save(tmp_path / "a")
        again = resumed(tmp_path / "a", CountingEnv)
        again.train(40)
        assert again.learned_at == list(range(40 + 15, 81))
        assert len(again.acted) == 40  # nothing is random any more
        assert again.gradient_steps == first.gradient_steps + len(again.learned_at)

    def test_draws_are_not_those_of_the_beginning(self, tmp_path: Path) -> None:
        first = spy(learning_starts=15)
        first.train(40)
        first.save(tmp_path / "a")
        again = resumed(tmp_path / "a", CountingEnv)
        assert again.buffer.seed != first.buffer.seed

    def test_environments_that_do_not_offer_their_state_start_new_episodes(
        self, tmp_path: Path
    ) -> None:
        options: dict[str, Any] = {"batch_size": 8, "learning_starts": 10, "hidden": (4,)}
        options |= {"save_buffer": True, "normalize_obs": True, "env_mode": "sync"}
        first = sw.SAC("Pendulum-v1", **options)
        first.train(30)
        first.save(tmp_path / "a")
        again = sw.SAC.from_checkpoint(tmp_path / "a")
        again.train(30)
        assert len(again.buffer) == 60
        assert again.normalizer is not None
        assert again.normalizer.get_obs_rms().count == 30 + 1 + 30 + 1

    def test_playing_makes_no_buffer(self, tmp_path: Path) -> None:
        folder = tmp_path / "buffer"
        first = spy(buffer=folder)
        first.train(40)
        first.save(tmp_path / "a")  # and the folder stays locked
        player = resumed(tmp_path / "a", CountingEnv)
        player.predict(np.zeros(3))
        player.evaluate(2)
        player.close()
        first.close()


class TestOtherSettings:
    @pytest.mark.long(but=["False-2-4"])
    @pytest.mark.parametrize(("before", "after"), [(2, 4), (4, 2), (1, 3)])
    @pytest.mark.parametrize("prioritized", [False, True])
    def test_steps_move_to_another_number_of_environments(
        self, before: int, after: int, prioritized: bool, tmp_path: Path
    ) -> None:
        first = spy(
            n_envs=before, save_buffer=True, buffer_size=200, prioritized=prioritized, n_step=3
        )
        first.train(60)
        first.save(tmp_path / "a")
        again = resumed(tmp_path / "a", CountingEnv, n_envs=after)
        assert again.buffer.n_envs == after
        assert _steps(again) == _steps(first)
        again.train(60)
        assert again.learned_at[0] == 60 + after
        assert len(again.buffer) > 60
        assert again.timesteps == 120

    def test_steps_move_to_a_buffer_of_another_size(self, tmp_path: Path) -> None:
        first = spy(save_buffer=True)
        first.train(60)
        first.save(tmp_path / "a")
        again = resumed(tmp_path / "a", CountingEnv, buffer_size=30)
        assert again.buffer.capacity == 30
        assert 15 < len(again.buffer) <= 30
        again.train(20)

    def test_a_saved_buffer_may_become_prioritized(self, tmp_path: Path) -> None:
        first = spy(save_buffer=True)
        first.train(60)
        first.save(tmp_path / "a")
        again = resumed(tmp_path / "a", CountingEnv, prioritized=True)
        assert _steps(again) == _steps(first)
        again.train(20)
        assert again.batches[0].weights is not None


def _steps(run: Spy) -> list[tuple[float, ...]]:
    batch = run.buffer.gather(run.buffer.indices())
    rows = np.column_stack([batch["obs"], batch["actions"], batch["rewards"], batch["next_obs"]])
    return sorted(map(tuple, rows.round(4).tolist()))


class TestFolder:
    @pytest.mark.parametrize("options", [{}, {"prioritized": True, "n_step": 3, "n_envs": 2}])
    def test_goes_on_exactly_where_nothing_came_after(
        self, options: dict[str, Any], memory_path: Path
    ) -> None:
        through = spy(RandomWalkEnv, **options)
        through.train(72)
        first = spy(RandomWalkEnv, buffer=memory_path / "buffer", **options)
        first.train(72, callbacks=Stop(30))
        first.save(memory_path / "a")
        first.close()
        again = resumed(memory_path / "a", RandomWalkEnv)
        again.train()
        assert_same_run(through, again)
        again.close()

    def test_steps_that_came_after_the_checkpoint_stay(self, memory_path: Path) -> None:
        first = spy(buffer=memory_path / "buffer")
        first.train(40)
        first.save(memory_path / "a")
        first.train(20)
        first.close()
        again = resumed(memory_path / "a", CountingEnv)
        with pytest.warns(UserWarning, match="20 steps that came after the checkpoint"):
            assert len(again.buffer) == 60
        again.train(20)
        assert len(again.buffer) == 80
        again.close()

    def test_a_folder_that_is_gone_is_named(self, memory_path: Path) -> None:
        first = spy(buffer=memory_path / "buffer")
        first.train(40)
        first.save(memory_path / "a")
        first.buffer.close(delete=True)
        again = resumed(memory_path / "a", CountingEnv)
        with pytest.raises(sw.SharpwaveIOError, match="not there any more"):
            again.train(10)
        assert not (memory_path / "buffer").exists()
        elsewhere = resumed(memory_path / "a", CountingEnv, buffer="memory")
        elsewhere.train(20)
        assert len(elsewhere.buffer) == 20

    def test_a_relative_folder_is_found_from_elsewhere(
        self, memory_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (memory_path / "here").mkdir()
        monkeypatch.chdir(memory_path / "here")
        first = spy(buffer="buffer")
        first.train(40)
        first.save(memory_path / "a")
        first.close()
        monkeypatch.chdir(memory_path)
        again = resumed(memory_path / "a", CountingEnv)
        assert len(again.buffer) == 40
        again.close()


class TestGiven:
    def test_a_buffer_that_is_given_again_is_taken_as_it_is(self, tmp_path: Path) -> None:
        buffer = sw.ReplayBuffer(200, obs_dim=3, act_dim=1)
        first = spy(buffer=buffer)
        first.train(40)
        first.save(tmp_path / "a")
        again = resumed(tmp_path / "a", CountingEnv, buffer=buffer)
        again.train(10)
        assert again.learned_at == list(range(41, 51))
        assert len(buffer) == 50

    def test_an_empty_one_gets_the_steps_of_the_checkpoint(self, tmp_path: Path) -> None:
        first = spy(save_buffer=True)
        first.train(40)
        first.save(tmp_path / "a")
        buffer = sw.PrioritizedReplayBuffer.for_env(first.env, 300)
        again = resumed(tmp_path / "a", CountingEnv, buffer=buffer)
        again.train(10)
        assert len(buffer) == 50
        assert again.learned_at == list(range(41, 51))

    def test_what_was_given_need_not_be_given_again(self, tmp_path: Path) -> None:
        first = spy(buffer=sw.ReplayBuffer(200, obs_dim=3, act_dim=1), save_buffer=True)
        first.train(40)
        first.save(tmp_path / "a")
        again = resumed(tmp_path / "a", CountingEnv)
        again.train(10)
        assert again.learned_at == list(range(41, 51))
        assert again.buffer.n_envs == 1
