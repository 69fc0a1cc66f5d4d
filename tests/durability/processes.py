"""Processes that start at once because everything is imported already."""

from __future__ import annotations

import multiprocessing
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
