"""PPO's loss as one operation beside the functions that define it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from sharpwave import losses
from sharpwave.nn.distributions import MASKED_LOGIT, Categorical, DiagonalGaussian
from sharpwave.primitives.ppo_loss import tensors as fused


def batch(n: int, size: int, *, gaussian: bool, seed: int = 0) -> dict[str, Any]:
    """A minibatch whose ratios lie on both sides of the clip range."""
    generator = torch.Generator("cpu").manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    output, log_std = normal(n, size), 0.3 * normal(size)
    if gaussian:
        actions = output + log_std.exp() * normal(n, size)
        now = DiagonalGaussian(size).log_prob((output, log_std), actions)
    else:
        actions = torch.randint(size, (n,), generator=generator)
        now = Categorical(size).log_prob(output, actions)
    values = normal(n)
    return {
        "output": output,
        "log_std": log_std if gaussian else None,
        "values": values,
        "actions": actions,
        "old_log_probs": now + 0.2 * normal(n),
        "old_values": values + 0.2 * normal(n),
        "advantages": 2 * normal(n) + 1,
        "returns": values + normal(n),
        "clip": torch.tensor(0.2),
        "value_clip": torch.tensor(0.15),
    }


def definition(
    output: Tensor,
    log_std: Tensor | None,
    values: Tensor,
    given: dict[str, Any],
    *,
    vf_coef: float = 0.5,
    ent_coef: float = 0.0,
    normalize: bool = True,
) -> tuple[Tensor, Tensor]:
    """As PPO's learner has it."""
    if log_std is None:
        found = Categorical(output.shape[1]).log_prob_and_entropy(output, given["actions"])
    else:
        gaussian = DiagonalGaussian(output.shape[1])
        found = gaussian.log_prob_and_entropy((output, log_std), given["actions"])
    log_probs, entropies = found
    advantages, clip = given["advantages"], given["clip"]
    if normalize:
        advantages = losses.normalize(advantages)
    log_ratio = log_probs - given["old_log_probs"]
    policy_loss = losses.clipped_surrogate(log_ratio, advantages, clip)
    if given["value_clip"] is None:
        value_loss = losses.value_loss(values, given["returns"])
    else:
        value_loss = losses.clipped_value_loss(
            values, given["old_values"], given["returns"], given["value_clip"]
        )
    entropy = entropies.mean()
    loss = policy_loss + vf_coef * value_loss - ent_coef * entropy
    kl, clipped = losses.approx_kl(log_ratio), losses.clip_fraction(log_ratio, clip)
    return loss, torch.stack((policy_loss, value_loss, entropy, kl, clipped, loss)).detach()


def compared(given: dict[str, Any], device: torch.device, **options: Any) -> None:
    given = {k: v.to(device) if isinstance(v, Tensor) else v for k, v in given.items()}
    names = [k for k in ("output", "log_std", "values") if given[k] is not None]
    results = []
    for is_fused in (True, False):
        inputs = {name: given[name].clone().requires_grad_() for name in names}
        if is_fused:
            loss, metrics = fused.ppo_loss(**{**given, **inputs}, **options)
        else:
            log_std = inputs.get("log_std")
            loss, metrics = definition(
                inputs["output"], log_std, inputs["values"], given, **options
            )
        # A loss that is part of another one.
        results.append([loss, metrics, *torch.autograd.grad(3.0 * loss, list(inputs.values()))])
    for found, expected in zip(*results, strict=True):
        assert not found.isnan().any()
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=2e-6)


SIZES = [(1, 2), (2, 1), (300, 2), (1500, 3), (257, 17), (100, 64)]


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("gaussian", [False, True], ids=["categorical", "gaussian"])
def test_loss_metrics_and_gradients(
    size: tuple[int, int], gaussian: bool, device: torch.device
) -> None:
    compared(batch(*size, gaussian=gaussian), device, vf_coef=0.7, ent_coef=0.03)


@pytest.mark.parametrize("gaussian", [False, True], ids=["categorical", "gaussian"])
@pytest.mark.parametrize("clips", [False, True])
@pytest.mark.parametrize("normalize", [False, True])
def test_every_option(gaussian: bool, clips: bool, normalize: bool, device: torch.device) -> None:
    given = batch(400, 5, gaussian=gaussian, seed=1)
    if not clips:
        given["value_clip"] = None
    compared(given, device, normalize=normalize)


def test_masked_actions_count_for_nothing(device: torch.device) -> None:
    given = batch(200, 4, gaussian=False)
    allowed = torch.rand(200, 4, generator=torch.Generator().manual_seed(0)) < 0.7
    allowed.scatter_(1, given["actions"][:, None], True)
    given["output"] = given["output"].masked_fill(~allowed, MASKED_LOGIT)
    compared(given, device, ent_coef=0.01)


def test_a_policy_that_did_not_move(device: torch.device) -> None:
    """Ratios are 1: the gradient is whole, and the divergence is 0 without rounding."""
    given = batch(300, 3, gaussian=True)
    given["old_log_probs"] = DiagonalGaussian(3).log_prob(
        (given["output"], given["log_std"]), given["actions"]
    )
    given["old_values"] = given["values"].clone()
    compared(given, device)
    found = {k: v.to(device) for k, v in given.items()}
    assert fused.ppo_loss(**found)[1][3] < 1e-12


@pytest.mark.parametrize("name", ["output", "values", "returns", "advantages", "old_log_probs"])
def test_what_is_not_a_number_shows(name: str, device: torch.device) -> None:
    given = batch(40, 3, gaussian=True)
    given[name].view(-1)[7] = torch.nan
    found = {k: v.to(device) for k, v in given.items()}
    found["output"].requires_grad_()
    loss, _ = fused.ppo_loss(**found)
    assert loss.isnan()
    if name not in ("values", "returns"):
        assert torch.autograd.grad(loss, found["output"])[0].isnan().any()


def test_rows_that_no_kernel_holds_are_refused() -> None:
    given = batch(3, 65, gaussian=True)
    with pytest.raises(ValueError, match="output must have at most 64 columns, got 65"):
        fused.ppo_loss(**given)
