"""Networks before there is a module: the same weights, inputs and memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from sharpwave import nn
from sharpwave.learners.native import FlatArrays, PolicyLayout, features_of, why_not_native
from tests.unit.nn.policy_case import ACTIONS

BOX = spaces.Box(-1.0, 1.0, (3,))
OBSERVATIONS: dict[str, spaces.Space[Any]] = {
    "vector": BOX,
    "matrix": spaces.Box(0, 9, (2, 3), np.int64),
    "one number": spaces.Box(-1.0, 1.0, ()),
    "choice": spaces.Discrete(4, start=2),
    "choices": spaces.MultiDiscrete(np.array([[2, 3], [4, 2]]), start=np.array([[0, 1], [5, 0]])),
    "bits": spaces.MultiBinary((2, 2)),
    "dict": spaces.Dict({"b": spaces.Discrete(3), "a": BOX, "c": spaces.Tuple([BOX, BOX])}),
}


@pytest.mark.parametrize("hidden", [(), (8,), (64, 32)])
@pytest.mark.parametrize("ortho_init", [True, False])
@pytest.mark.parametrize("actions", ACTIONS)
def test_first_parameters_are_those_of_an_actor_critic(
    actions: str, ortho_init: bool, hidden: tuple[int, ...]
) -> None:
    space = ACTIONS[actions]
    options: dict[str, Any] = {"log_std_init": -0.5, "ortho_init": ortho_init}
    policy = nn.ActorCritic(
        BOX, space, hidden=hidden, generator=np.random.default_rng(3), **options
    )
    layout = PolicyLayout.of(BOX, space, hidden=hidden, activation="tanh")
    flat = layout.first_parameters(np.random.default_rng(3), **options)
    assert list(flat.state_dict()) == list(policy.state_dict())
    np.testing.assert_array_equal(flat.data, nn.FlatParameters(policy).block)
    assert layout.n_parameters == len(flat.data)


@pytest.mark.parametrize("kind", OBSERVATIONS)
def test_features_are_those_of_the_module(kind: str) -> None:
    space = OBSERVATIONS[kind]
    space.seed(1)
    obs = [space.sample() for _ in range(5)]
    batch = _stacked(space, obs)
    expected = nn.make_features(space, np.random.default_rng(0))(_tensors(batch))
    found = features_of(space)(batch)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, expected.numpy())


def _stacked(space: spaces.Space[Any], obs: list[Any]) -> Any:
    if isinstance(space, spaces.Dict):
        return {key: _stacked(one, [o[key] for o in obs]) for key, one in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_stacked(one, [o[i] for o in obs]) for i, one in enumerate(space.spaces))
    return np.stack([np.asarray(o) for o in obs])


def _tensors(batch: Any) -> Any:
    if isinstance(batch, dict):
        return {key: _tensors(one) for key, one in batch.items()}
    if isinstance(batch, tuple):
        return tuple(map(_tensors, batch))
    return torch.from_numpy(batch)


@pytest.mark.parametrize(
    ("observations", "actions", "reason"),
    [
        (spaces.Box(0, 255, (84, 84, 3), np.uint8), BOX, "images"),
        (spaces.Dict(a=spaces.Box(0, 255, (84, 84, 3), np.uint8)), BOX, "images"),
        (spaces.Text(3), BOX, "observation space is Text"),
        (BOX, spaces.Dict(a=BOX), "action space is Dict"),
    ],
)
def test_others_are_refused_with_the_reason(observations: Any, actions: Any, reason: str) -> None:
    assert reason in str(why_not_native(observations, actions))


def test_a_module_made_later_shares_the_memory() -> None:
    layout = PolicyLayout.of(BOX, BOX, hidden=(8,), activation="relu")
    flat = layout.first_parameters(np.random.default_rng(0))
    before = flat.data.copy()
    module = nn.ActorCritic(BOX, BOX, hidden=(8,), generator=np.random.default_rng(1))
    shared = nn.FlatParameters(module, memory=flat)
    np.testing.assert_array_equal(flat.data, before)
    with torch.no_grad():
        module.get_parameter("critic.2.bias").fill_(7.0)
    assert flat["critic.2.bias"][0] == flat.data[-1] == 7.0
    flat["log_std"][:] = 2.0
    assert module.log_std is not None
    assert module.log_std.tolist() == [2.0] * 3
    shared.backward(module.evaluate(torch.ones(1, 3), torch.zeros(1, 3)).values.sum())
    assert flat.grad[-1] == 1.0


def test_memory_of_another_module_is_refused() -> None:
    module = nn.ActorCritic(BOX, BOX, hidden=(8,), generator=np.random.default_rng(1))
    memory = FlatArrays(PolicyLayout.of(BOX, BOX, hidden=(4,), activation="tanh").shapes)
    with pytest.raises(ValueError, match=r"must have the parameters .*\(4, 3\).*\(8, 3\)"):
        nn.FlatParameters(module, memory=memory)


def test_states_of_other_networks_are_refused_and_change_nothing() -> None:
    flat = FlatArrays({"a": (2,), "b": (3,)})
    with pytest.raises(ValueError, match=r"names \['a', 'b'\], got \['a'\]"):
        flat.load_state_dict({"a": np.ones(2)})
    with pytest.raises(ValueError, match=r"b must have shape \(3,\), got \(4,\)"):
        flat.load_state_dict({"a": np.ones(2), "b": np.ones(4)})
    assert not flat.data.any()
    flat.load_state_dict({"b": np.full(3, 2.0), "a": np.ones(2)})
    assert flat.data.tolist() == [1.0, 1.0, 2.0, 2.0, 2.0]
