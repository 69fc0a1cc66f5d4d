"""The page of one file: which episodes it carries, how large it gets, and that it is inert."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sharpwave.episodes import EpisodeBuffer
from sharpwave.formats.text import encode_text
from sharpwave.pages.viewer import Viewer
from sharpwave.pages.viewer.detail import MOST_POINTS, detail, frame
from sharpwave.pages.viewer.sample import choose, sample
from tests.unit.pages.viewer.folders import write_folder
from tests.unit.pages.viewer.test_pictures import decoded

HOSTILE = "</script><script>alert('&\"')</script>"


def data_of(path: Path) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', path.read_text())
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


def test_best_worst_newest_and_so_on_are_chosen_first(tmp_path: Path) -> None:
    # Returns are length * (1 + episode).
    lengths = (9, 5, 1, 7, 8, 2, 3, 4, 6, 5)
    with Viewer(write_folder(tmp_path / "data", lengths)) as viewer:
        chosen = choose(viewer._survey, 7)
        assert list(chosen.values()) == [
            "best return",
            "worst return",
            "median return",
            "newest",
            "oldest",
            "evenly spread",
            "evenly spread",
        ]
        returns = [length * (1 + i) for i, length in enumerate(lengths)]
        assert list(chosen)[:2] == [int(np.argmax(returns)), int(np.argmin(returns))]
        assert len(choose(viewer._survey, 100)) == 10
        assert choose(viewer._survey, 0) == {}


def test_all_of_a_small_folder_is_in_the_page(tmp_path: Path) -> None:
    with Viewer(write_folder(tmp_path / "data")) as viewer:
        carried = viewer.write_page(tmp_path / "page.html")
    data = data_of(tmp_path / "page.html")
    assert carried == 4
    assert sorted(data["episodes"]) == ["0", "1", "2", "3"]
    one = data["episodes"]["1"]
    assert (one["length"], one["return"], one["state"]) == (5, 10, "complete")
    assert one["meta"] == {"task": 1, "success": False}
    assert [len(picture["frames"]) for picture in one["pictures"]] == [5]
    lines = {line["name"]: line["y"] for curve in one["curves"] for line in curve["lines"]}
    assert lines["reward"] == [2] * 5
    assert lines["obs.speed"] == [0, 1, 2, 3, 4]
    assert lines["action"] == [0, 1, 2, 0, 1]
    assert [heat["field"] for heat in one["heats"]] == ["embedding"]
    table = data["state"]["episodes"]
    assert table["return"] == [3, 10, 6, 16]
    assert table["success"] == [True, False, True, False]


def test_of_many_episodes_the_newest_and_the_carried_ones_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sharpwave.pages.viewer.page.MOST_LISTED", 3)
    with Viewer(write_folder(tmp_path / "data", (1,) * 10)) as viewer:
        viewer.write_page(tmp_path / "page.html", episodes=2)  # the best and the worst
    table = data_of(tmp_path / "page.html")["state"]["episodes"]
    assert table["episode"] == [0, 7, 8, 9]
    assert table["return"] == [1, 8, 9, 10]


def test_texts_in_bytes_are_read(tmp_path: Path) -> None:
    meta = {"instruction": ("uint8", (12,)), "counts": ("uint8", (3,))}
    with EpisodeBuffer(tmp_path / "data", 4, 9, {"reward": "float"}, meta) as buffer:
        for text in ("go left", "über Ziel"):
            given = encode_text([text], 12)[0]
            buffer.store_episode(reward=[1.0], instruction=given, counts=[1, 2, 3])
    with Viewer(tmp_path / "data") as viewer:
        viewer.write_page(tmp_path / "page.html")
    data = data_of(tmp_path / "page.html")
    assert data["state"]["episodes"]["instruction"] == ["go left", "über Ziel"]
    assert "counts" not in data["state"]["episodes"]
    assert data["episodes"]["1"]["meta"] == {"instruction": "über Ziel", "counts": [1, 2, 3]}


def test_the_limit_thins_images_out(tmp_path: Path) -> None:
    with Viewer(write_folder(tmp_path / "data", (60, 60))) as viewer:
        whole = sample(viewer._survey, 2, 10 << 20)
        assert [p["every"] for one in whole.episodes.values() for p in one["pictures"]] == [1, 1]
        curves = sum(len(json.dumps({**one, "pictures": []})) for one in whole.episodes.values())
        tight = sample(viewer._survey, 2, curves + 4000)
        assert len(tight.episodes) == 2
        for one in tight.episodes.values():
            (picture,) = one["pictures"]
            assert picture["every"] > 1
            assert 1 <= len(picture["frames"]) < 60
        assert len(json.dumps(list(tight.episodes.values()))) < curves + 5000


def test_one_episode_is_carried_whatever_the_limit(tmp_path: Path) -> None:
    with Viewer(write_folder(tmp_path / "data")) as viewer:
        assert viewer.write_page(tmp_path / "page.html", limit=1) == 1
        assert viewer.write_page(tmp_path / "page.html", episodes=0) == 0


def test_long_curves_are_thinned_and_keep_their_extremes(tmp_path: Path) -> None:
    n = 30_000
    values = np.zeros(n, np.float32)
    values[0], values[-1] = 5.0, -5.0
    with EpisodeBuffer(tmp_path / "data", 2, n, {"x": "float"}) as buffer:
        buffer.store_episode(x=values)
    with Viewer(tmp_path / "data") as viewer:
        (curve,) = detail(viewer._survey, 0)["curves"]
    (line,) = curve["lines"]
    assert len(line["x"]) == len(line["y"]) <= MOST_POINTS
    assert (line["x"][0], line["x"][-1]) == (0, n - 1)
    assert (max(line["y"]), min(line["y"])) == (5, -5)


def test_frames_are_the_stored_images(tmp_path: Path) -> None:
    with Viewer(write_folder(tmp_path / "data")) as viewer:
        picture = decoded(frame(viewer._survey, 1, "obs.image", 2))
    assert picture.shape == (12, 16, 3)
    assert (picture[:, 2] == (255, 200, 40)).all()
    assert (picture[:, 3] == 10).all()


def test_floats_within_zero_and_one_are_drawn_as_such(tmp_path: Path) -> None:
    images = np.full((2, 8, 8), 0.5, np.float32)
    with EpisodeBuffer(tmp_path / "data", 2, 9, {"map": ("float", (8, 8))}) as buffer:
        buffer.store_episode(map=images)
    with Viewer(tmp_path / "data") as viewer:
        assert (decoded(frame(viewer._survey, 0, "map", 0)) == 128).all()


def test_names_from_the_folder_cannot_leave_the_data(tmp_path: Path) -> None:
    name = HOSTILE.replace(".", "")
    with EpisodeBuffer(tmp_path / "<b>data", 2, 9, {name: "float"}, {name + "!": "int"}) as buffer:
        buffer.store_episode(**{name: np.ones(3), name + "!": 1})
    with Viewer(tmp_path / "<b>data") as viewer:
        viewer.write_page(tmp_path / "page.html")
        viewer.print()
    text = (tmp_path / "page.html").read_text()
    assert "<script>alert" not in text
    assert "<b>data" not in text
    assert data_of(tmp_path / "page.html")["state"]["summary"]["fields"][0]["name"] == name
