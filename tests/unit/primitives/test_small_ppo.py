"""The gradient of small networks beside that of autograd."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from sharpwave.primitives.ppo_loss import plain as losses
from sharpwave.primitives.small_ppo import tensors as small
from tests.unit.primitives.test_ppo_loss import batch
from tests.unit.primitives.test_small_policy import layers_of, normal, policy

NETWORKS: dict[str, dict[str, Any]] = {
    "usual": {},
    "uneven": {"hidden": (20, 33), "critic_hidden": (64, 7), "activation": "elu"},
    "relu": {"hidden": (16, 16), "activation": "relu"},
}


CASES = [
    ("usual", "discrete", True, 150),
    ("usual", "box", False, 150),
    ("usual", "discrete", False, 1),
    ("uneven", "box", True, 300),
    ("relu", "discrete", False, 300),
]


@pytest.mark.parametrize(("name", "actions", "clips", "n"), CASES)
def test_gradient_and_metrics(
    name: str, actions: str, clips: bool, n: int, device: torch.device
) -> None:
    options = NETWORKS[name]
    net = policy(actions, device, **options)
    obs = normal(300, 4, device=device)
    params, values = net.heads(obs)
    output = params if actions == "discrete" else params[0]
    made = batch(300, output.shape[1], gaussian=actions == "box")
    given: dict[str, Any] = {k: v.to(device) for k, v in made.items() if isinstance(v, Tensor)}
    if actions == "box":
        given["actions"] = (output + 0.5 * normal(*output.shape, device=device)).detach()
    given["old_log_probs"] = net.distribution.log_prob(params, given["actions"]).detach()
    given["old_log_probs"] += 0.2 * normal(300, device=device)
    given["old_values"] = values.detach() + 0.2 * normal(300, device=device)
    if not clips:
        given["value_clip"] = None
    rows = torch.randperm(300, generator=torch.Generator().manual_seed(3))[:n].to(device)

    coefficients: dict[str, Any] = {"vf_coef": 0.7, "ent_coef": 0.02, "normalize": n != 1}
    names = "actions", "old_log_probs", "old_values", "advantages", "returns"
    chosen: list[Any] = [given[x][rows] for x in names]
    limits: list[Any] = [given["clip"], given["value_clip"]]
    loss, expected = losses.ppo_loss(
        output[rows],
        net.log_std,
        values[rows],
        *chosen,
        *limits,
        **coefficients,
    )
    parameters = list(net.parameters())
    parts = torch.autograd.grad(loss, parameters)

    out = torch.full((sum(x.numel() for x in parameters),), torch.nan, device=device)
    actor, critic = layers_of(net)
    kept = {k: given[k] for k in (*names, "clip", "value_clip")}
    found = small.gradient(
        rows,
        obs,
        **kept,
        actor=actor,
        critic=critic,
        log_std=net.log_std,
        out=out,
        activation=options.get("activation", "tanh"),
        **coefficients,
    )
    whole = torch.cat([part.reshape(-1) for part in parts])
    if device.type == "cuda":  # with products of 10 bits
        torch.testing.assert_close(found, expected, rtol=2e-2, atol=2e-2)
        assert (out - whole).norm() < 0.02 * whole.norm()
    else:
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(out, whole, rtol=1e-4, atol=1e-5)


def test_networks_that_no_kernel_holds_are_refused() -> None:
    net, column = policy("box", torch.device("cpu")), torch.zeros(3)
    actor, critic = layers_of(net)
    given: dict[str, Any] = {
        "old_log_probs": column,
        "old_values": column,
        "advantages": column,
        "returns": column,
        "clip": torch.tensor(0.2),
        "log_std": net.log_std,
        "out": torch.zeros(9),
    }
    obs, actions, rows = torch.zeros(3, 4), torch.zeros(3, 3), torch.arange(3)
    with pytest.raises(ValueError, match="critic must have 3 layers of at most 64 units, got"):
        small.gradient(rows, obs, actions, actor=actor, critic=actor[:4], **given)
    with pytest.raises(ValueError, match=r"out must have shape \(\d+,\), got \(9,\)"):
        small.gradient(rows, obs, actions, actor=actor, critic=critic, **given)
    with pytest.raises(ValueError, match=r"activation must be one of .* got 'silu'"):
        small.gradient(rows, obs, actions, actor=actor, critic=critic, activation="silu", **given)
