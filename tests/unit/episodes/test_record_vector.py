"""The episodes of vector environments are recorded as they were, in every autoreset mode."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from sharpwave.episodes import EpisodeBuffer
from sharpwave.episodes.record_vector import RecordVectorEpisodes
from tests.envs import CountingEnv
from tests.unit.episodes.test_record import Nested

LENGTHS = ((3, 1), (2,))


def vector_env(mode: AutoresetMode) -> SyncVectorEnv:
    makers = [partial(CountingEnv, lengths, n, "alternating") for n, lengths in enumerate(LENGTHS)]
    return SyncVectorEnv(makers, autoreset_mode=mode)


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_every_step_of_every_episode_is_recorded(mode: AutoresetMode, tmp_path: Path) -> None:
    env = RecordVectorEpisodes(vector_env(mode), tmp_path)
    env.reset(seed=10)
    taken = np.zeros(2, np.int64)
    ended = np.zeros(2, np.bool_)
    for _ in range(12):
        is_step = ~ended if mode == AutoresetMode.NEXT_STEP else np.ones(2, np.bool_)
        _, _, terminated, truncated, _ = env.step(np.array([1, 0]))
        taken += is_step
        ended = terminated | truncated
        if mode == AutoresetMode.DISABLED and ended.any():
            env.reset(options={"reset_mask": ended})
    env.close()
    env.close()
    with EpisodeBuffer.from_folder(tmp_path, read_only=True) as buffer:
        table = buffer.episodes()
        for number in range(2):
            mine = table.meta["env"] == number
            assert table.lengths[mine].sum() == taken[number]
            for count, episode in enumerate(np.flatnonzero(mine)):
                length = LENGTHS[number][count % len(LENGTHS[number])]
                length = min(length, int(table.lengths[episode]))  # the last may be cut
                rows = buffer.gather(table.starts[episode] + np.arange(length))
                expected = [[number, count, step] for step in range(length)]
                assert rows["obs"].tolist() == expected
                assert rows["action"].tolist() == [1 - number] * length
                assert table.meta["final_obs"][episode].tolist() == [number, count, length]
                assert (rows["terminated"] | rows["truncated"]).tolist() == [
                    *[False] * (length - 1),
                    True,
                ]
                assert table.meta["seed"][episode] == (10 + number if count == 0 else -1)


def test_episodes_under_way_end_as_truncated(tmp_path: Path) -> None:
    env = RecordVectorEpisodes(vector_env(AutoresetMode.NEXT_STEP), tmp_path)
    env.reset()
    env.step(np.zeros(2, np.int64))
    env.reset(seed=[4, None])
    env.step(np.zeros(2, np.int64))
    env.close()
    with EpisodeBuffer.from_folder(tmp_path, read_only=True) as buffer:
        table = buffer.episodes()
        assert table.lengths.tolist() == [1, 1, 1, 1]
        assert buffer.gather(table.starts)["truncated"].tolist() == [True] * 4
        assert table.meta["seed"].tolist() == [-1, -1, 4, -1]


def test_nested_spaces(tmp_path: Path) -> None:
    base: Any = SyncVectorEnv([Nested, Nested])
    env = RecordVectorEpisodes(base, tmp_path)
    first, _ = env.reset(seed=1)
    actions = env.action_space.sample()
    env.step(actions)
    env.close()
    with EpisodeBuffer.from_folder(tmp_path, read_only=True) as buffer:
        rows = buffer.gather(buffer.episodes().starts)
        assert rows["obs.image"].tolist() == first["image"].tolist()
        assert rows["action.1"].tolist() == np.asarray(actions[1]).tolist()


def test_an_unknown_mode_is_refused(tmp_path: Path) -> None:
    env = gym.make_vec("CartPole-v1", num_envs=2)
    env.metadata = {"autoreset_mode": "sometimes"}
    with pytest.raises(ValueError, match="env must have an autoreset mode of"):
        RecordVectorEpisodes(env, tmp_path)
