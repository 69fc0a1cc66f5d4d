"""A vector environment with each environment in a process of its own."""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import time
import weakref
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from gymnasium.vector import AsyncVectorEnv, AutoresetMode
from gymnasium.vector.async_vector_env import AsyncState

from sharpwave.envs.python import Maker, made
from sharpwave.envs.worker import work
from sharpwave.errors import EnvironmentFailed
from sharpwave.extras import missing_library
from sharpwave.types import Array, Nested

__all__ = ["SubprocessVectorEnv"]

if TYPE_CHECKING:
    Base = AsyncVectorEnv[Any, Any]
else:  # Gymnasium 1.1 has it without parameters
    Base = AsyncVectorEnv

PATIENCE = 5.0
"""Seconds that workers have to close their environments before they are killed."""


class SubprocessVectorEnv(Base):
    """Steps environments at the same time, each in its own process.

    Worth it for environments that take more than some 100 µs for a step. Episodes end as in
    PythonVectorEnv (Gymnasium's mode SAME_STEP). A worker that dies is noticed at once. Workers
    leave signals to this process and end with it.

    Args:
        makers: Each makes one environment; they travel to the processes by cloudpickle.
        context: How `multiprocessing` starts the processes; None for Python's default.

    Raises:
        EnvironmentFailed: A maker raised; `reset`, `step` and `call` raise it when an environment
            raises or its process dies.
        TypeError: A maker made something else than an environment, or the spaces are not supported.

    Example:
        >>> import gymnasium as gym
        >>> env = SubprocessVectorEnv([lambda: gym.make("CartPole-v1")] * 2)
        >>> obs, infos = env.reset(seed=0)
        >>> obs.shape
        (2, 4)
        >>> env.close()
    """

    def __init__(self, makers: Sequence[Maker], context: str | None = None) -> None:
        if len(makers) == 0:
            raise ValueError("makers must make at least one environment, got none")
        try:
            with self._watching():
                super().__init__(
                    [partial(made, maker, i) for i, maker in enumerate(makers)],
                    context=context,
                    worker=work,
                    autoreset_mode=AutoresetMode.SAME_STEP,
                )
        except BaseException:
            _shut_down(getattr(self, "parent_pipes", []), getattr(self, "processes", []), PATIENCE)
            self.closed = True
            raise
        # Also at the exit of Python, before multiprocessing waits for its children.
        weakref.finalize(
            self, _shut_down_here, os.getpid(), self.parent_pipes, self.processes, PATIENCE
        )

    def reset(
        self,
        *,
        seed: int | list[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Nested, dict[str, Any]]:
        """Reset all environments, or those in `options["reset_mask"]`."""
        with self._watching():
            return super().reset(seed=seed, options=None if options is None else dict(options))

    def step(self, actions: Any) -> tuple[Nested, Array, Array, Array, dict[str, Any]]:
        """Step all environments."""
        with self._watching():
            return super().step(actions)

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The results of a method of each environment or its wrappers, or their attribute."""
        with self._watching():
            return super().call(name, *args, **kwargs)

    def set_attr(self, name: str, values: Any) -> None:
        """Set an attribute of each environment: one value for each, or the same for all."""
        with self._watching():
            super().set_attr(name, values)

    def get_states(self, kind: str) -> tuple[Any, ...]:
        """The "state" or "random" state of each environment with its wrappers."""
        return self._ask("_get_state", [kind] * self.num_envs)

    def set_states(self, kind: str, states: Sequence[Any]) -> None:
        """Put each environment into a state that `get_states` gave."""
        self._ask("_set_state", [(kind, state) for state in states])

    def _ask(self, command: str, data: Sequence[Any]) -> tuple[Any, ...]:
        self._assert_is_running()
        with self._watching():
            for pipe, one in zip(self.parent_pipes, data, strict=True):
                pipe.send((command, one))
            answers = [pipe.recv() for pipe in self.parent_pipes]
            self._raise_if_errors(success for _, success in answers)
        return tuple(answer for answer, _ in answers)

    @contextlib.contextmanager
    def _watching(self) -> Iterator[None]:
        """Turn the loss of a worker into EnvironmentFailed."""
        try:
            yield
        except (EOFError, OSError) as error:
            dead = self._dead_worker()
            if dead is None:
                raise
            index, exit_code = dead
            self._give_up()
            trace = f"it ended with exit code {exit_code}"
            raise EnvironmentFailed(index, "its process", trace) from error

    def _dead_worker(self) -> tuple[int, int | None] | None:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:  # the pipe closes a little before the process is gone
            for i, process in enumerate(getattr(self, "processes", [])):
                if not process.is_alive():
                    return i, process.exitcode
            time.sleep(0.01)
        return None

    def _raise_if_errors(self, successes: Iterable[bool]) -> None:
        n_failed = sum(not success for success in successes)
        if n_failed == 0:
            return
        reports = []
        with contextlib.suppress(queue.Empty):
            for _ in range(n_failed):
                reports.append(self.error_queue.get(timeout=PATIENCE))  # noqa: PERF401
        self._give_up()
        if not reports:
            raise EnvironmentFailed(-1, "its process", "it sent no report")
        index, doing, trace, pickled = min(reports)
        cause = _cause(pickled, trace)
        missing = missing_library(cause, "the environment")
        if missing is not None:
            raise missing from cause
        raise EnvironmentFailed(index, doing, trace) from cause

    def _give_up(self) -> None:
        self._state = AsyncState.DEFAULT  # no answer is awaited any more
        self.close()

    def close_extras(self, timeout: float | None = None, terminate: bool = False) -> None:
        """Close every environment and end its process.

        Args:
            timeout: Seconds that the environments have to close; 5 if None.
            terminate: Do not wait for them.
        """
        patience = PATIENCE if timeout is None else timeout
        _shut_down(self.parent_pipes, self.processes, 0.0 if terminate else patience)


def _shut_down(pipes: list[Any], processes: list[Any], patience: float) -> None:
    """Ask the workers to close, read what they still say, and kill those that stay."""
    deadline = time.monotonic() + patience
    for pipe in pipes:
        with contextlib.suppress(OSError):
            pipe.send(("close", None))
    for pipe in pipes:
        with contextlib.suppress(EOFError, OSError):
            while pipe.poll(max(deadline - time.monotonic(), 0)):
                pipe.recv_bytes()
        pipe.close()
    for process in processes:
        if process.pid is None:
            continue
        process.join(max(deadline - time.monotonic(), 0))
        if process.is_alive():
            process.kill()
            process.join()


def _shut_down_here(pid: int, pipes: list[Any], processes: list[Any], patience: float) -> None:
    if os.getpid() == pid:  # a forked process has a copy of the object, but not its workers
        _shut_down(pipes, processes, patience)


def _cause(pickled: bytes | None, trace: str) -> BaseException:
    with contextlib.suppress(Exception):
        if pickled is not None and isinstance(error := pickle.loads(pickled), BaseException):
            return error
    return RuntimeError(trace.strip().rsplit("\n", 1)[-1])
