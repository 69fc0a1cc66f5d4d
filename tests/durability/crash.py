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
import random
import signal
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from tests.durability.processes import start

NOT_OPEN, OPENING, WRITING, CLOSING, CLOSED = range(5)
"""How far a writer has come."""

Model = TypeVar("Model", bound="Recoverable")


class Recoverable(Protocol):
    """A model of what a folder holds, which can be compared with others."""

    def difference(self, found: Any) -> str:
        """How something that was found in a folder differs from it; empty when it does not."""
        ...

    def settle(self, found: Any) -> None:
        """Take over what it left open, from what was found and does not differ."""
        ...

    def recovered(self: Model) -> Model:
        """A copy, as it is once a new writer has taken over, or the old one has closed it."""
        ...


class Operation(Protocol[Model]):
    """Something that a writer does."""

    def perform(self, writer: Any) -> None:
        """Do it. A refusal is a ValueError, and nothing has changed then."""
        ...

    def commits(self, model: Model) -> Iterator[None]:
        """Do the same to a model: a pause after every change that may outlive a kill."""
        ...


class Subject(Protocol[Model]):
    """A kind of buffer to kill. Goes to another process by pickle."""

    def new_model(self) -> Model:
        """What a new folder holds."""
        ...

    def open(self, folder: Path) -> contextlib.AbstractContextManager[Any]:
        """What operations are performed on: opened in the folder, which may be new, and closed."""
        ...

    def operations(self, seed: str) -> Iterator[Operation[Model]]:
        """What a writer does, without end."""
        ...

    def look(self, folder: Path) -> Any:
        """What a reader finds in a folder, for `Recoverable.difference`."""
        ...

    def look_at(self, writer: Any) -> Any:
        """What a new writer finds."""
        ...


class Progress:
    """How far a writer has come, in a file that outlives it."""

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
        """What the folder may hold."""

    def round(self, stage: int = WRITING, most: int = 300) -> None:
        """Start a writer and kill it, then look at what is there.

        Args:
            stage: When to kill it.
            most: Operations that it completes at most before.
        """
        rng = self.rng
        target = int(most ** rng.random()) - 1
        limit = target if stage == CLOSING else 1_000_000
        seed = f"{self.seed}-{self.rounds}"
        notes = self.notes / f"progress-{self.rounds}"
        progress = Progress(notes)
        process = start(write, self.subject, self.folder, seed, limit, notes)
        while process.is_alive() and (
            progress.stage < stage or (stage == WRITING and progress.completed < target)
        ):
            time.sleep(0)
        time.sleep(rng.random() ** 2 * 0.002)
        process.kill()
        process.join()
        self.kills += process.exitcode == -signal.SIGKILL
        error = notes.with_suffix(".error")
        assert not error.exists(), f"seed {self.seed}: {error.read_text()}"
        self.rounds += 1
        self._advance(seed, progress.completed, limit, begun=progress.stage > OPENING)
        self._look()
        if rng.random() < 0.5:
            self._take_over()

    def _advance(self, seed: str, completed: int, limit: int, *, begun: bool) -> None:
        """All models that may be left by a writer that completed this many operations."""
        possible: list[Model] = []
        done = list(itertools.islice(self.subject.operations(seed), min(completed + 1, limit)))
        in_flight = done[completed:]
        for before in self.models:
            now = before.recovered()
            if not begun:
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
        self.models = possible

    def _look(self) -> None:
        self._keep(self.subject.look(self.folder))

    def _take_over(self) -> None:
        """A writer comes that is not killed."""
        self.models = [model.recovered() for model in self.models]
        seed = f"{self.seed}-{self.rounds}-here"
        with self.subject.open(self.folder) as writer:
            self._keep(self.subject.look_at(writer))
            for operation in itertools.islice(self.subject.operations(seed), 20):
                with contextlib.suppress(ValueError):
                    operation.perform(writer)
                for model in self.models:
                    apply(operation, model)
        self.models = [model.recovered() for model in self.models]
        self._look()

    def _keep(self, found: Any) -> None:
        """Of the models those that look like what was found."""
        differences = [model.difference(found) for model in self.models]
        kept = [m for m, text in zip(self.models, differences, strict=True) if not text]
        assert kept, f"seed {self.seed}, round {self.rounds}: {differences[-1]}"
        for model in kept:
            model.settle(found)
        self.models = [m for i, m in enumerate(kept) if m not in kept[:i]]
