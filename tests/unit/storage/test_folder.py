"""Folders of the durable store: made, opened, refused, replaced and removed."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sharpwave.errors import FolderLockedError, SharpwaveIOError
from sharpwave.storage.folder import StoreFolder, file_name, is_store, read_header, writer_of


def make(path: Path, *, overwrite: bool = False) -> StoreFolder:
    return StoreFolder.create(path, "episodes", {"schema": {"a": 1}}, 4, overwrite=overwrite)


def test_a_new_folder_is_ours_and_locked(tmp_path: Path) -> None:
    folder = make(tmp_path / "with spaces" / "und Ümläute")
    assert folder.is_locked
    assert is_store(folder.path)
    assert writer_of(folder.path) == os.getpid()
    assert folder.header["schema"] == {"a": 1}
    assert StoreFolder.open(folder.path, "episodes").header == folder.header
    folder.unlock()
    assert writer_of(folder.path) == 0


def test_opening_never_writes(tmp_path: Path) -> None:
    make(tmp_path / "a").unlock()
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "a").rglob("*")}
    StoreFolder.open(tmp_path / "a")
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "a").rglob("*")} == before


def test_an_existing_store_is_replaced_only_when_asked_for(tmp_path: Path) -> None:
    make(tmp_path / "a").unlock()
    with pytest.raises(SharpwaveIOError, match="overwrite=True") as caught:
        make(tmp_path / "a")
    assert caught.value.errno == errno.EEXIST
    (tmp_path / "a" / "notes.txt").write_text("mine")
    make(tmp_path / "a", overwrite=True)
    assert (tmp_path / "a" / "notes.txt").read_text() == "mine"


def test_a_second_writer_in_the_process_is_refused(tmp_path: Path) -> None:
    folder = make(tmp_path / "a")
    with pytest.raises(FolderLockedError, match="this process") as caught:
        make(tmp_path / "a", overwrite=True)
    assert caught.value.owner == os.getpid()
    with pytest.raises(FolderLockedError):
        StoreFolder.open(tmp_path / "a").lock()
    assert folder.is_locked


@pytest.mark.long
def test_a_writer_in_another_process_is_named(tmp_path: Path) -> None:
    program = (
        "import sys; from sharpwave.storage.folder import StoreFolder\n"
        "folder = StoreFolder.create(sys.argv[1], 'episodes', {}, 4)\n"
        "print('ready', flush=True); sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "a")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"ready\n"
        assert writer_of(tmp_path / "a") == writer.pid
        with pytest.raises(FolderLockedError, match=f"process {writer.pid} writes"):
            make(tmp_path / "a", overwrite=True)
        writer.kill()
    make(tmp_path / "a", overwrite=True)


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_foreign_path_is_never_touched(tmp_path: Path, overwrite: bool) -> None:
    (tmp_path / "file").write_text("precious")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "thesis.tex").write_text("precious")
    for name in ("file", "folder"):
        with pytest.raises(SharpwaveIOError, match=r"is a file|something else"):
            make(tmp_path / name, overwrite=overwrite)
    assert (tmp_path / "file").read_text() == "precious"
    assert [p.name for p in (tmp_path / "folder").iterdir()] == ["thesis.tex"]


def test_what_a_dead_maker_left_can_be_made_anew(tmp_path: Path) -> None:
    folder = make(tmp_path / "a")
    folder.unlock()
    (tmp_path / "a" / "header.json").rename(tmp_path / "a" / "unfinished")  # as deleting begins
    assert make(tmp_path / "a").is_locked
    assert not (tmp_path / "a" / "unfinished").exists()


def test_deleting_leaves_what_is_not_ours(tmp_path: Path) -> None:
    folder = make(tmp_path / "a")
    folder.delete()
    assert not (tmp_path / "a").exists()
    folder = make(tmp_path / "b")
    (tmp_path / "b" / "notes.txt").write_text("mine")
    folder.delete()
    assert [p.name for p in (tmp_path / "b").iterdir()] == ["notes.txt"]


def test_damaged_and_unknown_headers_are_refused(tmp_path: Path) -> None:
    make(tmp_path / "a").unlock()
    path = tmp_path / "a" / "header.json"
    good = path.read_text()
    for bad, message in [
        (good.replace('"a": 1', '"a": 2'), "checksum"),
        (good[:40], "damaged"),
        ("[]", "object"),
        (json.dumps({**json.loads(good), "version": 99}), "version 99"),
        (json.dumps({"format": "x"}), "no store"),
    ]:
        path.write_text(bad)
        with pytest.raises(SharpwaveIOError, match=message):
            read_header(tmp_path / "a")
    path.write_text(good)
    with pytest.raises(SharpwaveIOError, match="holds episodes, not replay"):
        StoreFolder.open(tmp_path / "a", "replay")
    with pytest.raises(SharpwaveIOError, match="no store"):
        StoreFolder.open(tmp_path / "none")


def test_names_of_columns_become_names_of_files() -> None:
    assert file_name("obs.image") == "obs.image"
    assert file_name("a/b") == "a%2Fb"
