"""A dataset may be larger than memory: one episode of it is there at a time."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from sharpwave.formats import Episode, EpisodeStream, convert, write_episodes
from sharpwave.formats.spec import EpisodeSchema
from tests.unit.formats.test_round_trips import NEEDS

N_EPISODES = 60
LENGTH = 64
WIDTH = 1024
EPISODE_BYTES = LENGTH * WIDTH * 4


def generated() -> EpisodeStream:
    """Episodes that are made when they are asked for."""
    schema = EpisodeSchema(
        {"obs": ("float32", (WIDTH,)), "action": ("int64", ())},
        {"final_obs": ("float32", (WIDTH,))},
    )

    def episodes() -> Iterator[Episode]:
        for number in range(N_EPISODES):
            obs = np.full((LENGTH, WIDTH), number, np.float32)
            yield Episode({"obs": obs, "action": np.arange(LENGTH)}, {"final_obs": obs[0]})

    return EpisodeStream("generated", schema, np.full(N_EPISODES, LENGTH), episodes)


@pytest.mark.long(but=["npz", "episodes"])
@pytest.mark.parametrize(
    "name", ["episodes", "npz", "hdf5", "parquet", "arrow", "lerobot", "minari"]
)
def test_one_episode_is_in_memory(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    monkeypatch.setattr("sharpwave.formats.tables.GROUP_BYTES", EPISODE_BYTES)
    write_episodes(generated(), tmp_path / "warm up", name)  # imports take memory, too
    tracemalloc.start()
    write_episodes(generated(), tmp_path / "written", name)
    convert(tmp_path / "written", tmp_path / "read", from_format=name)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 16 * EPISODE_BYTES
