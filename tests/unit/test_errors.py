"""Errors of files are also what Python calls them."""

from __future__ import annotations

import errno
import pickle
from pathlib import Path

import pytest

import sharpwave as sw
from sharpwave.errors import FolderLockedError, SharpwaveIOError


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOENT, FileNotFoundError),
        (errno.EEXIST, FileExistsError),
        (errno.EACCES, PermissionError),
        (errno.EROFS, OSError),
    ],
)
@pytest.mark.parametrize("cls", [SharpwaveIOError, FolderLockedError])
def test_an_error_with_a_number_is_pythons_too(
    cls: type[SharpwaveIOError], number: int, kind: type[OSError]
) -> None:
    """`except FileNotFoundError` did not catch what had its number."""
    error = cls(number, "it is so")
    assert isinstance(error, kind)
    assert isinstance(error, cls)
    assert (error.errno, error.strerror) == (number, "it is so")
    again = pickle.loads(pickle.dumps(error))
    assert isinstance(again, kind)
    assert isinstance(again, cls)
    assert again.args == error.args
    assert type(cls("without a number")) is cls


def test_what_is_missing_and_what_is_there_already(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    for attempt in (
        lambda: sw.MmapReplayBuffer.open(missing),
        lambda: sw.EpisodeBuffer.from_folder(missing),
        lambda: sw.ReplayBuffer.load(missing),
        lambda: sw.PPO.from_checkpoint(missing),
        lambda: sw._native.WriterLock(str(missing / "lock")),
    ):
        with pytest.raises(FileNotFoundError) as caught:
            attempt()
        assert isinstance(caught.value, SharpwaveIOError)
    path = tmp_path / "there"
    sw.MmapReplayBuffer(5, 9, 1, 1, path).close()
    with pytest.raises(FileExistsError) as caught_too:
        sw.MmapReplayBuffer(5, 9, 1, 1, path)
    assert isinstance(caught_too.value, SharpwaveIOError)
