"""Replay in a folder: draws over hot and cold steps, views, reopening, closing."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sharpwave import Hindsight, MmapReplayBuffer, NStep, Sequence, SharpwaveIOError
from sharpwave.compat.rlox import ExperienceRecord
from sharpwave.storage import folder
from tests.reference.chance import assert_fits
from tests.reference.mapped import (
    KINDS,
    assert_same_content,
    assert_same_state,
    change_priorities,
    fill,
    in_memory,
    make,
    push,
    steps_of,
)
from tests.reference.nests import assert_same

each_kind = pytest.mark.parametrize("kind", KINDS)


def small(path: Path, n: int = 0, **options: Any) -> MmapReplayBuffer:
    buffer = MmapReplayBuffer(10, 100, 3, 1, path, **options)
    for i in range(n):
        buffer.push([i] * 3, i, float(i), False, False, [i + 1] * 3)
    return buffer


def files_of(path: Path) -> dict[str, bytes]:
    return {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file()}


@pytest.mark.long(but=["rows"])
@each_kind
def test_it_holds_what_a_buffer_in_memory_holds(kind: str, memory_path: Path) -> None:
    mapped, plain = make(kind, memory_path / "a"), in_memory(kind)
    steps = steps_of(plain)
    for n in (6, 12, 60, 150, 90, 402, 6):
        push(steps.take(n), mapped, plain)
        assert len(mapped) == len(plain)
        assert mapped.is_full is plain.is_full
        assert_same_content(mapped, plain)
    mapped.flush()
    assert len(list((memory_path / "a" / "columns").iterdir())) < 8 * (plain.n_envs or 1)


@pytest.mark.long(but=["rows"])
@pytest.mark.parametrize("kind", ["rows", "streams", "frames"])
def test_uniform_draws_are_those_of_a_buffer_in_memory(kind: str, memory_path: Path) -> None:
    mapped, plain = make(kind, memory_path / "a"), in_memory(kind)
    steps = steps_of(plain)
    for _ in range(12):
        push(steps.take(30), mapped, plain)
        assert_same(mapped.sample(16, indices=True), plain.sample(16, indices=True))
        assert_same(mapped.sample_recent(4, 20, 3), plain.sample_recent(4, 20, 3))


@pytest.mark.long(but=["NStep(n=4, gamma=0.9, fields=None)-rows in order"])
@pytest.mark.parametrize("kind", ["rows in order", "streams", "frames"])
@pytest.mark.parametrize(
    "view",
    [NStep(4, 0.9), Sequence(5, burn_in=2, pad=True), Sequence(3, cross=True, gamma=0.9)],
    ids=str,
)
def test_views_read_the_neighbors(kind: str, view: Any, memory_path: Path) -> None:
    mapped, plain = make(kind, memory_path / "a"), in_memory(kind)
    push(steps_of(plain).take(252), mapped, plain)
    ids = plain.indices(view)
    assert len(ids) > 20
    assert_same(mapped.indices(view), ids)
    assert_same(mapped.gather(ids, view=view), plain.gather(ids, view=view))
    assert_same(mapped.sample(9, 4, view=view), plain.sample(9, 4, view=view))


def test_hindsight_works_over_it(memory_path: Path) -> None:
    goal = ("float32", (2,))
    fields = {
        "obs": {"observation": goal, "achieved_goal": goal, "desired_goal": goal},
        "action": "float32",
        "reward": "float32",
        "terminated": "bool",
        "truncated": "bool",
    }
    buffer = MmapReplayBuffer(50, 100, fields=fields, n_envs=1, cold_path=memory_path / "a")
    push(steps_of(buffer).take(80), buffer)
    view = Hindsight(lambda achieved, *_: achieved[..., 0])
    batch = buffer.sample(16, 1, view=view)
    assert batch["rewards"].shape == (16,)


def test_draws_are_uniform_over_hot_and_cold_steps(memory_path: Path) -> None:
    buffer = small(memory_path / "a", 150)
    drawn = np.concatenate([buffer.sample(100, indices=True)["indices"] for _ in range(500)])
    assert_fits(np.bincount(drawn.astype(np.int64) - 50, minlength=100), np.full(100, 0.01))


@pytest.mark.long(but=["rows"])
@each_kind
def test_reopening_goes_on_exactly(kind: str, memory_path: Path) -> None:
    mapped, steps = fill(kind, memory_path / "a")
    twin, _ = fill(kind, memory_path / "b")
    for round_ in range(4):
        if "prioritized" in kind:
            change_priorities(mapped, twin, seed=round_)
        mapped.sample(5)
        twin.sample(5)
        mapped.close(delete=False)
        mapped = MmapReplayBuffer.open(memory_path / "a", continue_episodes=True)
        assert mapped.schema == twin.schema
        assert mapped.hot_capacity == twin.hot_capacity
        assert_same_state(mapped, twin)
        push(steps.take(42), mapped, twin)
    assert_same_state(mapped, twin)


@pytest.mark.long(but=["rows"])
@each_kind
def test_a_copy_of_the_live_folder_opens_as_it_was(kind: str, memory_path: Path) -> None:
    """The files are what a killed process leaves."""
    mapped, steps = fill(kind, memory_path / "a")
    for round_ in range(3):
        push(steps.take(6), mapped)
        mapped._engine.flush()  # the caretaker's work is done: no file goes while we copy
        copied = memory_path / f"copy {round_}"
        subprocess.run(["cp", "-r", str(memory_path / "a"), str(copied)], check=True)
        again = MmapReplayBuffer.open(copied, continue_episodes=True, verify=True)
        assert_same_state(again, copy.deepcopy(mapped))
        again.close()


def test_a_saved_buffer_is_a_folder_to_go_on_with(memory_path: Path) -> None:
    mapped, steps = fill("prioritized streams", memory_path / "a")
    change_priorities(mapped)
    mapped.save(memory_path / "new" / "b")
    saved = MmapReplayBuffer.load(memory_path / "new" / "b")
    assert [p.name for p in (memory_path / "new").iterdir()] == ["b"]
    assert_same_state(saved, mapped)
    push(steps.take(60), saved, mapped)
    assert_same_state(saved, mapped)
    with pytest.raises(SharpwaveIOError, match="already"):
        mapped.save(memory_path / "new" / "b")
    with pytest.raises(SharpwaveIOError, match="read-only"):
        copy.deepcopy(mapped).save(memory_path / "c")
    assert not (memory_path / "c").exists()


def test_rank_priorities_are_kept(memory_path: Path) -> None:
    buffer = small(memory_path / "a", 60, prioritized={"kind": "rank", "alpha": 1})
    ids = buffer.indices()
    buffer.update_priorities(ids, np.linspace(0, 3, 60))
    buffer.close(delete=False)
    again = MmapReplayBuffer.open(memory_path / "a")
    assert again.max_priority == 3.0
    drawn = np.concatenate([again.sample(60)["indices"] for _ in range(300)])
    counts = np.bincount(drawn.astype(np.int64), minlength=60)
    assert counts[0] == 0
    expected = len(drawn) / np.arange(1, 60) / np.sum(1 / np.arange(1, 60))
    assert np.abs(counts[:0:-1] / expected - 1).max() < 0.35


def test_open_episodes_are_cut_when_a_folder_is_reopened(memory_path: Path) -> None:
    view = Sequence(4)
    for continued in (False, True):
        path = memory_path / str(continued)
        mapped, plain = make("streams", path), in_memory("streams")
        steps = steps_of(plain)
        rows = [steps.step(i % 3) for i in range(60)]
        push(rows[:30], mapped, plain)
        mapped.close(delete=False)
        mapped = MmapReplayBuffer.open(path, continue_episodes=continued)
        push(rows[30:], mapped, plain)
        assert_same_content(mapped, plain)
        lost = 0 if continued else 3 * 3
        assert len(mapped.indices(view)) == len(plain.indices(view)) - lost


def test_all_hot_works(memory_path: Path) -> None:
    buffer = MmapReplayBuffer(20, 20, 1, 1, memory_path / "a")
    for i in range(1000):
        buffer.push([i], i, float(i), False, False, [i])
    assert sorted(buffer.gather(buffer.indices())["rewards"]) == list(range(980, 1000))


def test_flags_of_any_dtype_are_pushed(memory_path: Path) -> None:
    flags = np.array([0, 1, 2])
    for i, dtype in enumerate((bool, np.uint8, np.float32, np.float64, np.int64)):
        buffer = small(memory_path / str(i))
        values = np.arange(9, dtype=np.float32)
        buffer.push_batch(values, values, values[:3], values[:3], flags.astype(dtype), np.zeros(3))
        assert buffer.gather(buffer.indices())["terminated"].tolist() == [0, 1, 1]


def test_a_record_is_pushed_whole(memory_path: Path) -> None:
    buffer = small(memory_path / "a")
    buffer.push(ExperienceRecord([1.0] * 3, [2.0] * 3, [0.5], 3.0, True, False))
    row = buffer.sample(1)
    assert row["obs"].tolist() == [[1] * 3]
    assert row["next_obs"].tolist() == [[2] * 3]
    assert [row[k][0] for k in ("actions", "rewards", "terminated", "truncated")] == [0.5, 3, 1, 0]
    with pytest.raises(TypeError, match="attributes"):
        buffer.push([1.0] * 3)
    assert len(buffer) == 1


def test_is_empty_until_a_push(memory_path: Path) -> None:
    buffer = small(memory_path / "a")
    assert buffer.is_empty()
    buffer.push([1] * 3, 1, 1.0, False, False, [1] * 3)
    assert not buffer.is_empty()


@pytest.mark.parametrize("name", ["plain", "with spaces", "ümläut 雪", "deep/er/still"])
@pytest.mark.parametrize("kind", [str, Path])
def test_paths_of_all_kinds(name: str, kind: Any, memory_path: Path) -> None:
    path = kind(memory_path / name)
    with small(path, 5) as buffer:
        assert buffer.path == memory_path / name
    assert len(MmapReplayBuffer.open(path)) == 5


def test_a_relative_path_stays_where_it_was(
    memory_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(memory_path)
    buffer = small(Path("a"), 3)
    monkeypatch.chdir("/")
    buffer.close(delete=False)
    assert len(MmapReplayBuffer.open(memory_path / "a")) == 3


def test_deleting_takes_what_is_ours_and_nothing_else(memory_path: Path) -> None:
    buffer = small(memory_path / "a", 5)
    (memory_path / "a" / "notes.txt").write_text("mine")
    buffer.close(delete=True)
    assert [p.name for p in (memory_path / "a").iterdir()] == ["notes.txt"]
    other = small(memory_path / "b", 5)
    other.close(delete=True)
    assert not (memory_path / "b").exists()
    other.close(delete=True)


@pytest.mark.long
def test_close_a_block_a_life_and_a_process_keep_the_folder(memory_path: Path) -> None:
    """A bare `close()` deleted the folder that the README calls experience that survives."""
    small(memory_path / "close", 5).close()
    with small(memory_path / "block", 5):
        pass
    buffer = small(memory_path / "life", 5)
    del buffer
    gc.collect()
    script = (
        "import sys; from sharpwave import MmapReplayBuffer\n"
        "b = MmapReplayBuffer(1, 9, 3, 1, sys.argv[1])\n"
        "for i in range(5): b.push([i] * 3, i, i, False, False, [i] * 3)"
    )
    subprocess.run(
        [sys.executable, "-c", script, str(memory_path / "process")],
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    for name in ("close", "block", "life", "process"):
        assert folder.writer_of(memory_path / name) == 0
        again = MmapReplayBuffer.open(memory_path / name, verify=True)
        assert len(again) == 5
        again.close()


def test_after_close_everything_raises(memory_path: Path) -> None:
    buffer = small(memory_path / "a", 20, prioritized=True)
    batch = buffer.batch(4)
    buffer.close(delete=False)
    row = ([1] * 3, 1, 1.0, False, False, [1] * 3)
    rows = [np.zeros((2, 3)), np.zeros((2, 3)), *[np.zeros(2)] * 4]
    calls: list[Any] = [
        lambda: buffer.push(*row),
        lambda: buffer.push_batch(*rows),
        lambda: buffer.sample(4),
        lambda: buffer.sample(4, out=batch),
        lambda: buffer.sample_recent(4, 5),
        lambda: buffer.gather([1]),
        lambda: buffer.update_priorities([1], [1.0]),
        lambda: len(buffer),
        buffer.is_empty,
        buffer.indices,
        buffer.clear,
        buffer.stats,
        buffer.flush,
        lambda: buffer.epoch(4),
        lambda: buffer.set_beta(0.5),
        lambda: buffer.is_full,
        lambda: buffer.max_priority,
        lambda: buffer.save(memory_path / "b"),
        lambda: pickle.dumps(buffer),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="closed"):
            call()
    assert "closed" in repr(buffer)
    assert len(MmapReplayBuffer.open(memory_path / "a")) == 20


def test_clear_is_kept(memory_path: Path) -> None:
    buffer = small(memory_path / "a", 30)
    buffer.clear()
    buffer.push([7] * 3, 7, 7.0, False, False, [7] * 3)
    buffer.close(delete=False)
    again = MmapReplayBuffer.open(memory_path / "a")
    assert again.indices().tolist() == [30]


def test_for_env_makes_stream_rows_in_a_folder(memory_path: Path) -> None:
    gym = pytest.importorskip("gymnasium")
    env = gym.make_vec("CartPole-v1", num_envs=2)
    buffer = MmapReplayBuffer.for_env(env, 1000, hot_capacity=100, cold_path=memory_path / "a")
    assert (buffer.n_envs, buffer.capacity, buffer.hot_capacity) == (2, 1000, 100)


def test_the_numbers_of_the_disk_are_in_the_stats(memory_path: Path) -> None:
    buffer, _ = fill("rows", memory_path / "a")
    stats = buffer.stats()
    assert stats["disk_bytes"] >= 90 * stats["record_bytes"]
    assert "max_priority" not in stats
    assert "max_priority" in small(memory_path / "b", prioritized=True).stats()
