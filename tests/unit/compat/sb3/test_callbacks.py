"""Callbacks of Stable-Baselines3 see here what they see there."""

from __future__ import annotations

import copy
import importlib
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

import sharpwave as sw
from sharpwave.compat.sb3 import A2C, DQN, PPO, SAC
from sharpwave.compat.sb3 import make_vec_env as make_native

SMALL = {"policy_kwargs": {"net_arch": [8]}, "batch_size": 16, "learning_starts": 20}
RUNS: dict[str, Any] = {
    "ppo": ("PPO", "CartPole-v1", 2, {"n_steps": 8, "batch_size": 16}, 40),
    "a2c": ("A2C", "CartPole-v1", 3, {}, 45),
    "dqn": ("DQN", "CartPole-v1", 1, {"learning_starts": 20}, 50),
    "sac": ("SAC", "Pendulum-v1", 2, SMALL, 50),
    "td3 by episodes": (
        "TD3",
        "Pendulum-v1",
        1,
        {**SMALL, "train_freq": (1, "episode"), "gradient_steps": 1},
        250,
    ),
}


class Recorder(BaseCallback):  # type: ignore[misc]
    """Writes down what it is told, and when."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[tuple[Any, ...]] = []
        self.infos: list[dict[str, Any]] = []

    def note(self, event: str, *more: Any) -> None:
        self.events.append((event, self.model.num_timesteps, self.n_calls, *more))

    def _on_training_start(self) -> None:
        known = ("total_timesteps", "tb_log_name", "reset_num_timesteps", "log_interval")
        self.note("training starts", *(self.locals[name] for name in known))

    def _on_rollout_start(self) -> None:
        self.note("rollout starts")

    def _on_step(self) -> bool:
        shapes = [
            np.shape(self.locals[name]) for name in ("new_obs", "rewards", "dones", "actions")
        ]
        assert self.num_timesteps == self.model.num_timesteps
        assert self.training_env.num_envs == len(self.locals["infos"])
        assert self.locals["self"] is self.model
        self.infos += [dict(info) for info in self.locals["infos"]]
        self.note("step", *shapes)
        return True

    def _on_rollout_end(self) -> None:
        self.note("rollout ends")

    def _on_training_end(self) -> None:
        self.note("training ends")


def record(library: str, run: str, *, by_id: bool = False) -> Recorder:
    name, env_id, n_envs, options, steps = RUNS[run]
    algorithm = getattr(importlib.import_module(library), name)
    env = env_id if by_id else make_vec_env(env_id, n_envs, seed=0)
    recorder = Recorder()
    algorithm("MlpPolicy", env, seed=0, **copy.deepcopy(options)).learn(steps, callback=recorder)
    return recorder


@pytest.mark.parametrize("run", RUNS)
def test_the_same_events_at_the_same_steps(run: str) -> None:
    ours = record("sharpwave.compat.sb3", run)
    theirs = record("stable_baselines3", run)
    assert ours.events == theirs.events
    keys = [{frozenset(info) for info in one.infos} for one in (ours, theirs)]
    assert keys[0] == keys[1]


@pytest.mark.parametrize("run", ["dqn", "td3 by episodes"])
def test_of_an_id_too(run: str) -> None:
    ours, theirs = (
        record(library, run, by_id=True)
        for library in ("sharpwave.compat.sb3", "stable_baselines3")
    )
    assert ours.events == theirs.events
    assert {frozenset(info) for info in ours.infos} == {frozenset(info) for info in theirs.infos}


def test_infos_of_native_environments_tell_of_their_episodes() -> None:
    recorder = Recorder()
    model = PPO("MlpPolicy", make_native("CartPole-v1", 2), n_steps=64, batch_size=64, seed=0)
    assert model.agent.loop.collection_reason is None  # native code collects
    model.learn(256, callback=recorder)
    ended = [info for info in recorder.infos if "episode" in info]
    assert len(ended) == model.agent.episodes.count > 0
    told = [(info["episode"]["r"], info["episode"]["l"]) for info in ended]
    assert sorted(told) == sorted((e["r"], e["l"]) for e in model.ep_info_buffer)
    assert all(info["terminal_observation"].shape == (4,) for info in ended)


class StopAt(BaseCallback):  # type: ignore[misc]
    def __init__(self, step: int) -> None:
        super().__init__()
        self.step, self.ended = step, False

    def _on_step(self) -> bool:
        return bool(self.num_timesteps < self.step)

    def _on_training_end(self) -> None:
        self.ended = True


@pytest.mark.parametrize(("algorithm", "env_id"), [(PPO, "CartPole-v1"), (DQN, "CartPole-v1")])
def test_false_stops_at_that_step(algorithm: Any, env_id: str) -> None:
    callback = StopAt(37)
    model = algorithm("MlpPolicy", env_id).learn(4000, callback=callback)
    assert model.num_timesteps == 37
    assert callback.ended


def test_learning_that_fails_does_not_end_in_order() -> None:
    class Fails(StopAt):
        def _on_step(self) -> bool:
            raise RuntimeError("of the callback")

    callback = Fails(1)
    with pytest.raises(RuntimeError, match="of the callback"):
        A2C("MlpPolicy", "CartPole-v1").learn(50, callback=callback)
    assert not callback.ended


def test_what_is_recorded_is_logged() -> None:
    class Records(BaseCallback):  # type: ignore[misc]
        def _on_step(self) -> bool:
            self.logger.record("mine/steps", self.num_timesteps)
            return True

        def _on_rollout_end(self) -> None:
            assert self.logger.name_to_value["mine/steps"] == self.model.num_timesteps

    A2C("MlpPolicy", "CartPole-v1").learn(20, callback=Records())


def test_callbacks_of_this_library_go_beside() -> None:
    steps: list[int] = []

    class Ours(sw.Callback):
        def on_train_batch(self, step: int) -> None:
            steps.append(step)

    recorder = Recorder()
    A2C("MlpPolicy", "CartPole-v1").learn(15, callback=[Ours(), recorder])
    assert steps == [5, 10, 15]
    assert recorder.n_calls == 15


def test_a_list_and_a_function() -> None:
    seen: list[int] = []

    def function(locals_: dict[str, Any], globals_: dict[str, Any]) -> bool:
        seen.append(len(locals_["infos"]))
        return len(seen) < 4

    model = A2C("MlpPolicy", "CartPole-v1").learn(15, callback=[function, Recorder()])
    assert seen == [1, 1, 1, 1]
    assert model.num_timesteps == 4


@pytest.mark.parametrize("name", ["rollout_buffer", "_last_obs", "ep_success_buffer"])
def test_internals_that_are_not_there_name_the_page(name: str) -> None:
    class Touches(BaseCallback):  # type: ignore[misc]
        def _on_step(self) -> bool:
            getattr(self.model, name)
            return True

    with pytest.raises(AttributeError, match=rf"{name}.*docs/coming_from_sb3\.md"):
        PPO("MlpPolicy", "CartPole-v1", n_steps=8).learn(16, callback=Touches())


def test_locals_that_are_not_there_name_the_page() -> None:
    class Touches(BaseCallback):  # type: ignore[misc]
        def _on_step(self) -> bool:
            return bool(self.locals["obs_tensor"])

    with pytest.raises(KeyError, match=r"obs_tensor.*docs/coming_from_sb3\.md"):
        PPO("MlpPolicy", "CartPole-v1", n_steps=8).learn(16, callback=Touches())


@pytest.mark.parametrize("algorithm", [PPO, SAC])
def test_the_statistics_of_vec_normalize_are_those_of_the_program(algorithm: Any) -> None:
    env = VecNormalize(make_vec_env("Pendulum-v1", 2))
    counts: list[float] = []

    class Looks(BaseCallback):  # type: ignore[misc]
        def _on_step(self) -> bool:
            normalizer = self.model.get_vec_normalize_env()
            assert normalizer is env
            counts.append(float(normalizer.obs_rms.count))
            return True

    options = {"n_steps": 16, "batch_size": 16} if algorithm is PPO else SMALL
    model = algorithm("MlpPolicy", env, **options).learn(64, callback=Looks())
    assert counts == sorted(counts)
    assert counts[-1] > counts[0] >= 2
    assert abs(env.obs_rms.mean[2]) > 0
    assert model.predict(env.reset())[0].shape == (2, 1)


def test_steps_of_vec_normalize_are_stored_raw() -> None:
    env = VecNormalize(make_vec_env("Pendulum-v1", 1), norm_obs=True, norm_reward=True)
    model = SAC("MlpPolicy", env, **SMALL).learn(60)
    batch = model.agent.buffer.sample(60)
    angles = np.arctan2(batch["obs"][:, 1], batch["obs"][:, 0])
    torques = batch["actions"][:, 0]
    costs = angles**2 + 0.1 * batch["obs"][:, 2] ** 2 + 0.001 * torques**2  # as Pendulum has them
    assert batch["rewards"] == pytest.approx(-costs, abs=1e-3)
    assert np.hypot(batch["obs"][:, 0], batch["obs"][:, 1]) == pytest.approx(np.ones(60), abs=1e-5)


class Counts(gym.Wrapper[Any, Any, Any, Any]):
    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.n_steps = 0

    def step(self, action: Any) -> Any:
        self.n_steps += 1
        return super().step(action)


def test_an_environment_is_stepped_itself() -> None:
    env = Counts(gym.make("CartPole-v1"))
    model = A2C("MlpPolicy", env).learn(25)
    assert env.n_steps == 25
    assert model.get_env().get_attr("n_steps") == [25]
