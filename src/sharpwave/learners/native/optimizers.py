"""The state of optimizers whose steps native code takes.

They have the names, constants and arrays of their twins in `sharpwave.nn`, so that a checkpoint of
one loads in the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sharpwave.config.schedules import Adaptive
from sharpwave.layouts.parameters import FlatArrays
from sharpwave.types import Floats

__all__ = ["Adam", "NativeOptimizer", "RMSprop", "memory_of"]


class NativeOptimizer:
    """Base class of the optimizers.

    Args:
        lr: Learning rate.
        state: Arrays that a step changes beside the parameters, by name.
        constants: Constants of a step, by the name that native code gives them.
    """

    def __init__(self, lr: float, state: dict[str, Floats], constants: dict[str, float]) -> None:
        self._lr = np.array(lr, np.float32)
        self._state = state
        self._constants = constants

    @property
    def lr(self) -> float:
        """Learning rate."""
        return float(self._lr)

    def set_lr(self, lr: float) -> None:
        """Changes the learning rate."""
        self._lr[()] = lr

    def arguments(self) -> dict[str, Any]:
        """Arguments of native code for steps: state, constants and learning rate."""
        return {**self._state, **self._constants, "lr": self.lr}

    def adaptive(self) -> dict[str, Any]:
        """Arguments of native code that changes the learning rate: its memory and its bounds."""
        return {"rate": self._lr, "rate_bounds": Adaptive.bounds}

    def arrays(self) -> dict[str, Floats]:
        """The whole state by name: the arrays themselves, not copies."""
        return {"lr": self._lr, **self._state}

    def load_arrays(self, arrays: Mapping[str, Any]) -> None:
        """Copies in a state that `arrays` gave; steps then go on as if never interrupted.

        Args:
            arrays: The state by name.

        Raises:
            ValueError: Names or shapes differ from those of `arrays()`. Nothing has changed then.
        """
        own = self.arrays()
        if set(arrays) != set(own):
            raise ValueError(f"arrays must have the names {sorted(own)}, got {sorted(arrays)}")
        for name, array in own.items():
            if np.shape(arrays[name]) != array.shape:
                raise ValueError(
                    f"{name} must have shape {array.shape}, got {np.shape(arrays[name])}"
                )
        for name, array in own.items():
            array[...] = arrays[name]


class Adam(NativeOptimizer):
    """Adam; see `nn.Adam`.

    Args:
        flat: Parameters to optimize.
        lr: Learning rate.
        betas: Decay of the two moments.
        eps: Added to the root.

    Example:
        >>> adam = Adam(FlatArrays({"weight": (2, 3)}), lr=1e-3)
        >>> sorted(adam.arrays())
        ['exp_avg', 'exp_avg_sq', 'lr', 'steps']
    """

    def __init__(
        self,
        flat: FlatArrays,
        lr: float,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-5,
    ) -> None:
        super().__init__(
            lr,
            {
                "exp_avg": np.zeros_like(flat.data),
                "exp_avg_sq": np.zeros_like(flat.data),
                "steps": np.zeros((), np.float32),
            },
            {"beta1": betas[0], "beta2": betas[1], "eps": eps},
        )


class RMSprop(NativeOptimizer):
    """RMSprop with ε outside the root; see `nn.RMSprop`.

    Args:
        flat: Parameters to optimize.
        lr: Learning rate.
        alpha: Decay of the mean square.
        eps: Added to the root.
    """

    def __init__(
        self, flat: FlatArrays, lr: float, *, alpha: float = 0.99, eps: float = 1e-5
    ) -> None:
        super().__init__(lr, {"square_avg": np.zeros_like(flat.data)}, {"alpha": alpha, "eps": eps})


def memory_of(flat: FlatArrays, adam: Adam) -> tuple[Any, ...]:
    """Parameters, gradient and optimizer, as views of memory, as the replay learners hold them."""
    own = {**adam.arguments(), **adam.arrays()}
    names = ("exp_avg", "exp_avg_sq", "steps", "lr", "beta1", "beta2", "eps")
    return (flat.data, flat.grad, *(own[name] for name in names))
