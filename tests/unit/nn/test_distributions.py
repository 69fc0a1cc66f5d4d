"""Distributions agree with torch's, in values, gradients and frequencies."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributions as td
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from sharpwave.nn import (
    Bernoulli,
    Categorical,
    DiagonalGaussian,
    Distribution,
    MultiCategorical,
    SquashedGaussian,
    make_distribution,
)
from sharpwave.nn.distributions import MASKED_LOGIT

B = 6


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def categoricals(logits: Tensor, nvec: list[int]) -> list[td.Categorical]:
    return [td.Categorical(logits=part) for part in logits.split(nvec, -1)]


def discrete_oracle(logits: Tensor, nvec: list[int], actions: Tensor) -> tuple[Tensor, Tensor]:
    parts = categoricals(logits, nvec)
    log_prob = torch.stack([p.log_prob(a) for p, a in zip(parts, actions.unbind(-1), strict=True)])
    return log_prob.sum(0), torch.stack([p.entropy() for p in parts]).sum(0)


def same_with_gradients(
    ours: Callable[..., tuple[Tensor, ...]],
    theirs: Callable[..., tuple[Tensor, ...]],
    params: list[Tensor],
) -> None:
    """Results and the gradients of random sums of them are equal."""
    leaves = [[p.clone().requires_grad_() for p in params] for _ in range(2)]
    results = [f(*ls) for f, ls in zip((ours, theirs), leaves, strict=True)]
    for index, (mine, their) in enumerate(zip(*results, strict=True)):
        torch.testing.assert_close(mine, their, rtol=1e-5, atol=1e-5)
        weights = normal(*mine.shape, seed=index)
        gradients = [
            torch.autograd.grad(
                (r * weights).sum(),
                ls,
                retain_graph=True,
                allow_unused=True,
                materialize_grads=True,
            )
            for r, ls in zip((mine, their), leaves, strict=True)
        ]
        torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("scale", [0.1, 1.0, 30.0])
def test_categorical_agrees_with_torch(scale: float) -> None:
    ours = Categorical(4)
    actions = torch.tensor([0, 1, 2, 3, 0, 1])

    def theirs(logits: Tensor) -> tuple[Tensor, Tensor]:
        d = td.Categorical(logits=logits)
        return d.log_prob(actions), d.entropy()

    logits = scale * normal(B, 4)
    same_with_gradients(lambda x: ours.log_prob_and_entropy(x, actions), theirs, [logits])
    same_with_gradients(lambda x: (ours.log_prob(x, actions), ours.entropy(x)), theirs, [logits])
    torch.testing.assert_close(ours.mode(logits), td.Categorical(logits=logits).mode)


@pytest.mark.parametrize("nvec", [[3, 3], [2, 5, 1, 3], [4]])
def test_multi_categorical_agrees_with_torch(nvec: list[int]) -> None:
    ours = MultiCategorical(nvec)
    actions = torch.stack([torch.arange(B) % n for n in nvec], -1)
    logits = normal(B, sum(nvec))
    for mine in (
        lambda x: ours.log_prob_and_entropy(x, actions),
        lambda x: (ours.log_prob(x, actions), ours.entropy(x)),
    ):
        same_with_gradients(mine, lambda x: discrete_oracle(x, nvec, actions), [logits])
    modes = torch.stack([c.mode for c in categoricals(logits, nvec)], -1)
    torch.testing.assert_close(ours.mode(logits), modes)


@pytest.mark.parametrize("scale", [1.0, 40.0])
def test_bernoulli_agrees_with_torch(scale: float) -> None:
    ours = Bernoulli(3)
    actions = (normal(B, 3, seed=1) > 0).long()

    def theirs(logits: Tensor) -> tuple[Tensor, Tensor]:
        d = td.Independent(td.Bernoulli(logits=logits), 1)
        return d.log_prob(actions.float()), d.entropy()

    logits = scale * normal(B, 3)
    same_with_gradients(lambda x: ours.log_prob_and_entropy(x, actions), theirs, [logits])
    torch.testing.assert_close(ours.mode(logits), (logits > 0).long())


@pytest.mark.parametrize("shape", [(3,), (B, 3)])
def test_gaussian_agrees_with_torch(shape: tuple[int, ...]) -> None:
    ours = DiagonalGaussian(3)
    actions = normal(B, 3, seed=2)

    def theirs(mean: Tensor, log_std: Tensor) -> tuple[Tensor, Tensor]:
        d = td.Independent(td.Normal(mean, log_std.exp().expand_as(mean)), 1)
        return d.log_prob(actions), d.entropy()

    params = [normal(B, 3), 0.5 * normal(*shape, seed=1)]
    same_with_gradients(lambda m, s: ours.log_prob_and_entropy((m, s), actions), theirs, params)
    torch.testing.assert_close(ours.mode((params[0], params[1])), params[0])


def test_squashed_log_prob_agrees_with_torch() -> None:
    ours = SquashedGaussian(2)
    raw = normal(B, 2, seed=2)

    def theirs(mean: Tensor, log_std: Tensor) -> tuple[Tensor]:
        base = td.Normal(mean, log_std.exp().expand_as(mean))
        squashed = td.TransformedDistribution(base, [td.TanhTransform(cache_size=1)])
        return (squashed.log_prob(torch.tanh(raw)).sum(-1),)

    params = [normal(B, 2), 0.5 * normal(2, seed=1)]
    same_with_gradients(lambda m, s: (ours.log_prob((m, s), raw),), theirs, params)


def test_squashed_log_prob_is_finite_where_tanh_is_one() -> None:
    raw = torch.tensor([[50.0], [-50.0]])
    log_prob = SquashedGaussian(1).log_prob((raw, torch.zeros(1)), raw)
    slope = 2 * (np.log(2) - 50)
    torch.testing.assert_close(log_prob, torch.full((2,), -0.9189385 - float(slope)))


@pytest.mark.parametrize(("std", "tolerance"), [(0.1, 1e-5), (1.0, 1e-4), (2.0, 1e-3), (4.0, 0.05)])
def test_squashed_entropy_is_that_of_its_density(std: float, tolerance: float) -> None:
    means = torch.tensor([[0.0], [0.7], [-3.0]], dtype=torch.float64)
    u = means + std * torch.linspace(-10, 10, 200_001, dtype=torch.float64)
    density = td.Normal(means, std).log_prob(u)
    log_prob = density - 2 * (np.log(2) - u - torch.nn.functional.softplus(-2 * u))
    expected = torch.trapezoid(-density.exp() * log_prob, u, dim=-1)
    log_std = torch.full((1,), float(np.log(std)))
    entropy = SquashedGaussian(1).entropy((means.float(), log_std))
    torch.testing.assert_close(entropy.double(), expected, atol=tolerance, rtol=0)


def test_squashed_entropy_sums_over_dimensions_and_falls_by_its_gradient() -> None:
    distribution = SquashedGaussian(2)
    mean, log_std = normal(B, 2), normal(2, seed=1)
    one = SquashedGaussian(1)
    parts = [one.entropy((mean[:, i : i + 1], log_std[i : i + 1])) for i in range(2)]
    torch.testing.assert_close(distribution.entropy((mean, log_std)), parts[0] + parts[1])
    mean.requires_grad_()
    (gradient,) = torch.autograd.grad(distribution.entropy((mean, log_std)).sum(), mean)
    assert ((gradient < 0) == (mean > 0)).all()


def frequencies_agree(counts: np.ndarray[Any, Any], probabilities: np.ndarray[Any, Any]) -> bool:
    """Chi-square, with a threshold of about 5 standard deviations."""
    expected = counts.sum() * probabilities
    degrees = len(counts) - 1
    statistic = float(((counts - expected) ** 2 / expected).sum())
    return statistic < degrees + 5 * math.sqrt(2 * degrees) + 10


@pytest.mark.parametrize("draw", ["sample", "sample_and_log_prob"])
def test_categorical_frequencies(draw: str) -> None:
    logits = torch.tensor([2.0, -1.0, 0.0, 0.5, -4.0])
    generator = torch.Generator().manual_seed(3)
    rows = logits.expand(200_000, 5)
    drawn = getattr(Categorical(5), draw)(rows, generator)
    actions = drawn if draw == "sample" else drawn[0]
    assert actions.dtype == torch.int64
    counts = np.bincount(actions.numpy(), minlength=5)
    assert frequencies_agree(counts, logits.softmax(0).double().numpy())


@pytest.mark.parametrize("draw", ["sample", "sample_and_log_prob"])
def test_multi_categorical_frequencies_are_those_of_the_product(draw: str) -> None:
    nvec = [2, 4, 3]
    logits = normal(9)
    generator = torch.Generator().manual_seed(4)
    drawn = getattr(MultiCategorical(nvec), draw)(logits.expand(200_000, 9), generator)
    actions = (drawn if draw == "sample" else drawn[0]).numpy()
    cells = np.ravel_multi_index(tuple(actions.T), tuple(nvec))
    a, b, c = (part.softmax(0).double().numpy() for part in logits.split(nvec))
    product = np.einsum("i,j,k->ijk", a, b, c).reshape(-1)
    assert frequencies_agree(np.bincount(cells, minlength=24), product / product.sum())


def test_bernoulli_frequencies() -> None:
    logits = torch.tensor([0.0, 2.0, -3.0])
    actions = Bernoulli(3).sample(logits.expand(100_000, 3), torch.Generator().manual_seed(5))
    for bit, p in zip(actions.numpy().T, logits.sigmoid().double().tolist(), strict=True):
        assert frequencies_agree(np.bincount(bit, minlength=2), np.array([1 - p, p]))


@pytest.mark.parametrize("kind", [DiagonalGaussian, SquashedGaussian])
def test_gaussian_samples_have_their_moments(kind: type[DiagonalGaussian]) -> None:
    mean, log_std = torch.tensor([1.0, -2.0]), torch.tensor([0.0, -1.0])
    samples = kind(2).sample((mean.expand(100_000, 2), log_std), torch.Generator().manual_seed(6))
    torch.testing.assert_close(samples.mean(0), mean, atol=0.02, rtol=0)
    torch.testing.assert_close(samples.std(0), log_std.exp(), atol=0.01, rtol=0)


def test_gaussian_samples_carry_gradients() -> None:
    mean, log_std = torch.zeros(B, 2, requires_grad=True), torch.zeros(2, requires_grad=True)
    DiagonalGaussian(2).sample((mean, log_std)).sum().backward()
    assert mean.grad is not None
    assert log_std.grad is not None
    assert log_std.grad.any()


ALL: list[tuple[Distribution[Any], Any]] = [
    (Categorical(4), normal(B, 4)),
    (MultiCategorical([2, 3]), normal(B, 5)),
    (Bernoulli(3), normal(B, 3)),
    (DiagonalGaussian(2), (normal(B, 2), normal(2, seed=1))),
    (SquashedGaussian(2), (normal(B, 2), normal(2, seed=1))),
]
each = pytest.mark.parametrize(("distribution", "params"), ALL, ids=lambda v: type(v).__name__)


@each
def test_samples_come_from_the_given_generator_alone(
    distribution: Distribution[Any], params: Any
) -> None:
    torch.manual_seed(0)
    expected = torch.rand(2)
    torch.manual_seed(0)
    first = distribution.sample(params, torch.Generator().manual_seed(1))
    second = distribution.sample(params, torch.Generator().manual_seed(1))
    both, log_probs = distribution.sample_and_log_prob(params, torch.Generator().manual_seed(1))
    torch.testing.assert_close(torch.rand(2), expected, rtol=0, atol=0)
    for other in (second, both):
        torch.testing.assert_close(first, other, rtol=0, atol=0)
    torch.testing.assert_close(log_probs, distribution.log_prob(params, first))
    assert first.dtype == distribution.action_dtype
    assert first.shape == (B, *distribution.action_shape)


@each
def test_leading_axes_are_free(distribution: Distribution[Any], params: Any) -> None:
    def folded(x: Tensor) -> Tensor:
        return x.reshape(2, 3, -1) if x.ndim > 1 else x

    deep = tuple(map(folded, params)) if isinstance(params, tuple) else folded(params)
    actions = distribution.sample(params, torch.Generator().manual_seed(1))
    folded_actions = actions.reshape(2, 3, *distribution.action_shape)
    for mine, their in zip(
        distribution.log_prob_and_entropy(deep, folded_actions),
        distribution.log_prob_and_entropy(params, actions),
        strict=True,
    ):
        torch.testing.assert_close(mine.reshape(-1), their)
    assert distribution.mode(deep).shape == folded_actions.shape


@given(st.integers(0, 2**31), st.integers(2, 7), st.floats(0.0, 50.0))
def test_masked_actions_are_never_taken_and_the_rest_is_renormalized(
    seed: int, n: int, scale: float
) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(64, n, generator=generator)
    masks = torch.rand(64, n, generator=generator) < 0.4
    masks[torch.arange(64), torch.randint(n, (64,), generator=generator)] = True
    distribution = Categorical(n)
    masked = distribution.mask(logits, masks)
    for actions in (distribution.sample(masked, generator), distribution.mode(masked)):
        assert masks[torch.arange(64), actions].all()
    expected = td.Categorical(logits=logits.masked_fill(~masks, -torch.inf))
    torch.testing.assert_close(distribution.log_prob(masked, actions), expected.log_prob(actions))
    probabilities = expected.probs
    entropy = -torch.special.xlogy(probabilities, probabilities).sum(-1)
    torch.testing.assert_close(distribution.entropy(masked), entropy, atol=1e-5, rtol=1e-4)


@pytest.mark.long
def test_a_single_allowed_action_is_certain_in_a_million_draws() -> None:
    masks = torch.zeros(1_000_000, 3, dtype=torch.bool)
    masks[:, 1] = True
    distribution = Categorical(3)
    masked = distribution.mask(torch.zeros(1_000_000, 3), masks)
    actions, log_probs = distribution.sample_and_log_prob(masked, torch.Generator().manual_seed(0))
    assert (actions == 1).all()
    assert not log_probs.any()


@pytest.mark.parametrize("extreme", [1.1754944e-38, 1 - 2**-24])
def test_the_ends_of_the_uniform_numbers_do_not_reach_masked_actions(
    extreme: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tensor, "uniform_", lambda self, *_, **__: self.fill_(extreme))
    distribution = Categorical(3)
    masked = distribution.mask(torch.zeros(1, 3), torch.tensor([[False, False, True]]))
    assert distribution.sample(masked).tolist() == [2]


@pytest.mark.parametrize(
    "distribution", [Categorical(4), MultiCategorical([2, 2]), MultiCategorical([1, 3])]
)
def test_gradients_through_masks_are_finite(distribution: Categorical) -> None:
    logits = normal(B, 4).requires_grad_()
    masks = torch.tensor([True, False, True, False]).expand(B, 4)
    masked = distribution.mask(logits, masks)
    actions = distribution.mode(masked)
    log_probs, entropy = distribution.log_prob_and_entropy(masked, actions)
    assert log_probs.isfinite().all()
    assert entropy.isfinite().all()
    (gradient,) = torch.autograd.grad((log_probs + entropy).sum(), logits)
    assert gradient.isfinite().all()
    assert not gradient[:, [1, 3]].any()


def test_each_choice_of_several_has_its_own_mask() -> None:
    distribution = MultiCategorical([2, 3])
    masks = torch.tensor([[True, False, False, True, True]]).expand(1000, 5)
    masked = distribution.mask(normal(1000, 5), masks)
    actions = distribution.sample(masked, torch.Generator().manual_seed(0))
    assert (actions[:, 0] == 0).all()
    assert set(actions[:, 1].tolist()) == {1, 2}


def test_choices_stay_in_range_where_everything_is_forbidden() -> None:
    distribution = MultiCategorical([1, 3, 2])
    logits = torch.full((1000, 6), MASKED_LOGIT)
    actions = distribution.sample(logits, torch.Generator().manual_seed(0))
    assert (actions < torch.tensor([1, 3, 2])).all()
    assert (distribution.mode(logits) == 0).all()
    assert distribution.entropy(logits).isfinite().all()


def test_forbidden_bits_stay_zero() -> None:
    distribution = Bernoulli(2)
    masks = torch.tensor([[True, False]]).expand(1000, 2)
    masked = distribution.mask(torch.full((1000, 2), 5.0), masks)
    actions = distribution.sample(masked, torch.Generator().manual_seed(0))
    assert actions[:, 0].any()
    assert not actions[:, 1].any()
    assert distribution.log_prob(masked, actions).isfinite().all()
    torch.testing.assert_close(distribution.entropy(masked), Bernoulli(1).entropy(masked[:, :1]))


def test_masks_that_allow_nothing_are_refused() -> None:
    masks = torch.tensor([[True, True, True], [False, False, False]])
    with pytest.raises(ValueError, match=r"masks must allow at least one action.* at \[1\]"):
        Categorical(3).mask(torch.zeros(2, 3), masks)
    masks = torch.tensor([[True, True, False]])
    with pytest.raises(ValueError, match=r"masks must allow at least one action.* at \[0, 1\]"):
        MultiCategorical([2, 1]).mask(torch.zeros(1, 3), masks)


@pytest.mark.parametrize("masks", [torch.ones(2, 4, dtype=torch.bool), torch.ones(2, 3)])
def test_masks_of_another_shape_or_type_are_refused(masks: Tensor) -> None:
    with pytest.raises(ValueError, match=r"masks must be bool of shape \(2, 3\), got torch"):
        Categorical(3).mask(torch.zeros(2, 3), masks)


def test_spaces_get_their_distribution() -> None:
    assert isinstance(make_distribution(spaces.Discrete(3, start=5)), Categorical)
    multi = make_distribution(spaces.MultiDiscrete(np.array([[2, 3], [4, 5]])))
    assert isinstance(multi, MultiCategorical)
    assert (multi.n_params, multi.action_shape) == (14, (4,))
    bits = make_distribution(spaces.MultiBinary([2, 3]))
    assert isinstance(bits, Bernoulli)
    assert bits.n_params == 6
    box = spaces.Box(-1, 1, (2, 3))
    assert type(make_distribution(box)) is DiagonalGaussian
    assert type(make_distribution(box, squash=True)) is SquashedGaussian
    assert make_distribution(box).action_shape == (6,)


def test_spaces_without_distribution_are_refused() -> None:
    with pytest.raises(TypeError, match=r"action_space must be Discrete, .* got Text"):
        make_distribution(spaces.Text(3))
    with pytest.raises(ValueError, match=r"squash needs a Box action space, got Discrete\(3\)"):
        make_distribution(spaces.Discrete(3), squash=True)
