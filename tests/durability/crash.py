"""Writers that are killed at any moment, and the state that must be left of their work.

A writer performs operations that follow from a seed, and counts those that it has completed in a
mapped file, which outlives it. An operation is a list of commits to a model in plain Python. So
what is found after a kill must be the model after the completed operations, and any number of
commits of the next one.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import mmap
import os
import random
import signal
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from tests.durability.processes import start
from tests.processes import stop

NOT_OPEN, OPENING, WRITING, CLOSING, CLOSED = range(5)
"""The progress of a writer."""

ENDLESS = 1_000_000_000

Model = TypeVar("Model", bound="Recoverable")
Changed = TypeVar("Changed", bound="Recoverable", contravariant=True)


class Recoverable(Protocol):
    """A model of what a folder holds, which can be compared with others."""

    def difference(self, found: Any) -> str:
        """The difference of something found in a folder from it; empty when there is none."""
        ...

    def settle(self, found: Any) -> None:
        """Take over what it left open, from what was found and does not differ."""
        ...

    def recovered(self: Model) -> Model:
        """A copy, as it is once a new writer has taken over, or the old one has closed it."""
        ...


class Operation(Protocol[Changed]):
    """Something that a writer does."""

    def perform(self, writer: Any) -> None:
        """Do it. A refusal is a ValueError, and nothing has changed then."""
        ...

    def commits(self, model: Changed) -> Iterator[None]:
        """Do the same to a model: a pause after every change that may outlive a kill."""
        ...


class Subject(Protocol[Model]):
    """A kind of buffer to kill. Goes to another process by pickle."""

    def new_model(self) -> Model:
        """The content of a new folder."""
        ...

    def open(self, folder: Path) -> contextlib.AbstractContextManager[Any]:
        """The object of operations: opened in the folder, which may be new, and closed."""
        ...

    def operations(self, seed: str) -> Iterator[Operation[Model]]:
        """The operations of a writer, without end."""
        ...

    def look(self, folder: Path) -> Any:
        """The findings of a new reader in a folder, for `Recoverable.difference`."""
        ...

    def open_reader(self, folder: Path) -> Any:
        """A reader of a folder, None as long as there is nothing to read."""
        ...

    def look_again(self, reader: Any, found: Any) -> Any:
        """The findings of a reader of long ago, beside those of a new one."""
        ...

    def look_at(self, writer: Any) -> Any:
        """The findings of a new writer."""
        ...


class Progress:
    """The progress of a writer, in a file that outlives it."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(16))
        with path.open("r+b") as file:
            self._words = memoryview(mmap.mmap(file.fileno(), 16)).cast("Q")

    @property
    def stage(self) -> int:
        return self._words[0]

    @stage.setter
    def stage(self, stage: int) -> None:
        self._words[0] = stage

    @property
    def completed(self) -> int:
        """Operations that are done."""
        return self._words[1]

    @completed.setter
    def completed(self, number: int) -> None:
        self._words[1] = number


def write(subject: Subject[Any], folder: Path, seed: str, limit: int, progress_file: Path) -> None:
    """The life of a writer: it performs `limit` operations, unless it is killed."""
    try:
        progress = Progress(progress_file)
        progress.stage = OPENING
        with subject.open(folder) as writer:
            progress.stage = WRITING
            operations = itertools.islice(subject.operations(seed), limit)
            while ahead := list(itertools.islice(operations, 50)):
                for operation in ahead:
                    with contextlib.suppress(ValueError):
                        operation.perform(writer)
                    progress.completed += 1
            progress.stage = CLOSING
        progress.stage = CLOSED
    except BaseException:
        progress_file.with_suffix(".error").write_text(traceback.format_exc())
        raise


def apply(operation: Operation[Model], model: Model) -> None:
    """Do to a model what an operation does."""
    with contextlib.suppress(ValueError):
        for _ in operation.commits(model):
            pass


class Life:
    """A writer in a process of its own.

    Args:
        subject: What it writes to.
        folder: Where.
        seed: Of what it does.
        limit: How many operations it performs.
        notes: Where it notes how far it has come.
    """

    def __init__(
        self, subject: Subject[Any], folder: Path, seed: str, limit: int, notes: Path
    ) -> None:
        self.seed = seed
        self.limit = limit
        self.notes = notes / f"progress-{seed}"
        self.progress = Progress(self.notes)
        self.process = start(write, subject, folder, seed, limit, self.notes)

    def wait(self, stage: int, completed: int = 0) -> None:
        """Wait until it is in a stage, and has completed so many operations if it writes."""
        while self.process.is_alive() and (
            self.progress.stage < stage
            or (stage == WRITING and self.progress.completed < completed)
        ):
            time.sleep(0)
        error = self.notes.with_suffix(".error")
        assert not error.exists(), f"seed {self.seed}: {error.read_text()}"

    def kill(self) -> bool:
        """True if it had not ended already."""
        self.process.kill()
        self.process.join()
        self.wait(CLOSED)
        return self.process.exitcode == -signal.SIGKILL

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop it for a while."""
        pid = self.process.pid or 0
        stop(pid)
        yield
        os.kill(pid, signal.SIGCONT)


class Crashes(Generic[Model]):
    """One folder, written to by one process after the other, each of which is killed.

    Args:
        subject: What is killed.
        folder: Where, for the buffer and the notes about the processes.
        seed: Of everything.
    """

    def __init__(self, subject: Subject[Model], folder: Path, seed: int) -> None:
        self.subject = subject
        self.folder = folder / "buffer"
        self.notes = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.seed = seed
        self.rng = random.Random(seed)
        self.kills = 0
        self.rounds = 0
        self.models = [subject.new_model()]
        """The states that the folder may hold."""
        self.reader: Any = None
        """One that has been there for long."""

    def round(self, stage: int = WRITING, most: int = 300) -> None:
        """Start a writer and kill it, then look at what is there.

        Args:
            stage: When to kill it.
            most: Operations that it completes at most before.
        """
        target = int(most ** self.rng.random()) - 1
        life = self.start(target if stage == CLOSING else ENDLESS)
        life.wait(stage, target)
        time.sleep(self.rng.random() ** 2 * 0.002)
        self.kill(life)
        if self.rng.random() < 0.5:
            self._take_over()

    def start(self, limit: int = ENDLESS) -> Life:
        """A new writer, which performs so many operations."""
        return Life(self.subject, self.folder, f"{self.seed}-{self.rounds}", limit, self.notes)

    def kill(self, life: Life) -> None:
        """Kill a writer, and look at what is there."""
        self.kills += life.kill()
        self.rounds += 1
        self.models = self.possible(life)
        self._look()

    @contextlib.contextmanager
    def stopped(self, life: Life) -> Iterator[None]:
        """A writer is stopped for a while, which readers do not mind."""
        with life.stopped():
            before, self.models = self.models, self.possible(life)
            self._look()
            self.models = before
            yield

    def possible(self, life: Life) -> list[Model]:
        """All models that a writer may leave at this moment."""
        possible: list[Model] = []
        completed = life.progress.completed
        operations = self.subject.operations(life.seed)
        done = list(itertools.islice(operations, min(completed + 1, life.limit)))
        in_flight = done[completed:]
        for before in self.models:
            now = before.recovered()
            if life.progress.stage <= OPENING:
                possible += [before, now]
                continue
            for operation in done[:completed]:
                apply(operation, now)
            possible.append(copy.deepcopy(now))
            for operation in in_flight:
                with contextlib.suppress(ValueError):
                    for _ in operation.commits(now):
                        possible.append(copy.deepcopy(now))
            if not in_flight:  # it may have closed the folder
                possible.append(now.recovered())
        return possible

    def _look(self) -> None:
        """Compare what readers find."""
        found = self.subject.look(self.folder)
        self.keep(found)
        if self.reader is None:
            self.reader = self.subject.open_reader(self.folder)
        else:
            self.keep(self.subject.look_again(self.reader, found))

    def _take_over(self) -> None:
        """A writer comes that is not killed."""
        self.models = [model.recovered() for model in self.models]
        seed = f"{self.seed}-{self.rounds}-here"
        with self.subject.open(self.folder) as writer:
            self.keep(self.subject.look_at(writer))
            for operation in itertools.islice(self.subject.operations(seed), 20):
                with contextlib.suppress(ValueError):
                    operation.perform(writer)
                for model in self.models:
                    apply(operation, model)
        self.models = [model.recovered() for model in self.models]
        self._look()

    def keep(self, found: Any) -> None:
        """Of the models those that look like what was found."""
        differences = [model.difference(found) for model in self.models]
        kept = [m for m, text in zip(self.models, differences, strict=True) if not text]
        assert kept, f"seed {self.seed}, round {self.rounds}: {differences[-1]}"
        for model in kept:
            model.settle(found)
        self.models = [m for i, m in enumerate(kept) if m not in kept[:i]]
