"""The report shows the returns of single episodes, whatever state their file is in."""

from __future__ import annotations

from pathlib import Path

import pytest

from sharpwave.pages.chart import Charts
from sharpwave.pages.report.episodes import STRETCHES, episodes_section
from sharpwave.storage.run_folder import RunFolder

HEADER = "r,l,t,step,episode\n"


def section(path: Path, text: str) -> tuple[str, Charts]:
    folder, charts = RunFolder(path), Charts()
    folder.episodes_file.write_text(text)
    return str(episodes_section(charts, folder.episodes(), "environment steps") or ""), charts


def test_a_curve_has_the_mean_and_the_ends_of_each_stretch(tmp_path: Path) -> None:
    rows = "1.0,4,0.1,8,1\n3.0,9,0.1,8,2\n-2.0,2,0.2,16,3\n"
    page, charts = section(tmp_path, HEADER + rows)
    assert "3 episodes in training, the longest of 9 steps." in page
    (series,) = charts.data[0]["series"]
    assert series["x"] == [8, 16]
    assert series["y"] == [2, -2]
    assert (series["low"], series["high"]) == ([1, -2], [3, -2])


def test_long_runs_are_told_in_stretches(tmp_path: Path) -> None:
    rows = "".join(f"{i % 7},1,{i},{i},{i}\n" for i in range(1, 5_001))
    page, charts = section(tmp_path, HEADER + rows)
    assert "5,000 episodes" in page
    (series,) = charts.data[0]["series"]
    assert len(series["x"]) == STRETCHES
    assert (min(series["low"]), max(series["high"])) == (0, 6)


@pytest.mark.parametrize(
    "text", ["", HEADER, HEADER + "1.0,2,0.1,8,1\n", "a,b\n1,2\n3,4\n", HEADER + "x,y,z,v,w\n" * 3]
)
def test_what_has_no_curve_has_no_section(tmp_path: Path, text: str) -> None:
    assert section(tmp_path, text)[0] == ""
