"""Run folders and checkpoints are found by path."""

from pathlib import Path

import pytest

from sharpwave.cli.folders import existing, find_checkpoint, seed_folders
from sharpwave.cli.terminal import UserError


def make(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


def test_the_best_checkpoint_of_a_run_comes_before_the_latest(tmp_path: Path) -> None:
    latest = make(tmp_path / "checkpoints" / "latest.safetensors")
    assert find_checkpoint(latest) == latest
    assert find_checkpoint(tmp_path) == latest
    best = make(tmp_path / "checkpoints" / "best.safetensors")
    assert find_checkpoint(tmp_path) == best


def test_a_folder_without_a_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no checkpoint in"):
        find_checkpoint(tmp_path)
    make(tmp_path / "seed_0" / "checkpoints" / "latest.safetensors")
    with pytest.raises(UserError, match=r"holds several runs: name one of them, such as .*seed_0"):
        find_checkpoint(tmp_path)


def test_a_missing_path_gets_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "first_run").mkdir()
    with pytest.raises(UserError, match=r"did you mean '.*first_run'"):
        existing(tmp_path / "frist_run")


def test_a_folder_in_common_makes_no_names_alike(tmp_path: Path) -> None:
    (tmp_path / "others.json").touch()
    with pytest.raises(UserError, match=r"nope does not exist$"):
        existing(tmp_path / "nope")


def test_the_folders_of_seeds_come_in_order(tmp_path: Path) -> None:
    for name in ("seed_10", "seed_2", "seed_x", "other"):
        (tmp_path / name).mkdir()
    assert [part.name for part in seed_folders(tmp_path)] == ["seed_2", "seed_10"]
