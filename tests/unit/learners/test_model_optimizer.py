"""AdamW over a model's parameters: torch's own, with masters for short dtypes."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from sharpwave.learners.model_optimizer import ModelOptimizer


def model(dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 1)).to(dtype)


def backward(module: nn.Module, step: int, dtype: torch.dtype = torch.float32) -> None:
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(16, 4, generator=generator).to(dtype)
    module.zero_grad()
    (module(x) - x.sum(1, keepdim=True)).square().mean().backward()


def weights(module: nn.Module) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in module.parameters()]


def test_steps_are_those_of_torch_with_decay_by_name() -> None:
    ours, theirs = model(), model()
    optimizer = ModelOptimizer(ours, 1e-2, betas=(0.8, 0.99), weight_decay=0.3)
    decayed = [theirs[0].weight, theirs[2].weight]  # type: ignore[index]
    spared = [p for p in theirs.parameters() if p.ndim == 1]
    groups = [{"params": decayed, "weight_decay": 0.3}, {"params": spared, "weight_decay": 0.0}]
    adam = torch.optim.AdamW(groups, lr=1e-2, betas=(0.8, 0.99))
    for step in range(20):
        for one in (ours, theirs):
            backward(one, step)
        norm = optimizer.step(max_grad_norm=0.5)
        wanted = nn.utils.clip_grad_norm_(theirs.parameters(), 0.5)
        torch.testing.assert_close(norm, wanted)
        adam.step()
    for found, expected in zip(weights(ours), weights(theirs), strict=True):
        torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)


def test_small_steps_are_not_lost_in_short_dtypes() -> None:
    """A step of 1e-4 is less than half of what bfloat16 tells apart at 1."""
    module: nn.Linear = nn.Linear(2, 1, bias=False).to(torch.bfloat16)
    module.weight.data.fill_(1.0)
    optimizer = ModelOptimizer(module, 1e-4)
    for _ in range(100):
        module.zero_grad()
        module(torch.ones(1, 2, dtype=torch.bfloat16)).sum().backward()
        optimizer.step()
    master = optimizer.arrays()["master.weight"]
    torch.testing.assert_close(master, torch.full((1, 2), 0.99), atol=1e-4, rtol=0)
    assert (module.weight < 1).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_masters_are_those_of_float32_on_the_same_gradients(dtype: torch.dtype) -> None:
    """Weights are the rounded ones of torch's AdamW in float32, which gets what they got."""
    module, oracle = model(dtype), model(dtype).float()
    optimizer = ModelOptimizer(module, 1e-3, weight_decay=0.1)
    decays, spared = ([p for p in oracle.parameters() if (p.ndim > 1) == x] for x in (True, False))
    groups = [{"params": decays, "weight_decay": 0.1}, {"params": spared, "weight_decay": 0.0}]
    adam = torch.optim.AdamW(groups, lr=1e-3)
    for step in range(50):
        backward(module, step, dtype)
        for ours, theirs in zip(module.parameters(), oracle.parameters(), strict=True):
            assert ours.grad is not None
            theirs.grad = ours.grad.float()
        wanted = nn.utils.clip_grad_norm_(oracle.parameters(), 0.3)
        torch.testing.assert_close(optimizer.step(0.3), wanted, atol=1e-6, rtol=1e-5)
        adam.step()
    arrays = optimizer.arrays()
    for name, theirs in oracle.named_parameters():
        master = arrays[f"master.{name}"]
        torch.testing.assert_close(master, theirs.detach(), atol=1e-6, rtol=1e-5)
        assert torch.equal(module.get_parameter(name), master.to(dtype))
        assert (
            arrays[f"exp_avg.{name}"].dtype == arrays[f"exp_avg_sq.{name}"].dtype == torch.float32
        )


def test_dtypes_may_differ_in_one_model() -> None:
    module = model()
    module[0].to(torch.bfloat16)  # type: ignore[index]
    before = weights(module)
    optimizer = ModelOptimizer(module, 1e-2)
    x = module[0](torch.ones(3, 4, dtype=torch.bfloat16)).float()  # type: ignore[index]
    module[2](module[1](x)).square().mean().backward()  # type: ignore[index]
    optimizer.step(1.0)
    masters = {x for x in optimizer.arrays() if x.startswith("master.")}
    assert masters == {"master.0.weight", "master.0.bias"}
    assert not any(map(torch.equal, weights(module), before))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_loaded_state_goes_on_bit_for_bit(dtype: torch.dtype) -> None:
    module = model(dtype)
    optimizer = ModelOptimizer(module, 1e-2)
    for step in range(3):
        backward(module, step, dtype)
        optimizer.step()
    other = copy.deepcopy(module)
    taken_up = ModelOptimizer(other, 1.0)
    taken_up.load_arrays({name: array.clone() for name, array in optimizer.arrays().items()})
    for step in range(3, 6):
        for one, steps in ((module, optimizer), (other, taken_up)):
            backward(one, step, dtype)
            steps.step()
    assert all(map(torch.equal, weights(module), weights(other)))


def test_gradients_that_are_not_finite_move_nothing() -> None:
    module = model()
    optimizer = ModelOptimizer(module, 1e-2)
    backward(module, 0)
    optimizer.step(1.0)
    before, state = weights(module), {k: x.clone() for k, x in optimizer.arrays().items()}
    backward(module, 1)
    module[0].weight.grad[0, 0] = torch.nan  # type: ignore[index]
    assert not optimizer.step(1.0).isfinite()
    assert all(map(torch.equal, before, weights(module)))
    assert all(torch.equal(x, state[name]) for name, x in optimizer.arrays().items())


def test_what_does_not_learn_has_no_state() -> None:
    module = model()
    module[0].requires_grad_(False)  # type: ignore[index]
    optimizer = ModelOptimizer(module, 1e-2)
    assert not any(name.endswith(("0.weight", "0.bias")) for name in optimizer.arrays())
    frozen = module[0].weight.clone()  # type: ignore[index]
    backward(module, 0)
    optimizer.step()
    assert torch.equal(frozen, module[0].weight)  # type: ignore[index]
    with pytest.raises(ValueError, match="a parameter with requires_grad, got none"):
        ModelOptimizer(module.requires_grad_(False), 1e-2)


def test_another_state_is_refused() -> None:
    optimizer = ModelOptimizer(model(), 1e-2)
    with pytest.raises(ValueError, match="names of this optimizer"):
        optimizer.load_arrays({"lr": torch.tensor(1.0)})
    arrays = {**optimizer.arrays(), "exp_avg.0.bias": torch.zeros(3)}
    with pytest.raises(ValueError, match=r"exp_avg.0.bias must have shape \(8,\), got \(3,\)"):
        optimizer.load_arrays(arrays)


def test_the_learning_rate_follows() -> None:
    module = model()
    optimizer = ModelOptimizer(module, 1.0)
    optimizer.set_lr(0.0)
    before = weights(module)
    backward(module, 0)
    optimizer.step()
    assert all(map(torch.equal, before, weights(module)))
    assert float(optimizer.lr) == 0.0
