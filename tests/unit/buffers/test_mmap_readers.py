"""Readers beside the writer of a folder, in its process, in others, and in forks."""

from __future__ import annotations

import copy
import errno
import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sharpwave import MmapReplayBuffer, Sequence, SharpwaveIOError
from tests.reference.mapped import (
    KINDS,
    assert_same_content,
    change_priorities,
    fill,
    make,
    push,
    steps_of,
)
from tests.reference.nests import assert_same

each_kind = pytest.mark.parametrize("kind", KINDS)


def run(script: str, *arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.long(but=["rows"])
@each_kind
def test_a_reader_sees_what_the_writer_pushes(kind: str, memory_path: Path) -> None:
    writer = make(kind, memory_path / "a")
    reader = MmapReplayBuffer.open(memory_path / "a", read_only=True)
    steps = steps_of(writer)
    assert len(reader) == 0
    for n in (6, 30, 6, 90, 6, 600, 12):  # also more than the buffer holds
        push(steps.take(n), writer)
        assert len(reader) == len(writer)
        assert_same_content(reader, writer)
        assert_same(reader.sample(6, seed=n), writer.sample(6, seed=n))
        if "prioritized" in kind:
            change_priorities(writer, seed=n)
            reader.set_beta(writer.beta)  # its own
            assert_same(reader.sample(6, seed=n), writer.sample(6, seed=n))
            assert reader.max_priority == writer.max_priority
    writer.clear()
    assert len(reader) == 0
    push(steps.take(12), writer)
    assert_same_content(reader, writer)


def test_a_reader_sees_episodes_as_the_writer_does(memory_path: Path) -> None:
    writer = make("streams", memory_path / "a")
    reader = copy.deepcopy(writer)
    steps = steps_of(writer)
    view = Sequence(3, burn_in=1)
    for _ in range(60):
        push(steps.take(6), writer)
        assert_same(reader.indices(view), writer.indices(view))
        assert_same(
            reader.gather(reader.indices(), view=Sequence(4, pad=True)),
            writer.gather(writer.indices(), view=Sequence(4, pad=True)),
        )


def test_a_reader_writes_nothing(memory_path: Path) -> None:
    buffer, _ = fill("prioritized streams", memory_path / "a")
    buffer.close(delete=False)
    files = [p for p in (memory_path / "a").rglob("*") if p.is_file()]
    before = [(p, p.stat().st_mtime_ns, p.read_bytes()) for p in files]
    reader = MmapReplayBuffer.open(memory_path / "a", read_only=True, verify=True)
    assert reader.read_only
    reader.sample(5)
    reader.set_beta(0.1)
    reader.flush()
    rows = steps_of(reader).take(3)
    writes: list[Any] = [
        lambda: push(rows, reader),
        lambda: reader.push(**rows[0], stream=0),
        lambda: reader.update_priorities(reader.indices()[:1], [1.0]),
        reader.clear,
    ]
    for write in writes:
        with pytest.raises(SharpwaveIOError, match="read-only") as caught:
            write()
        assert caught.value.errno == errno.EROFS
    reader.close()
    assert [(p, p.stat().st_mtime_ns, p.read_bytes()) for p in files] == before
    assert sorted(p for p in (memory_path / "a").rglob("*") if p.is_file()) == sorted(files)


def test_a_reader_draws_without_moving_the_generator_of_the_writer(memory_path: Path) -> None:
    writer, _ = fill("rows", memory_path / "a")
    first, second = copy.deepcopy(writer), copy.deepcopy(writer)
    draws = [first.sample(5) for _ in range(3)]
    for draw in draws:
        assert_same(second.sample(5), draw)
        assert_same(writer.sample(5), draw)


def test_a_reader_keeps_its_steps_when_the_folder_goes(memory_path: Path) -> None:
    writer, _ = fill("streams", memory_path / "a")
    reader = copy.deepcopy(writer)
    content = reader.gather(reader.indices())
    writer.close(delete=True)
    assert not (memory_path / "a").exists()
    assert_same(reader.gather(reader.indices()), content)
    reader.close()


def steps_in_another_process(buffer: MmapReplayBuffer) -> tuple[int, bool]:
    return len(buffer), buffer.read_only


@pytest.mark.long
def test_a_pickled_buffer_is_a_reader_in_another_process(memory_path: Path) -> None:
    writer, _ = fill("rows", memory_path / "a")
    assert pickle.loads(pickle.dumps(writer)).read_only
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(steps_in_another_process, (writer,)) == (len(writer), True)


FORKS = """
import os, sys
import numpy as np
from sharpwave import MmapReplayBuffer, SharpwaveIOError

def row(i):
    return [i] * 400, i, float(i), False, False, [i + 1] * 400

buffer = MmapReplayBuffer(10, 100, 400, 1, sys.argv[1], prioritized=True)
twin = MmapReplayBuffer(10, 100, 400, 1, sys.argv[2], prioritized=True)
for i in range(300):
    buffer.push(*row(i))
    twin.push(*row(i))

def in_child(work):
    child = os.fork()
    if child == 0:
        try:
            work()
            code = 0
        except BaseException as error:
            print(repr(error), file=sys.stderr)
            code = 1
        sys.stderr.flush()
        os._exit(code)
    return child

def joined(child):
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

def draws():
    assert (buffer.sample(9)["indices"] == twin.sample(9)["indices"]).all()
    for write in (
        lambda: buffer.push(*row(1)), buffer.clear,
        lambda: buffer.update_priorities(buffer.indices()[:1], [2.0]), buffer.flush,
    ):
        try:
            write()
            raise AssertionError("a fork wrote")
        except SharpwaveIOError as error:
            assert "fork" in str(error), error
    assert len(buffer) == 100
    buffer.close()
    twin.close()

joined(in_child(draws))
assert os.path.exists(sys.argv[1] + "/header.json")
assert (buffer.sample(9)["indices"] == twin.sample(9)["indices"]).all()

# A child that goes on drawing while its parent goes round the ring.
def draws_long():
    for _ in range(3000):
        batch = buffer.sample(32)
        assert (batch["obs"] == batch["rewards"][:, None]).all()
        assert batch["rewards"].min() >= 200 and batch["rewards"].max() < 300

child = in_child(draws_long)
for i in range(300, 3000):
    buffer.push(*row(i))
joined(child)

# A child that ends as programs do.
if os.fork() == 0:
    sys.exit(0)
os.wait()
buffer.push(*row(3000))
assert len(buffer) == 100
buffer.close(delete=False)
again = MmapReplayBuffer.open(sys.argv[1], verify=True)
assert again.gather(again.indices())["rewards"].tolist() == list(range(2901, 3001))
"""


@pytest.mark.long
def test_forks_draw_but_never_write(memory_path: Path) -> None:
    run(FORKS, str(memory_path / "a"), str(memory_path / "b"))


READS_ON = """
import sys
import numpy as np
from sharpwave import MmapReplayBuffer, NStep

reader = MmapReplayBuffer.open(sys.argv[1], read_only=True)
print("ready", flush=True)
rows, newest = 0, 0
while rows < int(sys.argv[2]):
    if len(reader) < 64:
        continue
    batch = reader.sample(64, indices=True)
    assert (batch["obs"] == batch["rewards"][:, None]).all()
    assert (batch["next_obs"] == batch["rewards"][:, None] + 1).all()
    assert int(batch["indices"].max()) // 2 >= newest - 5000
    newest = max(newest, int(batch["indices"].max()) // 2)
    steps = reader.sample(16, view=NStep(3, 1.0))
    assert (np.diff(steps["obs"][:, :2]) == 0).all()
    rows += 80
"""


@pytest.mark.long
@pytest.mark.parametrize("rows", [30_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_rows_are_whole_for_readers_beside_a_writer(rows: int, memory_path: Path) -> None:
    fields = {
        "obs": ("float32", (300,)),
        "action": "float32",
        "reward": "float32",
        "terminated": "bool",
        "truncated": "bool",
    }
    writer = MmapReplayBuffer(50, 400, fields=fields, n_envs=2, cold_path=memory_path / "a")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    arguments = [sys.executable, "-c", READS_ON, str(memory_path / "a"), str(rows)]
    reader = subprocess.Popen(
        arguments, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    number = np.zeros(2)
    while reader.poll() is None:
        obs = np.repeat(number[:, None], 300, axis=1)
        ended = number % 50 == 49
        writer.push_batch(obs, obs + 1, number, number, ended, np.zeros(2))
        number += 1
    assert reader.returncode == 0, reader.communicate()[1]
    reader.communicate()


def test_threads_push_and_draw_at_once(memory_path: Path) -> None:
    buffer = MmapReplayBuffer(10, 200, 500, 1, memory_path / "a", resident_bytes=1)
    stop = threading.Event()
    failures: list[BaseException] = []

    def draw() -> None:
        try:
            while not stop.is_set():
                if len(buffer) < 32:
                    continue
                batch = buffer.sample(32)
                assert (batch["obs"] == batch["rewards"][:, None]).all()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=draw) for _ in range(2)]
    for thread in threads:
        thread.start()
    for i in range(6000):
        buffer.push(np.full(500, i), i, float(i), False, False, np.full(500, i))
        if i % 2000 == 0:
            buffer.flush()
    stop.set()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]


def test_close_beside_draws_in_other_threads_is_safe(memory_path: Path) -> None:
    for i in range(2):
        buffer, _ = fill("rows", memory_path / str(i))
        messages: list[str] = []

        def draw(buffer: Any = buffer, messages: list[str] = messages) -> None:
            try:
                while True:
                    buffer.sample(32)
            except ValueError as error:
                messages.append(str(error))

        threads = [threading.Thread(target=draw) for _ in range(3)]
        for thread in threads:
            thread.start()
        buffer.close()
        for thread in threads:
            thread.join()
        assert len(messages) == 3
