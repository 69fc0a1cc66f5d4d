"""Copies of a multi-agent environment, each in a process of its own."""

from __future__ import annotations

import multiprocessing
import os
import traceback
import weakref
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from gymnasium.vector.utils import CloudpickleWrapper

from sharpwave.core.optional import missing_library
from sharpwave.envs.multi.copies import EnvCopy
from sharpwave.envs.multi.form import Block, Form, read_form
from sharpwave.envs.multi.turns import as_parallel
from sharpwave.envs.processes import PATIENCE, Watching, shut_down, shut_down_here
from sharpwave.envs.worker import serve
from sharpwave.errors import EnvironmentFailed
from sharpwave.types import Array, Maker

__all__ = ["EnvWorkers", "copy_of", "made", "make_one"]

Piece = Any
"""Memory that processes share."""


def make_one(maker: Maker, index: int) -> Any:
    """The environment that a factory makes.

    Raises:
        EnvironmentFailed: The maker raised.
        ImportError: The environment needs a library that is not installed.
    """
    try:
        return maker()
    except Exception as error:
        missing = missing_library(error, "the environment")
        if missing is not None:
            raise missing from error
        trace = "".join(traceback.format_exception(error))
        raise EnvironmentFailed(index, "being made", trace) from error


def made(maker: Maker, index: int) -> Any:
    """The environment that a factory makes, in parallel form.

    Raises:
        EnvironmentFailed: The maker raised.
        ImportError: The environment needs a library that is not installed.
        TypeError: It made something else.
    """
    return as_parallel(make_one(maker, index))


def copy_of(env: Any, index: int, form: Form, groups: Any, block: Block) -> EnvCopy:
    """An environment with its rows of the block.

    Raises:
        ValueError: Its agents or spaces are not those of the form.
    """
    try:
        form.check_like(read_form(env, index, groups), index)
    except BaseException:
        env.close()
        raise
    return EnvCopy(env, index, form, block)


class EnvWorkers(Watching):
    """Processes with a copy of an environment each, which share the memory of a block.

    Args:
        makers: Each makes one environment; they travel by cloudpickle.
        form: Agents and spaces that all environments must have.
        groups: As `read_form` takes them.
        context: Start method of `multiprocessing`; None for Python's default.

    Attributes:
        block: The arrays of all environments.

    Raises:
        EnvironmentFailed: A maker raised; `ask` raises it when an environment raises or its process
            dies.
    """

    def __init__(
        self, makers: Sequence[Maker], form: Form, groups: Any, context: str | None
    ) -> None:
        processes = multiprocessing.get_context(context)
        pieces: list[Piece] = []

        def take(shape: tuple[int, ...], dtype: Any) -> Array:
            size = int(np.prod(shape)) * np.dtype(dtype).itemsize
            pieces.append(processes.RawArray("b", max(size, 1)))
            return _viewed(pieces[-1], shape, dtype)

        self.block = Block(form, len(makers), take)
        self.parent_pipes = []
        self.processes = []
        self.error_queue = processes.Queue()
        # Also at the exit of Python, before multiprocessing waits for its children.
        self._end = weakref.finalize(
            self, shut_down_here, os.getpid(), self.parent_pipes, self.processes, PATIENCE
        )
        try:
            for i, maker in enumerate(makers):
                parent_pipe, pipe = processes.Pipe()
                given = (i, CloudpickleWrapper(maker), form, groups, len(makers), pieces)
                process = processes.Process(  # type: ignore[attr-defined]
                    target=work, args=(given, pipe, parent_pipe, self.error_queue), daemon=True
                )
                self.parent_pipes.append(parent_pipe)
                self.processes.append(process)
                process.start()
                pipe.close()
            self._ask("begin", [()] * len(makers))
        except BaseException:
            self.close()
            raise

    def ask(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """The results of a method of each EnvCopy."""
        return list(self._ask(method, arguments))

    def close(self) -> None:
        """Close every environment and end its process."""
        shut_down(self.parent_pipes, self.processes, PATIENCE)
        self._end.detach()

    def _give_up(self) -> None:
        self.close()


def work(given: tuple[Any, ...], pipe: Any, parent_pipe: Any, error_queue: Any) -> None:
    """The process of one environment."""
    serve(given[0], partial(Answers, *given), pipe, parent_pipe, error_queue)


class Answers:
    """Answers for one environment."""

    def __init__(
        self, index: int, maker: Any, form: Form, groups: Any, num_envs: int, pieces: list[Piece]
    ) -> None:
        left = iter(pieces)
        block = Block(form, num_envs, lambda shape, dtype: _viewed(next(left), shape, dtype))
        self.copy = copy_of(made(maker, index), index, form, groups, block)
        self.env = self.copy.env

    @property
    def doing(self) -> str:
        """Current command in words, for the report of an error."""
        return self.copy.doing

    def answer(self, command: str, data: tuple[Any, ...]) -> Any:
        """The result of a method of the copy."""
        return None if command == "begin" else getattr(self.copy, command)(*data)


def _viewed(piece: Piece, shape: tuple[int, ...], dtype: Any) -> Array:
    count = int(np.prod(shape))
    return np.frombuffer(piece, dtype, count).reshape(shape) if count else np.zeros(shape, dtype)
