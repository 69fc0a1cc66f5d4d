"""Trees of arrays and tensors compared bit by bit, and the generators that everybody shares."""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from sharpwave.types import Array

__all__ = ["array_of", "bits", "first_difference", "global_states", "other_globals", "state_of"]


def array_of(leaf: Any) -> Array:
    """An array, a tensor or a number as an array."""
    if hasattr(leaf, "detach"):
        leaf = leaf.detach().cpu()
    array: Array = np.asarray(leaf)
    return array


def bits(tree: Any, path: str = "") -> dict[str, tuple[str, bytes]]:
    """Form and bytes of every leaf of a tree, by its path; dicts, lists, tuples and fields."""
    if isinstance(tree, dict):
        items: Any = tree.items()
    elif isinstance(tree, list | tuple):
        items = enumerate(tree)
    elif tree is None or isinstance(tree, str):
        return {path: (repr(tree), b"")}
    else:
        array = array_of(tree)
        if array.dtype == object and array.shape:
            return bits(array.tolist(), path)
        return {path: (f"{array.dtype} {array.shape}", array.tobytes())}
    found = {}
    for key, inner in items:
        found.update(bits(inner, f"{path}.{key}" if path else str(key)))
    return found


def first_difference(tree: Any, other: Any) -> str | None:
    """The path of the first leaf in which two trees differ; None where they are equal."""
    one, two = bits(tree), bits(other)
    for path in [*one, *(path for path in two if path not in one)]:
        if one.get(path) != two.get(path):
            return path or "it"
    return None


def state_of(learner: Any) -> dict[str, bytes]:
    """Every number of every network and optimizer of a learner, or of an agent, bit by bit."""
    networks = {
        f"{name}.{key}": array_of(value).tobytes()
        for name, network in learner.networks.items()
        for key, value in network.state_dict().items()
    }
    optimizers = {
        f"{name}.{key}": array_of(value).tobytes()
        for name, optimizer in learner.optimizers.items()
        for key, value in optimizer.arrays().items()
    }
    return {**networks, **optimizers}


def global_states() -> dict[str, Any]:
    """The states of the generators that all code of the process shares, by name."""
    states: dict[str, Any] = {
        "random": random.getstate(),
        "numpy.random": np.random.get_state(legacy=False),  # noqa: NPY002
    }
    if "torch" in sys.modules:
        states["torch"] = sys.modules["torch"].get_rng_state()
    return states


@contextlib.contextmanager
def other_globals(seed: int) -> Iterator[None]:
    """Inside, the global generators are seeded; afterwards they are as they were."""
    states = global_states()
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    if "torch" in states:
        sys.modules["torch"].manual_seed(seed)
    try:
        yield
    finally:
        random.setstate(states["random"])
        np.random.set_state(states["numpy.random"])  # noqa: NPY002
        if "torch" in states:
            sys.modules["torch"].set_rng_state(states["torch"])
