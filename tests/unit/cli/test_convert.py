"""Episodes go from one format to another on the command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sharpwave.cli import main
from sharpwave.formats import read_episodes, write_episodes
from tests.unit.formats.streams import assert_same, make_stream

FIELDS = {"obs": ("float32", (3,)), "action": ("int64", ())}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    write_episodes(make_stream(FIELDS), tmp_path / "source")
    return tmp_path / "source"


def test_the_formats_are_told_by_content_and_suffix(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["convert", str(source), str(tmp_path / "x.npz")]) == 0
    assert capsys.readouterr().out == f"3 episodes, 7 steps: {tmp_path / 'x.npz'}\n"
    assert main(["convert", str(tmp_path / "x.npz"), str(tmp_path / "back")]) == 0
    assert_same(read_episodes(tmp_path / "back", "episodes"), make_stream(FIELDS))


def test_options_of_the_formats(source: Path, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    target = str(tmp_path / "l")
    command = ["convert", str(source), target, "--from", "episodes", "--to", "lerobot"]
    assert main([*command, "--fps", "5"]) == 0
    assert '"fps": 5,' in (tmp_path / "l" / "meta" / "info.json").read_text()
    assert main(command) == 2
    assert main([*command, "--overwrite"]) == 0


def test_merging_folders_of_several_formats(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_episodes(make_stream(FIELDS, lengths=(2, 2)), tmp_path / "other.npz")
    merged = str(tmp_path / "merged")
    assert main(["merge", merged, str(source), str(tmp_path / "other.npz")]) == 0
    assert read_episodes(merged).lengths.tolist() == [1, 4, 2, 2, 2]
    assert "5 episodes, 11 steps" in capsys.readouterr().out


def test_what_is_not_carried_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "d.h5", "w") as file:
        file["observations"] = np.zeros((3, 2))
        file["terminals"] = [0, 1, 1]
        file["metadata/name"] = "walker"
    assert main(["convert", str(tmp_path / "d.h5"), str(tmp_path / "e")]) == 0
    said = capsys.readouterr()
    assert said.out == f"2 episodes, 3 steps: {tmp_path / 'e'}\n"
    assert said.err == "sharpwave: not carried over: metadata/name (no columns of 3 numbers)\n"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["convert", "nothing", "x"], "nothing does not exist"),
        (["convert", "text.txt", "x"], "text.txt is of no known format"),
        (["convert", "text.txt", "x", "--from", "hdf"], "unknown format 'hdf'; did you mean"),
        (["convert", "text.txt", "x", "--to", "memmap"], "unknown format 'memmap'"),
        (["convert", "source", "source"], "source exists; overwrite replaces it"),
        (["convert", "source", "text.txt", "--overwrite"], "is something else"),
        (["convert", "source", "x", "--fps", "3"], "--fps goes with --to lerobot"),
        (["convert", "source", "x", "--to", "lerobot", "--fps", "0"], "must be at least 1, got 0"),
        (["convert", "source"], "the following arguments are required: DST"),
        (["merge", "x"], "the following arguments are required: SRC"),
        (["merge", "x", "source", "other.npz"], "must have the fields of /"),
    ],
)
def test_mistakes_are_named(
    arguments: list[str],
    reason: str,
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("episodes")
    write_episodes(make_stream({"obs": ("int8", ())}), "other.npz")
    assert main(arguments) == 2
    assert reason in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other.npz", "source", "text.txt"]
