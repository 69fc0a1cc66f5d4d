"""Processes that start at once because everything is imported already."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from multiprocessing.context import ForkServerProcess
from typing import Any

_server = multiprocessing.get_context("forkserver")
_preloaded: list[str] = []


def preload(*modules: str) -> None:
    """Have modules imported in the process that all others are forked from."""
    _preloaded.extend(module for module in modules if module not in _preloaded)
    _server.set_forkserver_preload(_preloaded)


def start(target: Callable[..., None], *args: Any) -> ForkServerProcess:
    """Run a function in a process of its own."""
    process = _server.Process(target=target, args=args)
    process.start()
    return process


FILE_EVENTS = ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir")


def killed_at(step: int, work: Callable[[], Any]) -> bool:
    """Do work in a process that is killed before its step-th file operation; whether it was."""
    child = os.fork()
    if child == 0:
        left = step

        def hook(event: str, _: Any) -> None:
            nonlocal left
            if event not in FILE_EVENTS:
                return
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1

        sys.addaudithook(hook)
        work()
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])
