"""The number of threads of an update."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from typing import Any

from sharpwave.core.lazy import torch

SMALL = 256_000_000
"""Parameters times rows of a batch for which several threads only wait for each other."""

NATIVE_SMALL = 4_000_000
"""The same of native code, whose threads wait without sleeping."""


def native_threads(n: int, work: int) -> int:
    """Number of threads of native code; 0 takes one for small networks, else one for each core.

    Args:
        n: Number of threads.
        work: Parameters times rows of a batch.
    """
    if n or work < NATIVE_SMALL:
        return n or 1
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextlib.contextmanager
def torch_threads(n: int, networks: Iterable[Any], rows: int = 256) -> Iterator[None]:
    """Let torch use `n` threads inside; 0 takes one for small networks, else as many as before.

    Args:
        n: Number of threads.
        networks: The networks that run inside.
        rows: Rows of a batch that they run on.
    """
    before = torch.get_num_threads()
    sizes = (parameter.numel() for network in networks for parameter in network.parameters())
    small = sum(sizes) * rows < SMALL
    torch.set_num_threads(n or (1 if small else before))
    try:
        yield
    finally:
        torch.set_num_threads(before)
