"""The device of a run, and the number of threads of its updates."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from gymnasium import spaces

from sharpwave.core.lazy import torch

WIDE = 1024
"""Units of a layer, from which on a GPU is quicker than a CPU."""


def why_gpu(config: Any, observation_space: spaces.Space[Any]) -> str | None:
    """Why networks gain from a GPU; None where they do not.

    Args:
        config: Of the algorithm.
        observation_space: What the networks see.
    """
    if _has_images(observation_space):
        return "observations are images"
    if getattr(config, "recurrent", None) is not None:
        return f"recurrent is {config.recurrent!r}"
    widths = [_widest(getattr(config, name, None)) for name in ("hidden", "critic_hidden")]
    return f"layers have {max(widths)} units" if max(widths) >= WIDE else None


def _has_images(space: Any) -> bool:
    if isinstance(space, spaces.Dict):
        return any(map(_has_images, space.spaces.values()))
    if isinstance(space, spaces.Tuple):
        return any(map(_has_images, space.spaces))
    return isinstance(space, spaces.Box) and space.dtype == np.uint8 and len(space.shape) == 3


def _widest(hidden: Any) -> int:
    if isinstance(hidden, dict):
        hidden = tuple(hidden.values())
    if isinstance(hidden, tuple | list):
        return max(map(_widest, hidden), default=0)
    return hidden if isinstance(hidden, int) else 0


def likely_gpu() -> str:
    """The GPU where torch has one, otherwise the CPU."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def find_device(name: str) -> torch.device:
    """The torch device of that name.

    Raises:
        ValueError: Torch does not have it here.
    """
    try:
        # What torch says of a tensor there: with its number.
        device = torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        raise ValueError(
            f"device must be one that torch has here, got {name!r}: {error}"
        ) from error
    return device


TF32, BF16 = "tf32", "bf16"


def check_matmul(matmul: str | None, device: str) -> None:
    """Check the precision of matrix products that was asked for.

    Raises:
        ValueError: The device does not have it.
    """
    if matmul not in (TF32, BF16):
        return
    kind = device.partition(":")[0]
    if kind != "cuda":
        raise ValueError(f"matmul must be 'fp32' or None on {kind}, got {matmul!r}")
    where = find_device(device)
    if torch.cuda.get_device_capability(where) < (8, 0):
        name = torch.cuda.get_device_name(where)
        raise ValueError(
            f"matmul must be 'fp32' or None, since {name} has no other: got {matmul!r}"
        )


@contextlib.contextmanager
def matmul_precision(matmul: str) -> Iterator[None]:
    """Let matrix products of float32 on CUDA have a precision inside."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = matmul != "fp32"
    try:
        # Casts of weights are not kept: a graph would read those of when it was captured.
        with torch.autocast("cuda", torch.bfloat16, enabled=matmul == BF16, cache_enabled=False):
            yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


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
    return n_cores()


def n_cores() -> int:
    """Number of cores that this process may use."""
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
