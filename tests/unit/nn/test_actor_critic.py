"""The actor-critic: what it holds, how it acts, and that evaluating agrees with acting."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributions as td
from gymnasium import spaces
from torch import nn

from sharpwave.nn import ActorCritic
from tests.unit.nn.test_features import NESTED, stacked

BOX = spaces.Box(-1, 1, (3,))
ACTION_SPACES = [
    spaces.Discrete(4),
    spaces.MultiDiscrete([2, 3]),
    spaces.MultiBinary(3),
    spaces.Box(-1, 1, (2,)),
]


def make(
    action_space: spaces.Space[Any], obs_space: spaces.Space[Any] = BOX, **options: Any
) -> Any:
    seed = options.pop("seed", 0)
    return ActorCritic(obs_space, action_space, generator=np.random.default_rng(seed), **options)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def layers(name: str, *indices: int) -> list[str]:
    return [f"{name}.{i}.{kind}" for i in indices for kind in ("weight", "bias")]


def test_parameters_of_plain_policies_have_fixed_names_and_order() -> None:
    names = layers("actor", 0, 2, 4) + layers("critic", 0, 2, 4)
    discrete = make(spaces.Discrete(4))
    assert list(discrete.state_dict()) == names
    assert [name for name, _ in discrete.named_parameters()] == names
    continuous = make(spaces.Box(-1, 1, (2,)))
    assert list(continuous.state_dict()) == ["log_std", *names]
    assert [name for name, _ in continuous.named_parameters()] == ["log_std", *names]
    assert isinstance(discrete.actor, nn.Sequential)
    assert isinstance(discrete.actor[1], nn.Tanh)


def test_image_features_come_before_the_actor() -> None:
    net = make(spaces.Discrete(2), spaces.Box(0, 255, (3, 36, 36), np.uint8), hidden=())
    cnn = layers("features.layers", 0, 2, 4, 7)
    assert list(net.state_dict()) == cnn + layers("actor", 0) + layers("critic", 0)


@pytest.mark.parametrize("space", ACTION_SPACES, ids=str)
def test_a_seed_fixes_the_weights_and_another_changes_them(space: spaces.Space[Any]) -> None:
    first, same, other = (make(space, seed=seed).state_dict() for seed in (1, 1, 2))
    for name, weight in first.items():
        assert torch.equal(weight, same[name])
        if name.endswith("weight"):
            assert not torch.equal(weight, other[name])


def test_heads_have_their_gains() -> None:
    net = make(spaces.Discrete(4))
    assert torch.linalg.matrix_norm(net.actor[0].weight, 2).item() == pytest.approx(math.sqrt(2))
    assert torch.linalg.matrix_norm(net.actor[4].weight, 2).item() == pytest.approx(0.01)
    assert torch.linalg.matrix_norm(net.critic[4].weight, 2).item() == pytest.approx(1.0)


@pytest.mark.parametrize("options", [{}, {"activation": "relu", "hidden": (16,)}, {"hidden": ()}])
@pytest.mark.parametrize("space", ACTION_SPACES, ids=str)
def test_evaluating_agrees_with_acting(space: spaces.Space[Any], options: dict[str, Any]) -> None:
    net = make(space, **options)
    obs = torch.randn(5, 3, generator=seeded())
    for deterministic in (False, True):
        acted = net.act(obs, deterministic=deterministic, generator=seeded(1))
        evaluated = net.evaluate(obs, acted.actions)
        torch.testing.assert_close(evaluated.log_probs, acted.log_probs)
        torch.testing.assert_close(evaluated.values, acted.values)
        torch.testing.assert_close(net.values(obs), acted.values)
        assert evaluated.entropy.shape == (5,)
        assert acted.state is None
        assert not acted.log_probs.requires_grad
        assert not acted.values.requires_grad


def test_loss_gradients_are_those_of_torch_distributions() -> None:
    obs, weights = torch.randn(5, 3, generator=seeded()), torch.randn(5, generator=seeded(1))
    for space in (spaces.Discrete(4), spaces.Box(-1, 1, (2,))):
        net = make(space)
        actions = net.act(obs, generator=seeded(2)).actions
        evaluated = net.evaluate(obs, actions)
        ours = (weights * (evaluated.log_probs + evaluated.entropy + evaluated.values)).sum()
        if isinstance(space, spaces.Discrete):
            theirs: td.Distribution = td.Categorical(logits=net.actor(obs))
        else:
            mean = net.actor(obs)
            theirs = td.Independent(td.Normal(mean, net.log_std.exp().expand_as(mean)), 1)
        value = net.critic(obs).squeeze(-1)
        expected = (weights * (theirs.log_prob(actions) + theirs.entropy() + value)).sum()
        torch.testing.assert_close(
            torch.autograd.grad(ours, list(net.parameters())),
            torch.autograd.grad(expected, list(net.parameters())),
        )


def test_acting_draws_from_the_given_generator_alone() -> None:
    net = make(spaces.Discrete(4))
    obs = torch.randn(50, 3, generator=seeded())
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    first, second = (net.act(obs, generator=seeded(3)).actions for _ in range(2))
    assert torch.equal(first, second)
    assert torch.equal(torch.rand(1), expected)


def test_masked_actions_are_never_chosen_and_are_evaluated_as_chosen() -> None:
    net = make(spaces.Discrete(4))
    obs = torch.randn(200, 3, generator=seeded())
    masks = torch.tensor([False, True, False, True]).expand(200, 4)
    for deterministic in (False, True):
        acted = net.act(obs, masks=masks, deterministic=deterministic, generator=seeded(1))
        assert set(acted.actions.tolist()) <= {1, 3}
        evaluated = net.evaluate(obs, acted.actions, masks=masks)
        torch.testing.assert_close(evaluated.log_probs, acted.log_probs)
        assert (evaluated.entropy <= math.log(2) + 1e-6).all()


def test_masks_for_continuous_actions_are_refused() -> None:
    with pytest.raises(ValueError, match="masks need discrete actions, got a DiagonalGaussian"):
        make(spaces.Box(-1, 1, (2,))).act(torch.zeros(1, 3), masks=torch.ones(1, 2).bool())


@pytest.mark.parametrize("space", ACTION_SPACES, ids=str)
def test_nested_and_image_observations_train_every_parameter(space: spaces.Space[Any]) -> None:
    net = make(space, NESTED)
    obs = stacked(NESTED, 4)
    acted = net.act(obs, generator=seeded())
    evaluated = net.evaluate(obs, acted.actions)
    torch.testing.assert_close(evaluated.values, acted.values, rtol=1e-4, atol=1e-5)
    (evaluated.log_probs + evaluated.values).sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in net.parameters())


def test_actor_and_critic_share_the_features_of_images() -> None:
    space = spaces.Box(0, 255, (3, 36, 36), np.uint8)
    net = make(spaces.Discrete(2), space)
    obs = stacked(space, 2)
    evaluated = net.evaluate(obs, torch.zeros(2, dtype=torch.int64))
    for result in (evaluated.log_probs, evaluated.values):
        (gradient,) = torch.autograd.grad(
            result.sum(), [net.features.layers[0].weight], retain_graph=True
        )
        assert gradient.any()


def test_float64_observations_are_cast() -> None:
    net = make(spaces.Discrete(2), spaces.Box(-1, 1, (3,), np.float64))
    obs = torch.randn(4, 3, dtype=torch.float64, generator=seeded())
    torch.testing.assert_close(net.values(obs), net.values(obs.float()), rtol=0, atol=0)


def test_log_std_starts_where_it_is_told() -> None:
    net = make(spaces.Box(-1, 1, (2,)), log_std_init=-0.5)
    assert net.log_std.tolist() == [-0.5, -0.5]
    assert make(spaces.Discrete(2)).log_std is None


def test_squashed_policies_keep_raw_actions() -> None:
    net = make(spaces.Box(-1, 1, (1,)), squash=True, log_std_init=1.0)
    acted = net.act(torch.zeros(1000, 3), generator=seeded())
    assert acted.actions.abs().max() > 1.0
    assert net.evaluate(torch.zeros(1000, 3), acted.actions).entropy.isfinite().all()


def test_copies_and_changed_weights_act_for_themselves() -> None:
    net = make(spaces.Discrete(4))
    twin = copy.deepcopy(net)
    obs = torch.randn(5, 3, generator=seeded())
    before = net.values(obs)
    for parameter in net.parameters():
        parameter.data = parameter.data * 2
    torch.testing.assert_close(twin.values(obs), before, rtol=0, atol=0)
    torch.testing.assert_close(net.values(obs), net.critic(obs).squeeze(-1))
    assert not torch.equal(net.values(obs), before)
    twin.load_state_dict(net.state_dict())
    torch.testing.assert_close(twin.values(obs), net.values(obs), rtol=0, atol=0)


def test_reset_noise_does_nothing_without_gsde() -> None:
    make(spaces.Discrete(2)).reset_noise(4, seeded())
    assert make(spaces.Discrete(2)).initial_state(4) is None
