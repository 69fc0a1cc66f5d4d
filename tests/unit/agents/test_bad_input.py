"""Input that a run cannot use is named, and the run changes nothing and leaves nothing."""

from __future__ import annotations

import json
import math
import os
import signal
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import sharpwave as sw
from sharpwave.collect import NonFiniteError
from sharpwave.envs import EnvironmentFailed
from sharpwave.runs.recorder import RunRecorder
from sharpwave.storage.run_folder import RunFolder
from tests.envs import CountingEnv, FailingEnv
from tests.learning import probes
from tests.unit.agents.small_runs import STEPS_PER_UPDATE, Alike, small_ppo


def kept_in(path: Path) -> RunRecorder:
    """Saves at every update, without a report, which takes longer than the small runs here."""
    return RunRecorder(path, checkpoint_freq=1, report=False)


class TestNumberOfSteps:
    @pytest.mark.parametrize("steps", [0, -5, 2.5, "many", True, math.nan, [100]])
    def test_what_is_not_a_positive_integer_is_refused(self, steps: Any) -> None:
        algo = small_ppo()
        with pytest.raises((TypeError, ValueError), match="total_timesteps must be"):
            algo.train(steps)
        assert (algo.timesteps, algo.target_timesteps) == (0, 0)

    @pytest.mark.parametrize("steps", [100, 1e2, np.int64(100)])
    def test_whole_numbers_of_any_kind_are_taken(self, steps: Any) -> None:
        algo = small_ppo()
        algo.train(steps)
        assert algo.timesteps == STEPS_PER_UPDATE


class TestOptions:
    @pytest.mark.parametrize(
        ("option", "value"),
        [
            ("device", "tpu"),
            ("device", "cuda:99"),
            ("learning_rate", -1e-3),
            ("learning_rate", sw.Linear(1e-3, -1e-3)),
            ("sde_sample_freq", 0),
            ("env_kwargs", 3),
            ("hidden", (64, 0)),
            ("hidden", "wide"),
            ("activation", "step"),
            ("recurrent", "rnn"),
            ("gae_lambda", 1.5),
            ("target_kl", 0.0),
            ("clip_eps", -0.1),
            ("batch_size", 0),
            ("max_grad_norm", 0.0),
            ("ent_coef", math.nan),
            ("normalize_obs", "perhaps"),
            ("env_mode", "threads"),
            ("seed", 1.5),
            ("config", 3),
            ("config", {"gama": 0.9}),
            ("policy", "mlp"),
            ("callbacks", "print"),
            ("callbacks", [sw.Callback]),
            ("logger", 3),
        ],
    )
    def test_values_that_cannot_be_used_are_named(self, option: str, value: Any) -> None:
        known = {"config": "config|gama", "logger": "loggers"}
        with pytest.raises((TypeError, ValueError), match=known.get(option, option)):
            small_ppo(**{option: value})

    def test_a_schedule_must_give_finite_numbers(self) -> None:
        with pytest.raises(ValueError, match="finite"):
            small_ppo(learning_rate=lambda progress: progress * math.nan).train(10)


class TestEnvironments:
    @pytest.mark.parametrize(
        "env", ["Nope-v0", "cartpole-v1", "CartPole-v99", "", "a:b", 3, None, b"CartPole-v1", []]
    )
    def test_what_is_no_environment_is_refused(self, env: Any) -> None:
        with pytest.raises((TypeError, ValueError, gym.error.Error), match=r"env|ID"):
            small_ppo(env)

    @pytest.mark.parametrize("made", [3, None, gym.spaces.Discrete(2)])
    def test_what_makes_no_environment_is_refused(self, made: Any) -> None:
        with pytest.raises(TypeError, match=r"env must make a gymnasium\.Env"):
            small_ppo(lambda: made)

    @pytest.mark.parametrize(
        ("name", "space"),
        [
            ("observation_space", spaces.Text(5)),
            ("observation_space", spaces.Dict({"a": spaces.Graph(spaces.Discrete(2), None)})),
            ("observation_space", spaces.Sequence(spaces.Discrete(2))),
            ("action_space", spaces.Dict({"a": spaces.Discrete(2)})),
            ("action_space", spaces.Tuple((spaces.Discrete(2), spaces.Discrete(2)))),
            ("action_space", spaces.Box(0, 3, (1,), np.int64)),
            ("action_space", spaces.Text(5)),
        ],
    )
    def test_spaces_without_support_are_named(self, name: str, space: Any) -> None:
        class Odd(probes.ConstantValue):
            pass

        setattr(Odd, name, space)
        with pytest.raises(TypeError, match=f"{name}.*{type(space).__name__}"):
            small_ppo(Odd)

    def test_options_of_the_environment_reach_evaluations_too(self) -> None:
        algo = small_ppo(Alike, env_kwargs={"length": 3, "reward": 2.0})
        algo.train(1)
        assert algo.evaluate(2).returns == (6.0, 6.0)

    @pytest.mark.long(only=["step-async", "reset-async"])
    @pytest.mark.parametrize("mode", ["sync", "async"])
    @pytest.mark.parametrize("doing", ["step", "reset", "being made"])
    def test_one_that_raises_is_named_with_its_traceback(
        self, mode: str, doing: str, tmp_path: Path
    ) -> None:
        made: list[sw.PPO] = []

        def run() -> None:
            made.append(small_ppo(fails_in(doing), n_envs=2, env_mode=mode))
            made[0].train(1000, callbacks=kept_in(tmp_path))

        with pytest.raises(EnvironmentFailed) as caught:
            run()
        assert caught.value.env_index in (0, 1)
        assert doing in str(caught.value)
        assert "Traceback" in str(caught.value)
        assert isinstance(caught.value.__cause__, ZeroDivisionError | LookupError)
        for algo in made:
            assert algo.env.closed
            assert RunFolder(tmp_path).summary["status"] == "failed"

    @pytest.mark.long
    def test_a_worker_that_is_killed_is_named(self, tmp_path: Path) -> None:
        algo = small_ppo(n_envs=2, env_mode="async")
        kill = Once("on_rollout_end", lambda: os.kill(algo.env.processes[1].pid, signal.SIGKILL))
        with pytest.raises(EnvironmentFailed, match=r"(?s)environment 1 .*exit code -9"):
            algo.train(1000, callbacks=[kill, kept_in(tmp_path)])
        assert algo.env.closed

    def test_observations_that_do_not_fit_the_space_are_named(self) -> None:
        class Long(Alike):
            def step(self, action: int) -> Any:
                obs, *rest = super().step(action)
                return np.append(obs, 0), *rest

        fault = r"(?s)environment 0 .*shape \(2,\), got \(3,\)"
        with pytest.raises(EnvironmentFailed, match=fault):
            small_ppo(Long).train(10)


def fails_in(doing: str) -> Callable[[], Any]:
    if doing == "being made":
        return partial(divide, 0)
    return partial(FailingEnv, (40,), **{f"fail_{doing}": 1 if doing == "reset" else 35})


def divide(by: int) -> Any:
    return 1 / by


class Once(sw.Callback):
    """Does something the first time that a hook is called."""

    def __init__(self, hook: str, action: Callable[[], Any]) -> None:
        self.action: Callable[[], Any] | None = action
        setattr(self, hook, self._act)

    def _act(self, **_: Any) -> None:
        action, self.action = self.action, None
        if action is not None:
            action()


class Sick(CountingEnv):
    """Gets sick after some steps of the process."""

    def __init__(self, after: int, where: str, bad: float, counted: list[int]) -> None:
        super().__init__((7,), 0, "truncated")
        self.after, self.where, self.bad, self.counted = after, where, bad, counted

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = super().step(action)
        self.counted[0] += 1
        if self.counted[0] > self.after:
            if self.where == "rewards":
                reward = self.bad
            else:
                obs[2] = self.bad
        return obs, reward, terminated, truncated, info


class TestNotFinite:
    @pytest.mark.long(only=["rewards-inf-True"])
    @pytest.mark.parametrize(
        ("where", "bad", "normalize"),
        [("obs", math.nan, False), ("rewards", -math.inf, False), ("rewards", math.inf, True)],
    )
    def test_a_run_stops_and_keeps_its_checkpoint(
        self, where: str, bad: float, normalize: bool, tmp_path: Path
    ) -> None:
        counted = [0]
        make = partial(Sick, 3 * STEPS_PER_UPDATE + 6, where, bad, counted)
        algo = small_ppo(make, normalize_obs=normalize, normalize_rewards=normalize)
        recorder = kept_in(tmp_path)
        message = f"{where} must be finite.* from environment 2 at step {3 * STEPS_PER_UPDATE + 4}"
        with pytest.raises(NonFiniteError, match=message):
            algo.train(10_000, callbacks=recorder)
        folder = RunFolder(tmp_path)
        assert folder.summary["status"] == "failed"
        assert "must be finite" in folder.summary["reason"]
        counted[0] = -10_000
        resumed = sw.PPO.from_checkpoint(folder.latest_checkpoint, make)
        assert resumed.timesteps == 3 * STEPS_PER_UPDATE
        resumed.train(STEPS_PER_UPDATE, callbacks=kept_in(tmp_path))
        assert all(bool(leaf.isfinite().all()) for leaf in resumed.policy.parameters())

    @pytest.mark.long
    def test_networks_that_diverge_do_not_replace_good_ones(self, tmp_path: Path) -> None:
        class Explodes(Alike):
            def step(self, action: int) -> Any:
                obs, _, *rest = super().step(action)
                return obs, 1e30 if exploding else 1.0, *rest

        exploding = False
        algo = small_ppo(Explodes)
        algo.train(2 * STEPS_PER_UPDATE, callbacks=kept_in(tmp_path))
        exploding = True
        with pytest.raises(NonFiniteError, match="learning diverged"):
            algo.train(10 * STEPS_PER_UPDATE, callbacks=kept_in(tmp_path))
        latest = RunFolder(tmp_path).latest_checkpoint
        kept = sw.PPO.from_checkpoint(latest, Explodes)
        assert kept.timesteps == 2 * STEPS_PER_UPDATE


class TestPrediction:
    @pytest.mark.parametrize("obs", ["x", {"a": 1}, None, np.zeros(5), np.zeros((2, 2, 4)), [[1]]])
    def test_what_is_no_observation_is_named(self, obs: Any) -> None:
        with pytest.raises(ValueError, match="obs must"):
            small_ppo().predict(obs)

    def test_entries_of_nested_observations_are_named(self) -> None:
        class Nested(Alike):
            observation_space: Any = spaces.Dict({"a": spaces.Discrete(2)})

            def __init__(self) -> None:
                super().__init__()
                self.observation_space = spaces.Dict({"a": spaces.Discrete(2)})

        for obs in ({}, 3, {"b": 1}):
            with pytest.raises(ValueError, match="obs must have an entry 'a'"):
                small_ppo(Nested).predict(obs)

    @pytest.mark.parametrize("masks", [[True], [True] * 3, [[True, True]] * 2])
    def test_masks_of_another_width_are_named(self, masks: Any) -> None:
        with pytest.raises(ValueError, match="mask"):
            small_ppo().predict(np.zeros(4), action_masks=masks)

    def test_a_mask_that_allows_nothing_is_named(self) -> None:
        with pytest.raises(ValueError, match="allow at least one action"):
            small_ppo().predict(np.zeros(4), action_masks=[False, False])

    @pytest.mark.parametrize("n", [0, -1, 2.5, "three"])
    def test_a_number_of_episodes_must_be_positive(self, n: Any) -> None:
        with pytest.raises((TypeError, ValueError), match="n_episodes"):
            small_ppo().evaluate(n)

    @pytest.mark.parametrize("env", ["Acrobot-v1", probes.ConstantValue])
    def test_an_environment_of_another_kind_is_named(self, env: Any) -> None:
        with pytest.raises(ValueError, match="env must have the observation_space of training"):
            small_ppo().evaluate(1, env=env)

    def test_other_bounds_are_no_other_kind(self) -> None:
        class Wide(Alike):
            def __init__(self) -> None:
                super().__init__()
                self.observation_space = spaces.Box(-9, 9, (2,), np.float32)

        assert small_ppo(Alike).evaluate(1, env=Wide).lengths == (8,)


class TestFolders:
    def test_a_file_in_the_place_of_the_folder_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("mine")
        for path in (tmp_path / "file", tmp_path / "file" / "run"):
            with pytest.raises(OSError, match="file"):
                small_ppo().train(10, callbacks=kept_in(path))
        assert (tmp_path / "file").read_text() == "mine"

    def test_a_folder_that_cannot_be_written_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(OSError, match="proc"):
            small_ppo().train(10, callbacks=kept_in(Path("/proc/sharpwave")))

    def test_another_run_is_not_touched(self, tmp_path: Path) -> None:
        small_ppo().train(10, callbacks=kept_in(tmp_path))
        before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        small_ppo().train(10, callbacks=kept_in(tmp_path))
        assert before == {path: path.read_bytes() for path in before}

    def test_files_beside_a_run_stay(self, tmp_path: Path) -> None:
        (tmp_path / "notes.txt").write_text("mine")
        small_ppo().train(10, callbacks=kept_in(tmp_path))
        assert (tmp_path / "notes.txt").read_text() == "mine"


class Breaks(sw.Callback):
    """Raises in one hook."""

    def __init__(self, hook: str) -> None:
        setattr(self, hook, self._break)

    def _break(self, **_: Any) -> None:
        raise LookupError("mine is broken")


class BrokenLogger(sw.LoggerCallback):
    """Raises in one method."""

    def __init__(self, method: str) -> None:
        setattr(self, method, self._break)

    def _break(self, *_: Any, **__: Any) -> None:
        raise LookupError("mine is broken")


class TestCallbacksAndLoggers:
    @pytest.mark.long(but=["on_training_start"])
    @pytest.mark.parametrize(
        "hook",
        ["on_training_start", "on_step", "on_rollout_end", "on_train_batch", "on_training_end"],
    )
    def test_an_error_reaches_the_caller_and_the_folder(self, hook: str, tmp_path: Path) -> None:
        algo = small_ppo()
        with pytest.raises(LookupError, match="mine is broken") as caught:
            algo.train(300, callbacks=[Breaks(hook), kept_in(tmp_path)])
        assert any("raised by Breaks" in note for note in notes(caught.value))
        folder = RunFolder(tmp_path)
        if hook == "on_training_end":
            assert folder.summary["status"] == "finished"
        elif hook != "on_training_start":
            assert folder.summary["status"] == "failed"
            assert "mine is broken" in folder.summary["reason"]
        algo.train(10)  # the algorithm itself is sound

    @pytest.mark.long(but=["on_train_step"])
    @pytest.mark.parametrize("method", ["on_train_step", "on_rollout_end", "log_config", "close"])
    def test_an_error_of_a_logger_reaches_the_caller(self, method: str, tmp_path: Path) -> None:
        algo = small_ppo(logger=BrokenLogger(method))
        with pytest.raises(LookupError, match="mine is broken"):
            algo.train(300, callbacks=kept_in(tmp_path))
        if method.startswith("on_"):
            assert RunFolder(tmp_path).summary["status"] == "failed"

    def test_what_ended_a_run_is_not_hidden_by_what_fails_after_it(self, tmp_path: Path) -> None:
        broken = [Breaks("on_training_end"), Once("on_train_batch", partial(divide, 0))]
        with pytest.raises(ZeroDivisionError) as caught:
            small_ppo().train(300, callbacks=[*broken, kept_in(tmp_path)])
        assert any("mine is broken" in note for note in notes(caught.value))
        assert RunFolder(tmp_path).summary["status"] == "failed"

    def test_an_interrupt_without_a_folder_is_an_interrupt(self) -> None:
        def interrupt() -> None:
            os.kill(os.getpid(), signal.SIGINT)

        with pytest.raises(KeyboardInterrupt):
            small_ppo().train(10_000, callbacks=Once("on_rollout_end", interrupt))


def notes(error: BaseException) -> list[str]:
    return getattr(error, "__notes__", [])


@pytest.mark.long
def test_a_run_in_another_thread_is_a_run(tmp_path: Path) -> None:
    results: list[Any] = []

    def work(number: int) -> None:
        algo = small_ppo(seed=number)
        results.append((number, algo.train(300, run_dir=tmp_path / str(number))))  # signals, too

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(number for number, _ in results) == [0, 1]
    alone = small_ppo(seed=1).train(300)
    (metrics,) = [metrics for number, metrics in results if number == 1]
    assert metrics["loss"] == alone["loss"]
    for number in range(2):
        assert json.loads((tmp_path / str(number) / "summary.json").read_text())["status"]
