"""Files of episodes that are cut, removed, or have bits flipped."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from sharpwave import EpisodeBuffer, SharpwaveIOError
from sharpwave.storage.folder import file_name, read_header
from tests.durability.damage import Damage, damaged_copies
from tests.durability.episode_model import Seen, look, steps
from tests.durability.episode_script import Episodes


@pytest.fixture(scope="module", params=[None, "lz4"])
def sound(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, list[Seen]]:
    """A folder of episodes, some with compressed frames, and what it holds."""
    folder = tmp_path_factory.mktemp("sound") / "episodes"
    subject = Episodes(circular=False, max_episodes=20, codec=request.param)
    with subject.open(folder) as writer:
        for i in range(12):
            rows = steps(range(100 * i, 100 * i + 25))
            writer.buffer.store_episode(**rows, task=i, score=i / 4)
        return folder, look(writer.buffer)


def touched(folder: Path, damage: Damage, episodes: list[Seen]) -> list[int]:
    """The ids of the episodes that a damaged file has something of."""
    name, chunk = Path(damage.file).name.removesuffix(".coded").rsplit(".", 1)
    (column,) = (c for c in read_header(folder)["columns"] if file_name(c["name"]) == name)
    rows = column["chunk_rows"]
    found, first = [], 0
    for episode in episodes:
        end = first + len(episode[4])
        begin, last = (first, end - 1) if column["group"] == "steps" else (episode[0],) * 2
        if begin // rows <= int(chunk) <= last // rows:
            found.append(episode[0])
        first = end
    return found


@pytest.mark.long
@pytest.mark.parametrize("flips", [1, pytest.param(20, marks=pytest.mark.slow)])
def test_damage_is_named_and_costs_only_what_it_touches(
    flips: int, sound: tuple[Path, list[Seen]], memory_path: Path
) -> None:
    folder, expected = sound
    rng = random.Random(os.urandom(8))
    for damage, copied in damaged_copies(folder, memory_path, rng, flips):
        found = opened(copied, read_only=True, verify=True)
        if isinstance(found, SharpwaveIOError):
            named = str(copied) if damage.file == "header.json" else damage.file
            assert named.removesuffix(".coded") in str(found), damage
        else:
            assert look(found) == expected, damage
        # Without a look at checksums what is read may be wrong, but nothing worse happens.
        unchecked = opened(copied, read_only=True)
        if isinstance(unchecked, EpisodeBuffer):
            with contextlib.suppress(SharpwaveIOError):  # compressed blocks are always checked
                unchecked.get_all_data(as_numpy=True)
        repaired = opened(copied, repair=True)
        if isinstance(repaired, SharpwaveIOError):
            assert damage.file == "state", damage
            continue
        with repaired:
            kept = look(repaired)
            assert repaired.lost.ids == tuple(e[0] for e in expected if e not in kept), damage
            if repaired.lost.ids:
                assert damage.file.removesuffix(".coded") in repaired.lost.chunks[0]
                assert list(repaired.lost.ids) == touched(folder, damage, expected), damage
            repaired.store_episode(**steps([1, 2, 3]), task=77)
        with EpisodeBuffer.from_folder(copied, verify=True) as buffer:
            assert look(buffer)[:-1] == kept, damage


def opened(folder: Path, **options: Any) -> EpisodeBuffer | SharpwaveIOError:
    """The buffer in a folder, or why there is none."""
    try:
        return EpisodeBuffer.from_folder(folder, **options)
    except SharpwaveIOError as error:
        return error


@pytest.mark.long
def test_commit_words_that_make_no_sense_are_refused_or_taken_back(
    memory_path: Path, sound: tuple[Path, list[Seen]]
) -> None:
    """Those of a writer that died have no checksum."""
    folder, _ = sound
    crashed, copied = memory_path / "crashed", memory_path / "copied"
    shutil.copytree(folder, crashed)
    words = bytearray((crashed / "state").read_bytes())
    words[32:40] = bytes(8)  # the seal that closing leaves
    for word, bit in itertools.product(range(10), (0, 8, 20, 40, 62)):
        (crashed / "state").write_bytes(words)
        Damage("state", flip=(64 + 8 * word) * 8 + bit).apply(crashed)
        for options in ({"read_only": True}, {"repair": True}, {}):
            shutil.copytree(crashed, copied)
            found = opened(copied, **options)
            if isinstance(found, EpisodeBuffer):
                if not found.read_only:
                    found.store_episode(**steps([1, 2, 3]))
                with contextlib.suppress(IndexError):  # of rows before the first
                    found.get_all_data(as_numpy=True)
                found.close()
            shutil.rmtree(copied)
