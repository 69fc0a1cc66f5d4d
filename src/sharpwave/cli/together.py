"""Trains several seeds beside each other, each in a thread of this process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from sharpwave.algorithms.trainer import Trainer
from sharpwave.cli.progress import progress_bar
from sharpwave.cli.terminal import input_errors, say
from sharpwave.pages.text import count
from sharpwave.runs.signals import stop_on_signal

POLL_SECONDS = 0.2

Tell = Callable[[str], None]


class SharedCores:
    """Runs that share the cores of this machine.

    A signal, and a run that fails, stop all of them at their next update boundary.

    Args:
        makers: Make the trainers, one for each run.
        train: Trains one, tells of it line by line, and returns its exit status.
        jobs: Runs at the same time.
        quiet: Say nothing.
    """

    def __init__(
        self,
        makers: Sequence[Callable[[], Trainer]],
        train: Callable[[Trainer, Tell], int],
        jobs: int,
        quiet: bool,
    ) -> None:
        self._makers = makers
        self._train = train
        self._jobs = jobs
        self._quiet = quiet
        self._lock = threading.Lock()
        self._running: list[Trainer] = []
        self._done_steps = 0
        self._stopped_by: str | None = None

    def run(self) -> int:
        """Train all; the exit status of the first run that did not end well, or 0."""
        status = 0
        with (
            stop_on_signal(self._stop),
            ThreadPoolExecutor(self._jobs, "seed") as pool,
            progress_bar() as show,
        ):
            pending = {pool.submit(self._train_one, make) for make in self._makers}
            while pending:
                done, pending = wait(pending, POLL_SECONDS, FIRST_COMPLETED)
                for future in done:
                    status = status or self._result(future)
                self._look(show)
        return status

    def _result(self, future: Future[int]) -> int:
        try:
            status = future.result()
        except BaseException:
            self._stop("another run")
            raise
        if status != 0:
            self._stop("another run")
        return status

    def _train_one(self, make: Callable[[], Trainer]) -> int:
        if self._stopped_by is not None:
            return 0
        with input_errors():
            trainer = make()
        algo = trainer.algo
        with self._lock:
            self._running.append(trainer)
        try:
            return self._train(trainer, lambda line: self._tell(f"seed {algo.config.seed}: {line}"))
        finally:
            with self._lock:
                self._running.remove(trainer)
                self._done_steps += algo.timesteps

    def _stop(self, reason: str) -> None:
        self._stopped_by = self._stopped_by or reason

    def _look(self, show: Callable[[str, int, int], None]) -> None:
        with self._lock:
            running, steps = list(self._running), self._done_steps
        for trainer in running:
            if self._stopped_by is not None:  # again and again: it may have begun just now
                trainer.algo.request_stop(self._stopped_by)
        steps += sum(trainer.algo.timesteps for trainer in running)
        target = max((trainer.algo.target_timesteps for trainer in running), default=0)
        if not self._quiet:
            show(count(len(running), "run"), steps, target * len(self._makers))

    def _tell(self, line: str) -> None:
        if not self._quiet:
            with self._lock:
                say(line)
