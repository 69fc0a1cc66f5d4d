"""How many threads torch uses."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from sharpwave.lazy import torch

SMALL = 1_000_000
"""Parameters of a network for which several threads only wait for each other."""


@contextlib.contextmanager
def torch_threads(n: int, network: Any) -> Iterator[None]:
    """Let torch use `n` threads inside; 0 takes one for small networks, else as many as before."""
    before = torch.get_num_threads()
    small = sum(parameter.numel() for parameter in network.parameters()) < SMALL
    torch.set_num_threads(n or (1 if small else before))
    try:
        yield
    finally:
        torch.set_num_threads(before)
