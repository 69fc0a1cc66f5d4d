"""Names in files that would steer the terminal."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from sharpwave import EpisodeBuffer, SharpwaveIOError
from sharpwave.cli.main import main
from sharpwave.pages.viewer import Viewer
from sharpwave.printable import printable

NAME = "x\x1b]0;owned\x07\x1b[2J\x9b31m\u202ey"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with EpisodeBuffer(tmp_path / "a", 10, 50, {NAME: ("float", 2)}) as buffer:
        buffer.store_episode(**{NAME: np.ones((4, 2))})
    return tmp_path / "a"


def is_harmless(text: str) -> bool:
    return not set(text) & {chr(n) for n in (*range(9), *range(11, 32), *range(127, 160), 0x202E)}


def test_inspect_shows_escape_sequences_without_obeying_them(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Names of fields with escape sequences reached the terminal raw."""
    for arguments in (["inspect"], ["inspect", "--json"], ["repair"], ["repair", "--dry-run"]):
        assert main([*arguments, str(folder)]) == 0
    said, _ = capfd.readouterr()
    assert "owned" in said
    assert is_harmless(said), repr(said)
    out = io.StringIO()
    with Viewer(folder) as viewer:
        viewer.print(Console(file=out, width=200))
    assert is_harmless(out.getvalue())


@pytest.mark.long
def test_errors_show_escape_sequences_without_obeying_them(folder: Path) -> None:
    with EpisodeBuffer.from_folder(folder) as buffer:
        for wrong in (np.ones((4, 3)), np.full((4, 2), "x"), np.ones((4, 2), complex)):
            with pytest.raises((TypeError, ValueError)) as caught:
                buffer.store_episode(**{NAME: wrong})
            assert is_harmless(str(caught.value))
        with pytest.raises(TypeError) as unknown:
            buffer.store_episode(**{NAME + "z": np.ones(4)})
        assert is_harmless(str(unknown.value))
    for name in ("y", NAME):
        with pytest.raises(ValueError, match="another kind") as differ:
            EpisodeBuffer(folder, 10, 50, {name: "int"})
        assert is_harmless(str(differ.value))
    for chunk in (folder / "columns").iterdir():
        chunk.unlink()
    with pytest.raises(SharpwaveIOError) as damaged:
        EpisodeBuffer.from_folder(folder)
    assert is_harmless(str(damaged.value))
    shown = subprocess.run(
        [sys.executable, "-m", "sharpwave", "inspect", str(folder)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert shown.returncode != 0
    assert is_harmless(shown.stdout + shown.stderr)


def test_ordinary_text_stays() -> None:
    text = "Ümläute, ∞ and 漢字\n\tand lines"
    assert printable(text) == text
    assert printable(text, lines=False) == text.replace("\n", "\\n").replace("\t", "\\t")
