"""Steps of small networks beside the policy that defines them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from sharpwave.nn import ActorCritic
from sharpwave.primitives.small_policy import tensors as small

SPACES: dict[str, Any] = {
    "discrete": spaces.Discrete(5),
    "box": spaces.Box(-1, 1, (3,)),
}


def policy(actions: str, device: torch.device, size: int = 4, **options: Any) -> Any:
    """Networks whose outputs are far from 0."""
    space = spaces.Box(-np.inf, np.inf, (size,), np.float32)
    made = ActorCritic(
        space, SPACES[actions], generator=np.random.default_rng(0), log_std_init=-0.3, **options
    )
    with torch.no_grad():
        for parameter in made.parameters():
            noise = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
            parameter.add_(0.2 * noise)
    return made.to(device)


def normal(*shape: int, device: torch.device) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(2)).to(device)


def layers_of(net: Any) -> tuple[list[Tensor], list[Tensor]]:
    return list(net.actor.parameters()), list(net.critic.parameters())


NETWORKS: dict[str, dict[str, Any]] = {
    "usual": {},
    "narrow": {"hidden": (5,), "activation": "relu"},
    "deep": {"hidden": (7, 20, 33), "critic_hidden": (128,), "activation": "elu"},
    "linear": {"hidden": ()},
}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("actions", SPACES)
@pytest.mark.parametrize("n", [1, 100])
def test_a_step_is_that_of_the_policy(
    name: str, actions: str, n: int, device: torch.device
) -> None:
    options = NETWORKS[name]
    net = policy(actions, device, **options)
    obs = normal(n, 4, device=device)
    generator = torch.Generator(device).manual_seed(3)
    expected = net.act(obs, generator=generator)
    noise = torch.empty(n, net.distribution.n_params, device=device)
    generator.manual_seed(3)
    if net.log_std is None:
        noise.uniform_(torch.finfo(torch.float32).tiny, 1.0, generator=generator)
    else:
        noise.normal_(generator=generator)
    actor, critic = layers_of(net)
    activation = options.get("activation", "tanh")
    found = small.act(obs, actor, critic, noise, log_std=net.log_std, activation=activation)
    for one, other in zip(found, expected[:3], strict=True):
        assert one.dtype == other.dtype
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    values = small.value(obs, critic, activation=activation)
    torch.testing.assert_close(values, net.values(obs), rtol=1e-4, atol=1e-5)


def test_a_weight_that_is_not_a_number_shows(device: torch.device) -> None:
    for activation in small.ACTIVATIONS:
        net = policy("box", device, activation=activation)
        with torch.no_grad():
            net.actor[0].weight[0, 0] = torch.nan
        actor, critic = layers_of(net)
        obs = torch.ones(3, 4, device=device)
        found = small.act(
            obs, actor, critic, obs[:, :3], log_std=net.log_std, activation=activation
        )
        assert found[0].isnan().all()
        assert not found[2].isnan().any()


def test_networks_that_no_kernel_holds_are_refused() -> None:
    obs, wide = torch.zeros(3, 4), [torch.zeros(129, 4), torch.zeros(129)]
    thin = [torch.zeros(1, 4), torch.zeros(1)]
    with pytest.raises(ValueError, match=r"actor must have at most 4 layers of 128 units, got"):
        small.act(obs, wide, thin, obs)
    with pytest.raises(ValueError, match=r"critic must have at most 4 layers of 128 units, got"):
        small.value(obs, wide)
    with pytest.raises(ValueError, match=r"activation must be one of .* got 'gelu'"):
        small.value(obs, thin, activation="gelu")
    with pytest.raises(ValueError, match=r"obs must be float32 of shape \(N, 4\), got .*\(3, 5\)"):
        small.value(torch.zeros(3, 5), thin)
