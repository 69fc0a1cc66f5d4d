"""The process of one environment of a vector environment."""

from __future__ import annotations

import contextlib
import pickle
import reprlib
import signal
import traceback
from collections.abc import Callable
from typing import Any, Protocol

import gymnasium as gym
import numpy as np
from gymnasium.vector.utils import write_to_shared_memory

from sharpwave.core.tree import map_leaves
from sharpwave.envs.batching import batched
from sharpwave.envs.spaces import leaf_spaces
from sharpwave.envs.subenv_state import GETTERS, SETTERS
from sharpwave.errors import EnvironmentFailed
from sharpwave.types import Nested

__all__ = ["Answering", "serve", "work"]


def work(
    index: int,
    maker: Callable[[], gym.Env[Any, Any]],
    pipe: Any,
    parent_pipe: Any,
    shared_memory: Any,
    error_queue: Any,
    *_: Any,
) -> None:
    """Answer what comes through the pipe until it closes.

    The interface is that of Gymnasium's AsyncVectorEnv.
    """
    serve(index, lambda: Worker(index, maker(), shared_memory), pipe, parent_pipe, error_queue)


def serve(
    index: int,
    make_worker: Callable[[], Answering],
    pipe: Any,
    parent_pipe: Any,
    error_queue: Any,
) -> None:
    """Answer what comes through a pipe until it closes.

    An error goes into the queue as text, with the exception where it can be pickled.

    Args:
        index: Number of the environment.
        make_worker: Makes what answers, with its environment.
        pipe: Commands with their data in, answers with True out; (None, False) after an error.
        parent_pipe: The other end, which is not for this process.
        error_queue: For errors: index, what was being done, the traceback, the exception.
    """
    # A signal to the process group is for the parent to act on; a worker ends with its pipe.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    parent_pipe.close()
    worker = None
    try:
        worker = make_worker()
        with contextlib.suppress(EOFError):
            while True:
                command, data = pipe.recv()
                if command == "close":
                    break
                pipe.send((worker.answer(command, data), True))
    except Exception as error:
        error_queue.put((index, *_report("being made" if worker is None else worker.doing, error)))
        with contextlib.suppress(EOFError, OSError):
            if worker is None:
                pipe.recv()  # the answer belongs to a question
            pipe.send((None, False))
    finally:
        if worker is not None:
            worker.env.close()


class Answering(Protocol):
    """Interface of a worker that steps one environment."""

    env: Any

    @property
    def doing(self) -> str:
        """Current command in words, for the report of an error."""

    def answer(self, command: str, data: Any) -> Any:
        """The answer to a command."""


class Worker:
    """Answers for one environment."""

    def __init__(self, index: int, env: gym.Env[Any, Any], shared_memory: Any) -> None:
        self.index = index
        self.env = env
        self.shared_memory = shared_memory
        self.doing = ""
        self.leaf_spaces = leaf_spaces(env.observation_space)
        self.answers: dict[str, Callable[[Any], Any]] = {
            "reset": self.reset,
            "reset-noop": lambda _: (None, {}),
            "step": self.step,
            "_call": self.call,
            "_setattr": lambda data: env.set_wrapper_attr(*data) and None,
            "_check_spaces": self.check_spaces,
            "_get_state": lambda kind: GETTERS[kind](env),
            "_set_state": lambda data: SETTERS[data[0]](env, data[1]),
        }

    def answer(self, command: str, data: Any) -> Any:
        self.doing = _described(command, data)
        return self.answers[command](data)

    def reset(self, data: dict[str, Any]) -> tuple[None, dict[str, Any]]:
        obs, info = self.env.reset(**data)
        self.write(obs)
        return None, info

    def step(self, action: Any) -> tuple[None, float, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        if terminated or truncated:
            # The environment may reuse the observation's memory in its reset.
            final = {"final_obs": map_leaves(np.array, obs), "final_info": info}
            self.doing = "reset()"
            obs, reset_info = self.env.reset()
            info = {**final, **reset_info}
        self.write(obs)
        return None, float(reward), bool(terminated), bool(truncated), info

    def write(self, obs: Nested) -> None:
        batched(self.leaf_spaces, [obs])  # refuses what shared memory would take silently
        write_to_shared_memory(self.env.observation_space, self.index, obs, self.shared_memory)

    def call(self, data: tuple[str, tuple[Any, ...], dict[str, Any]]) -> Any:
        name, args, kwargs = data
        value = self.env.get_wrapper_attr(name)
        return value(*args, **kwargs) if callable(value) else value

    def check_spaces(self, data: tuple[str, gym.Space[Any], gym.Space[Any]]) -> tuple[bool, bool]:
        _, observation_space, action_space = data
        return (
            observation_space == self.env.observation_space,
            action_space == self.env.action_space,
        )


def _described(command: str, data: Any) -> str:
    if command == "step":
        return f"step({reprlib.repr(data)})"
    if command == "reset":
        return f"reset(seed={data.get('seed')})"
    return f"{data[0]}()" if command == "_call" else command


def _report(doing: str, error: Exception) -> tuple[str, str, bytes | None]:
    if isinstance(error, EnvironmentFailed):  # it was being made
        doing, trace = error.doing, error.trace
        error = error.__cause__ if isinstance(error.__cause__, Exception) else error
    else:
        trace = "".join(traceback.format_exception(error))
    pickled = None
    with contextlib.suppress(Exception):
        pickled = pickle.dumps(error)
    return doing, trace, pickled
