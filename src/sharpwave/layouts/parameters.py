"""Parameters in one block of memory, without torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from sharpwave.types import Floats

__all__ = ["FlatArrays", "aligned_zeros"]


ALIGNMENT = 64


class FlatArrays:
    """Named parameters and their gradients in two flat blocks.

    It is `nn.FlatParameters` before there is a module: native code works on the blocks, and a
    module that is made later shares them, so that each sees what the other writes.

    Args:
        shapes: The shape of each parameter by name, in the order of the memory.

    Attributes:
        data: [n] parameters.
        grad: [n] gradients.

    Example:
        >>> flat = FlatArrays({"weight": (1, 2), "bias": (1,)})
        >>> flat["weight"][:] = [[1.0, 2.0]]
        >>> flat.data
        array([1., 2., 0.], dtype=float32)
    """

    def __init__(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        size = sum(map(math.prod, shapes.values()))
        self.data = aligned_zeros(size)
        self.grad = aligned_zeros(size)
        self._views: dict[str, Floats] = {}
        start = 0
        for name, shape in shapes.items():
            part = slice(start, start := start + math.prod(shape))
            self._views[name] = self.data[part].reshape(shape)

    def __getitem__(self, name: str) -> Floats:
        """The memory of a parameter."""
        return self._views[name]

    def copy(self) -> FlatArrays:
        """The same parameters in memory of their own."""
        other = FlatArrays({name: view.shape for name, view in self._views.items()})
        other.data[:] = self.data
        return other

    def state_dict(self) -> dict[str, Floats]:
        """Every parameter by name: the memory itself."""
        return dict(self._views)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Copies parameters in.

        Args:
            state: Arrays by name.

        Raises:
            ValueError: Names or shapes are others. Nothing has changed then.
        """
        if set(state) != set(self._views):
            raise ValueError(
                f"parameters must have the names {sorted(self._views)}, got {sorted(state)}"
            )
        for name, view in self._views.items():
            if np.shape(state[name]) != view.shape:
                raise ValueError(
                    f"{name} must have shape {view.shape}, got {np.shape(state[name])}"
                )
        for name, view in self._views.items():
            view[...] = state[name]


def aligned_zeros(size: int) -> Floats:
    """[size] zeros that start where a cache line does."""
    memory = np.zeros(4 * size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + 4 * size].view(np.float32)
