"""Episodes on a full disk: a clear error, nothing lost, and on it goes when there is room."""

from __future__ import annotations

import contextlib
import errno
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from sharpwave import EpisodeBuffer, SharpwaveIOError
from tests.durability.crash import ENDLESS
from tests.durability.episode_model import FIELDS, META, look, steps


@pytest.fixture
def disk(mount: Callable[..., Path]) -> Path:
    """A file system of its own with little room."""
    return mount("disk", "-t", "tmpfs", "-o", "size=12m", "tmpfs")


def make(disk: Path) -> EpisodeBuffer:
    return EpisodeBuffer(disk / "episodes", 10, 2000, FIELDS, META)


@contextlib.contextmanager
def refused() -> Iterator[None]:
    with pytest.raises(SharpwaveIOError, match=r"No space left on device|no room") as caught:
        yield
    assert caught.value.errno == errno.ENOSPC
    assert "/episodes/" in str(caught.value)


@contextlib.contextmanager
def full(disk: Path) -> Iterator[None]:
    """Take all the room that is left for a while."""
    filler = disk / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass
    yield
    filler.unlink()


def store_until_refused(buffer: EpisodeBuffer, first: int) -> int:
    """Store steps from a number on; the number of the one that has no room."""
    number = first
    with contextlib.suppress(SharpwaveIOError):
        while True:
            buffer.store(**steps(number))
            number += 1
    return number


def numbers(buffer: EpisodeBuffer, flag: int = 1) -> list[list[int]]:
    """The steps of episodes, by their numbers."""
    return [episode[4] for episode in look(buffer) if episode[1] == flag]


def test_a_step_that_has_no_room_can_be_stored_later(disk: Path) -> None:
    buffer = make(disk)
    with buffer.one_episode():
        with full(disk):
            n = store_until_refused(buffer, 0)
            with refused():
                buffer.store(**steps(n))
            assert buffer.timestep_index == n
            buffer.flush()
        buffer.store(**steps(n))
    assert numbers(buffer) == [list(range(n + 1))]
    buffer.close()
    with EpisodeBuffer.from_folder(disk / "episodes", verify=True) as again:
        assert numbers(again) == [list(range(n + 1))]


def test_a_full_disk_inside_a_block_aborts_its_episode(disk: Path) -> None:
    buffer = make(disk)
    buffer.store_episode(**steps(range(5)))
    with full(disk), refused(), buffer.one_episode():
        for number in range(ENDLESS):
            buffer.store(**steps(number))
    assert numbers(buffer) == [[0, 1, 2, 3, 4]]
    (aborted,) = numbers(buffer, flag=2)
    assert 0 < len(aborted) < ENDLESS
    assert aborted == list(range(len(aborted)))
    buffer.store_episode(**steps(range(60)))
    assert numbers(buffer)[1] == list(range(60))


def test_a_whole_episode_is_stored_or_nothing_of_it(disk: Path) -> None:
    buffer = make(disk)
    with full(disk):
        with refused():
            buffer.store_episode(**steps(range(100)))
        assert look(buffer) == []
        with refused():
            make(disk / "another")
        buffer.close()
    buffer = make(disk)
    assert look(buffer) == []
    buffer.store_episode(**steps(range(100)))
    assert numbers(buffer) == [list(range(100))]


@pytest.mark.long
def test_a_batch_that_has_no_room_for_its_end_can_end_later(disk: Path) -> None:
    buffer = make(disk)
    with contextlib.ExitStack() as room, refused(), buffer.batched_episode(2):
        for t in range(1000):
            buffer.store_batch(**steps([t, 1000 + t]))
            if t == 5:
                room.enter_context(full(disk))
    buffer.close()
    buffer = make(disk)
    first, second = numbers(buffer, flag=2)
    assert first == list(range(len(first)))
    assert len(first) > 5
    assert second == [1000 + t for t in first]

    buffer.clear()
    for t in range(20):
        buffer.store_batch(**steps([t, 1000 + t]))
    with full(disk):
        with refused():
            buffer.advance_episode()
        crashed = disk.parent / "crashed"
        shutil.copytree(disk / "episodes", crashed)
    buffer.advance_episode()
    expected = [list(range(20)), list(range(1000, 1020))]
    assert numbers(buffer) == expected
    # A writer that died there had come to the end of the batch, or not.
    with EpisodeBuffer.from_folder(crashed) as again:
        again.store_episode(**steps([1]))
        assert [e[4] for e in look(again)] == [*expected, [1]]


def test_an_update_that_has_no_room_changes_nothing(disk: Path) -> None:
    buffer = make(disk)
    buffer.store_episode(**steps(range(40)))
    with full(disk):
        with refused():
            buffer.update(label=np.arange(40)[None], score=3.0)
        assert look(buffer)[0][3:] == (-1.0, list(range(40)), [0] * 40)
    buffer.update(label=np.arange(40)[None])
    assert look(buffer)[0][5] == list(range(40))
    buffer.verify()


def test_episodes_that_have_no_room_to_be_compressed_are_compressed_later(disk: Path) -> None:
    buffer = EpisodeBuffer(disk / "episodes", 10, 60, FIELDS, META, codecs={"frame": "zstd"})
    for number in range(50):  # a file of frames is full
        buffer.store(**steps(number))
    with full(disk):
        buffer.advance_episode()
        assert numbers(buffer) == [list(range(50))]
    assert not list(disk.rglob("*.coded"))
    buffer.store_episode(**steps(range(60)))
    buffer.flush()
    assert list(disk.rglob("frame.*.coded"))
    assert numbers(buffer) == [list(range(50)), list(range(60))]
    buffer.close()


def test_a_ring_goes_round_on_a_disk_that_has_just_enough_room(mount: Callable[..., Path]) -> None:
    disk = mount("disk", "-t", "tmpfs", "-o", "size=1m", "tmpfs")
    buffer = EpisodeBuffer(disk / "episodes", 2, 60, FIELDS, META, circular=True)
    for number in range(200):
        buffer.store_episode(**steps(range(100 * number, 100 * number + 50)))
    assert numbers(buffer) == [[*range(19800, 19850)], [*range(19900, 19950)]]
