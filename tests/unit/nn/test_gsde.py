"""State-dependent exploration: smooth noise with the right distribution."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.distributions as td
from gymnasium import spaces

from sharpwave.nn import ActorCritic
from sharpwave.nn.gsde import StateDependentNoise

BOX = spaces.Box(-1, 1, (3,))
ACTIONS = spaces.Box(-2, 2, (2,))


def policy(squash: bool = False) -> ActorCritic:
    generator = np.random.default_rng(0)
    return ActorCritic(
        BOX,
        ACTIONS,
        hidden=(8, 5),
        log_std_init=-1.0,
        squash=squash,
        gsde=True,
        generator=generator,
    )


def obs(n: int = 4, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, 3, generator=torch.Generator().manual_seed(seed))


def test_log_std_has_a_row_for_each_latent_feature() -> None:
    net = policy()
    assert net.log_std is not None
    assert net.log_std.shape == (5, 2)
    assert (net.log_std == -1.0).all()


def test_log_prob_and_entropy_are_those_of_the_normal_distribution() -> None:
    net = policy()
    assert net.log_std is not None
    actions = torch.randn(4, 2, generator=torch.Generator().manual_seed(1))
    evaluated = net.evaluate(obs(), actions)
    mean, latent = net.actor.with_latent(obs())
    std = (latent.square() @ net.log_std.exp().square() + 1e-6).sqrt()
    expected = td.Independent(td.Normal(mean, std), 1)
    torch.testing.assert_close(evaluated.log_probs, expected.log_prob(actions))
    torch.testing.assert_close(evaluated.entropy, expected.entropy())


def test_noise_is_the_latent_times_one_matrix_until_it_is_reset() -> None:
    net = policy()
    generator = torch.Generator().manual_seed(0)
    net.reset_noise(4, generator)
    first, second = (net.act(obs(), generator=generator) for _ in range(2))
    torch.testing.assert_close(first.actions, second.actions, rtol=0, atol=0)
    assert (first.actions != net.act(obs(), deterministic=True).actions).all()
    net.reset_noise(4, generator)
    assert (net.act(obs()).actions != first.actions).all()


def test_environments_have_matrices_of_their_own() -> None:
    net = policy()
    net.reset_noise(4, torch.Generator().manual_seed(0))
    actions = net.act(obs(1).expand(4, 3)).actions
    assert len(actions.unique(dim=0)) == 4


@pytest.mark.parametrize("fresh", [False, True], ids=["matrices", "another batch size"])
def test_noise_over_many_matrices_has_the_variance_of_the_log_prob(fresh: bool) -> None:
    noise, generator = StateDependentNoise(), torch.Generator().manual_seed(0)
    log_std = torch.tensor([[0.0, -1.0], [-0.5, 0.3], [0.2, 0.1]])
    latent = torch.tensor([[0.5, -1.0, 0.2]]).expand(100_000, 3)
    noise.reset(log_std, 3 if fresh else 100_000, generator)
    params = noise.params(torch.zeros(100_000, 2), latent, log_std)
    drawn = noise.noise(params, latent, generator)
    torch.testing.assert_close(drawn.mean(0), torch.zeros(2), atol=0.02, rtol=0)
    torch.testing.assert_close(drawn.std(0), params[1][0].exp(), atol=0.01, rtol=0)


def test_features_are_not_trained_through_the_variance() -> None:
    latent = torch.randn(4, 3, requires_grad=True)
    log_std = torch.zeros(3, 2, requires_grad=True)
    _, scale = StateDependentNoise().params(torch.zeros(4, 2), latent, log_std)
    scale.sum().backward()
    assert latent.grad is None
    assert log_std.grad is not None


def test_mode_is_the_mean() -> None:
    net = policy()
    net.reset_noise(4, torch.Generator().manual_seed(0))
    torch.testing.assert_close(net.act(obs(), deterministic=True).actions, net.actor(obs()))


@pytest.mark.parametrize("squash", [False, True])
def test_acting_and_evaluating_agree(squash: bool) -> None:
    net = policy(squash)
    net.reset_noise(4, torch.Generator().manual_seed(0))
    acted = net.act(obs())
    torch.testing.assert_close(net.evaluate(obs(), acted.actions).log_probs, acted.log_probs)


def test_discrete_actions_are_refused() -> None:
    with pytest.raises(ValueError, match=r"gsde needs a Box action space, got Discrete\(2\)"):
        ActorCritic(BOX, spaces.Discrete(2), gsde=True, generator=np.random.default_rng(0))
