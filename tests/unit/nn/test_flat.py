from __future__ import annotations

import copy
import warnings

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from sharpwave.nn.flat import FlatParameters
from sharpwave.nn.optimizers import Adam, FlatOptimizer, RMSprop


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))


def gradients(module: nn.Module, seed: int = 0) -> None:
    x = torch.randn(7, 3, generator=torch.Generator().manual_seed(seed))
    module(x).square().sum().backward()


def test_values_survive_flattening_in_the_order_of_the_parameters() -> None:
    module = network()
    before = [parameter.detach().clone() for parameter in module.parameters()]
    flat = FlatParameters(module)
    assert torch.equal(flat.data, torch.cat([parameter.flatten() for parameter in before]))
    for parameter, old in zip(module.parameters(), before, strict=True):
        assert torch.equal(parameter, old)


def test_blocks_are_aligned_and_shared_with_numpy() -> None:
    flat = FlatParameters(network())
    assert flat.data.data_ptr() % 64 == 0
    assert flat.grad.data_ptr() % 64 == 0
    flat.block[:] = 2.0
    assert all(bool((parameter == 2.0).all()) for parameter in flat.module.parameters())


def test_backward_adds_into_the_flat_gradient() -> None:
    module = network()
    twin = copy.deepcopy(module)
    flat = FlatParameters(module)
    for _ in range(2):
        gradients(module)
        gradients(twin)
    expected = torch.cat([_grad(parameter).flatten() for parameter in twin.parameters()])
    assert torch.equal(flat.grad, expected)


def test_zero_grad_puts_back_views_that_the_module_dropped() -> None:
    flat = FlatParameters(network())
    flat.module.zero_grad(set_to_none=True)
    flat.zero_grad()
    gradients(flat.module)
    assert flat.grad.abs().sum() > 0
    flat.zero_grad()
    assert not flat.grad.any()


def test_load_state_dict_writes_into_the_block() -> None:
    source, flat = network(), FlatParameters(network())
    with torch.no_grad():
        source.get_parameter("0.bias").fill_(7.0)
    flat.module.load_state_dict(source.state_dict())
    expected = torch.cat([parameter.detach().flatten() for parameter in source.parameters()])
    assert torch.equal(flat.data, expected)
    state = {name: tensor.clone() for name, tensor in flat.module.state_dict().items()}
    source.load_state_dict(state)


@pytest.mark.long
def test_one_parameter_of_an_optimizer_of_torch_moves_the_module() -> None:
    module = network()
    twin = copy.deepcopy(module)
    flat = FlatParameters(module)
    one = torch.optim.SGD([flat.parameter], lr=0.1)
    many = torch.optim.SGD(twin.parameters(), lr=0.1)
    gradients(module)
    gradients(twin)
    one.step()
    many.step()
    for parameter, other in zip(module.parameters(), twin.parameters(), strict=True):
        assert torch.equal(parameter, other)


def test_a_tied_parameter_lies_there_once() -> None:
    module = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    module[1].weight = module[0].weight
    flat = FlatParameters(module)
    assert flat.data.numel() == 9 + 3 + 3
    assert module[1].weight is module[0].weight
    gradients(module)
    twin = copy.deepcopy(module)
    twin.zero_grad()
    gradients(twin)
    torch.testing.assert_close(flat.grad[:9].view(3, 3), _grad(twin.get_parameter("0.weight")))


def test_a_frozen_parameter_keeps_a_zero_gradient() -> None:
    module = network()
    module[0].weight.requires_grad_(False)
    flat = FlatParameters(module)
    gradients(module)
    assert not flat.grad[:15].any()
    assert flat.grad[15:].any()


def test_other_dtypes_are_refused_by_name() -> None:
    with pytest.raises(TypeError, match=r"parameter weight must be float32, got torch\.float64"):
        FlatParameters(nn.Linear(2, 2).double())


def test_parameters_that_are_not_initialized_are_refused() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        lazy = nn.LazyLinear(2)
    with pytest.raises(TypeError, match="parameter weight must be initialized"):
        FlatParameters(lazy)


def test_a_module_without_parameters_is_refused() -> None:
    with pytest.raises(ValueError, match="module must have parameters, got Tanh with none"):
        FlatParameters(nn.Tanh())


def test_parameters_that_overlap_are_refused() -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    module[1].weight = nn.Parameter(module.get_parameter("0.weight").data.view(2, 2))
    with pytest.raises(ValueError, match=r"0\.weight and 1\.weight must not overlap"):
        FlatParameters(module)


def test_a_module_can_be_flattened_again() -> None:
    module = network()
    old = FlatParameters(module)
    new = FlatParameters(module)
    gradients(module)
    assert torch.equal(new.data, old.data)
    assert new.grad.any()
    assert not old.grad.any()


@pytest.mark.parametrize("max_norm", [0.5, 1e6])
def test_clipping_equals_that_of_torch(max_norm: float) -> None:
    module = network()
    twin = copy.deepcopy(module)
    flat = FlatParameters(module)
    gradients(module)
    gradients(twin)
    expected = torch.nn.utils.clip_grad_norm_(twin.parameters(), max_norm)
    torch.testing.assert_close(flat.clip_grad_norm(max_norm), expected)
    grads = torch.cat([_grad(parameter).flatten() for parameter in twin.parameters()])
    torch.testing.assert_close(flat.grad, grads)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_gradients_that_are_not_finite_clip_as_those_of_torch(bad: float) -> None:
    flat = FlatParameters(network())
    flat.grad.fill_(1.0)[3] = bad
    expected = nn.Parameter(torch.zeros_like(flat.grad))
    expected.grad = flat.grad.clone()
    torch.nn.utils.clip_grad_norm_([expected], 0.5)
    flat.clip_grad_norm(0.5)
    torch.testing.assert_close(flat.grad, expected.grad, equal_nan=True)


def test_adam_equals_that_of_torch() -> None:
    module = network()
    twin = copy.deepcopy(module)
    flat = FlatParameters(module)
    ours = Adam(flat, 1e-2, eps=1e-5)
    theirs = torch.optim.Adam(twin.parameters(), lr=1e-2, eps=1e-5)
    for seed in range(5):
        _step(flat, ours, seed)
        theirs.zero_grad()
        gradients(twin, seed)
        theirs.step()
    expected = torch.cat([parameter.detach().flatten() for parameter in twin.parameters()])
    torch.testing.assert_close(flat.data, expected, rtol=1e-5, atol=1e-6)


def test_rmsprop_equals_that_of_torch() -> None:
    module = network()
    twin = copy.deepcopy(module)
    flat = FlatParameters(module)
    ours = RMSprop(flat, 7e-4, alpha=0.99, eps=1e-5)
    theirs = torch.optim.RMSprop(twin.parameters(), lr=7e-4, alpha=0.99, eps=1e-5)
    for seed in range(5):
        _step(flat, ours, seed)
        theirs.zero_grad()
        gradients(twin, seed)
        theirs.step()
    expected = torch.cat([parameter.detach().flatten() for parameter in twin.parameters()])
    torch.testing.assert_close(flat.data, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", [Adam, RMSprop])
def test_a_restored_optimizer_goes_on_bit_for_bit(kind: type[Adam | RMSprop]) -> None:
    whole, start = FlatParameters(network()), FlatParameters(network())
    one, two = kind(whole, 1e-2), kind(start, 1e-2)
    for seed in range(3):
        _step(whole, one, seed)
        _step(start, two, seed)
    two.set_lr(3e-3)
    saved = {name: tensor.clone() for name, tensor in two.arrays().items()}
    resumed = FlatParameters(network())
    resumed.data.copy_(start.data)
    three = kind(resumed, 1.0)
    three.load_arrays(saved)
    one.set_lr(3e-3)
    for seed in range(3, 6):
        _step(whole, one, seed)
        _step(resumed, three, seed)
    assert torch.equal(whole.data, resumed.data)
    for name, tensor in one.arrays().items():
        assert torch.equal(tensor, three.arrays()[name])


@pytest.mark.parametrize("wrong", [{}, {"lr": torch.zeros(())}, {"other": torch.zeros(3)}])
def test_a_state_with_other_names_is_refused(wrong: dict[str, Tensor]) -> None:
    with pytest.raises(ValueError, match="arrays must have the names"):
        Adam(FlatParameters(network()), 1e-2).load_arrays(wrong)


def test_a_state_of_another_network_is_refused_before_anything_changes() -> None:
    optimizer = Adam(FlatParameters(network()), 1e-2)
    other = Adam(FlatParameters(nn.Linear(2, 2)), 1e-1).arrays()
    with pytest.raises(ValueError, match=r"exp_avg must have shape \(32,\), got \(6,\)"):
        optimizer.load_arrays(other)
    assert optimizer.lr.item() == pytest.approx(1e-2)


class Halved(Adam):
    """A step of one's own."""

    def step(self, skip: Tensor | None = None) -> None:
        self._grad.mul_(0.5)
        super().step(skip)


@pytest.mark.parametrize("kind", [Adam, RMSprop, Halved])
def test_clipping_on_the_way_is_clipping_before(kind: type[Adam | RMSprop]) -> None:
    together, apart = FlatParameters(network()), FlatParameters(network())
    one, two = kind(together, 1e-2), kind(apart, 1e-2)
    for seed in range(3):
        for flat in (together, apart):
            flat.zero_grad()
            gradients(flat.module, seed)
        norm = one.clip_and_step(0.5)
        assert torch.equal(norm, apart.clip_grad_norm(0.5))
        two.step()
        assert torch.equal(together.grad, apart.grad)
    assert torch.equal(together.data, apart.data)


def test_a_skipped_step_of_adam_changes_nothing() -> None:
    flat = FlatParameters(network())
    optimizer = Adam(flat, 1e-2)
    _step(flat, optimizer, 0)
    before = [flat.data.clone(), *(tensor.clone() for tensor in optimizer.arrays().values())]
    flat.zero_grad()
    gradients(flat.module, 1)
    optimizer.step(skip=torch.ones(()))
    for old, new in zip(before, [flat.data, *optimizer.arrays().values()], strict=True):
        assert torch.equal(old, new)


def test_a_step_that_is_not_skipped_equals_a_plain_one() -> None:
    plain, asked = FlatParameters(network()), FlatParameters(network())
    one, two = Adam(plain, 1e-2), Adam(asked, 1e-2)
    for flat in (plain, asked):
        gradients(flat.module)
    one.step()
    two.step(skip=torch.zeros(()))
    assert torch.equal(plain.data, asked.data)
    assert torch.equal(one.arrays()["steps"], two.arrays()["steps"])


def test_the_block_of_numpy_outlives_the_flat_parameters() -> None:
    block = FlatParameters(network()).block
    assert np.isfinite(block).all()


def _step(flat: FlatParameters, optimizer: FlatOptimizer, seed: int) -> None:
    flat.zero_grad()
    gradients(flat.module, seed)
    optimizer.step()


def _grad(parameter: Tensor) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad
