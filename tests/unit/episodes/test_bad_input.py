"""Wrong arguments are refused with their name, and nothing is stored."""

from __future__ import annotations

import math
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sharpwave import EpisodeBuffer, SharpwaveIOError
from sharpwave.buffers import Field
from tests.unit.episodes.episodes import make, rewards, store


@pytest.fixture
def buffer(tmp_path: Path) -> Iterator[EpisodeBuffer]:
    fields = {
        "state": ("float", (2, 2)),
        "small": "uint8",
        "count": "int",
        "strict": Field("float32", (2,), finite=True),
        "reward": "float",
    }
    with make(tmp_path, fields=fields, meta_fields={"task": "int"}, max_timesteps=3) as made:
        yield made


@pytest.mark.parametrize(
    ("step", "error", "match"),
    [
        ({"rewad": 1}, TypeError, "unknown field 'rewad'; did you mean 'reward'"),
        ({"task": 1}, TypeError, "unknown field 'task'"),
        ({"state": np.zeros((2, 1))}, ValueError, r"state must have shape \(2, 2\), got \(2, 1\)"),
        ({"state": np.zeros(3)}, ValueError, r"state must have shape \(2, 2\), got \(3,\)"),
        ({"small": 300}, ValueError, "small must fit uint8, got 300"),
        ({"small": -1}, ValueError, "small must fit uint8"),
        ({"count": 3_000_000_000}, ValueError, "count must fit int32"),
        ({"count": 0.5}, ValueError, "count must fit int32, got 0.5"),
        ({"state": 1e40}, ValueError, r"state must fit float32, got 1e\+40"),
        ({"strict": [0, np.nan]}, ValueError, "strict must be finite"),
        ({"strict": np.inf}, ValueError, "strict must be finite"),
        ({"reward": np.nan}, ValueError, "reward must be finite"),
        ({"state": "abc"}, (TypeError, ValueError), "state"),
        ({"count": object()}, TypeError, "count"),
    ],
)
def test_wrong_steps_are_refused_and_not_stored(
    buffer: EpisodeBuffer, step: dict[str, Any], error: type[Exception], match: str
) -> None:
    buffer.store(reward=1)
    with pytest.raises(error, match=match):
        buffer.store(**step)
    assert buffer.timestep_index == 1
    buffer.store(reward=2)
    buffer.advance_episode()
    assert rewards(buffer, aborted=True) == [[1, 2]]


def test_nan_is_welcome_where_the_schema_does_not_forbid_it(buffer: EpisodeBuffer) -> None:
    buffer.store(state=np.nan)
    assert np.isnan(buffer.gather([0])["state"]).all()


def test_positional_steps_are_refused(buffer: EpisodeBuffer) -> None:
    with pytest.raises(TypeError, match="by name"):
        buffer.store(1)  # type: ignore[call-arg]


def test_more_than_max_timesteps_is_refused(buffer: EpisodeBuffer) -> None:
    for t in range(3):
        buffer.store(reward=t)
    with pytest.raises(ValueError, match="at most max_timesteps, 3, steps, got 4"):
        buffer.store(reward=9)
    buffer.advance_episode()
    with pytest.raises(ValueError, match="max_timesteps"):
        buffer.store_episode(reward=[1, 2, 3, 4])
    with pytest.raises(ValueError, match="at least one step"):
        buffer.store_episode(reward=[])
    with pytest.raises(TypeError, match="at least one field"):
        buffer.store_episode(task=1)
    with pytest.raises(ValueError, match=r"reward must have shape \(3,\), got \(2,\)"):
        buffer.store_episode(reward=[1, 2], count=[1, 2, 3])
    with pytest.raises(ValueError, match="leading axis"):
        buffer.store_episode(reward=1.0)
    assert rewards(buffer, aborted=True) == [[0, 1, 2]]


def test_wrong_fields_of_an_episode_abort_it(buffer: EpisodeBuffer) -> None:
    with pytest.raises(TypeError, match="did you mean 'task'"):
        buffer.one_episode(taks=1).__enter__()
    assert buffer.timestep_index == 0
    episode = buffer.one_episode(task=1)
    final = episode.__enter__()
    buffer.store(reward=1)
    final["task"] = 2**40
    with pytest.raises(ValueError, match="task must fit int32"):
        episode.__exit__(None, None, None)
    assert rewards(buffer) == []
    assert rewards(buffer, aborted=True) == [[1]]


def test_an_open_episode_is_not_joined_by_another(buffer: EpisodeBuffer) -> None:
    buffer.store(reward=1)
    with pytest.raises(RuntimeError, match="open already"):
        buffer.one_episode().__enter__()
    with pytest.raises(RuntimeError, match="open already"):
        buffer.store_episode(reward=[1])
    buffer.advance_episode()
    assert rewards(buffer) == [[1]]


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"max_episodes": 0}, ValueError, "max_episodes must be from 1"),
        ({"max_episodes": 2.5}, TypeError, "max_episodes must be an integer"),
        ({"max_timesteps": -1}, ValueError, "max_timesteps"),
        ({"fields": {}}, ValueError, "fields must not be empty"),
        ({"fields": []}, TypeError, "fields must be a dict"),
        ({"fields": {"a": "flaot"}}, ValueError, "field 'a': dtype"),
        ({"fields": {"a": "complex64"}}, ValueError, "field 'a': dtype"),
        ({"fields": {"a": ("float", "x")}}, TypeError, "field 'a': shape"),
        ({"fields": {"a": ("float", (0,))}}, ValueError, "field 'a': shape"),
        ({"fields": {"a": ("uint8", 2, 300)}}, ValueError, "field 'a': the default must fit"),
        ({"fields": {"a": ("int", 2, 0.5)}}, ValueError, "field 'a': the default must fit"),
        ({"fields": {"a": ("float", (), [1, 2])}}, TypeError, "default must be a number"),
        ({"fields": {"reward": ("float", (), math.nan)}}, ValueError, "default must be finite"),
        ({"fields": {"_a": "float"}}, ValueError, "underscore"),
        ({"fields": {"a": {}}}, ValueError, "empty dict"),
        ({"fields": {"a": "int", "a.b": "int"}}, ValueError, "a part of another"),
        ({"fields": {"a.b": "int", "a": "int"}}, ValueError, "twice"),
        ({"fields": {1: "int"}}, TypeError, "strings"),
        ({"fields": {f"f{n}": "bool" for n in range(257)}}, ValueError, "at most 256"),
        ({"meta_fields": {"reward": "int"}}, ValueError, "different names"),
        ({"durability": "eternal"}, ValueError, "durability must be one of"),
        ({"read_only": True, "overwrite": True}, ValueError, "both"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_made(
    tmp_path: Path, options: dict[str, Any], error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        make(tmp_path, **options)
    assert not (tmp_path / "episodes").exists()


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        (([7],), IndexError, "row 7 is not there"),
        (([-2],), IndexError, "row -2"),
        (([0.5],), TypeError, "rows must be integers"),
        (([0], ["rewad"]), ValueError, "fields must name"),
        (([0], "reward"), TypeError, "fields must be a sequence"),
        (([0], ["reward"], {"reward": np.zeros(2, np.float32)}), ValueError, "shape"),
        (([0], ["reward"], {"reward": np.zeros(1)}), ValueError, "float32"),
        (([0], ["reward"], {}), ValueError, "out must have the field 'reward'"),
        (([0], ["reward"], [1]), TypeError, "out must be a dict"),
    ],
)
def test_wrong_reads_are_refused(
    buffer: EpisodeBuffer, arguments: tuple[Any, ...], error: type[Exception], match: str
) -> None:
    buffer.store(reward=1)
    with pytest.raises(error, match=match):
        buffer.gather(*arguments)


def test_wrong_ranges_are_refused(buffer: EpisodeBuffer) -> None:
    store(buffer, 0)
    buffer.store(reward=1)
    buffer.store(reward=2)
    for arguments, error in [
        (([0], [3], 2), ValueError),
        (([0], [-1], 2), ValueError),
        (([1], [2], 2), IndexError),
        (([5], [1], 2), IndexError),
        (([-1], [1], 2), IndexError),
        (([0], [1, 2], 2), ValueError),
        (([0], [1], -1), ValueError),
    ]:
        with pytest.raises(error):
            buffer.gather_ranges(*arguments)
    assert buffer.gather_ranges([0, 99], [2, 0], 3)["reward"].tolist() == [[1, 2, 0], [0, 0, 0]]


def test_out_arrays_are_written_and_returned(buffer: EpisodeBuffer) -> None:
    buffer.store(reward=3)
    out = {"reward": np.zeros((1, 2), np.float32)}
    assert buffer.gather([[0, -1]], ["reward"], out) is out
    assert out["reward"].tolist() == [[3, 0]]


def test_a_full_disk_is_an_error_that_loses_nothing(tmp_path: Path) -> None:
    fields = {"big": ("float", (4096,)), "reward": "float"}
    buffer = make(tmp_path, fields=fields, max_episodes=10_000, max_timesteps=1000)
    row_bytes = 4096 * 4
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    chunk = buffer._folder.header["columns"][0]["chunk_rows"] * row_bytes
    with buffer.one_episode():
        resource.setrlimit(resource.RLIMIT_FSIZE, (chunk // 2, hard))
        try:
            with pytest.raises(SharpwaveIOError, match="big"):
                buffer.store(big=0, reward=0)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert buffer.timestep_index == 0
        for t in range(3):
            buffer.store(big=t, reward=t)
    assert rewards(buffer) == [[0, 1, 2]]
