"""Replay buffers on disk: their rows as episodes where they know them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sharpwave import Field, MmapReplayBuffer
from sharpwave.pages.viewer import Viewer
from sharpwave.pages.viewer.detail import detail, frame
from tests.unit.pages.viewer.test_pictures import decoded


def of_two_environments(folder: Path, capacity: int = 100) -> MmapReplayBuffer:
    fields = {
        "obs": {"image": Field("uint8", (2, 8, 8), stack=2), "x": "float32"},
        "action": "int32",
        "reward": "float32",
        "terminated": "bool",
        "truncated": "bool",
    }
    return MmapReplayBuffer(10, capacity, cold_path=folder, fields=fields, n_envs=2)


def push_episode(buffer: MmapReplayBuffer, env: int, length: int, *, end: bool = True) -> None:
    frames = np.zeros((2, 8, 8), np.uint8)
    for step in range(length):
        obs = {"image": frames, "x": float(step)}
        frames = np.stack([frames[1], np.full((8, 8), 10 * (step + 1), np.uint8)])
        last = end and step == length - 1
        after = {"image": frames, "x": step + 1.0}
        buffer.push(obs, step, 1.0 + env, last, False, after, stream=env)


def test_steps_of_an_environment_are_episodes(tmp_path: Path) -> None:
    with of_two_environments(tmp_path / "data") as buffer:
        push_episode(buffer, 0, 3)
        push_episode(buffer, 1, 5)
        push_episode(buffer, 0, 4)
        push_episode(buffer, 1, 2, end=False)
        with Viewer(tmp_path / "data") as viewer:
            summary = viewer.summary
            survey = viewer._survey
            assert summary.about.kind == "replay"
            assert (summary.counts["complete"], summary.counts["open"]) == (3, 1)
            assert summary.counts["steps"] == 14
            assert sorted(survey.episodes.lengths.tolist()) == [2, 3, 4, 5]
            assert sorted(survey.returns.tolist()) == [3.0, 4.0, 4.0, 10.0]
            assert summary.returns is not None
            assert summary.returns["mean"] == pytest.approx((3 + 4 + 10) / 3)
            assert "obs.image" in survey.layouts
            assert [one.column.name for one in summary.fields] == [
                "obs.image",
                "obs.x",
                "action",
                "reward",
                "terminated",
                "truncated",
            ]
            longest = int(survey.episodes.ids[survey.episodes.lengths.argmax()])
            shown = detail(survey, longest)
            assert shown["meta"] == {"env": 1}
            lines = {line["name"]: line["y"] for one in shown["curves"] for line in one["lines"]}
            assert lines["obs.x"] == [0, 1, 2, 3, 4]
            picture = decoded(frame(survey, longest, "obs.image", 4))
            assert picture[0, [0, 9], 0].tolist() == [30, 40]


def test_more_steps_are_seen_while_they_are_pushed(tmp_path: Path) -> None:
    with of_two_environments(tmp_path / "data", 40) as buffer:
        push_episode(buffer, 0, 3)
        push_episode(buffer, 1, 3, end=False)
        with Viewer(tmp_path / "data") as viewer:
            survey = viewer._survey
            before = dict(zip(survey.episodes.ids.tolist(), survey.returns.tolist(), strict=True))
            assert sorted(before.values()) == [3.0, 6.0]
            push_episode(buffer, 0, 5)
            survey.update()
            after = dict(zip(survey.episodes.ids.tolist(), survey.returns.tolist(), strict=True))
            assert before.items() <= after.items()
            assert sorted(after.values()) == [3.0, 5.0, 6.0]
            for _ in range(8):  # until the first ones are gone
                push_episode(buffer, 0, 5)
            survey.update()
            assert min(survey.episodes.ids[survey.episodes.meta["env"] == 0]) > min(before)


def test_rows_without_environments_are_shown_in_stretches(tmp_path: Path) -> None:
    with MmapReplayBuffer(10, 2500, 3, 1, tmp_path / "data") as buffer:
        n = 2500
        flat = np.zeros((n, 3), np.float32)
        flags = np.zeros(n, np.uint8)
        buffer.push_batch(flat, flat, np.zeros((n, 1)), np.arange(n), flags, flags)
        with Viewer(tmp_path / "data") as viewer:
            assert viewer.summary.returns is None
            assert viewer.summary.lengths is None
            assert viewer.summary.counts["episodes"] == 0
            assert viewer.summary.counts["steps"] == 2500
            assert viewer._survey.episodes.lengths.tolist() == [1000, 1000, 500]
            assert any("n_envs" in note for note in viewer.summary.about.notes)
            assert viewer.write_page(tmp_path / "page.html") == 3


def test_an_empty_buffer_has_a_summary(tmp_path: Path) -> None:
    with MmapReplayBuffer(10, 100, 3, 1, tmp_path / "data"), Viewer(tmp_path / "data") as viewer:
        assert viewer.summary.counts["steps"] == 0
        viewer.print()
    with of_two_environments(tmp_path / "streams"), Viewer(tmp_path / "streams") as viewer:
        assert viewer.summary.counts["steps"] == 0
        viewer.write_page(tmp_path / "page.html")
