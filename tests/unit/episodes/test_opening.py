"""Access to a folder of episodes, and the fields that must fit."""

from __future__ import annotations

import copy
import os
import pickle
import threading
from pathlib import Path

import numpy as np
import pytest

from sharpwave import EpisodeBuffer, SharpwaveIOError
from sharpwave.episodes import EpisodeField
from sharpwave.errors import FolderLockedError
from sharpwave.storage.folder import writer_of
from tests.unit.episodes.episodes import FIELDS, crashed, make, rewards, store


def listing(folder: Path) -> dict[str, tuple[int, int]]:
    return {
        str(path.relative_to(folder)): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in folder.rglob("*")
    }


def test_constructing_again_never_destroys_and_goes_on(tmp_path: Path) -> None:
    for number in range(3):
        with make(tmp_path) as buffer, buffer.one_episode():
            store(buffer, number + 1, number)
    assert make(tmp_path).episodes().lengths.tolist() == [1, 2, 3]


def test_overwrite_replaces_the_episodes(tmp_path: Path) -> None:
    with make(tmp_path) as buffer, buffer.one_episode():
        store(buffer, 2)
    with make(tmp_path, overwrite=True, max_episodes=3) as buffer:
        assert buffer.num_episodes == 0
        assert buffer.max_episodes == 3


def test_a_relative_path_stays_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that changed its folder could not write to its episodes any more."""
    monkeypatch.chdir(tmp_path)
    buffer = EpisodeBuffer("episodes", 8, 50, {"image": ("uint8", (64, 64))})
    buffer.store_episode(image=np.zeros((2, 64, 64)))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    for _ in range(7):
        buffer.store_episode(image=np.zeros((50, 64, 64)))
    buffer.flush()
    assert len(pickle.loads(pickle.dumps(buffer))) == 8
    buffer.close()
    assert EpisodeBuffer.from_folder(tmp_path / "episodes", verify=True).num_episodes == 8


def test_overwrite_refuses_a_foreign_folder(tmp_path: Path) -> None:
    (tmp_path / "episodes").mkdir()
    (tmp_path / "episodes" / "thesis.tex").write_text("precious")
    with pytest.raises(SharpwaveIOError, match="thesis"):
        make(tmp_path, overwrite=True)
    assert (tmp_path / "episodes" / "thesis.tex").read_text() == "precious"


def test_a_second_writer_is_refused_while_an_episode_is_open(tmp_path: Path) -> None:
    buffer = make(tmp_path)
    store(buffer, 1)
    second = EpisodeBuffer.from_folder(buffer.folder)
    with pytest.raises(FolderLockedError, match="this process") as caught:
        make(tmp_path)
    assert caught.value.owner == os.getpid()
    with pytest.raises(FolderLockedError):
        second.store(reward=1)
    buffer.store(reward=1)
    buffer.advance_episode()
    assert rewards(second) == [[0, 1]]


def test_buffers_of_a_process_write_in_turns(tmp_path: Path) -> None:
    """A cell that opens a folder was refused when run again: its first buffer was still there."""
    first = make(tmp_path)
    store(first, 2)
    first.advance_episode()
    second = make(tmp_path)
    third = EpisodeBuffer.from_folder(second.folder)
    for number, buffer in enumerate([second, third, first, second]):
        buffer.store(reward=10 + number)
        buffer.advance_episode()
    expected = [[0, 1], [10], [11], [12], [13]]
    for buffer in (first, second, third):
        assert rewards(buffer) == expected
        buffer.close()
    with EpisodeBuffer.from_folder(second.folder, verify=True) as again:
        assert rewards(again) == expected


def test_another_schema_is_refused_with_the_difference(tmp_path: Path) -> None:
    make(tmp_path, meta_fields={"task": "int"}).close()
    fields = {**FIELDS, "action": ("int", 3), "done": "bool"}
    with pytest.raises(ValueError, match="another") as caught:
        make(tmp_path, fields=fields, max_episodes=9, circular=True)
    text = str(caught.value)
    assert "max_episodes is 8 there and 9 here" in text
    assert "circular is False there and True here" in text
    assert "fields has 'done' here and not there" in text
    assert "fields['action']" in text
    assert "[2]" in text
    assert "[3]" in text
    assert "meta_fields has 'task' there and not here" in text
    assert "max_timesteps" not in text


def test_read_only_never_writes(tmp_path: Path) -> None:
    buffer = make(tmp_path, meta_fields={"task": "int"})
    with buffer.one_episode(task=3):
        store(buffer, 5)
        left = crashed(buffer, tmp_path / "left")
    before = listing(left)
    reader = EpisodeBuffer.from_folder(left, read_only=True)
    assert len(reader.episodes(aborted=True)) == 0
    assert reader.num_episodes == 0
    with pytest.raises(RuntimeError, match="read-only"):
        reader.store(reward=1)
    with pytest.raises(RuntimeError, match="read-only"):
        reader.clear()
    reader.flush()
    reader.close()
    assert listing(left) == before


def test_read_only_wants_an_existing_folder_and_makes_none(tmp_path: Path) -> None:
    with pytest.raises(SharpwaveIOError, match="holds no store"):
        make(tmp_path, read_only=True)
    with pytest.raises(SharpwaveIOError, match="holds no store"):
        EpisodeBuffer.from_folder(tmp_path / "episodes")
    assert not (tmp_path / "episodes").exists()


class Trap:
    """Says so when it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (self.path,)


def test_opening_runs_nothing_that_a_folder_holds(tmp_path: Path) -> None:
    sprung = tmp_path / "sprung"
    folder = tmp_path / "crafted"
    folder.mkdir()
    for name in ("metadata.pkl", "header.json", "state"):
        (folder / name).write_bytes(pickle.dumps(Trap(str(sprung))))
    with pytest.raises(SharpwaveIOError):
        EpisodeBuffer.from_folder(folder)
    assert not sprung.exists()


def test_paths_may_have_spaces_and_any_letters(tmp_path: Path) -> None:
    folder = tmp_path / "replay daten" / "Größe %41"
    folder.mkdir(parents=True)
    buffer = make(folder, fields={"zustand/ä": "float", "obs": {"a b": "int"}})
    buffer.store(**{"zustand/ä": 1.5, "obs": {"a b": 2}})
    buffer.close()
    again = EpisodeBuffer.from_folder(str(folder / "episodes"), read_only=True)
    table = again.episodes(aborted=True)
    assert again.gather(table.starts)["zustand/ä"].tolist() == [1.5]


def test_everything_raises_after_close(tmp_path: Path) -> None:
    buffer = make(tmp_path)
    store(buffer, 1)
    buffer.advance_episode()
    buffer.close()
    buffer.close()
    for attempt in (
        lambda: buffer.store(reward=1),
        lambda: buffer.gather([0]),
        lambda: buffer.episodes(),
        lambda: len(buffer),
        lambda: buffer.flush(),
    ):
        with pytest.raises(RuntimeError, match="closed"):
            attempt()
    assert "closed" in repr(buffer)


def test_pickling_reopens_the_folder_for_reading(tmp_path: Path) -> None:
    buffer = make(tmp_path)
    store(buffer, 3)
    buffer.advance_episode()
    reader = pickle.loads(pickle.dumps(buffer))
    assert rewards(reader) == [[0, 1, 2]]
    with pytest.raises(RuntimeError, match="read-only"):
        reader.store(reward=1)
    assert pickle.loads(pickle.dumps(buffer.episodes())).lengths.tolist() == [3]
    assert copy.copy(buffer).read_only


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_can_read_and_not_write(tmp_path: Path) -> None:
    buffer = make(tmp_path)
    store(buffer, 2)
    buffer.advance_episode()
    store(buffer, 1)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            assert buffer.gather([1])["reward"].tolist() == [1]
            try:
                buffer.store(reward=5)
            except RuntimeError as error:
                status = 0 if "fork" in str(error) else 2
            buffer.close()
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    store(buffer, 1)
    buffer.advance_episode()
    assert rewards(buffer) == [[0, 1], [0, 0]]
    assert writer_of(buffer.folder) == os.getpid()


def test_garbage_collection_lets_the_folder_go(tmp_path: Path) -> None:
    buffer = make(tmp_path)
    store(buffer, 2)
    buffer.advance_episode()
    del buffer
    assert rewards(make(tmp_path)) == [[0, 1]]


def test_schemas_are_read_back_as_they_were_given(tmp_path: Path) -> None:
    fields = {
        "a": "int",
        "b": ("float", 4),
        "c": ("bool", (2, 2), True),
        "d": EpisodeField("float64", (), float("inf")),
        "e": {"f": "uint8", "g": np.float16},
        "reward": EpisodeField("float32", finite=True),
    }
    make(tmp_path, fields=fields, meta_fields={"m": ("int64", (), -3)}).close()
    schema = EpisodeBuffer.from_folder(tmp_path / "episodes").schema
    assert schema == make(tmp_path, fields=fields, meta_fields={"m": ("int64", (), -3)}).schema
    assert list(schema.fields) == ["a", "b", "c", "d", "e.f", "e.g", "reward"]
    assert schema.fields["c"] == EpisodeField("bool", (2, 2), True)
    assert schema.fields["d"].default == float("inf")
    assert schema.fields["e.g"].dtype == "float16"
    assert schema.fields["reward"].role == "reward"
    assert schema.meta_fields["m"].default == -3


def test_tables_are_read_while_episodes_come_and_go(tmp_path: Path) -> None:
    meta = {f"m{n}": ("int", 10) for n in range(5)}
    buffer = make(tmp_path, max_episodes=3, circular=True, meta_fields=meta)
    stop = threading.Event()

    def work() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            with buffer.one_episode(**dict.fromkeys(meta, number)):
                buffer.store(reward=number)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(300):
            table = buffer.episodes()
            for values in table.meta.values():
                assert (values == table.ids[:, None] + 1).all()
    finally:
        stop.set()
        thread.join()


def test_threads_store_whole_steps(tmp_path: Path) -> None:
    buffer = make(tmp_path, max_timesteps=10_000, fields={"a": ("int", 50), "b": ("int", 50)})

    def work(number: int) -> None:
        for i in range(1000):
            buffer.store(a=number * 1000 + i, b=number * 1000 + i)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    buffer.advance_episode()
    steps = buffer.gather(np.arange(3000))
    assert (steps["a"] == steps["b"]).all()
    assert (steps["a"] == steps["a"][:, :1]).all()
    assert sorted(steps["a"][:, 0].tolist()) == list(range(3000))
