"""The best of some actions, in NumPy."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from sharpwave.nn.by_hand import QByHand
from sharpwave.nn.features import Flat
from sharpwave.nn.numpy_network import Floats, NumpyNetwork, few_rows, rows_of_floats
from sharpwave.nn.q_networks import QNetwork

__all__ = ["NumpyQ"]

Flags: TypeAlias = npt.NDArray[np.bool_]
Ints: TypeAlias = npt.NDArray[np.intp]


class NumpyQ:
    """Chooses as a `QNetwork` does, several times faster where rows are few.

    The parameters are the network's own memory.

    Args:
        network: A multi-layer perceptron on the CPU, whose parameters stay where they are; `of`
            knows.

    Attributes:
        max_rows: Most rows that are few.

    Example:
        >>> from gymnasium import spaces
        >>> box = spaces.Box(-1.0, 1.0, (3,))
        >>> net = QNetwork(box, spaces.Discrete(2), generator=np.random.default_rng(0))
        >>> NumpyQ(net).greedy(np.zeros((4, 3), "f")).shape
        (4,)
    """

    def __init__(self, network: QNetwork) -> None:
        self._branches = network.branches
        self._starts = np.cumsum(network.branches.sizes)[:-1]
        # The value of an observation is the same for all actions, so it has no say.
        self._trunk = None
        if network.dueling and len(network.trunk):
            self._trunk = NumpyNetwork(network.trunk)
        self._net = NumpyNetwork(network.advantage if network.dueling else network.net)
        self.max_rows = few_rows(network)

    @classmethod
    def of(cls, network: nn.Module) -> NumpyQ | None:
        """A network in NumPy where that is possible, None elsewhere."""
        if not isinstance(network, QNetwork) or QByHand.why_not(network) is not None:
            return None
        on_cpu = all(parameter.device.type == "cpu" for parameter in network.parameters())
        return cls(network) if on_cpu and type(network.features) is Flat else None

    def greedy(self, obs: Any, masks: Flags | None = None) -> Ints:
        """The best actions for some observations.

        Args:
            obs: [B, ...].
            masks: [B, n_masks] options that are allowed, or None.

        Returns:
            [B, *action shape].
        """
        x = rows_of_floats(obs)
        if self._trunk is not None:
            x = self._trunk(x)
        return self.best(self._net(x), masks)

    def best(self, values: Floats, masks: Flags | None = None) -> Ints:
        """The best actions by values [B, n], which may be overwritten."""
        if masks is not None:
            allowed = self._branches.options(torch.from_numpy(masks)).numpy()
            values[~allowed] = -np.inf
        if not self._branches.action_shape:
            best: Ints = values.argmax(1)
            return best
        return np.stack([part.argmax(1) for part in np.split(values, self._starts, 1)], 1)
