"""Recorded steps of an environment are on disk afterwards, however it ends."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from sharpwave.episodes import ABORTED, COMPLETE, EpisodeBuffer
from sharpwave.episodes.record import RecordEpisodes
from sharpwave.formats import NotCarriedWarning
from tests.envs import CountingEnv


def play(env: gym.Env[Any, Any], n_episodes: int = 1, **options: Any) -> None:
    for _ in range(n_episodes):
        env.reset(**options)
        ended = False
        while not ended:
            _, _, terminated, truncated, _ = env.step(1)
            ended = terminated or truncated


def steps(folder: Path, number: int = 0, **options: Any) -> dict[str, Any]:
    with EpisodeBuffer.from_folder(folder, read_only=True) as buffer:
        table = buffer.episodes(**options)
        rows = np.arange(table.starts[number], table.starts[number] + table.lengths[number])
        return buffer.gather(rows)


def table(folder: Path, **options: Any) -> Any:
    with EpisodeBuffer.from_folder(folder, read_only=True) as buffer:
        found = buffer.episodes(**options)
        return found, dict(found.meta)


def test_every_step_of_every_episode_is_recorded(tmp_path: Path) -> None:
    env = RecordEpisodes(CountingEnv(lengths=(3, 1), ends="alternating"), tmp_path)
    play(env, 4, seed=7)
    env.close()
    found, meta = table(tmp_path)
    assert found.lengths.tolist() == [3, 1, 3, 1]
    assert meta["seed"].tolist() == [7, 7, 7, 7]
    assert meta["final_obs"].tolist() == [[0, 0, 3], [0, 1, 1], [0, 2, 3], [0, 3, 1]]
    recorded = steps(tmp_path, 2)
    assert recorded["obs"].tolist() == [[0, 2, 0], [0, 2, 1], [0, 2, 2]]
    assert recorded["reward"].tolist() == [1.11, 1.21, 1.31]
    assert recorded["terminated"].tolist() == [False, False, True]
    assert recorded["action"].tolist() == [1, 1, 1]
    assert steps(tmp_path, 1)["truncated"].tolist() == [True]


def test_the_wrapper_changes_nothing(tmp_path: Path) -> None:
    plain, recorded = CountingEnv(), RecordEpisodes(CountingEnv(), tmp_path)
    assert str(plain.reset(seed=1)) == str(recorded.reset(seed=1))
    for _ in range(3):
        assert str(plain.step(1)) == str(recorded.step(1))
    recorded.close()
    assert recorded.unwrapped.is_closed  # type: ignore[attr-defined]


def test_an_episode_that_reset_cuts_is_truncated(tmp_path: Path) -> None:
    env = RecordEpisodes(CountingEnv(lengths=(5,)), tmp_path)
    env.reset()
    env.step(0)
    env.step(0)
    env.reset()
    env.reset()
    play(env)
    env.close()
    found, meta = table(tmp_path, aborted=True)
    assert found.lengths.tolist() == [2, 5]
    assert found.flags.tolist() == [COMPLETE, COMPLETE]
    assert steps(tmp_path)["truncated"].tolist() == [False, True]
    assert steps(tmp_path)["terminated"].tolist() == [False, False]
    assert meta["final_obs"][0].tolist() == [0, 0, 2]


def test_an_episode_that_close_cuts_is_truncated(tmp_path: Path) -> None:
    env = RecordEpisodes(CountingEnv(lengths=(5,)), tmp_path)
    env.reset()
    env.step(0)
    env.close()
    env.close()
    assert steps(tmp_path)["truncated"].tolist() == [True]


class Failing(CountingEnv):
    """Raises in its third step."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self.step_number == 2:
            raise KeyboardInterrupt("stop")
        return super().step(action)


def test_an_episode_that_an_exception_cuts_is_aborted(tmp_path: Path) -> None:
    env = RecordEpisodes(Failing(lengths=(5,)), tmp_path)
    with pytest.raises(KeyboardInterrupt, match="stop"):
        play(env)
    env.reset()
    env.close()
    assert len(table(tmp_path)[0]) == 0
    found, _ = table(tmp_path, aborted=True)
    assert found.flags.tolist() == [ABORTED]
    assert steps(tmp_path, aborted=True)["obs"].tolist() == [[0, 0, 0], [0, 0, 1]]


@pytest.mark.long
def test_an_environment_that_is_forgotten_leaves_an_aborted_episode(tmp_path: Path) -> None:
    env = RecordEpisodes(CountingEnv(lengths=(5,)), tmp_path)
    env.reset()
    env.step(0)
    env.step(0)
    del env
    gc.collect()
    found, _ = table(tmp_path, aborted=True)
    assert found.flags.tolist() == [ABORTED]
    assert found.lengths.tolist() == [1]


class Reusing(CountingEnv):
    """Hands out one array for all observations."""

    memory = np.zeros(3, np.float32)

    def observation(self) -> Any:
        self.memory[:] = super().observation()
        return self.memory


def test_observations_of_an_array_used_again_are_copied(tmp_path: Path) -> None:
    env = RecordEpisodes(Reusing(), tmp_path)
    play(env)
    env.close()
    assert steps(tmp_path)["obs"].tolist() == [[0, 0, 0], [0, 0, 1], [0, 0, 2]]


class Nested(gym.Env[Any, Any]):
    """Has observations and actions in dicts and tuples."""

    def __init__(self) -> None:
        image = spaces.Box(0, 255, (2, 2, 3), np.uint8)
        pair = spaces.Tuple([spaces.Discrete(4), spaces.MultiBinary(2)])
        self.observation_space = spaces.Dict({"image": image, "pair": pair})
        self.action_space = spaces.Tuple([spaces.Box(-1, 1, (2,)), spaces.MultiDiscrete([2, 3])])

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.observation_space.sample(), 0.5, False, True, {"speed": np.float32(3), "n": 2}


def test_dicts_and_tuples_are_nested_fields(tmp_path: Path) -> None:
    infos = {"speed": "float32", "n": "int64"}
    env = RecordEpisodes(Nested(), tmp_path, infos=infos, options=["level"])
    first, _ = env.reset(seed=3, options={"level": 2, "name": "x"})
    action = env.action_space.sample()
    last, *_ = env.step(action)
    env.reset()
    env.step(action)
    env.close()
    recorded = steps(tmp_path)
    _, meta = table(tmp_path)
    assert recorded["obs.image"][0].tolist() == first["image"].tolist()
    assert recorded["obs.pair.0"][0] == first["pair"][0]
    assert recorded["action.1"][0].tolist() == action[1].tolist()
    assert recorded["info.speed"].tolist() == [3]
    assert recorded["info.n"].tolist() == [2]
    assert meta["final_obs.pair.1"][0].tolist() == last["pair"][1].tolist()
    assert meta["seed"].tolist() == [3, -1]
    assert meta["options.level"][0] == 2
    assert np.isnan(meta["options.level"][1])


def test_a_folder_is_continued(tmp_path: Path) -> None:
    for _ in range(2):
        env = RecordEpisodes(CountingEnv(), tmp_path)
        play(env, 2)
        env.close()
    assert len(table(tmp_path)[0]) == 4


def test_limits_are_kept(tmp_path: Path) -> None:
    env = RecordEpisodes(CountingEnv(), tmp_path, max_episodes=2, circular=True)
    play(env, 5)
    env.close()
    _, meta = table(tmp_path)
    assert meta["final_obs"][:, 1].tolist() == [3, 4]


def test_a_step_before_a_reset_is_refused(tmp_path: Path) -> None:
    env = RecordEpisodes(CountingEnv(), tmp_path)
    with pytest.raises(gym.error.ResetNeeded):
        env.step(0)
    play(env)
    with pytest.raises(gym.error.ResetNeeded):
        env.step(0)
    env.close()


def test_a_seed_of_more_than_64_bits_is_named(tmp_path: Path) -> None:
    env = RecordEpisodes(CountingEnv(), tmp_path)
    with pytest.warns(NotCarriedWarning, match=f"seed {2**70}"):
        play(env, seed=2**70)
    env.close()


def test_infos_that_are_missing_are_named(tmp_path: Path) -> None:
    env = RecordEpisodes(CountingEnv(), tmp_path, infos={"spead": "float32"})
    with pytest.raises(KeyError, match=r"info must have \['spead'\], got \['step'\]"):
        play(env)
    env.close()


def test_spaces_without_numbers_are_refused(tmp_path: Path) -> None:
    env = CountingEnv()
    env.observation_space = spaces.Dict({"text": spaces.Text(5)})
    with pytest.raises(TypeError, match=r"observation_space\['text'\] must be of numbers"):
        RecordEpisodes(env, tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_environments_of_gymnasium_are_made_with_it(tmp_path: Path) -> None:
    env = RecordEpisodes(gym.make("CartPole-v1"), tmp_path)
    env.reset(seed=0)
    for _ in range(3):
        env.step(env.action_space.sample())
    assert env.spec is not None
    env.close()
    assert len(table(tmp_path)[0]) == 1
