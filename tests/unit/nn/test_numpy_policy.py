"""Acting in NumPy gives what the policy itself gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from sharpwave.nn import ActorCritic, FlatParameters, NumpyPolicy

N = 6
BOX = spaces.Box(-1.0, 1.0, (3,))
ACTIONS = {
    "discrete": spaces.Discrete(4),
    "box": spaces.Box(-2.0, 2.0, (2,)),
}


def make_policy(action_space: spaces.Space[Any] = ACTIONS["discrete"], **options: Any) -> Any:
    options = {"observation_space": BOX, "log_std_init": -0.5, **options}
    policy = ActorCritic(action_space=action_space, generator=np.random.default_rng(0), **options)
    flat = FlatParameters(policy)
    # Weights of some size, so that actions are not all equally likely.
    flat.data.add_(torch.randn(len(flat.data), generator=torch.Generator().manual_seed(1)) * 0.3)
    return policy


def observations(shape: tuple[int, ...] = (3,)) -> Any:
    return np.random.default_rng(2).normal(size=(N, *shape)).astype(np.float32)


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("actions", ACTIONS)
def test_actions_and_their_probabilities_are_those_of_the_policy(
    actions: str, activation: str, deterministic: bool
) -> None:
    policy = make_policy(ACTIONS[actions], activation=activation)
    quick = NumpyPolicy(policy)
    mine, theirs = (torch.Generator().manual_seed(3) for _ in range(2))
    for _ in range(20):
        obs = observations()
        acted = quick.act(obs, deterministic=deterministic, generator=mine)
        expected = policy.act(torch.from_numpy(obs), deterministic=deterministic, generator=theirs)
        for one, other in zip(acted, expected, strict=False):
            assert one.dtype == other.numpy().dtype
            np.testing.assert_allclose(one, other.numpy(), rtol=1e-5, atol=1e-6)
        evaluated = policy.evaluate(torch.from_numpy(obs), torch.from_numpy(acted[0]))
        np.testing.assert_allclose(
            acted[1], evaluated.log_probs.detach().numpy(), rtol=1e-5, atol=1e-6
        )


def test_later_changes_of_the_parameters_count() -> None:
    policy = make_policy()
    quick = NumpyPolicy(policy)
    with torch.no_grad():
        policy.critic[-1].bias.fill_(100.0)
        policy.critic[-1].weight.zero_()
    np.testing.assert_array_equal(quick.values(observations()), np.full(N, 100.0))
    np.testing.assert_array_equal(quick.act(observations())[2], np.full(N, 100.0))


@pytest.mark.parametrize("dtype", [np.float64, np.uint8])
def test_observations_of_any_number_type_and_shape(dtype: Any) -> None:
    policy = make_policy(observation_space=spaces.Box(0, 9, (2, 2), dtype))
    obs = np.random.default_rng(0).integers(0, 9, (N, 2, 2)).astype(dtype)
    expected = policy.values(torch.from_numpy(obs)).numpy()
    np.testing.assert_allclose(NumpyPolicy(policy).values(obs), expected, rtol=1e-5)


def test_what_was_handed_out_does_not_change() -> None:
    quick = NumpyPolicy(make_policy(ACTIONS["box"]))
    first = quick.act(observations())
    copies = [array.copy() for array in first]
    quick.act(2 * observations())
    for array, copy in zip(first, copies, strict=True):
        np.testing.assert_array_equal(array, copy)


def test_of_takes_policies_of_known_kinds() -> None:
    of = NumpyPolicy.of
    assert of(make_policy()) is not None
    assert of(make_policy(ACTIONS["box"], activation="relu")) is not None
    assert of(make_policy(activation="elu")) is None
    assert of(make_policy(recurrent="gru")) is None
    assert of(make_policy(ACTIONS["box"], gsde=True)) is None
    assert of(make_policy(ACTIONS["box"], squash=True)) is None
    assert of(make_policy(spaces.MultiBinary(3))) is None
    assert of(make_policy(observation_space=spaces.Discrete(3))) is None
    assert of(torch.nn.Linear(3, 4)) is None


def test_wide_networks_take_fewer_rows() -> None:
    assert NumpyPolicy(make_policy(hidden=(64, 64))).max_rows == 64
    assert NumpyPolicy(make_policy(hidden=(256, 256))).max_rows == 4
