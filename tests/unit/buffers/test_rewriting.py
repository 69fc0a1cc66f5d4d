"""Extra columns of stored steps that are written over."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sharpwave import MmapReplayBuffer, PrioritizedReplayBuffer, ReplayBuffer, Sequence
from tests.contract.cases import CASES, Case
from tests.reference.replay import NO_STEP
from tests.reference.steps import Steps, as_batch

WITH_EXTRAS = [case for case in CASES if "extras" in case.name]
FIELDS: dict[str, Any] = {
    "obs": "float32",
    "action": "int32",
    "reward": "float32",
    "terminated": "bool",
    "truncated": "bool",
    "deter": ("float16", (3,)),
    "stoch": ("uint8", (2,)),
}


def stream(buffer: Any, steps: int, *, episode: int = 5) -> Any:
    """Steps of all environments, whose observation is their number and whose latents are zero."""
    n = buffer.n_envs
    for t in range(steps):
        buffer.push_batch(
            obs=np.full(n, t),
            next_obs=np.full(n, t + (0.5 if t % episode == episode - 1 else 1)),
            actions=np.zeros(n),
            rewards=np.zeros(n),
            terminated=np.full(n, t % episode == episode - 1),
            truncated=np.zeros(n),
            deter=np.zeros((n, 3)),
            stoch=np.zeros((n, 2)),
        )
    return buffer


def latents(ids: Any) -> dict[str, Any]:
    """Values that tell the ids that they belong to."""
    ids = np.asarray(ids).astype(np.int64)
    deter = np.stack([ids, ids + 0.5, -ids], -1).astype(np.float16)
    return {"deter": deter, "stoch": np.stack([ids % 251, (ids + 7) % 251], -1).astype(np.uint8)}


@pytest.mark.parametrize("case", WITH_EXTRAS, ids=lambda case: case.name)
def test_rows_have_what_was_written_last_and_nothing_else_changed(case: Case) -> None:
    buffer, oracle = case.make(capacity=30, seed=0), case.oracle(30)
    rows = Steps(buffer.schema, buffer.n_envs or 1).take(45)
    buffer.push_batch(**as_batch(rows))
    oracle.push_batch(rows)
    ids = buffer.indices()[::3]
    ids = np.concatenate([ids, ids[:2]])  # twice: the later values count
    new: dict[str, Any] = {
        "log_prob": np.arange(len(ids), dtype=np.float32),
        "memory": {"h": np.arange(9 * len(ids), dtype=np.float16).reshape(-1, 9)},
    }
    assert buffer.update(ids, **new) == 0
    oracle.update(ids.tolist(), **new)
    oracle.check_batch({**buffer.gather(buffer.indices()), "indices": buffer.indices()})
    assert buffer.update(ids, log_prob=-new["log_prob"]) == 0
    oracle.update(ids.tolist(), log_prob=-new["log_prob"])
    oracle.check_batch({**buffer.gather(buffer.indices()), "indices": buffer.indices()})


def test_indices_of_arrivals_say_where_latents_belong() -> None:
    buffer = stream(ReplayBuffer(60, fields=FIELDS, n_envs=2), 30)
    view = Sequence(6, context=1, arrivals=True, cross=True)
    batch = buffer.sample(8, seed=1, view=view, indices=True)
    ids = batch["indices"]
    assert (ids == NO_STEP).any()
    values = latents(np.where(ids == NO_STEP, 0, ids))
    assert buffer.update(ids, **values) == 0
    again = buffer.gather(ids[:, 0], view=view)
    there = ids != NO_STEP
    for name, value in values.items():
        assert again[name].dtype == value.dtype
        np.testing.assert_array_equal(again[name][there], value[there])
        assert not again[name][~there].any()
    untouched = np.setdiff1d(buffer.indices(), ids)
    assert not buffer.gather(untouched)["deter"].any()
    as_int64 = torch.from_numpy(ids.astype(np.int64))  # -1 is no step
    assert buffer.update(as_int64, stoch=torch.ones(*ids.shape, 2, dtype=torch.uint8)) == 0
    assert (buffer.gather(ids[there])["stoch"] == 1).all()


@pytest.mark.parametrize("kind", [ReplayBuffer, PrioritizedReplayBuffer])
def test_overwritten_steps_are_dropped_and_counted(kind: Any) -> None:
    buffer = stream(kind(10, fields=FIELDS, n_envs=1), 4)
    old = buffer.indices()
    stream(buffer, 9)
    before = buffer.gather(buffer.indices())
    assert buffer.update(old, **latents(old)) == 4
    assert buffer.stats()["stale_updates"] == 4
    after = buffer.gather(buffer.indices())
    for name, array in before.items():
        np.testing.assert_array_equal(after[name], array)


def test_unknown_ids_raise_before_anything_changes() -> None:
    buffer = stream(ReplayBuffer(20, fields=FIELDS, n_envs=1), 7)
    bare = 5  # the last observation of the first episode: no step
    assert bare not in buffer.indices()
    for wrong in (bare, 1000, 2**63 - 1):
        ids = np.array([0, wrong])
        with pytest.raises(IndexError, match=str(wrong)):
            buffer.update(ids, **latents([1, 1]))
    for negative in (-2, -(2**40)):
        with pytest.raises(IndexError, match="negative"):
            buffer.update([0, negative], **latents([1, 1]))
    with pytest.raises(IndexError, match="below 2"):
        buffer.update(np.array([2**63], np.uint64), **latents([1]))
    assert not buffer.gather(buffer.indices())["deter"].any()


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        *[
            ({name: [0]}, ValueError, f"must get extra columns, got '{name}'")
            for name in ("obs", "next_obs", "action", "actions", "reward", "rewards")
        ],
        *[({n: [0]}, ValueError, f"got '{n}'") for n in ("terminated", "truncated")],
        ({"detre": [0]}, TypeError, r"'detre'; the extra columns are \['deter', 'stoch'\]"),
        ({"deter": np.zeros((2, 3))}, ValueError, r"indices, \(1,\), got \(2, 3\)"),
        ({"deter": np.zeros((1, 4))}, ValueError, "deter must have shape"),
        ({"stoch": [[0, 256]]}, ValueError, "stoch must fit uint8"),
        ({"stoch": [[0, 0.5]]}, ValueError, "stoch must fit uint8"),
    ],
)
def test_what_happened_and_what_does_not_fit_is_refused(
    fields: dict[str, Any], error: type[Exception], message: str
) -> None:
    buffer = stream(ReplayBuffer(20, fields=FIELDS, n_envs=1), 3)
    with pytest.raises(error, match=message):
        buffer.update([0], **fields)
    assert not buffer.gather(buffer.indices())["stoch"].any()


def test_nothing_to_write_is_no_error() -> None:
    buffer = stream(ReplayBuffer(20, fields=FIELDS, n_envs=1), 3)
    assert buffer.update(np.empty(0, np.uint64), **latents(np.empty(0))) == 0
    assert buffer.update([0, 1]) == 0


def numbered_by(buffer: Any, reader: Any) -> list[int]:
    """Write all rows over again and again; the ids of rows that a reader found half written."""
    ids, stop, torn = buffer.indices(), threading.Event(), []

    def read() -> None:
        while not stop.is_set():
            batch = reader.gather(ids)
            same = (batch["deter"] == batch["stoch"][:, :1]).all(1)
            torn.extend(ids[~same].tolist())

    thread = threading.Thread(target=read)
    thread.start()
    for value in range(60):
        n = len(ids)
        buffer.update(ids, deter=np.full((n, 4096), value), stoch=np.full((n, 2), value))
    stop.set()
    thread.join()
    assert (reader.gather(ids)["deter"] == 59).all()
    return torn


@pytest.mark.parametrize("kind", ["memory", "folder", "another process"])
def test_rows_are_whole_for_readers_beside_a_writer(kind: str, tmp_path: Path) -> None:
    fields = {**FIELDS, "deter": ("float16", (4096,))}
    buffer: Any = ReplayBuffer(40, fields=fields, n_envs=1)
    if kind != "memory":
        buffer = MmapReplayBuffer(10, 40, cold_path=tmp_path / "a", fields=fields, n_envs=1)
    for t in range(20):
        buffer.push(t, 0, 0, False, False, t + 1, deter=np.zeros(4096), stoch=[0, 0])
    if kind != "another process":
        assert numbered_by(buffer, buffer) == []
    else:
        with MmapReplayBuffer.open(tmp_path / "a", read_only=True) as reader:
            assert numbered_by(buffer, reader) == []


def test_saved_and_pickled_copies_have_the_new_values(tmp_path: Path) -> None:
    import pickle

    buffer = stream(ReplayBuffer(20, fields=FIELDS, n_envs=1), 12)
    ids = buffer.indices()
    buffer.update(ids, **latents(ids))
    buffer.save(tmp_path / "saved")
    for copy in (ReplayBuffer.load(tmp_path / "saved"), pickle.loads(pickle.dumps(buffer))):
        np.testing.assert_array_equal(copy.gather(ids)["deter"], latents(ids)["deter"])


@pytest.mark.long(only=["power"])
@pytest.mark.parametrize("durability", ["process", "power"])
def test_a_folder_keeps_new_values_and_its_checksums_fit(durability: Any, tmp_path: Path) -> None:
    path = tmp_path / "replay"
    options: dict[str, Any] = {"fields": FIELDS, "n_envs": 2, "durability": durability}
    with MmapReplayBuffer(10, 800, cold_path=path, **options) as buffer:
        stream(buffer, 150)
        buffer.flush()  # what is written over now has checksums already
        ids = buffer.indices()
        assert buffer.update(ids[::2], **latents(ids[::2])) == 0
        stream(buffer, 20)
        buffer.save(tmp_path / "copy")
        buffer.update(ids[1::2], **latents(ids[1::2]))
    for folder, part in ((path, ids), (tmp_path / "copy", ids[::2])):
        with MmapReplayBuffer.open(folder, verify=True) as buffer:
            found = buffer.gather(part)
            for name, value in latents(part).items():
                np.testing.assert_array_equal(found[name], value)
            stream(buffer, 10)  # and it goes on from there
            buffer.update(part[:5], **latents(part[:5] + 1))
        with MmapReplayBuffer.open(folder, verify=True, read_only=True) as buffer:
            np.testing.assert_array_equal(
                buffer.gather(part[:5])["deter"], latents(part[:5] + 1)["deter"]
            )


def test_a_read_only_folder_refuses(tmp_path: Path) -> None:
    path = tmp_path / "replay"
    with MmapReplayBuffer(10, 40, cold_path=path, fields=FIELDS, n_envs=1) as buffer:
        stream(buffer, 5)
        with (
            MmapReplayBuffer.open(path, read_only=True) as reader,
            pytest.raises(OSError, match="read-only"),
        ):
            reader.update([0], **latents([0]))


def test_damage_is_found_in_chunks_that_were_not_written_over(tmp_path: Path) -> None:
    path = tmp_path / "replay"
    wide = {**FIELDS, "deter": ("float16", (8192,))}
    with MmapReplayBuffer(10, 3000, cold_path=path, fields=wide, n_envs=1) as buffer:
        for t in range(2500):
            buffer.push(t, 0, 0, False, False, t + 1, deter=np.zeros(8192), stoch=[0, 0])
        ids = buffer.indices()
        buffer.update(ids[-1:], stoch=[[9, 9]])
    chunks = sorted((path / "columns").iterdir())
    assert len(chunks) > 2
    with chunks[0].open("r+b") as file:
        file.seek(100)
        file.write(b"\xff\xfe\xfd")
    with pytest.raises(OSError, match="corrupt"):
        MmapReplayBuffer.open(path, verify=True)
