"""The summary of a folder against numbers computed by hand."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sharpwave import SharpwaveIOError
from sharpwave.episodes import EpisodeBuffer
from sharpwave.pages.viewer import Viewer, survey
from sharpwave.pages.viewer.summary import FieldSummary
from tests.unit.pages.viewer.folders import add_episode, new_buffer, step_of, write_folder


@pytest.fixture
def viewer(tmp_path: Path) -> Iterator[Viewer]:
    with Viewer(write_folder(tmp_path / "data")) as opened:
        yield opened


def field(viewer: Viewer, name: str) -> FieldSummary:
    return next(one for one in viewer.summary.fields if one.column.name == name)


def test_episodes_lengths_and_returns_are_counted(viewer: Viewer) -> None:
    summary = viewer.summary
    assert summary.counts == {
        "episodes": 4,
        "open": 0,
        "complete": 4,
        "aborted": 0,
        "steps": 14,
    }
    assert summary.lengths is not None
    assert summary.lengths["mean"] == 3.5
    assert (summary.lengths["low"], summary.lengths["high"]) == (2.0, 5.0)
    assert summary.lengths["counts"] == [1, 1, 1, 1]
    # Episode e has a reward of 1 + e in every step: 3, 10, 6 and 16.
    assert summary.returns is not None
    assert summary.returns["mean"] == 8.75
    assert summary.returns["median"] == 8.0
    assert (summary.returns["low"], summary.returns["high"]) == (3.0, 16.0)
    assert summary.returns["std"] == pytest.approx(np.std([3, 10, 6, 16]))


def test_every_field_has_its_range_its_mean_and_its_role(viewer: Viewer) -> None:
    rewards = np.repeat([1.0, 2.0, 3.0, 4.0], [3, 5, 2, 4])
    found = {one.column.name: one for one in viewer.summary.fields}
    assert list(found) == [
        "obs.image",
        "obs.speed",
        "action",
        "reward",
        "embedding",
        "task",
        "success",
    ]
    assert found["reward"].values == {
        "rows_read": 14,
        "low": 1.0,
        "high": 4.0,
        "mean": pytest.approx(rewards.mean()),
        "nan": 0,
        "infinite": 0,
    }
    assert found["obs.speed"].values["high"] == 4.0
    assert found["obs.image"].values["low"] == 0.0
    assert found["obs.image"].values["high"] == 255.0
    assert found["success"].values["mean"] == 0.5
    roles = [one.column.role for one in viewer.summary.fields]
    assert roles == ["obs", "obs", "action", "reward", "extra", "extra", "extra"]
    assert [one.column.per_episode for one in viewer.summary.fields] == [False] * 5 + [True] * 2
    assert [one.rows for one in viewer.summary.fields] == [14] * 5 + [4] * 2
    assert [one.picture for one in viewer.summary.fields] == ["rgb", *[None] * 6]


def test_bytes_on_disk_are_those_of_the_files(viewer: Viewer) -> None:
    folder = viewer.summary.about.path
    taken = {path: path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file()}
    images = sum(size for path, size in taken.items() if path.name.startswith("obs.image."))
    assert field(viewer, "obs.image").bytes == images > 0
    assert viewer.summary.condition.bytes == sum(taken.values())


def test_packed_fields_are_read_and_counted_like_others(tmp_path: Path) -> None:
    pytest.importorskip("zstandard")
    fields: dict[str, Any] = {"image": ("uint8", (32, 32)), "reward": "float"}
    with EpisodeBuffer(
        tmp_path / "data", 200, 50, fields, codecs={"image": "delta+zstd"}
    ) as buffer:
        for number in range(60):
            buffer.store_episode(image=np.full((50, 32, 32), number), reward=np.ones(50))
    files = list((tmp_path / "data" / "columns").glob("image.*"))
    assert any(path.suffix == ".coded" for path in files)
    with Viewer(tmp_path / "data", verify=True) as viewer:
        image = field(viewer, "image")
        assert image.column.codec == "delta+zstd"
        assert image.bytes == sum(path.stat().st_blocks * 512 for path in files)
        assert image.values["mean"] == 29.5
        assert viewer.summary.condition.damage == ()
    next(path for path in files if path.suffix == ".coded").unlink()
    with Viewer(tmp_path / "data") as viewer:
        assert "missing" in viewer.summary.condition.damage[0]
        assert 0 < viewer.summary.counts["complete"] < 60


def test_values_that_are_not_finite_are_counted_and_left_out(tmp_path: Path) -> None:
    with EpisodeBuffer(tmp_path / "data", 10, 10, {"x": ("float", 2)}) as buffer:
        buffer.store_episode(x=[[1.0, np.nan], [np.inf, 3.0], [-np.inf, np.nan]])
    with Viewer(tmp_path / "data") as viewer:
        assert field(viewer, "x").values == {
            "rows_read": 3,
            "low": 1.0,
            "high": 3.0,
            "mean": 2.0,
            "nan": 2,
            "infinite": 2,
        }
        assert viewer.summary.returns is None
        json.dumps(viewer.summary.to_json(), allow_nan=False)


def test_aborted_and_open_episodes_are_told_apart_and_not_in_the_returns(tmp_path: Path) -> None:
    buffer = new_buffer(tmp_path / "data")
    add_episode(buffer, 0, 3)
    with contextlib.suppress(KeyError), buffer.one_episode(task=7):
        buffer.store(**step_of(1, 0))
        raise KeyError
    with buffer.one_episode(task=8):
        buffer.store(**step_of(2, 0))
        with Viewer(tmp_path / "data") as viewer:
            counts = viewer.summary.counts
            assert (counts["complete"], counts["aborted"], counts["open"]) == (1, 1, 1)
            assert counts["steps"] == 5
            assert viewer.summary.returns is not None
            assert viewer.summary.returns["count"] == 1
            assert viewer.summary.returns["mean"] == 3.0
            assert viewer.summary.condition.writer == os.getpid()
            assert viewer._survey.episodes.meta["task"].tolist() == [0, 7, 8]
    buffer.close()
    with Viewer(tmp_path / "data") as viewer:
        assert viewer.summary.condition.writer is None


def test_an_empty_folder_has_a_summary(tmp_path: Path) -> None:
    new_buffer(tmp_path / "data").close()
    with Viewer(tmp_path / "data") as viewer:
        assert viewer.summary.counts["episodes"] == 0
        assert viewer.summary.returns is None
        assert viewer.summary.lengths is None
        assert field(viewer, "reward").values["mean"] is None
        assert len(viewer) == 0


def test_more_is_read_when_more_is_written(tmp_path: Path) -> None:
    buffer = new_buffer(tmp_path / "data")
    add_episode(buffer, 0, 3)
    with Viewer(tmp_path / "data") as viewer:
        seen = viewer._survey
        version = seen.version
        seen.update()
        assert seen.version == version
        with buffer.one_episode():
            buffer.store(**step_of(1, 0))
            seen.update()
            assert seen.returns.tolist() == [3.0, 2.0]
            buffer.store(**step_of(1, 1))
            seen.update()
            assert seen.returns.tolist() == [3.0, 4.0]
        add_episode(buffer, 2, 4)
        seen.update()
        assert seen.returns.tolist() == [3.0, 4.0, 12.0]
        assert seen.version > version
        assert seen.tallies["reward"].rows == 9
        assert seen.tallies["reward"].total == 3.0 + 4.0 + 12.0
    buffer.close()


def test_episodes_that_a_ring_drops_are_forgotten(tmp_path: Path) -> None:
    fields: dict[str, Any] = {"reward": "float"}
    buffer = EpisodeBuffer(tmp_path / "data", 2, 10, fields, circular=True)
    with Viewer(tmp_path / "data") as viewer:
        for reward in (1.0, 2.0, 3.0, 4.0):
            with buffer.one_episode():
                buffer.store(reward=reward)
            viewer._survey.update()
        assert viewer._survey.episodes.ids.tolist() == [2, 3]
        assert viewer._survey.returns.tolist() == [3.0, 4.0]
    buffer.close()


def test_of_a_large_field_pieces_are_read_and_of_the_rewards_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_folder(tmp_path / "data", (50, 50))
    monkeypatch.setattr(survey, "BLOCK_BYTES", 4 * 12 * 16 * 3)
    monkeypatch.setattr("sharpwave.pages.viewer.viewer.BUDGET", 20 * 12 * 16 * 3)
    told: list[tuple[int, int]] = []
    with Viewer(folder, progress=lambda _, done, total: told.append((done, total))) as viewer:
        assert field(viewer, "obs.image").values["rows_read"] == 20
        assert field(viewer, "reward").values["rows_read"] == 100
        assert viewer.summary.returns is not None
        assert viewer.summary.returns["mean"] == 75.0
    assert told[-1][0] == told[-1][1]
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    with Viewer(folder, full=True) as viewer:
        assert field(viewer, "obs.image").values["rows_read"] == 100


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SharpwaveIOError, match="holds no store"):
        Viewer(tmp_path)


def test_looking_changes_nothing(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "data")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with Viewer(folder, verify=True):
        pass
    assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
