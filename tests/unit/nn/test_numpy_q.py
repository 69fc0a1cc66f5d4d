"""Choosing in NumPy gives what the network itself gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from sharpwave.nn import FlatParameters, NumpyQ, QNetwork
from sharpwave.types import Array

BOX = spaces.Box(-np.inf, np.inf, (2, 3))
ACTIONS: dict[str, spaces.Space[Any]] = {
    "discrete": spaces.Discrete(4),
    "multi discrete": spaces.MultiDiscrete([2, 4, 3]),
    "multi binary": spaces.MultiBinary(3),
}


def make(actions: str = "discrete", **options: Any) -> QNetwork:
    options = {"hidden": (8, 8), **options}
    net = QNetwork(BOX, ACTIONS[actions], generator=np.random.default_rng(0), **options)
    FlatParameters(net)
    return net


def observations(rows: int = 50) -> Array:
    return np.random.default_rng(2).normal(size=(rows, 2, 3)).astype(np.float32)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("hidden", [(), (5,), (8, 8)])
@pytest.mark.parametrize("dueling", [False, True])
@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("actions", ACTIONS)
def test_actions_are_those_of_the_network(
    actions: str, activation: str, dueling: bool, hidden: tuple[int, ...], masked: bool
) -> None:
    net = make(actions, activation=activation, dueling=dueling, hidden=hidden)
    obs, masks = observations(), None
    if masked:
        masks = np.random.default_rng(0).random((50, net.branches.n_masks)) < 0.5
        masks[:, net.branches.starts.numpy() % net.branches.n_masks] = True
    found = NumpyQ(net).greedy(obs, masks)
    allowed = None if masks is None else torch.from_numpy(masks)
    expected = net.branches.greedy(net(torch.from_numpy(obs)), allowed)
    np.testing.assert_array_equal(found, expected.numpy())


def test_later_changes_of_the_parameters_count() -> None:
    net = make()
    quick = NumpyQ(net)
    with torch.no_grad():
        *weights, bias = net.parameters()
        for parameter in weights:
            parameter.zero_()
        bias.copy_(torch.tensor([0.0, 0.0, 1.0, 0.0]))
    assert (quick.greedy(observations()) == 2).all()


@pytest.mark.parametrize("options", [{"noisy": True}, {"n_atoms": 3}, {"activation": "elu"}])
def test_other_networks_are_left_to_torch(options: dict[str, Any]) -> None:
    assert NumpyQ.of(make(**options)) is None


def test_few_rows_are_those_that_numpy_does_not_share_between_threads() -> None:
    quick = NumpyQ.of(make(hidden=(256, 256)))
    assert quick is not None
    assert quick.max_rows == 4
