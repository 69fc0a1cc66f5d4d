"""Normalization inside of networks is that of all rows that were counted."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces

from sharpwave.nn import ActorCritic, RunningNorm
from tests.reference.running import moments

DRAW = np.random.default_rng(3)
BATCHES = [DRAW.normal(5.0, 3.0, (n, 4)).astype(np.float32) for n in (1, 7, 100, 2)]


def test_statistics_are_those_of_all_rows() -> None:
    norm = RunningNorm(4)
    for batch in BATCHES:
        norm.count(torch.from_numpy(batch))
    mean, var = moments(x.astype(np.float64) for x in BATCHES)
    np.testing.assert_allclose(norm.mean, mean, rtol=1e-5)
    np.testing.assert_allclose(norm.var, var, rtol=1e-5)
    assert norm.n == 110
    x = BATCHES[2]
    np.testing.assert_allclose(
        norm(torch.from_numpy(x)), (x - mean) / np.sqrt(var + 1e-8), atol=1e-5
    )
    assert norm(torch.full((1, 4), 1e9)).tolist() == [[10.0] * 4]


def test_sequences_count_their_valid_rows_alone() -> None:
    whole, masked = RunningNorm(4), RunningNorm(4)
    whole.count(torch.from_numpy(BATCHES[1]))
    padded = torch.cat((torch.from_numpy(BATCHES[1]), torch.full((3, 4), 1e3)))
    weights = torch.tensor([1.0] * 7 + [0.0] * 3)
    masked.count(padded.reshape(5, 2, 4), weights.reshape(5, 2))
    torch.testing.assert_close(masked.mean, whole.mean)
    torch.testing.assert_close(masked.var, whole.var)
    masked.count(padded, torch.zeros(10))
    torch.testing.assert_close(masked.var, whole.var)


def test_processes_count_together() -> None:
    """Two that sum their moments have the statistics of one that has all rows."""
    parts = [torch.from_numpy(BATCHES[2][:30]), torch.from_numpy(BATCHES[2][30:])]
    one = RunningNorm(4)
    one.count(torch.from_numpy(BATCHES[1]))
    norms = [RunningNorm(4) for _ in parts]
    for norm in norms:
        norm.load_state_dict(one.state_dict())
    said: list[torch.Tensor] = []
    for norm, part in zip(norms, parts, strict=True):
        norm.count(part, total=lambda x: said.append(x) or x)  # type: ignore[func-returns-value]
        norm.load_state_dict(one.state_dict())
    total = said[0] + said[1]
    for norm, part in zip(norms, parts, strict=True):
        norm.count(part, total=lambda _: total)
    one.count(torch.from_numpy(BATCHES[2]))
    for norm in norms:
        torch.testing.assert_close(norm.mean, one.mean)
        torch.testing.assert_close(norm.var, one.var)


def test_integers_stay_as_they_are() -> None:
    space = spaces.Dict({"a": spaces.Box(-9, 9, (2,)), "b": spaces.Discrete(3)})
    net = ActorCritic(
        space, spaces.Discrete(2), running_norm=True, generator=np.random.default_rng(0)
    )
    obs = {"a": torch.tensor([[1.0, 2.0], [3.0, 6.0]]), "b": torch.tensor([0, 2])}
    net.count(obs)
    features = net.features(obs)
    assert features.tolist() == [[-1.0, -1.0, 1.0, 0.0, 0.0], [1.0, 1.0, 0.0, 0.0, 1.0]]


@pytest.mark.parametrize("critic", [None, ["a", "b"]])
def test_each_network_has_those_of_its_inputs(critic: list[str] | None) -> None:
    boxes = {name: spaces.Box(-9, 9, (1,)) for name in "ab"}
    net = ActorCritic(
        spaces.Dict({"a": boxes["a"]}),
        spaces.Discrete(2),
        critic_space=spaces.Dict([(name, boxes[name]) for name in critic]) if critic else None,
        running_norm=True,
        generator=np.random.default_rng(0),
    )
    net.count({"a": torch.tensor([[1.0], [3.0]]), "b": torch.tensor([[5.0], [5.0]])})
    assert net.features.norm.mean.tolist() == [2.0]
    if critic:
        assert net.critic_features.norm.mean.tolist() == [2.0, 5.0]
