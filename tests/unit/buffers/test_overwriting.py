"""`overwrite=True` in the process that has the folder open: the old buffers end, and say so."""

from __future__ import annotations

import contextlib
import copy
import os
import pickle
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sharpwave import (
    EpisodeBuffer,
    EpisodeUnion,
    FolderLockedError,
    MmapReplayBuffer,
    NStep,
    VectorWriter,
)

OVERWRITTEN = "overwritten by another buffer of this process"
ROW = ([1] * 3, 1, 1.0, False, False, [1] * 3)
Call = Callable[[], Any]
FIELDS: dict[str, Any] = {"state": ("float", 3), "reward": "float"}


def replay(path: Path, n: int = 0, *, overwrite: bool = False, **options: Any) -> MmapReplayBuffer:
    buffer = MmapReplayBuffer(10, 100, 3, 1, path, overwrite=overwrite, **options)
    for i in range(n):
        buffer.push([i] * 3, i, float(i), False, False, [i + 1] * 3)
    return buffer


def episodes(path: Path, n: int = 0, *, length: int = 5, **options: Any) -> EpisodeBuffer:
    buffer = EpisodeBuffer(path, 50, 20, FIELDS, {"task": "int"}, **options)
    for number in range(n):
        buffer.store_episode(
            state=np.full((length, 3), number), reward=np.arange(length), task=number
        )
    return buffer


@contextlib.contextmanager
def refused() -> Iterator[None]:
    with pytest.raises((ValueError, RuntimeError), match=OVERWRITTEN):
        yield


def public(cls: type) -> set[str]:
    return {name for name in dir(cls) if not name.startswith("_")}


def calls_of_replay(buffer: MmapReplayBuffer, path: Path) -> dict[str, Call]:
    """A use of every name that touches steps."""
    rows = [np.zeros((2, 3)), np.zeros((2, 3)), *[np.zeros(2)] * 4]
    return {
        "batch": lambda: buffer.batch(4),
        "beta": lambda: buffer.beta,
        "clear": buffer.clear,
        "damage": lambda: buffer.damage,
        "epoch": lambda: next(buffer.epoch(4)),
        "flush": buffer.flush,
        "gather": lambda: buffer.gather([1]),
        "indices": buffer.indices,
        "is_empty": buffer.is_empty,
        "is_full": lambda: buffer.is_full,
        "max_priority": lambda: buffer.max_priority,
        "push": lambda: buffer.push(*ROW),
        "push_batch": lambda: buffer.push_batch(*rows),
        "sample": lambda: buffer.sample(4),
        "sample_recent": lambda: buffer.sample_recent(4, 5),
        "save": lambda: buffer.save(path / "copy"),
        "set_beta": lambda: buffer.set_beta(0.5),
        "stats": buffer.stats,
        "update": lambda: buffer.update([1]),
        "update_priorities": lambda: buffer.update_priorities([1], [1.0]),
    }


def calls_of_episodes(buffer: EpisodeBuffer) -> dict[str, Call]:
    """A use of every name that touches episodes."""
    return {
        "advance_episode": buffer.advance_episode,
        "batched_episode": lambda: buffer.batched_episode(2).__enter__(),
        "clear": buffer.clear,
        "dataloader": lambda: buffer.dataloader(2),
        "dataset": buffer.dataset,
        "episodes": buffer.episodes,
        "flush": buffer.flush,
        "gather": lambda: buffer.gather([0]),
        "gather_ranges": lambda: buffer.gather_ranges([0], [1], 1),
        "get_all_data": buffer.get_all_data,
        "num_episodes": lambda: buffer.num_episodes,
        "one_episode": lambda: buffer.one_episode().__enter__(),
        "refresh": buffer.refresh,
        "store": lambda: buffer.store(reward=1.0),
        "store_batch": lambda: buffer.store_batch(reward=[1.0]),
        "store_episode": lambda: buffer.store_episode(reward=[1.0]),
        "store_meta_batch": lambda: buffer.store_meta_batch(task=[1]),
        "timestep_index": lambda: buffer.timestep_index,
        "update": lambda: buffer.update(reward=1.0),
        "verify": buffer.verify,
    }


def test_a_replay_buffer_ends_when_another_takes_its_folder(memory_path: Path) -> None:
    """It was refused ("this process writes to it already"), so that no cell could be run again."""
    old = replay(memory_path / "a", 20, prioritized=True)
    reader = MmapReplayBuffer.open(memory_path / "a", read_only=True)
    batch, epoch, out = old.sample(8), old.epoch(4), old.batch(4)
    content = old.gather(old.indices())
    expected = copy.deepcopy(content)
    next(epoch)
    new = replay(memory_path / "a", 3, overwrite=True)
    for buffer in (old, reader):
        calls = calls_of_replay(buffer, memory_path)
        describe = {"alpha", "capacity", "closed", "hot_capacity", "n_envs", "path", "read_only"}
        describe |= {"is_prioritized", "schema", "seed", "total_capacity"}
        makers = {"close", "for_env", "load", "open"}
        assert public(MmapReplayBuffer) == {*calls, *describe, *makers}
        for call in calls.values():
            with refused():
                call()
        for use in (
            len,
            pickle.dumps,
            copy.deepcopy,
            partial(MmapReplayBuffer.sample, batch_size=4, out=out),
        ):
            with refused():
                use(buffer)
        for name in describe:
            getattr(buffer, name)
        assert buffer.closed
        assert "closed" in repr(buffer)
        buffer.close(delete=True)  # of the new one's folder nothing goes
    with refused():
        next(epoch)
    for name, values in expected.items():  # what was handed out stays what it was
        np.testing.assert_array_equal(content[name], values)
    assert len(batch["rewards"]) == 8
    assert new.indices().tolist() == [0, 1, 2]
    new.close()
    with MmapReplayBuffer.open(memory_path / "a", verify=True) as again:
        assert len(again) == 3


def test_views_and_writers_of_an_ended_buffer_raise(memory_path: Path) -> None:
    """Both hold the old buffer, and would go on with it."""
    fields = dict.fromkeys(("obs", "action", "reward"), "float")
    flags = {"terminated": "bool", "truncated": "bool"}
    options: dict[str, Any] = {"fields": {**fields, **flags}, "n_envs": 2}
    old = MmapReplayBuffer(10, 100, cold_path=memory_path / "a", **options)
    writer = VectorWriter(old, mode="same_step")
    step = (np.zeros(2), np.zeros(2), np.zeros(2), np.zeros(2, bool), np.zeros(2, bool))
    for _ in range(5):
        writer.push(*step, np.zeros(2), {})
    view = NStep(2, gamma=0.9)
    assert len(old.sample(2, view=view)["rewards"]) == 2
    new = MmapReplayBuffer(10, 100, cold_path=memory_path / "a", overwrite=True, **options)
    for call in (
        lambda: writer.push(*step, np.zeros(2), {}),
        lambda: old.sample(2, view=view),
        lambda: old.indices(view),
    ):
        with refused():
            call()
    assert len(new) == 0


@pytest.mark.parametrize("codecs", [None, "lz4"])
def test_episodes_end_when_another_takes_their_folder(
    codecs: str | None, memory_path: Path
) -> None:
    """Of the old buffer, and of one for reading, everything raises that would touch the folder."""
    path = memory_path / "a"
    old = episodes(path, 4, codecs=codecs)
    reader = EpisodeBuffer.from_folder(path)
    union = EpisodeUnion([path])
    table, content = old.episodes(), old.get_all_data(as_numpy=True)
    expected = copy.deepcopy(content)
    old.store(reward=1.0)  # an open episode does not keep the folder
    loaders = [
        old.dataloader(2, timestep_level=True),
        reader.dataloader(2, n_steps=2),
        reader.dataloader(1),
    ]
    begun = iter(old.dataloader(1, timestep_level=True))
    next(begun)
    new = episodes(path, 2, length=3, overwrite=True, codecs=codecs)
    for buffer in (old, reader):
        calls = calls_of_episodes(buffer)
        describe = {"circular", "folder", "max_episodes", "max_timesteps"}
        exports = {name for name in public(EpisodeBuffer) if name.startswith(("to_", "from_"))}
        assert public(EpisodeBuffer) == {*calls, *describe, *exports, "close"}
        for call in calls.values():
            with refused():
                call()
        for use in (
            len,
            pickle.dumps,
            copy.deepcopy,
            partial(EpisodeBuffer.to_npz, path=memory_path / "x.npz"),
        ):
            with refused():
                use(buffer)
        for name in describe:
            getattr(buffer, name)
        assert "closed" in repr(buffer)
    for loader in loaders:
        with refused():
            list(loader)
    with refused():
        list(begun)
    with refused():
        union.gather(np.arange(1))
    for name, values in expected.items():
        np.testing.assert_array_equal(content[name], values)
    assert table.meta["task"].tolist() == [0, 1, 2, 3]
    for buffer in (old, reader):
        buffer.close()
    assert new.get_all_data(as_numpy=True)["task"].tolist() == [0, 1]
    new.close()
    with EpisodeBuffer.from_folder(path, verify=True) as again:
        assert again.num_episodes == 2


def test_a_block_whose_buffer_ends_meanwhile_raises_and_leaves_the_new_one_alone(
    memory_path: Path,
) -> None:
    """The old episode neither goes on nor is aborted in the folder of the new buffer."""
    old = episodes(memory_path / "a")
    with refused(), old.one_episode():
        old.store(reward=1.0)
        new = episodes(memory_path / "a", 1, overwrite=True)
        old.store(reward=2.0)
    assert new.episodes(aborted=True).lengths.tolist() == [5]


def test_workers_of_a_loader_do_not_go_on_with_the_old_episodes(memory_path: Path) -> None:
    """Worker processes cannot see that their parent's buffer has ended."""
    old = episodes(memory_path / "a", 4)
    loader = old.dataloader(1, timestep_level=True, num_workers=1, persistent_workers=True)
    begun = iter(loader)
    next(begun)
    new = episodes(memory_path / "a", 2, overwrite=True)
    with refused():
        list(begun)
    with refused():
        list(loader)
    assert len(new) == 2


def stress(make: Callable[..., Any], use: list[Callable[[Any], Any]], path: Path) -> None:
    """Overwrite again and again while threads use the buffer there is."""
    current = [make(path, 20)]
    stop = threading.Event()
    unexpected: list[BaseException] = []

    def work(call: Callable[[Any], Any]) -> None:
        while not stop.is_set():
            buffer = current[0]
            try:
                call(buffer)
            except (ValueError, RuntimeError) as error:
                if OVERWRITTEN not in str(error) and "not open for writing" not in str(error):
                    unexpected.append(error)
            except BaseException as error:
                unexpected.append(error)

    threads = [threading.Thread(target=work, args=(call,)) for call in use]
    for thread in threads:
        thread.start()
    for _ in range(6):
        current[0] = make(path, 20, overwrite=True)
    stop.set()
    for thread in threads:
        thread.join()
    assert not unexpected, unexpected[0]
    assert len(current[0].sample(5)["rewards"] if make is replay else current[0]) >= 5


@pytest.mark.long
def test_threads_that_use_a_buffer_while_it_ends_get_the_error(memory_path: Path) -> None:
    """None of them crashes, writes to the new folder, or gets rows of two stores."""

    def draw(buffer: MmapReplayBuffer) -> None:
        batch = buffer.sample(5)
        assert (batch["obs"][:, 0] == batch["rewards"]).all()

    calls: list[Callable[[Any], Any]] = [
        draw,
        lambda buffer: buffer.push([7] * 3, 7, 7.0, False, False, [7] * 3),
        lambda buffer: (buffer.stats(), len(buffer), buffer.flush()),
        lambda buffer: list(buffer.epoch(7)),
    ]
    stress(replay, calls, memory_path / "a")


@pytest.mark.long
@pytest.mark.parametrize("codecs", [None, "lz4"])
def test_threads_that_use_episodes_while_they_end_get_the_error(
    codecs: str | None, memory_path: Path
) -> None:
    """The same for episodes, whose rows may be compressed at that moment."""

    def read(buffer: EpisodeBuffer) -> None:
        table = buffer.episodes()
        with contextlib.suppress(IndexError):
            found = buffer.gather(table.starts)
            assert (found["reward"] == 0).all()

    def make(path: Path, n: int, **options: Any) -> EpisodeBuffer:
        return episodes(path, n, circular=True, codecs=codecs, **options)

    calls: list[Callable[[Any], Any]] = [
        read,
        lambda buffer: buffer.store_episode(state=np.zeros((5, 3)), reward=np.arange(5)),
        lambda buffer: list(buffer.dataloader(50, timestep_level=True)),
        lambda buffer: (buffer.flush(), len(buffer)),
    ]
    stress(make, calls, memory_path / "a")


def test_an_argument_that_ends_the_buffer_while_it_is_read_is_an_error(memory_path: Path) -> None:
    """Reading an argument may run code of its own; the store was used after that without a look."""
    buffer = episodes(memory_path / "a", 2)

    class Rows:
        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            buffer.close()
            return np.arange(3)

    with pytest.raises(RuntimeError, match="closed"):
        buffer.gather(Rows())


def test_what_another_process_writes_to_is_refused_and_nobody_ends(memory_path: Path) -> None:
    """Only the buffers of this process can be ended by it."""
    buffer = replay(memory_path / "a", 5)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            reader = MmapReplayBuffer.open(memory_path / "a", read_only=True)
            try:
                replay(memory_path / "a", overwrite=True)
            except FolderLockedError:
                status = 0 if len(reader) == 5 else 2
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    buffer.push(*ROW)
    assert len(buffer) == 6


def test_ended_readers_do_not_end_the_buffer_that_overwrote_them(memory_path: Path) -> None:
    """Collecting an old buffer must not touch the folder of the new one."""
    for i in range(4):
        old = replay(memory_path / "a", 5, overwrite=i > 0)
    reader = MmapReplayBuffer.open(memory_path / "a", read_only=True)
    new = replay(memory_path / "a", 2, overwrite=True)
    del old, reader
    new.push(*ROW)
    assert len(new) == 3
    new.close()
    assert len(MmapReplayBuffer.open(memory_path / "a", verify=True)) == 3
