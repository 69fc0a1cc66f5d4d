"""The contract of checkpoint files: one table for all algorithms."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import sharpwave as sw
from sharpwave.storage.checkpoints import read_header, write_checkpoint


def test_a_foreign_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "foreign"
    path.write_bytes(b"not a checkpoint")
    with pytest.raises(sw.SharpwaveIOError, match="foreign"):
        sw.PPO.from_checkpoint(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(sw.SharpwaveIOError, match="absent"):
        sw.PPO.from_checkpoint(tmp_path / "absent")


def test_another_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sharpwave.storage.checkpoints.writer.VERSION", 99)
    write_checkpoint(tmp_path / "a", {"algorithm": "ppo"}, {})
    monkeypatch.undo()
    with pytest.raises(sw.SharpwaveIOError, match="version 99"):
        read_header(tmp_path / "a")


def test_a_cut_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write_checkpoint(path, {"algorithm": "ppo"}, {"x": np.arange(100)})
    content = path.read_bytes()
    for length in (0, 5, 50, len(content) - 1):
        path.write_bytes(content[:length])
        with pytest.raises(sw.SharpwaveIOError):
            sw.PPO.from_checkpoint(path)
