from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from sharpwave import nn
from tests.reference.mixers import monotonic


def mixer(n_agents: int = 3, seed: int = 0) -> nn.MonotonicMixer:
    box, generator = spaces.Box(-9.0, 9.0, (4,)), np.random.default_rng(seed)
    return nn.MonotonicMixer(box, n_agents, size=8, hidden=16, generator=generator)


@pytest.mark.parametrize("n_agents", [1, 2, 5])
def test_the_mixer_is_that_of_the_paper(n_agents: int) -> None:
    one = mixer(n_agents)
    values, states = torch.randn(20, n_agents) * 5, torch.randn(20, 4)
    weights = {name: x.numpy() for name, x in one.state_dict().items()}
    expected = monotonic(weights, values, states)
    np.testing.assert_allclose(one(values, states).detach(), expected, rtol=1e-4, atol=1e-5)


def test_the_value_of_a_team_never_falls_where_that_of_an_agent_rises() -> None:
    values = (torch.randn(200, 3) * 10).requires_grad_()
    for seed in range(5):
        (slopes,) = torch.autograd.grad(mixer(seed=seed)(values, torch.randn(200, 4)).sum(), values)
        assert (slopes >= 0).all()
        assert (slopes > 0).any()


def test_the_state_decides_what_an_agent_is_worth() -> None:
    values = torch.ones(2, 3)
    first, second = mixer()(values, torch.tensor([[1.0, 0, 0, 0], [0, 5.0, -3.0, 0]]))
    assert first != second


def team(mixed: Any, sizes: dict[str, int]) -> nn.TeamQNetwork:
    generator = np.random.default_rng(1)
    boxes = {name: spaces.Box(-9, 9, (2 + i,)) for i, name in enumerate(sizes)}
    networks = {
        name: nn.QNetwork(box, spaces.Discrete(3 + i), hidden=(8,), generator=generator)
        for i, (name, box) in enumerate(boxes.items())
    }
    features = nn.JointFeatures(boxes, sizes, generator)
    return nn.TeamQNetwork(networks, sizes, mixed(features.space), state=features)


def observed(sizes: dict[str, int], n: int, acts: Any = None) -> dict[str, Any]:
    agents = {name: torch.randn(n, size, 2 + i) for i, (name, size) in enumerate(sizes.items())}
    return {"agents": agents, "acts": torch.ones(n, sum(sizes.values())) if acts is None else acts}


@pytest.mark.parametrize("kind", ["sum", "monotonic"])
def test_the_best_of_each_agent_is_the_best_of_the_team(kind: str) -> None:
    """Of all joint actions, none is worth more than the one that agents find alone."""
    sizes = {"one": 2, "other": 1}
    options: dict[str, Any] = {"size": 8, "hidden": 16, "generator": np.random.default_rng(0)}
    network = team(
        lambda space: nn.SumMixer() if kind == "sum" else nn.MonotonicMixer(space, 3, **options),
        sizes,
    )
    obs = observed(sizes, 6)
    values = network(obs)
    assert values.shape == (6, 3 + 3 + 4)

    def worth(actions: Any) -> Any:
        return network.mix(network.branches.chosen(values, actions), obs)

    every = torch.stack(
        [worth(torch.tensor([joint] * 6)) for joint in itertools.product(*map(range, (3, 3, 4)))]
    )
    torch.testing.assert_close(worth(network.branches.greedy(values)), every.max(0).values)
    assert (every.max(0).values > every.min(0).values).all()


def test_who_does_not_act_is_in_no_value() -> None:
    sizes = {"one": 2, "other": 1}
    network = team(lambda _: nn.SumMixer(), sizes)
    acts = torch.tensor([[1.0, 0, 1], [0, 0, 0]])
    values = torch.tensor([[1.0, 20.0, 300.0], [1.0, 20.0, 300.0]])
    assert network.mix(values, observed(sizes, 2, acts)).tolist() == [301.0, 0.0]


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_sequences_are_steps_one_after_the_other(kind: str) -> None:
    """Memories begin anew for each agent where its life begins, and stay while it waits."""
    sizes = {"one": 2, "other": 1}
    generator = np.random.default_rng(1)
    networks = {
        name: nn.RecurrentQNetwork(
            spaces.Box(-9, 9, (2 + i,)),
            spaces.Discrete(3 + i),
            kind=kind,
            size=4,
            hidden=(8,),
            generator=generator,
        )
        for i, name in enumerate(sizes)
    }
    network = nn.TeamQNetwork(networks, sizes, nn.SumMixer())
    steps: list[dict[str, Any]] = [
        {**observed(sizes, 5, torch.rand(5, 3) < 0.7), "begins": torch.rand(5, 3) < 0.2}
        for _ in range(7)
    ]
    for step in steps[:1]:
        step["begins"][:] = True
    for step in steps[2:4]:
        step["acts"][2, 0] = True
    state, expected = network.initial_state(5), []
    for step in steps:
        values, state = network.step(step, state)
        expected.append(values)
    sequences: dict[str, Any] = {
        "agents": {name: torch.stack([step["agents"][name] for step in steps]) for name in sizes},
        **{name: torch.stack([step[name] for step in steps]) for name in ("acts", "begins")},
    }
    found = network.unroll(sequences)
    acts = sequences["acts"].repeat_interleave(torch.tensor([3, 3, 4]), 2)
    torch.testing.assert_close(found[acts], torch.stack(expected)[acts])
    sequences["begins"][3, 2, 0] = ~sequences["begins"][3, 2, 0]
    changed = ((network.unroll(sequences) - found).abs() > 1e-6).any(2).nonzero().tolist()
    assert changed
    assert all(t >= 3 and row == 2 for t, row in changed)
