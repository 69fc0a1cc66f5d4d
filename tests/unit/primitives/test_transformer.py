from typing import Any

import numpy as np
import pytest
import torch

from sharpwave.primitives import backend
from sharpwave.primitives.transformer.tensors import (
    attend,
    gated,
    normed,
    normed_backward,
    rotated,
    sample,
    store,
)

TOLERANCES: dict[torch.dtype, Any] = {
    torch.float64: {"rtol": 1e-9, "atol": 1e-9},
    torch.float32: {"rtol": 1e-4, "atol": 1e-5},
    torch.bfloat16: {"rtol": 3e-2, "atol": 3e-2},
}
SLOTS = [
    (1, 1, 1, 1, 16),
    (5, 4, 2, 130, 16),
    (2, 14, 2, 200, 64),
    (5, 2, 2, 60, 16),
    (2, 4, 4, 9, 24),
]
"""Slots, heads, heads of keys, capacity and width: in parts and whole, with lengths of no block."""
dtypes = pytest.mark.parametrize("dtype", TOLERANCES, ids=str)


def numbers_of(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def leaf_of(exact: torch.Tensor, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    return exact.detach().to(device, dtype).requires_grad_()


def assert_close(found: torch.Tensor, wanted: torch.Tensor, dtype: torch.dtype) -> None:
    np.testing.assert_allclose(
        found.detach().double().cpu(), wanted.detach().cpu(), **TOLERANCES[dtype]
    )


@dtypes
@pytest.mark.parametrize("shape", [(3,), (7, 5), (3, 1024)])
def test_the_gated_layer_and_its_gradients(
    dtype: torch.dtype, shape: tuple[int, ...], device: torch.device
) -> None:
    exact = [numbers_of(*shape, seed=seed).to(dtype).double() for seed in (0, 1)]
    leaves = [leaf_of(x, dtype, device) for x in exact]
    for x in exact:
        x.requires_grad_()
    wanted = exact[0] / (1 + (-exact[0]).exp()) * exact[1]
    found = gated(leaves[0], leaves[1])
    assert found.dtype == dtype
    assert_close(found, wanted, dtype)
    gradient = numbers_of(*shape, seed=2)
    found.backward(gradient.to(device, dtype))
    wanted.backward(gradient)
    for leaf, correct in zip(leaves, exact, strict=True):
        assert leaf.grad is not None
        assert correct.grad is not None
        assert_close(leaf.grad, correct.grad, dtype)


@dtypes
@pytest.mark.parametrize("shape", [(1, 1), (7, 5), (700, 33)])
def test_the_norm_and_its_gradients(
    dtype: torch.dtype, shape: tuple[int, int], device: torch.device
) -> None:
    if backend.INTERPRETED and shape[0] > 10:
        shape = (40, 33)
    exact = [numbers_of(*size, seed=3).to(dtype).double() for size in (shape, shape[1:])]
    gradient, add = (numbers_of(*shape, seed=seed).to(dtype).double() for seed in (4, 5))
    x, weight = (one.to(device, dtype) for one in exact)
    found, scale = normed(x, weight, 1e-3)
    assert found.dtype == dtype
    for one in exact:
        one.requires_grad_()
    wanted = exact[0] / (exact[0].square().mean(1, keepdim=True) + 1e-3).sqrt() * exact[1]
    assert_close(found, wanted, dtype)
    wanted.backward(gradient)
    to_x, to_weight = normed_backward(
        gradient.to(device, dtype), x, weight, scale, add.to(device, dtype)
    )
    assert exact[0].grad is not None
    assert exact[1].grad is not None
    assert_close(to_x, exact[0].grad + add, dtype)
    size = exact[1].grad.abs().max() + 1
    assert_close(to_weight / size.to(device), exact[1].grad / size, dtype)


def angles(n_tokens: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    angle = numbers_of(n_tokens, width // 2, seed=9).repeat(1, 2)
    return angle.cos(), angle.sin()


def by_complex_numbers(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Heads turned in the plane of each pair of their halves."""
    half = x.shape[-1] // 2
    turn = torch.complex(cos[:, None, :half], sin[:, None, :half])
    turned = torch.complex(x[..., :half], x[..., half:]) * turn
    return torch.cat([turned.real, turned.imag], -1)


@dtypes
@pytest.mark.parametrize(("n_heads", "width"), [(1, 2), (3, 16), (4, 24), (14, 64)])
def test_positions_turn_heads_and_gradients_back(
    dtype: torch.dtype, n_heads: int, width: int, device: torch.device
) -> None:
    exact = numbers_of(5, n_heads, width, seed=0).to(dtype).double()
    leaf = leaf_of(exact, dtype, device)
    exact.requires_grad_()
    cos, sin = (x.to(dtype).double() for x in angles(5, width))
    found = rotated(leaf, cos.to(device, dtype), sin.to(device, dtype))
    wanted = by_complex_numbers(exact, cos, sin)
    assert_close(found, wanted, dtype)
    gradient = numbers_of(5, n_heads, width, seed=1)
    found.backward(gradient.to(device, dtype))
    wanted.backward(gradient)
    assert leaf.grad is not None
    assert exact.grad is not None
    assert_close(leaf.grad, exact.grad, dtype)


@dtypes
def test_a_step_is_written_where_it_belongs_and_nowhere_else(
    dtype: torch.dtype, device: torch.device
) -> None:
    q, k, v = (numbers_of(3, heads, 16, seed=heads).to(device, dtype) for heads in (4, 2, 2))
    v = v + 1
    cos, sin = (x.to(device, dtype) for x in angles(3, 16))
    keys, values = torch.zeros((2, 3, 2, 5, 16), dtype=dtype, device=device)
    write = torch.tensor([0, 4, 2], device=device)
    turned = store(q, k, v, cos, sin, write, keys, values)
    double = [x.double().cpu() for x in (q, k, cos, sin)]
    assert_close(turned, by_complex_numbers(double[0], *double[2:]), dtype)
    turned_keys = by_complex_numbers(double[1], *double[2:])
    for slot, place in enumerate(write.tolist()):
        assert_close(keys[slot, :, place], turned_keys[slot], dtype)
        assert torch.equal(values[slot, :, place], v[slot])
        keys[slot, :, place] = values[slot, :, place] = 0
    assert not keys.any()
    assert not values.any()


@dtypes
@pytest.mark.parametrize(("n_slots", "n_heads", "n_shared", "capacity", "width"), SLOTS)
def test_a_query_attends_to_the_keys_of_its_slot(
    dtype: torch.dtype,
    n_slots: int,
    n_heads: int,
    n_shared: int,
    capacity: int,
    width: int,
    device: torch.device,
) -> None:
    if backend.INTERPRETED and dtype == torch.bfloat16:
        pytest.skip("the interpreter multiplies the bits of bfloat16")
    exact = [
        numbers_of(*shape, seed=seed).to(dtype).double()
        for seed, shape in enumerate(
            [(n_slots, n_heads, width), *[(n_slots, n_shared, capacity, width)] * 2]
        )
    ]
    lengths = torch.arange(n_slots) * 37 % (capacity + 1)
    lengths[0] = capacity
    q, keys, values = (x.to(device, dtype) for x in exact)
    beyond = torch.arange(capacity)[None] >= lengths[:, None]
    keys[beyond[:, None].expand(-1, n_shared, -1).to(device)] = 99  # and yet without effect
    found = attend(q, keys, values, lengths.to(device), 0.3)
    shared = n_heads // n_shared
    for slot, length in enumerate(lengths.tolist()):
        for head in range(n_heads):
            if not length:
                assert not found[slot, head].any()
                continue
            key, value = (x[slot, head // shared, :length] for x in exact[1:])
            weights = (key @ exact[0][slot, head] * 0.3).softmax(0)
            assert_close(found[slot, head], weights @ value, dtype)


@dtypes
@pytest.mark.parametrize("n_vocab", [1, 5, 4096, 9001])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_tokens_are_drawn_by_inversion(
    dtype: torch.dtype, n_vocab: int, temperature: float, device: torch.device
) -> None:
    n_rows = 8
    exact = (numbers_of(n_rows, n_vocab, seed=0) * 3).to(dtype).double()
    exact[: n_rows // 2, 1:4] = -torch.inf  # never drawn
    numbers = torch.rand(n_rows, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    numbers[:2] = torch.tensor([0.0, np.nextafter(1.0, 0.0)])
    tokens, log_probs = sample(exact.to(device, dtype), numbers.to(device), temperature)
    probabilities = (exact / temperature).softmax(1)
    sums = probabilities.cumsum(1)
    found = tokens.cpu()[:, None]
    own = probabilities.gather(1, found)[:, 0]
    after = sums.gather(1, found)[:, 0]
    slack = 1e-12 if dtype == torch.float64 else 2e-5
    assert (own > 0).all()
    assert (numbers <= after + slack).all()
    assert (numbers >= after - own - slack).all()
    assert_close(log_probs, own.log(), dtype if dtype == torch.float64 else torch.float32)


@pytest.mark.long
def test_frequencies_are_those_of_the_distribution(device: torch.device) -> None:
    logits = torch.tensor([0.0, 1.0, -torch.inf, 2.0, -1.0])
    n_rows = 4000
    numbers = (torch.arange(n_rows, dtype=torch.float64) + 0.5) / n_rows
    tokens, _ = sample(logits.repeat(n_rows, 1).to(device), numbers.to(device), 0.5)
    shares = torch.bincount(tokens.cpu(), minlength=5) / n_rows
    np.testing.assert_allclose(shares, (logits / 0.5).softmax(0), atol=1.5 / n_rows)
