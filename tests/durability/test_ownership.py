"""Folders that are no stores, or whose header is damaged: never emptied, whoever comes in."""

from __future__ import annotations

import hashlib
import shutil
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from sharpwave import (
    DQN,
    EpisodeBuffer,
    MmapReplayBuffer,
    RecordEpisodes,
    RecordVectorEpisodes,
    ReplayBuffer,
    SharpwaveIOError,
)
from sharpwave.cli.main import main
from sharpwave.formats import read_episodes, write_episodes
from sharpwave.storage.folder import StoreFolder
from tests.durability.processes import killed_at

FIELDS = {"state": ("float", 3), "action": "int"}


def content(folder: Path) -> dict[str, str]:
    """Everything in a folder, by name."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = f"link to {path.readlink()}"
        elif path.is_file():
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
        else:
            found[name] = "folder"
    return found


def episodes(folder: Path, **options: Any) -> EpisodeBuffer:
    return EpisodeBuffer(folder, 10, 50, FIELDS, **options)


def replay(folder: Path, **options: Any) -> MmapReplayBuffer:
    return MmapReplayBuffer(10, 100, 3, 1, folder, **options)


def record(folder: Path, **options: Any) -> None:
    env = RecordEpisodes(gymnasium.make("CartPole-v1"), folder, **options)
    env.reset(seed=1)
    env.step(0)
    env.close()


def record_vector(folder: Path, **options: Any) -> None:
    envs = gymnasium.make_vec("CartPole-v1", num_envs=2)
    env = RecordVectorEpisodes(envs, folder, **options)
    env.reset(seed=1)
    env.close()


def train(folder: Path, **_: Any) -> None:
    DQN("CartPole-v1", buffer=folder, learning_starts=10, seed=1).train(20)


def save(folder: Path, **_: Any) -> None:
    buffer = ReplayBuffer(10, 3, 1)
    buffer.push(np.zeros(3), 0, 0.0, False, False, np.zeros(3))
    buffer.save(folder)


def convert(folder: Path, **options: Any) -> None:
    source = folder.parent / "source of the conversion"
    if not source.exists():
        with episodes(source) as buffer:
            buffer.store_episode(state=np.ones((4, 3)), action=np.arange(4))
    write_episodes(read_episodes(source), folder, "episodes", **options)


WAYS: dict[str, Callable[..., Any]] = {
    "episodes": episodes,
    "replay": replay,
    "record": record,
    "record_vector": record_vector,
    "train": train,
    "save": save,
    "convert": convert,
}


@pytest.fixture(params=["episodes", "replay"])
def store(request: pytest.FixtureRequest, memory_path: Path) -> Path:
    """A folder with some rows."""
    folder = memory_path / "store"
    if request.param == "episodes":
        with episodes(folder) as buffer:
            buffer.store_episode(state=np.ones((4, 3)), action=np.arange(4))
    else:
        with replay(folder) as pushed:
            for i in range(5):
                pushed.push(np.ones(3), i, 1.0, False, False, np.ones(3))
    return folder


def count(folder: Path, **options: Any) -> int:
    """The steps in a folder."""
    if StoreFolder.open(folder, repair=True).kind == "episodes":
        with EpisodeBuffer.from_folder(folder, **options) as buffer:
            return buffer.episodes().n_steps
    with MmapReplayBuffer.open(folder, **options) as pushed:
        return len(pushed)


def spoiled(folder: Path) -> dict[str, Callable[[], Any]]:
    """Ways to spoil a header."""
    header = folder / "header.json"
    text = header.read_bytes()

    def link(target: str) -> None:
        header.unlink()
        header.symlink_to(target)

    def make_folder() -> None:
        header.unlink()
        header.mkdir()
        (header / "mine").write_text("mine")

    ways: dict[str, Callable[[], Any]] = {
        "missing": header.unlink,
        "a folder": make_folder,
        "a link to nothing": lambda: link("nowhere"),
        "a link to itself": lambda: link("header.json"),
        "a link to a device": lambda: link("/dev/zero"),
        "nested": lambda: header.write_text("[" * 100_000),
        "of someone else": lambda: header.write_text('{"format": "mine"}'),
    }
    for byte in (0, 1, 30, len(text) // 2, len(text) - 3):
        flipped = text[:byte] + bytes([text[byte] ^ 1]) + text[byte + 1 :]
        ways[f"byte {byte} flipped"] = partial(header.write_bytes, flipped)
    for size in (0, 1, 17, len(text) // 2, len(text) - 2):
        ways[f"cut at {size}"] = partial(header.write_bytes, text[:size])
    return ways


@pytest.mark.long(but=["episodes-False"])
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_store_whose_header_is_damaged_is_never_emptied(store: Path, overwrite: bool) -> None:
    """Constructors deleted such a store, with or without `overwrite`, and began with 0 rows."""
    sound = store.with_name("sound")
    store.rename(sound)
    for name in spoiled(sound):
        shutil.rmtree(store, ignore_errors=True)
        shutil.copytree(sound, store)
        spoiled(store)[name]()
        before = content(store)
        for way, enter in WAYS.items():
            if way in ("record", "record_vector", "train") and name not in ("missing", "cut at 0"):
                continue  # they take longer, and come in by the same door
            options = {"overwrite": overwrite} if way not in ("train", "save") else {}
            with pytest.raises(SharpwaveIOError) as caught:
                enter(store, **options)
            assert content(store) == before, (name, way)
            if way in ("episodes", "replay"):
                assert "header.json" in str(caught.value), (name, way)
                assert "repair" in str(caught.value), (name, way)


@pytest.mark.long
def test_a_damaged_header_is_rebuilt(store: Path) -> None:
    """A lost `header.json` meant a lost store."""
    expected = count(store)
    sound = store.with_name("sound")
    store.rename(sound)
    header = (sound / "header.json").read_bytes()
    for name in spoiled(sound):
        shutil.rmtree(store, ignore_errors=True)
        shutil.copytree(sound, store)
        spoiled(store)[name]()
        with pytest.raises(SharpwaveIOError, match=r"header\.json"):
            count(store, read_only=True)
        before = content(store)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what was repaired
            assert count(store, read_only=True, repair=True) == expected
        assert content(store) == before
        if name == "a folder":
            continue
        assert main(["repair", str(store)]) == 0
        assert (store / "header.json").read_bytes() == header
        assert count(store) == expected
        assert main(["repair", str(store), "--dry-run"]) == 0


def foreign(folder: Path) -> dict[str, str]:
    """Folders of a user's own that hold names like ours."""
    names = {
        "columns/prices.csv": "1",
        "columns/prices.000000000000": "1",
        "staging/plan.md": "1",
        "state": "1",
        "dataset.json": "{}",
        "marks": "school",
        "priorities": "1. sleep",
        "update.journal": "dear diary",
        "lock": "stock and barrel",
        "unfinished": "symphony",
        "header.json": '{"title": "mine"}',
        "commit.json": '{"sha": 1}',
        "commit.tmp": "1",
        ".lock": "1",
        "data-0123456789abcdef0123456789abcdef/table.csv": "1",
        ".header.json.abcdefgh.tmp": "1",
    }
    for name, text in names.items():
        path = folder / name.replace("/", "_").strip(".") / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    everything = folder / "everything"
    for name, text in names.items():
        (everything / name).parent.mkdir(parents=True, exist_ok=True)
        (everything / name).write_text(text)
    return names


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("way", ["episodes", "replay", "save", "convert"])
def test_a_folder_of_the_users_own_is_never_touched(
    way: str, overwrite: bool, memory_path: Path
) -> None:
    """A folder that held only names like ours was emptied."""
    foreign(memory_path / "mine")
    options = {"overwrite": overwrite} if way != "save" else {}
    for folder in sorted((memory_path / "mine").iterdir()):
        before = content(folder)
        with pytest.raises(SharpwaveIOError):
            WAYS[way](folder, **options)
        assert content(folder) == before, folder


def test_overwriting_and_deleting_leave_what_is_not_ours(store: Path) -> None:
    """A user's file among the columns went with them."""
    (store / "columns" / "prices.csv").write_text("1")
    (store / "staging").mkdir(exist_ok=True)
    (store / "staging" / "plan.md").write_text("1")
    episodes(store, overwrite=True).close()
    folder = StoreFolder.open(store)
    folder.lock()
    folder.delete()
    left = [name for name, what in content(store).items() if what != "folder"]
    assert left == ["columns/prices.csv", "staging/plan.md"]


@pytest.mark.long
@pytest.mark.parametrize("old", [False, True], ids=["new", "replaced"])
@pytest.mark.parametrize("way", ["episodes", "replay"])
def test_what_is_killed_while_it_is_made_can_be_made_again(
    way: str, old: bool, memory_path: Path
) -> None:
    """Unfinished folders say so themselves; their names do not."""
    step, killed = 0, True
    while killed:
        folder = memory_path / str(step)
        if old:
            with WAYS[way](folder) as buffer:
                if way == "episodes":
                    buffer.store_episode(state=np.ones((4, 3)), action=np.arange(4))
        killed = killed_at(step, partial(WAYS[way], folder, overwrite=True))
        if (folder / "header.json").exists():
            assert count(folder) in (0, 4)
        else:
            WAYS[way](folder).close()
        shutil.rmtree(folder, ignore_errors=True)
        step += 1
    assert step > 4


@pytest.mark.parametrize("kind", ["lerobot", "minari"])
def test_a_dataset_with_files_of_the_users_own_is_not_replaced(
    kind: str, memory_path: Path
) -> None:
    """Overwriting a dataset of another format removed everything in its folder."""
    pytest.importorskip({"lerobot": "pyarrow", "minari": "minari"}[kind])
    fields = {"obs": ("float", 3), "action": ("float", 1)}
    meta = {"final_obs": ("float", 3)}
    with EpisodeBuffer(memory_path / "source", 10, 50, fields, meta) as buffer:
        buffer.store_episode(obs=np.ones((4, 3)), action=np.zeros((4, 1)), final_obs=np.ones(3))
    target = memory_path / "target-v0"
    for overwrite in (False, True):
        write_episodes(read_episodes(memory_path / "source"), target, kind, overwrite=overwrite)
    (target / "notes.txt").write_text("mine")
    before = content(target)
    with pytest.raises(SharpwaveIOError, match="never overwritten"):
        write_episodes(read_episodes(memory_path / "source"), target, kind, overwrite=True)
    assert content(target) == before
