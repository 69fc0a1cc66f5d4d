"""A trial of options: what it was, how it went, and the process that makes it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias

State: TypeAlias = Literal["complete", "pruned", "failed", "lost"]
"""failed is a configuration that cannot be trained; lost is a trial whose process died."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One configuration that was tried."""

    number: int
    """Its number in the study."""
    options: dict[str, Any]
    """The options that the study chose."""
    state: State
    """Its end."""
    value: float | None = None
    """Mean return of its last evaluation; None before the first."""
    seconds: float | None = None
    """The time that it took."""
    reason: str | None = None
    """Said where it failed or was lost."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """All that a process needs to know of a trial, in values that JSON can hold."""

    algorithm: str
    env: str
    env_kwargs: dict[str, Any] = field(default_factory=dict)
    wrappers: list[str] = field(default_factory=list)
    imports: list[str] = field(default_factory=list)
    evaluations: int
    eval_episodes: int
    config: dict[str, Any]


@dataclass
class Outcome:
    """The end of a trial, as its process tells it."""

    state: State = "lost"
    value: float | None = None
    reason: str | None = None


class TrialProcess:
    """A process that trains one configuration and asks after each evaluation if it goes on.

    Args:
        job: The trial.
        one_core: Keep the libraries of the process to one thread.
    """

    def __init__(self, job: Job, *, one_core: bool) -> None:
        environment = dict(os.environ)
        if one_core:
            environment |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "sharpwave.tuning.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
            start_new_session=True,  # Ctrl-C is for this process, which ends that one
        )
        self._job = job

    def follow(self, goes_on: Callable[[int, float], bool]) -> Outcome:
        """Let it train; `goes_on` says so by the step and the value of each evaluation."""
        outcome = Outcome()
        assert self._process.stdout is not None
        try:
            self._say(asdict(self._job))
            for line in self._process.stdout:
                self._hear(json.loads(line), outcome, goes_on)
        except BrokenPipeError:
            pass  # it died; its status says of what
        status = self._process.wait()
        if outcome.state == "lost":
            by = signal.Signals(-status).name if status < 0 else f"status {status}"
            outcome.reason = f"its process ended with {by}"
        return outcome

    def _hear(
        self, told: dict[str, Any], outcome: Outcome, goes_on: Callable[[int, float], bool]
    ) -> None:
        if "failed" in told:
            outcome.state, outcome.reason = "failed", told["failed"]
        elif "done" in told:
            outcome.state = "pruned" if outcome.state == "pruned" else "complete"
        else:
            outcome.value = float(told["value"])
            kept = goes_on(told["step"], outcome.value)
            self._say({"go": kept})
            if not kept:
                outcome.state = "pruned"

    def _say(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        """End it now, and close what connects it."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
