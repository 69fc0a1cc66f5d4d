"""Networks take a features extractor in place of that of the space."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from sharpwave import nn
from sharpwave.nn.features import Features

BOX = spaces.Box(-1.0, 1.0, (3,))


class Doubled(Features):
    size = 6

    def forward(self, obs: Any) -> Any:
        return torch.cat((obs, 2.0 * obs), -1)


def generator() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.mark.parametrize(
    "network",
    [
        lambda: nn.ActorCritic(BOX, spaces.Discrete(2), features=Doubled(), generator=generator()),
        lambda: nn.QNetwork(BOX, spaces.Discrete(2), features=Doubled(), generator=generator()),
        lambda: nn.SquashedActor(BOX, 2, features=Doubled(), generator=generator()),
        lambda: nn.DeterministicActor(BOX, 2, features=Doubled(), generator=generator()),
        lambda: nn.Critics(BOX, 2, features=Doubled(), generator=generator()),
    ],
)
def test_the_given_extractor_is_the_one(network: Any) -> None:
    made = network()
    assert isinstance(made.features, Doubled)
    inputs = {parameter.shape for parameter in made.parameters()}
    widths = {size for shape in inputs for size in shape}
    assert 6 in widths or 8 in widths  # critics look at actions, too
    assert 3 not in widths


def test_what_it_gives_is_what_networks_see() -> None:
    actor = nn.DeterministicActor(BOX, 1, hidden=(), features=Doubled(), generator=generator())
    layer: Any = actor.net[0]
    weight, bias = layer.weight[0], layer.bias[0]
    obs = torch.tensor([[0.1, -0.2, 0.3]])
    seen = torch.cat((obs, 2 * obs), -1)[0]
    assert torch.allclose(actor(obs)[0, 0], torch.tanh(seen @ weight + bias))
