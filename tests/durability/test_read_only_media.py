"""Folders on media that nobody can write to."""

from __future__ import annotations

import errno
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sharpwave import EpisodeBuffer, MmapReplayBuffer, SharpwaveIOError
from tests.durability.episode_model import FIELDS, META, look, steps


@pytest.fixture(params=["closed", "left by a crash"])
def media(
    request: pytest.FixtureRequest, tmp_path: Path, mount: Callable[..., Path]
) -> Iterator[Path]:
    """A read-only file system with episodes, and with steps of a replay buffer."""
    live, source = tmp_path / "live", tmp_path / "source"
    episodes = EpisodeBuffer(live / "episodes", 10, 60, FIELDS, META)
    replay = MmapReplayBuffer(10, 100, 3, 1, live / "replay")
    for number in range(3):
        episodes.store_episode(**steps(range(20 * number, 20 * number + 20)))
        replay.push([number] * 3, number, float(number), False, False, [number] * 3)
    if request.param == "closed":
        episodes.close()
        replay.close(delete=False)
    else:
        episodes.store(**steps(99))
        # A copy is not taken at one moment, as a crash is: nothing may be written meanwhile.
        episodes.flush()
        replay.flush()
    shutil.copytree(live, source)
    media = mount("media", "--bind", str(source))
    remount = ["mount", "-o", "remount,bind,ro", str(media)]
    if subprocess.run(remount, capture_output=True, check=False).returncode != 0:
        pytest.skip("nothing can be mounted read-only here")
    yield media
    if request.param != "closed":
        replay.close()


def test_episodes_are_read_and_writing_is_refused(media: Path) -> None:
    folder = media / "episodes"
    for read_only, verify in ((True, False), (False, False), (True, True)):
        with EpisodeBuffer.from_folder(folder, read_only, verify=verify) as buffer:
            assert [e[4][0] for e in look(buffer)] == [0, 20, 40]
            batch = next(iter(buffer.dataloader(3)))
            assert batch["number"].shape == (3, 20)
            if not buffer.read_only:
                with pytest.raises(SharpwaveIOError, match="episodes/lock") as caught:
                    buffer.store(**steps(1))
                assert caught.value.errno == errno.EROFS
                assert [e[4][0] for e in look(buffer)] == [0, 20, 40]
    for overwrite in (False, True):
        with pytest.raises(SharpwaveIOError, match="episodes") as caught:
            EpisodeBuffer(folder, 10, 60, FIELDS, META, overwrite=overwrite)
        assert caught.value.errno == errno.EROFS
    with pytest.raises(SharpwaveIOError, match="new") as caught:
        EpisodeBuffer(media / "new", 10, 60, FIELDS, META)
    assert caught.value.errno == errno.EROFS


def test_replay_is_read_and_writing_is_refused(media: Path) -> None:
    folder = media / "replay"
    with MmapReplayBuffer.open(folder, read_only=True, verify=True) as buffer:
        assert buffer.gather(buffer.indices())["rewards"].tolist() == [0, 1, 2]
        assert buffer.sample(3)["obs"].shape == (3, 3)
        with pytest.raises(SharpwaveIOError, match="read-only"):
            buffer.push([1] * 3, 1, 1.0, False, False, [1] * 3)
    for repair in (False, True):
        with pytest.raises(SharpwaveIOError, match="replay/lock") as caught:
            MmapReplayBuffer.open(folder, repair=repair)
        assert caught.value.errno == errno.EROFS
    with pytest.raises(SharpwaveIOError, match="new") as caught:
        MmapReplayBuffer(10, 100, 3, 1, media / "new")
    assert caught.value.errno == errno.EROFS


def test_a_folder_without_its_lock_file_is_read(media: Path, tmp_path: Path) -> None:
    copied = tmp_path / "copied"
    shutil.copytree(media / "episodes", copied)
    (copied / "lock").unlink()
    copied.chmod(0o555)
    with EpisodeBuffer.from_folder(copied, read_only=True) as buffer:
        assert [e[4][0] for e in look(buffer)] == [0, 20, 40]
    assert not (copied / "lock").exists()
    copied.chmod(0o755)
