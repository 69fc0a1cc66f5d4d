"""Steps of Adam and clipping of one block, beside torch in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from sharpwave.primitives import backend
from sharpwave.primitives.adam.tensors import Block, clip, clip_and_step, step

SIZES = [1, 13, 1024, 5000, 20_000 if backend.INTERPRETED else 700_000]
OPTIONS: dict[str, Any] = {"betas": (0.9, 0.999), "eps": 1e-5}


def normal(size: int, seed: int, device: torch.device) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(size, generator=generator).to(device)


def block_of(size: int, device: torch.device) -> Block:
    grad, first, second = (torch.zeros(size, device=device) for _ in range(3))
    steps, rate = torch.zeros((), device=device), torch.tensor(1e-2, device=device)
    return Block(normal(size, 0, device), grad, first, second, steps, rate)


class Oracle:
    """Adam and clipping of torch, in float64."""

    def __init__(self, start: Tensor, betas: tuple[float, float], eps: float) -> None:
        self.parameter = torch.nn.Parameter(start.double().cpu())
        self.adam = torch.optim.Adam([self.parameter], lr=1e-2, betas=betas, eps=eps)

    def step(self, grad: Tensor, max_norm: float | None) -> float:
        self.parameter.grad = grad.double().cpu()
        norm = torch.nn.utils.clip_grad_norm_([self.parameter], max_norm or float("inf"))
        self.adam.step()
        return float(norm)


@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.0, 0.5)], ids=str)
@pytest.mark.parametrize("max_norm", [None, 0.5, 1e6])
@pytest.mark.parametrize("size", SIZES)
def test_steps_are_those_of_torch(
    size: int, max_norm: float | None, betas: tuple[float, float], device: torch.device
) -> None:
    block = block_of(size, device)
    options: Any = {"betas": betas, "eps": 1e-5}
    oracle = Oracle(block.data, **options)
    for seed in range(1, 6):
        block.grad.copy_(normal(size, seed, device) * 10.0 ** (seed - 3))
        norm = oracle.step(block.grad, max_norm)
        if max_norm is None:
            step(block, **options)
        else:
            assert clip_and_step(block, max_norm, **options).item() == pytest.approx(norm, rel=1e-5)
        assert oracle.parameter.grad is not None
        close: Any = {"rtol": 1e-5, "atol": 1e-7}
        torch.testing.assert_close(block.grad.double().cpu(), oracle.parameter.grad, **close)
    found = block.data.double().cpu()
    torch.testing.assert_close(found, oracle.parameter.detach(), rtol=1e-5, atol=1e-6)
    assert block.steps.item() == 5


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("max_norm", [0.5, 1e6, float("inf")])
def test_a_clipped_gradient(size: int, max_norm: float, device: torch.device) -> None:
    grad = normal(size, 1, device)
    exact = grad.double().cpu()
    norm = clip(grad, max_norm)
    assert norm.shape == ()
    assert norm.item() == pytest.approx(exact.norm().item(), rel=1e-5)
    wanted = exact * min(1.0, max_norm / (exact.norm().item() + 1e-6))
    torch.testing.assert_close(grad.double().cpu(), wanted, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_gradients_that_are_not_finite_clip_as_those_of_torch(
    bad: float, device: torch.device
) -> None:
    block = block_of(3000, device)
    block.grad.fill_(1.0)[2000] = bad
    expected = torch.nn.Parameter(torch.zeros_like(block.grad))
    expected.grad = block.grad.clone()
    torch.nn.utils.clip_grad_norm_([expected], 0.5)
    copied = block.grad.clone()
    clip(copied, 0.5)
    torch.testing.assert_close(copied, expected.grad, equal_nan=True)
    clip_and_step(block, 0.5, **OPTIONS)
    torch.testing.assert_close(block.grad, expected.grad, equal_nan=True)
    assert block.data[2000].isnan()


def advance(block: Block, clips: bool, skip: Tensor | None) -> None:
    if clips:
        clip_and_step(block, 0.5, **OPTIONS, skip=skip)
    else:
        step(block, **OPTIONS, skip=skip)


@pytest.mark.parametrize("clips", [False, True])
def test_a_skipped_step_changes_nothing(clips: bool, device: torch.device) -> None:
    block, plain = block_of(5000, device), block_of(5000, device)
    for skipped in (0.0, 1.0, 0.0, 1.0):
        skip = torch.tensor(skipped, device=device)
        before = [one.clone() for one in block]
        for one in (block, plain):
            one.grad.copy_(normal(5000, 3, device))
        advance(block, clips, skip)
        if skipped:
            state = zip(block._asdict().items(), before, strict=True)
            assert all(torch.equal(one, old) for (name, one), old in state if name != "grad")
        else:
            advance(plain, clips, None)
        assert torch.equal(block.data, plain.data)
    assert block.steps.item() == 2


def test_many_steps_go_on_to_be_exact(device: torch.device) -> None:
    block = block_of(50, device)
    block.steps.fill_(100_000)
    oracle = Oracle(block.data, **OPTIONS)
    oracle.adam.state[oracle.parameter] = {
        "step": torch.tensor(100_000.0),
        "exp_avg": torch.zeros(50, dtype=torch.float64),
        "exp_avg_sq": torch.zeros(50, dtype=torch.float64),
    }
    for seed in range(3):
        block.grad.copy_(normal(50, seed, device))
        oracle.step(block.grad, None)
        step(block, **OPTIONS)
    found = block.data.double().cpu()
    torch.testing.assert_close(found, oracle.parameter.detach(), rtol=1e-5, atol=1e-6)
    assert block.steps.item() == 100_003
