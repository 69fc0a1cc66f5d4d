"""`sharpwave inspect` and `sharpwave repair`: what they say, write and return."""

from __future__ import annotations

import json
import re
import signal
import sys
import urllib.request
from pathlib import Path

import numpy as np
import pytest

from sharpwave import EpisodeBuffer, MmapReplayBuffer
from sharpwave.cli import main
from tests.processes import interruptible
from tests.unit.pages.viewer.folders import new_buffer, write_folder
from tests.waiting import LONG


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "robots")


def damaged(tmp_path: Path) -> Path:
    """Ten episodes of ten steps; a chunk that episodes 3 and 4 have rows in is gone."""
    with EpisodeBuffer(tmp_path / "data", 12, 20, {"x": ("float", (1024,))}) as buffer:
        for number in range(10):
            buffer.store_episode(x=np.full((10, 1024), number))
    (tmp_path / "data" / "columns" / "x.000000000002").unlink()
    return tmp_path / "data"


def content(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_summary_is_printed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(folder)]) == 0
    said = capsys.readouterr().out
    for words in (
        "robots",
        "4 complete episodes, 14 steps",
        "mean 8.75",
        "median 8",
        "obs.image",
        "uint8 12×16×3",
        "float32 10",
        "of the episode",
    ):
        assert words in said, words
    assert "damaged" not in said


def test_the_summary_as_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(folder), "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["kind"] == "episodes"
    assert summary["counts"]["complete"] == 4
    assert summary["returns"]["mean"] == 8.75
    assert summary["fields"][0]["name"] == "obs.image"
    assert summary["damage"] == []
    assert summary["verified"] is False


def test_bars_are_drawn_for_a_terminal_only(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["inspect", str(folder), "--verify"]) == 0
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert main(["inspect", str(folder), "--verify"]) == 0
    assert "%" in capsys.readouterr().err


def test_a_page_is_written(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "a page.html"
    assert main(["inspect", str(folder), "--html", str(out), "--episodes", "2"]) == 0
    assert capsys.readouterr().out == f"page: {out}, with 2 of 4 episodes to look into\n"
    assert out.read_text().startswith("<!doctype html>")


def test_sound_checksums_are_said(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(folder), "--verify", "--full"]) == 0
    assert "all checksums are right" in capsys.readouterr().out


def test_damage_is_said_and_what_is_left_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = damaged(tmp_path)
    before = content(folder)
    assert main(["inspect", str(folder)]) == 1
    said = re.sub(r"\s+", " ", capsys.readouterr().out)
    assert "x.000000000002: the chunk is missing" in said
    assert "2 episodes with 20 steps cannot be read: 3, 4" in said
    assert "8 complete episodes, 80 steps" in said
    assert main(["inspect", str(folder), "--html", str(tmp_path / "page.html")]) == 1
    assert "the chunk is missing" in (tmp_path / "page.html").read_text()
    assert content(folder) == before


def test_a_flipped_bit_is_found_by_verifying(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chunk = folder / "columns" / "reward.000000000000"
    data = bytearray(chunk.read_bytes())
    data[5] ^= 1
    chunk.write_bytes(data)
    assert main(["inspect", str(folder), "--json"]) == 0
    capsys.readouterr()
    assert main(["inspect", str(folder), "--json", "--verify"]) == 1
    assert "reward.000000000000" in json.loads(capsys.readouterr().out)["damage"][0]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["inspect"], "the following arguments are required: FOLDER"),
        (["inspect", "no/such/folder"], "no/such/folder does not exist"),
        (["inspect", "{tmp}"], "holds no store of sharpwave"),
        (["inspect", "{data}", "--htlm", "x"], "unknown option --htlm; did you mean '--html'?"),
        (["inspect", "{data}", "--html", "/no/such/folder/x.html"], "No such file or directory"),
        (["inspect", "{data}", "--serve", "--json"], "--serve excludes --json and --html"),
        (
            ["inspect", "{data}", "--serve", "--port", "70000"],
            "port must be from 0 to 65535",
        ),
        (["inspect", "{data}", "--limit", "0"], "must be at least 1, got 0"),
        (["repair", "no/such/folder"], "no/such/folder does not exist"),
        (["repair", "{tmp}"], "holds no store of sharpwave"),
    ],
)
def test_bad_input_is_explained(
    folder: Path,
    tmp_path: Path,
    arguments: list[str],
    reason: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    filled = [argument.format(tmp=tmp_path, data=folder) for argument in arguments]
    assert main(filled) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("sharpwave: ")
    assert reason in said.err


@pytest.mark.long
def test_serving_answers_until_it_is_interrupted(folder: Path) -> None:
    with interruptible("inspect", str(folder), "--serve") as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.match(r"(http://127\.0\.0\.1:\d+/) shows the folder until Ctrl-C", line)
        assert found is not None, line
        with urllib.request.urlopen(found[1] + "state", timeout=LONG) as answer:
            assert json.load(answer)["summary"]["counts"]["complete"] == 4
        process.send_signal(signal.SIGINT)
        said, complaints = process.communicate(timeout=LONG)
    assert process.returncode == 0
    assert said == "stopped\n"
    assert complaints == ""


def test_a_dry_run_says_what_a_repair_does_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = damaged(tmp_path)
    before = content(folder)
    assert main(["repair", str(folder), "--dry-run"]) == 1
    said = capsys.readouterr().out
    assert "x.000000000002: the chunk is missing" in said
    assert "a repair would give up 2 episodes with 20 steps (3, 4)" in said
    assert content(folder) == before
    assert main(["repair", str(folder)]) == 0
    said = capsys.readouterr().out
    assert "repaired, 2 episodes with 20 steps (3, 4) given up" in said
    assert main(["repair", str(folder)]) == 0
    assert "all checksums are right, nothing to repair" in capsys.readouterr().out
    assert main(["inspect", str(folder), "--verify"]) == 0
    assert "8 complete episodes" in capsys.readouterr().out


def test_a_folder_that_is_being_written_is_not_repaired(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with new_buffer(tmp_path / "data"):
        assert main(["repair", str(tmp_path / "data")]) == 2
    assert "there can be one writer at a time" in capsys.readouterr().err


def test_a_replay_buffer_is_inspected_and_repaired(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "replay"
    with MmapReplayBuffer(10, 100, 3, 1, folder) as buffer:
        for reward in range(40):
            buffer.push(np.zeros(3), 0.0, float(reward), False, False, np.zeros(3))
    assert main(["inspect", str(folder), "--verify"]) == 0
    said = capsys.readouterr().out
    assert "40 steps" in said
    assert "all checksums are right" in said
    chunk = next(folder.glob("columns/rows-0.*"))
    data = bytearray(chunk.read_bytes())
    data[5] ^= 1
    chunk.write_bytes(data)
    assert main(["repair", str(folder), "--dry-run"]) == 1
    assert "40 steps" in capsys.readouterr().out
    assert main(["repair", str(folder)]) == 0
    assert "40 steps given up" in capsys.readouterr().out
    assert main(["inspect", str(folder), "--verify", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["counts"]["steps"] == 0
