"""Small networks on few rows, in NumPy.

A torch operation on a few rows spends its time around the arithmetic; NumPy spends less there.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from torch import nn

__all__ = ["Floats", "NumpyNetwork", "few_rows", "rows_of_floats"]

LARGEST_PRODUCT = 64**3
"""Multiplications in one layer, above which NumPy's BLAS may start threads of its own."""

Floats: TypeAlias = npt.NDArray[np.float32]


class NumpyNetwork:
    """A network of linear layers with one activation between them, and perhaps after them.

    Args:
        net: The layers, on the CPU; their memory is used as it is.
    """

    def __init__(self, net: nn.Sequential) -> None:
        linears = [layer for layer in net if isinstance(layer, nn.Linear)]
        self._layers = [
            (linear.weight.detach().numpy().T, linear.bias.detach().numpy()) for linear in linears
        ]
        self._n_activated = len(net) - len(linears)
        self._activate = _relu if any(isinstance(layer, nn.ReLU) for layer in net) else np.tanh

    def __call__(self, x: Floats) -> Floats:
        """[B, in] to [B, out]."""
        for i, (weight, bias) in enumerate(self._layers):
            x = x.dot(weight)
            x += bias
            if i < self._n_activated:
                self._activate(x, out=x)
        return x


def _relu(x: Floats, out: Floats) -> None:
    np.maximum(x, 0.0, out=out)


def rows_of_floats(obs: Any) -> Floats:
    """Observations [B, ...] as float32 rows."""
    x: Floats = np.asarray(obs, np.float32)
    return x if x.ndim == 2 else x.reshape(len(x), -1)


def few_rows(*networks: nn.Module) -> int:
    """Most rows for which NumPy is the quicker way through networks."""
    sizes = [parameter.numel() for network in networks for parameter in network.parameters()]
    return LARGEST_PRODUCT // max(sizes)
