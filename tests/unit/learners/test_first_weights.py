"""First weights of the on-policy algorithms: orthogonal, or as torch's layers begin."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import sharpwave as sw
from sharpwave import nn
from sharpwave.agents import OnlineAgent

ALGORITHMS: list[type[OnlineAgent]] = [sw.PPO, sw.A2C, sw.HybridPPO, sw.IMPALA, sw.APPO]
SMALL: dict[str, Any] = {"n_envs": 2, "n_steps": 8, "seed": 3}


def weights(algo: Any) -> dict[str, torch.Tensor]:
    state: dict[str, torch.Tensor] = algo.policy.state_dict()
    return state


@pytest.mark.parametrize("cls", ALGORITHMS)
@pytest.mark.parametrize("ortho_init", [True, False])
def test_both_backends_start_from_the_same_weights(cls: Any, ortho_init: bool) -> None:
    """No option chose torch's first weights, which presets of others rely on."""
    native, by_torch = (
        cls("Pendulum-v1", ortho_init=ortho_init, backend=backend, **SMALL)
        for backend in ("native", "torch")
    )
    for name, weight in weights(native).items():
        torch.testing.assert_close(weight, weights(by_torch)[name], rtol=0, atol=0)
    weight, bias = weights(native)["actor.2.weight"], weights(native)["actor.2.bias"]
    rows = weight @ weight.T / 2
    assert torch.allclose(rows, torch.eye(64), atol=1e-5) == ortho_init
    assert (bias.abs().max().item() > 0) != ortho_init
    if not ortho_init:
        for name, parameter in weights(native).items():
            if name != "log_std":
                network, layer, _ = name.split(".")
                fan_in = weights(native)[f"{network}.{layer}.weight"].shape[1]
                assert parameter.abs().max().item() <= fan_in**-0.5


@pytest.mark.parametrize("options", [{"recurrent": "lstm"}, {"use_gsde": True}])
def test_the_option_reaches_every_layer(options: dict[str, Any]) -> None:
    orthogonal, uniform = (
        sw.PPO("Pendulum-v1", ortho_init=ortho_init, **options, **SMALL)
        for ortho_init in (True, False)
    )
    for name, weight in weights(uniform).items():
        if name != "log_std":
            assert not torch.equal(weight, weights(orthogonal)[name]), name
            assert weight.any(), name


def test_convolutions_start_uniform_too() -> None:
    images = spaces.Box(0, 255, (3, 36, 36), np.uint8)
    generator = np.random.default_rng(0)
    policy = nn.ActorCritic(images, spaces.Discrete(2), ortho_init=False, generator=generator)
    bias = policy.state_dict()["features.layers.0.bias"]
    assert bias.any()
    assert bias.abs().max().item() <= (3 * 8 * 8) ** -0.5


def test_a_checkpoint_and_the_command_line_know_the_option(tmp_path: Any) -> None:
    algo = sw.PPO("CartPole-v1", ortho_init=False, **SMALL)
    algo.save(tmp_path / "agent")
    loaded: Any = sw.PPO.from_checkpoint(tmp_path / "agent")
    assert loaded.config.ortho_init is False
    assert sw.PPOConfig.from_text({"ortho_init": "false"}).ortho_init is False
    np.testing.assert_array_equal(
        weights(loaded)["actor.0.weight"], weights(algo)["actor.0.weight"]
    )
