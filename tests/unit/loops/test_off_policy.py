"""The loop of algorithms that learn from replay."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

import sharpwave as sw
from tests.envs import CountingEnv, numbered, vectorized
from tests.unit.loops.replay_runs import Spy, assert_same_run, spy


def gradient_steps(
    total: int, n_envs: int, train_freq: int, count: int, learning_starts: int, batch_size: int
) -> list[int]:
    """Environment steps at each gradient step, by definition."""
    steps, learned_at = 0, []
    while steps < total:
        steps += n_envs * train_freq
        if steps >= learning_starts and steps >= batch_size:
            learned_at += [steps] * (n_envs * train_freq if count == -1 else count)
    return learned_at


class TestCounts:
    @pytest.mark.parametrize("overlap", [False, True])
    @pytest.mark.parametrize(("n_envs", "train_freq"), [(1, 1), (1, 4), (3, 1), (3, 2)])
    @pytest.mark.parametrize("count", [0, 1, 3, -1])
    @pytest.mark.parametrize("learning_starts", [0, 11, 24])
    def test_gradient_steps_are_exactly_those_asked_for(
        self, n_envs: int, train_freq: int, count: int, learning_starts: int, overlap: bool
    ) -> None:
        run = spy(
            n_envs=n_envs,
            train_freq=train_freq,
            gradient_steps=count,
            learning_starts=learning_starts,
            overlap=overlap,
        )
        run.train(47)
        expected = gradient_steps(47, n_envs, train_freq, count, learning_starts, 4)
        assert run.learned_at == expected
        assert run.gradient_steps == len(expected)

    @pytest.mark.parametrize("n_envs", [1, 3])
    def test_total_timesteps_count_every_environment(self, n_envs: int) -> None:
        run = spy(n_envs=n_envs)
        run.train(31)
        assert run.timesteps == -(-31 // n_envs) * n_envs
        assert len(run.buffer) == run.timesteps

    def test_resets_of_the_next_step_mode_are_no_steps(self) -> None:
        run = spy(vectorized(numbered(3, lengths=(1,)), "next_step"))
        run.train(30)
        assert run.timesteps == 30
        assert len(run.buffer) == 30

    @pytest.mark.parametrize("n_envs", [1, 4])
    def test_actions_are_random_until_learning_starts(self, n_envs: int) -> None:
        run = spy(n_envs=n_envs, learning_starts=10)
        run.train(40)
        random_rounds = -(-10 // n_envs)
        assert len(run.acted) == 40 // n_envs - random_rounds

    def test_every_gradient_step_has_a_batch_of_its_own(self) -> None:
        run = spy(partial(CountingEnv, (9,)), gradient_steps=8, batch_size=16, learning_starts=40)
        run.train(48)
        drawn = {tuple(batch.obs[:, 1:].flatten().tolist()) for batch in run.batches}
        assert len(drawn) == len(run.batches) == 72

    def test_learning_waits_for_a_batch(self) -> None:
        run = spy(learning_starts=0, batch_size=20)
        run.train(30)
        assert run.learned_at == list(range(20, 31))

    def test_a_buffer_too_small_for_a_batch_is_refused(self) -> None:
        with pytest.raises(ValueError, match="buffer_size"):
            spy(buffer_size=3)

    def test_a_buffer_that_never_holds_a_batch_says_so(self) -> None:
        run = spy(partial(CountingEnv, (1,)), buffer_size=8, batch_size=8, learning_starts=0)
        with pytest.raises(ValueError, match="batch_size"):
            run.train(50)


class TestGoingOn:
    @pytest.mark.long(but=["options0"])
    @pytest.mark.parametrize("options", [{}, {"train_freq": 4, "n_envs": 2}, {"overlap": True}])
    def test_two_trains_are_one_long_one(self, options: dict[str, Any]) -> None:
        once, twice = spy(**options), spy(**options)
        once.train(64)
        twice.train(24)
        twice.train(40)
        assert_same_run(once, twice)

    @pytest.mark.long(but=["1-False"])
    @pytest.mark.parametrize("overlap", [False, True])
    @pytest.mark.parametrize("log_interval", [1, 7, 1000])
    def test_a_run_does_not_depend_on_its_reports(self, log_interval: int, overlap: bool) -> None:
        first = spy(train_freq=3, overlap=overlap)
        second = spy(train_freq=3, overlap=overlap, log_interval=log_interval)
        first.train(60)
        second.train(60)
        assert_same_run(first, second)

    @pytest.mark.long(but=["1-1-False"])
    @pytest.mark.parametrize("overlap", [False, True])
    @pytest.mark.parametrize("train_freq", [1, 4])
    @pytest.mark.parametrize("at", [1, 9, 10, 11, 12, 30])
    def test_a_run_stopped_anywhere_goes_on_as_if_it_had_not_been(
        self, at: int, train_freq: int, overlap: bool
    ) -> None:
        options: dict[str, Any] = {"train_freq": train_freq, "overlap": overlap}
        through, stopped = spy(**options), spy(**options)
        through.train(48)

        class Stop(sw.Callback):
            def on_step(self, *, step: int, **_: Any) -> bool:
                return step != at

        stopped.train(48, callbacks=Stop())
        if overlap:  # the steps of an update come together
            assert at <= stopped.timesteps < at + train_freq
        else:
            assert stopped.timesteps == at
        assert len(stopped.buffer) == stopped.timesteps
        assert stopped.stop_reason == "Stop.on_step returned False"
        stopped.train(48 - stopped.timesteps)
        assert_same_run(through, stopped)

    def test_schedules_span_both_trains(self) -> None:
        run = spy(learning_rate=sw.Linear(1.0, 0.0))
        assert run.train(100)["learning_rate"] == pytest.approx(0.0, abs=1e-6)
        assert run.train(100)["learning_rate"] == pytest.approx(0.0, abs=1e-6)
        run.train(200, callbacks=_stop_after(1))
        assert run.optimizers["policy"].lr.item() == pytest.approx(1 - 220 / 400)


def _stop_after(updates: int) -> sw.Callback:
    class Stop(sw.Callback):
        calls = 0

        def on_train_batch(self, **_: Any) -> bool:
            self.calls += 1
            return self.calls < updates

    return Stop()


class Hooks(sw.Callback):
    """Writes down every call."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def on_training_start(self, **kwargs: Any) -> None:
        self.calls.append(("start", kwargs))

    def on_step(self, **kwargs: Any) -> None:
        self.calls.append(("step", kwargs))

    def on_rollout_end(self, **kwargs: Any) -> None:
        self.calls.append(("rollout", kwargs))

    def on_train_batch(self, **kwargs: Any) -> None:
        self.calls.append(("batch", kwargs))

    def on_training_end(self, **kwargs: Any) -> None:
        self.calls.append(("end", kwargs))

    def of(self, name: str) -> list[dict[str, Any]]:
        return [kwargs for called, kwargs in self.calls if called == name]


class Logs(sw.LoggerCallback):
    """Keeps every row."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, int, Mapping[str, Any]]] = []

    def on_train_step(self, step: int, metrics: Mapping[str, Any]) -> None:
        self.rows.append(("train", step, metrics))

    def on_rollout_end(self, step: int, metrics: Mapping[str, Any]) -> None:
        self.rows.append(("rollout", step, metrics))


class TestHooks:
    @pytest.mark.parametrize("overlap", [False, True])
    def test_are_called_with_what_they_promise(self, overlap: bool) -> None:
        hooks, logs = Hooks(), Logs()
        run = spy(
            vectorized(numbered(2, lengths=(4,)), "same_step"),
            train_freq=2,
            overlap=overlap,
            callbacks=hooks,
            logger=logs,
        )
        run.train(60)
        assert hooks.of("start")[0]["total_timesteps"] == 60
        steps = hooks.of("step")
        assert [kwargs["step"] for kwargs in steps] == list(range(2, 61, 2))
        rewards = [1.5 + (1 + t % 4) / 10 for t in range(30)]
        for kwargs, reward in zip(steps, rewards, strict=True):
            assert reward - 1e-9 <= kwargs["reward"] <= reward + 0.01 + 1e-9
            assert kwargs["algo"] is run
        assert [kwargs["step"] for kwargs in hooks.of("batch")] == [20, 40, 60]
        assert [kwargs["step"] for kwargs in hooks.of("rollout")] == [20, 40, 60]
        assert [kwargs["update"] for kwargs in hooks.of("rollout")] == [0, 1, 2]
        last = hooks.of("batch")[-1]
        assert last["gradient_steps"] == run.gradient_steps
        assert last["updates"] == run.updates == 3
        assert last["timesteps"] == 60
        assert last["episodes"] == 14
        assert last["mean_return"] == pytest.approx(np.mean(run.episodes.returns))
        mean = np.mean([batch.rewards.mean() for batch in run.batches[-5:]])
        assert last["loss"] == pytest.approx(mean, rel=1e-5)
        assert [(kind, step) for kind, step, _ in logs.rows] == [
            (kind, step) for step in (20, 40, 60) for kind in ("rollout", "train")
        ]
        assert logs.rows[-1][2] == {
            name: value for name, value in last.items() if name not in ("algo", "step")
        }

    def test_nothing_is_said_of_losses_before_there_are_any(self) -> None:
        run = spy(learning_starts=100)
        metrics = run.train(30)
        assert "loss" not in metrics
        assert metrics["gradient_steps"] == 0

    def test_a_log_file_has_the_columns_of_rows_that_came_later(self, tmp_path: Any) -> None:
        log = sw.CSVLogger(tmp_path / "log.csv")
        spy(learning_starts=25, logger=log).train(60)
        header, *rows = (tmp_path / "log.csv").read_text().splitlines()
        place = header.split(",").index("loss")
        assert [row.split(",")[place] != "" for row in rows] == [False, True, True]

    def test_an_evaluation_happens_where_it_is_due(self) -> None:
        evaluation = sw.EvalCallback(eval_freq=15, n_eval_episodes=1)
        spy(log_interval=1000).train(50, callbacks=evaluation)
        assert [row["step"] for row in evaluation.history] == [15, 30, 45, 50]

    def test_a_checkpoint_is_written_where_it_is_due(self, tmp_path: Any) -> None:
        checkpoints = sw.CheckpointCallback(25, tmp_path)
        spy(log_interval=40).train(100, callbacks=checkpoints)
        names = [path.name for path in checkpoints.paths]
        assert names == [f"checkpoint_{step}.safetensors" for step in (25, 50, 75, 100)]

    @pytest.mark.parametrize("hook", ["on_rollout_end", "on_train_batch"])
    def test_any_hook_stops_the_run(self, hook: str) -> None:
        stop = sw.Callback()
        setattr(stop, hook, lambda **_: False)
        run = spy()
        run.train(200, callbacks=stop)
        assert run.timesteps == 20
        assert run.stop_reason is not None


class TestSeeds:
    OPTIONS: tuple[dict[str, Any], ...] = (
        {},
        {"overlap": True, "train_freq": 3},
        {"prioritized": True, "n_step": 3},
        {"normalize_obs": True, "normalize_rewards": True},
        {"normalize_obs": True, "overlap": True, "n_envs": 3},
    )

    @pytest.mark.long(but=["{}"])
    @pytest.mark.parametrize("options", OPTIONS, ids=str)
    def test_the_same_seed_gives_the_same_run(self, options: dict[str, Any]) -> None:
        first, second = spy(**options), spy(**options)
        torch.manual_seed(1)
        first.train(60)
        torch.manual_seed(2)
        np.random.seed(3)  # noqa: NPY002
        second.train(60)
        assert_same_run(first, second)
        ids = first.buffer.indices()
        np.testing.assert_array_equal(
            first.buffer.gather(ids)["actions"], second.buffer.gather(ids)["actions"]
        )

    @pytest.mark.long
    def test_the_same_on_disk(self, memory_path: Any) -> None:
        runs = [spy(buffer=memory_path / name) for name in ("a", "b")]
        for run in (*runs, in_memory := spy()):
            run.train(60)
        assert_same_run(*runs)
        assert_same_run(runs[0], in_memory)
        for run in runs:
            run.close()

    def test_another_seed_gives_another_run(self) -> None:
        first, second = spy(seed=1), spy(seed=2)
        first.train(60)
        second.train(60)
        assert not torch.equal(first.batches[-1].obs, second.batches[-1].obs)
        actions = [run.buffer.gather(run.buffer.indices())["actions"] for run in (first, second)]
        assert (actions[0] != actions[1]).any()

    @pytest.mark.parametrize("options", OPTIONS, ids=str)
    def test_global_generators_are_left_alone(self, options: dict[str, Any]) -> None:
        torch.manual_seed(5)
        np.random.seed(5)  # noqa: NPY002
        expected = torch.rand(3), np.random.rand(3)  # noqa: NPY002
        torch.manual_seed(5)
        np.random.seed(5)  # noqa: NPY002
        spy(**options).train(60)
        assert torch.equal(torch.rand(3), expected[0])
        assert (np.random.rand(3) == expected[1]).all()  # noqa: NPY002

    def test_playing_does_not_change_a_run(self) -> None:
        plain, watched = spy(), spy()
        plain.train(60)

        class Play(sw.Callback):
            def on_train_batch(self, *, algo: Spy, **_: Any) -> None:
                algo.predict(np.zeros(3), deterministic=False)
                algo.evaluate(1, deterministic=False)

        watched.train(60, callbacks=Play())
        assert_same_run(plain, watched)


class TestDefaults:
    def test_weights_of_priorities_end_at_one(self) -> None:
        run = spy(prioritized=True, beta_start=0.4)
        run.train(50, callbacks=_stop_after(1))
        assert run.buffer.beta == pytest.approx(1 - 0.6 * (1 - 20 / 50))
        run.train(30)
        assert run.buffer.beta == pytest.approx(1.0)

    def test_errors_become_priorities(self) -> None:
        run = spy(prioritized=True)
        run.train(30)
        drawn = run.batches[-1]
        priorities = run.buffer._engine.save_priorities()["leaves"]
        assert priorities.max() == pytest.approx(float(drawn.rewards.max() + 1e-6) ** 0.6, rel=0.2)
        assert len({round(float(p), 4) for p in priorities if p > 0}) > 2

    def test_signature_and_field_help_name_every_option(self) -> None:
        help_of = sw.SACConfig.field_help()
        assert {"buffer", "overlap", "save_buffer", "her_goals", "cuda_graph"} <= set(help_of)
        assert all(help_of.values())

    def test_a_folder_is_named_in_full(self) -> None:
        assert sw.SACConfig(buffer="here").buffer.endswith("/here")
        assert sw.SACConfig(buffer="here").buffer.startswith("/")

    @pytest.mark.parametrize(
        ("option", "value"),
        [
            ("train_freq", 0),
            ("gradient_steps", -2),
            ("batch_size", 0),
            ("learning_starts", -1),
            ("beta_start", 1.5),
            ("her_strategy", "past"),
            ("log_interval", 0),
        ],
    )
    def test_an_impossible_value_is_named(self, option: str, value: Any) -> None:
        with pytest.raises((TypeError, ValueError), match=option):
            spy(**{option: value})
