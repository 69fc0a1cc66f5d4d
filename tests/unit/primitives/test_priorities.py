import numpy as np
import pytest
import torch

from sharpwave.primitives.priorities.tensors import PrioritySums

capacities = pytest.mark.parametrize("capacity", [1, 5, 1000, 40_000])


def filled(capacity: int, device: torch.device) -> tuple[PrioritySums, torch.Tensor]:
    """Priorities after several updates with repeated rows, and what they should be."""
    sums = PrioritySums(capacity, device)
    wanted = torch.zeros(capacity)
    for _ in range(3):
        index = torch.randint(0, capacity, (200,))
        priority = torch.rand(200) - 0.1
        sums.set(index.to(device), priority.to(device))
        for at, value in zip(index.tolist(), priority.clamp(min=0).tolist(), strict=True):
            wanted[at] = value
    if not wanted.any():
        sums.set(torch.zeros(1, dtype=torch.int64, device=device), torch.ones(1, device=device))
        wanted[0] = 1
    return sums, wanted


@capacities
def test_the_last_of_several_priorities_of_a_row_counts(
    capacity: int, device: torch.device
) -> None:
    sums, wanted = filled(capacity, device)
    assert torch.equal(sums.priorities.cpu(), wanted)
    np.testing.assert_allclose(float(sums.total), float(wanted.sum()), rtol=1e-5)
    assert float(sums.minimum) == float(wanted[wanted > 0].min())
    assert float(sums.maximum) == float(wanted.max())


@capacities
@pytest.mark.parametrize("stratified", [False, True])
def test_samples_lie_where_the_prefix_sums_say(
    capacity: int, stratified: bool, device: torch.device
) -> None:
    sums, wanted = filled(capacity, device)
    uniforms = torch.rand(300, dtype=torch.float64)
    index, probability = sums.sample(300, uniforms=uniforms.to(device), stratified=stratified)
    shares = (torch.arange(300) + uniforms) / 300 if stratified else uniforms
    prefixes = wanted.double().cumsum(0)
    expected = torch.searchsorted(prefixes, shares * prefixes[-1], right=True)
    assert ((index.cpu() - expected) != 0).sum() <= 3  # rounding, at the border of two rows
    chosen = wanted[index.cpu()]
    assert (chosen > 0).all()
    np.testing.assert_allclose(probability.cpu(), chosen / wanted.sum(), rtol=1e-4)


def test_weights_are_one_for_the_rarest_row(device: torch.device) -> None:
    sums, wanted = filled(1000, device)
    index, probability = sums.sample(100)
    expected = (wanted[wanted > 0].min() / wanted[index.cpu()]) ** 0.5
    for beta in (0.5, torch.tensor(0.5, device=device)):
        found = sums.weights(probability, beta)
        np.testing.assert_allclose(found.cpu(), expected, rtol=1e-4)


def test_rows_without_priority_are_never_drawn(device: torch.device) -> None:
    sums = PrioritySums(500, device)
    index = torch.tensor([7, 300], device=device)
    sums.set(index, torch.tensor([1e-3, 1e3], device=device))
    ends = torch.tensor([0.0, 1 - 1e-16, 1.0], dtype=torch.float64, device=device)
    found, _ = sums.sample(3, uniforms=ends, stratified=False)
    assert found.tolist() == [7, 300, 300]


def test_strange_priorities_harm_nothing(device: torch.device) -> None:
    sums = PrioritySums(10, device)
    strange = torch.tensor([torch.nan, -1.0, torch.inf, 2.0], device=device)
    sums.set(torch.arange(4, device=device), strange)
    np.testing.assert_allclose(sums.priorities[:4].cpu(), [0, 0, 1e30, 2], rtol=1e-6)
    assert torch.isfinite(sums.total)


@capacities
def test_errors_become_priorities(capacity: int, device: torch.device) -> None:
    sums, wanted = filled(capacity, device)
    index = torch.randint(0, capacity, (300,))
    errors = torch.randn(300).abs().pow(8) * torch.randn(300).sign()
    errors[7], errors[9] = torch.nan, -torch.inf
    highest = float(sums.highest)
    given = (errors.abs() + 1e-6) ** 0.6
    given[7] = given[9] = highest
    for at, value in zip(index.tolist(), given.tolist(), strict=True):
        wanted[at] = value
    sums.set_errors(index.to(device), errors.to(device), 0.6, 1e-6)
    np.testing.assert_allclose(sums.priorities.cpu(), wanted, rtol=1e-5)
    np.testing.assert_allclose(float(sums.total), float(wanted.sum()), rtol=1e-5)
    assert float(sums.highest) == pytest.approx(max(highest, float(given.max())), rel=1e-5)


def test_the_highest_priority_is_never_forgotten(device: torch.device) -> None:
    sums = PrioritySums(100, device)
    assert float(sums.highest) == 1.0
    row = torch.zeros(2, dtype=torch.int64, device=device)
    sums.set(row, torch.tensor([5.0, 2.0], device=device))  # also one that did not stay
    assert float(sums.highest) == 5.0
    sums.set(row, torch.tensor([3.0, 0.5], device=device))
    assert float(sums.highest) == 5.0
    sums.set(row[:0], torch.zeros(0, device=device))
    assert float(sums.highest) == 5.0


@capacities
def test_new_rows_get_the_highest_priority(capacity: int, device: torch.device) -> None:
    sums, wanted = filled(capacity, device)
    highest = float(sums.highest)
    sums.fill(0, 0)
    for begin, end in ((0, 1), (capacity // 2, capacity), (capacity // 3, capacity // 3 + 1)):
        sums.fill(begin, end)
        wanted[begin:end] = highest
    assert torch.equal(sums.priorities.cpu(), wanted)
    np.testing.assert_allclose(float(sums.total), float(wanted.sum()), rtol=1e-5)
    assert float(sums.minimum) == float(wanted[wanted > 0].min())
    assert float(sums.maximum) == float(wanted.max())
    sums.set(torch.tensor([0], device=device), torch.tensor([0.25], device=device))
    assert float(sums.priorities[0]) == 0.25
    with pytest.raises(ValueError, match=f"must be rows of {capacity}, got 0 and {capacity + 1}"):
        sums.fill(0, capacity + 1)


@pytest.mark.parametrize("count", [1, 100, 1300])
def test_weights_of_a_batch_are_one_for_its_rarest_row(count: int, device: torch.device) -> None:
    sums, _ = filled(1000, device)
    _, probability = sums.sample(count)
    expected = (probability.min() / probability) ** 0.4
    found = sums.weights(probability, 0.4, of_batch=True)
    np.testing.assert_allclose(found.cpu(), expected.cpu(), rtol=1e-5)


def test_nothing_to_draw_gives_zeros(device: torch.device) -> None:
    index, probability = PrioritySums(10, device).sample(4)
    assert index.tolist() == [0] * 4
    assert probability.tolist() == [0] * 4


def test_a_state_goes_on_elsewhere(device: torch.device) -> None:
    sums, wanted = filled(1000, device)
    other = PrioritySums(1000, device)
    other.load_state_dict(sums.state_dict())
    assert torch.equal(other.priorities.cpu(), wanted)
    assert float(other.total) == pytest.approx(float(sums.total))
    assert float(other.highest) == float(sums.highest)
    with pytest.raises(ValueError, match="priorities must have shape"):
        PrioritySums(3, device).load_state_dict(sums.state_dict())


def test_arguments_that_do_not_fit_raise(device: torch.device) -> None:
    sums, zeros = PrioritySums(10, device), torch.zeros(3, device=device)
    with pytest.raises(ValueError, match="index must be int64"):
        sums.set(zeros, zeros)
    with pytest.raises(ValueError, match=r"priority must have shape \(3,\)"):
        sums.set(zeros.long(), zeros[:2])
    with pytest.raises(ValueError, match="uniforms must be floating-point"):
        sums.sample(4, uniforms=zeros)
    with pytest.raises(ValueError, match="capacity must be at least 1"):
        PrioritySums(0)
