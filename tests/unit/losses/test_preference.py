"""Properties of every kind of loss of preferences."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from sharpwave.losses import (
    PREFERENCE_KINDS,
    Pair,
    Sequences,
    completion_log_probs,
    kto_loss,
    preference_loss,
    sft_loss,
    wpo_weights,
)
from tests.reference import preference as reference

KINDS = sorted(PREFERENCE_KINDS)
SEEDS = st.integers(0, 10_000)
LENGTHS = st.lists(st.integers(0, 6), min_size=1, max_size=5)


class Preferences:
    """Pairs of completions, drawn from a seed."""

    def __init__(self, count: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> None:
        generator = torch.Generator().manual_seed(seed)
        draw = torch.randn(2, 2 * count, generator=generator, dtype=torch.float64)
        self.lengths = Pair.of(torch.randint(1, 9, (2 * count,), generator=generator))
        self.policy = Pair.of((-3 * draw[0].abs() - 0.1).to(dtype))
        self.ref = Pair.of((-3 * draw[0].abs() - 0.1 + 0.5 * draw[1]).to(dtype))

    def loss(self, **options: Any) -> tuple[Tensor, Tensor]:
        """The loss and its gradient by log-probability [2, N]."""
        policy = Pair(*(x.detach().clone().requires_grad_() for x in self.policy))
        options = {"label_smoothing": 0.1, **options}
        loss, _ = preference_loss(policy, self.ref, self.lengths, **options)
        loss.backward()
        zeros = torch.zeros_like(policy.chosen)
        by_side = [zeros if x.grad is None else x.grad for x in policy]
        return loss.detach(), torch.stack(by_side)

    def part(self, first: int, last: int) -> Preferences:
        """Pairs from the first to before the last."""
        part = Preferences(0)
        for name in ("policy", "ref", "lengths"):
            setattr(part, name, Pair(*(x[first:last] for x in getattr(self, name))))
        return part


@given(st.integers(1, 5), SEEDS, st.sampled_from(KINDS), st.sampled_from([0.05, 0.1, 1.0]))
def test_the_loss_is_that_of_a_loop_over_pairs(
    count: int, seed: int, kind: str, beta: float
) -> None:
    pairs = Preferences(count, seed)
    found, _ = pairs.loss(kind=kind, beta=beta, label_smoothing=0.2)
    chosen, rejected, ref_chosen, ref_rejected, n_chosen, n_rejected = (
        x.tolist() for pair in (pairs.policy, pairs.ref, pairs.lengths) for x in pair
    )
    expected = reference.KINDS[kind](
        reference.Pairs(
            chosen, rejected, ref_chosen, ref_rejected, n_chosen, n_rejected, beta, epsilon=0.2
        )
    )
    assert found.item() == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_the_slopes_of_the_loss(kind: str) -> None:
    pairs = Preferences(3)

    def loss(chosen: Tensor, rejected: Tensor) -> Tensor:
        return preference_loss(
            Pair(chosen, rejected), pairs.ref, pairs.lengths, kind=kind, label_smoothing=0.1
        )[0]

    inputs = [x.clone().requires_grad_() for x in pairs.policy]
    assert torch.autograd.gradcheck(loss, inputs)


# apo_down lowers both, and discopop has a hill at the reference.
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in {"apo_down", "discopop"}])
def test_a_step_down_raises_chosen_above_rejected(kind: str) -> None:
    pairs = Preferences(4)
    pairs.ref = pairs.policy
    _, (chosen, rejected) = pairs.loss(kind=kind)
    assert (chosen <= rejected).all()
    assert (chosen < rejected).any()


def test_apo_down_lowers_both_and_rejected_more() -> None:
    pairs = Preferences(4)
    pairs.ref = pairs.policy
    _, (chosen, rejected) = pairs.loss(kind="apo_down")
    assert (chosen >= 0).all()
    assert (rejected > chosen).all()


@pytest.mark.parametrize("kind", ["cdpo", "robust"])
def test_without_doubt_of_labels_they_are_dpo(kind: str) -> None:
    pairs = Preferences(4)
    found = pairs.loss(kind=kind, label_smoothing=0.0)
    torch.testing.assert_close(found, pairs.loss(kind="sigmoid"))


def test_robust_is_unbiased_when_labels_flip() -> None:
    pairs, epsilon = Preferences(1), 0.3
    right, _ = pairs.loss(kind="robust", label_smoothing=epsilon)
    clean, _ = pairs.loss(kind="sigmoid")
    pairs.policy, pairs.ref = Pair(*pairs.policy[::-1]), Pair(*pairs.ref[::-1])
    flipped, _ = pairs.loss(kind="robust", label_smoothing=epsilon)
    torch.testing.assert_close((1 - epsilon) * right + epsilon * flipped, clean)


@pytest.mark.parametrize("divergence", ["forward_kl", "js", "alpha"])
def test_divergences_agree_near_the_reference(divergence: str) -> None:
    pairs = Preferences(4)
    pairs.ref = Pair(*(x + 1e-6 for x in pairs.policy))
    _, near = pairs.loss(divergence=divergence, beta=1.0)
    _, plain = pairs.loss(beta=0.5 if divergence == "js" else 1.0)
    torch.testing.assert_close(near, plain, rtol=1e-5, atol=0)


def test_an_alpha_of_one_or_nearly_is_the_reverse_kl() -> None:
    pairs = Preferences(4)
    plain = pairs.loss()
    torch.testing.assert_close(pairs.loss(divergence="alpha", alpha=1.0), plain)
    torch.testing.assert_close(
        pairs.loss(divergence="alpha", alpha=1 + 1e-7), plain, rtol=1e-5, atol=1e-6
    )
    torch.testing.assert_close(
        pairs.loss(divergence="alpha", alpha=0.0), pairs.loss(divergence="forward_kl")
    )


def test_several_kinds_are_summed_by_their_weights() -> None:
    pairs = Preferences(4)
    loss, gradient = pairs.loss(kind={"sigmoid": 0.8, "sft": 0.5})
    one, two = pairs.loss(kind="sigmoid"), pairs.loss(kind="sft")
    torch.testing.assert_close(loss, 0.8 * one[0] + 0.5 * two[0])
    torch.testing.assert_close(gradient, 0.8 * one[1] + 0.5 * two[1])


@pytest.mark.parametrize("kind", KINDS)
def test_a_pair_counts_by_its_weight(kind: str) -> None:
    pairs = Preferences(3)
    double = pairs.loss(kind=kind, weights=torch.full((3,), 2.0, requires_grad=True))
    loss, gradient = pairs.loss(kind=kind)
    torch.testing.assert_close(double, (2 * loss, 2 * gradient))


BATCHWISE = {"aot", "aot_unpaired", "sft", "orpo"}


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in BATCHWISE])
def test_the_gradient_does_not_know_how_the_batch_was_cut(kind: str) -> None:
    whole = Preferences(5)
    parts = [whole.part(0, 2), whole.part(2, 2), whole.part(2, 5)]
    pieces = [part.loss(kind=kind, n_pairs=torch.tensor(5)) for part in parts]
    loss, gradient = whole.loss(kind=kind)
    torch.testing.assert_close(torch.stack([piece[0] for piece in pieces]).sum(), loss)
    torch.testing.assert_close(torch.cat([piece[1] for piece in pieces], 1), gradient)


@pytest.mark.parametrize("kind", KINDS)
def test_the_order_of_pairs_does_not_matter(kind: str) -> None:
    pairs = Preferences(5)
    loss, gradient = pairs.loss(kind=kind)
    order = torch.tensor([3, 0, 4, 1, 2])
    for name in ("policy", "ref", "lengths"):
        setattr(pairs, name, Pair(*(x[order] for x in getattr(pairs, name))))
    torch.testing.assert_close(pairs.loss(kind=kind), (loss, gradient[:, order]))


@pytest.mark.parametrize("kind", KINDS)
def test_no_pairs_and_empty_completions_are_finite(kind: str) -> None:
    none = Preferences(0)
    assert none.loss(kind=kind)[0].item() == 0.0
    pairs = Preferences(2)
    pairs.lengths = Pair(torch.tensor([0, 3]), torch.tensor([2, 0]))
    chosen, rejected = pairs.policy
    pairs.policy = pairs.ref = Pair(
        chosen * pairs.lengths.chosen.sign(), rejected * pairs.lengths.rejected.sign()
    )
    loss, gradient = pairs.loss(kind=kind)
    assert loss.isfinite()
    assert gradient.isfinite().all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("divergence", ["reverse_kl", "forward_kl", "js", "alpha"])
def test_ratios_of_long_completions_stay_finite(kind: str, divergence: str) -> None:
    pairs = Preferences(2, dtype=torch.float32)
    pairs.policy = Pair(torch.tensor([-2000.0, -100.0]), torch.tensor([-100.0, -2000.0]))
    pairs.ref = Pair(torch.tensor([-100.0, -2000.0]), torch.tensor([-2000.0, -100.0]))
    for alpha in (0.5, 2.0):
        loss, gradient = pairs.loss(kind=kind, divergence=divergence, alpha=alpha, beta=0.5)
        assert gradient.isfinite().all()
        if divergence in ("reverse_kl", "js"):  # whose squares do not overflow either
            assert loss.isfinite()


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_of_16_bits_are_computed_with_in_float32(kind: str) -> None:
    narrow, wide = Preferences(3, dtype=torch.bfloat16), Preferences(3, dtype=torch.bfloat16)
    wide.policy, wide.ref = (Pair(*(x.float() for x in pair)) for pair in (wide.policy, wide.ref))
    loss, gradient = narrow.loss(kind=kind)
    expected, wide_gradient = wide.loss(kind=kind)
    assert (loss.dtype, gradient.dtype) == (torch.float32, torch.bfloat16)
    assert loss.item() == expected.item()
    torch.testing.assert_close(gradient, wide_gradient.bfloat16(), rtol=0, atol=0)


def test_metrics_are_means_without_gradients() -> None:
    policy = Pair(torch.tensor([-3.0, -5.0], requires_grad=True), torch.tensor([-4.0, -4.0]))
    ref = Pair(torch.tensor([-4.0, -4.0]), torch.tensor([-4.0, -4.0]))
    _, metrics = preference_loss(policy, ref, beta=0.5)
    assert not any(metric.requires_grad for metric in metrics.values())
    assert {name: metric.item() for name, metric in metrics.items()} == {
        "reward_chosen": 0.0,
        "reward_rejected": 0.0,
        "reward_margin": 0.0,
        "accuracy": 0.5,
        "log_prob_chosen": -4.0,
        "log_prob_rejected": -4.0,
    }


@given(LENGTHS, SEEDS, st.booleans(), st.sampled_from([0.0, 0.3, 1.0]))
def test_sums_of_completions_damp_what_goes_beyond_the_shared_length(
    lengths: list[int], seed: int, masked: bool, ld_alpha: float
) -> None:
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randn(sum(lengths), generator=generator, dtype=torch.float64)
    counts = torch.rand(sum(lengths), generator=generator) > 0.4
    shared = torch.randint(0, 5, (len(lengths),), generator=generator)
    found = completion_log_probs(
        tokens.masked_fill(~counts, torch.nan) if masked else tokens,
        Sequences.of(lengths),
        mask=counts if masked else None,
        shared_lengths=shared,
        ld_alpha=ld_alpha,
    )
    start = 0
    for i, length in enumerate(lengths):
        places = range(start, start + length)
        values = [tokens[t].item() for t in places if counts[t] or not masked]
        first, rest = values[: int(shared[i])], values[int(shared[i]) :]
        assert found[i].item() == pytest.approx(sum(first) + ld_alpha * sum(rest), abs=1e-12)
        start += length


def test_weights_of_wpo_are_one_where_tokens_are_as_likely_as_drawn_ones() -> None:
    log_probs = torch.tensor([0.5, 0.25, 0.9]).log().requires_grad_()
    collisions = torch.tensor([0.5, 0.5, 0.5]).log()
    weights = wpo_weights(log_probs, collisions, Sequences.of([1, 2, 0]))
    assert weights.tolist() == pytest.approx([1.0, math.sqrt(0.5 * 1.8), 1.0])
    assert not weights.requires_grad
    mask = torch.tensor([1, 1, 0])
    masked = wpo_weights(log_probs, collisions, Sequences.of([1, 2, 0]), mask)
    assert masked.tolist() == pytest.approx([1.0, 0.5, 1.0])


def test_kto_weighs_gains_and_losses_against_the_divergence() -> None:
    ratios = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    desirable = torch.tensor([True, False, False])
    kl = torch.tensor(0.25, requires_grad=True)
    loss, metrics = kto_loss(
        ratios.requires_grad_(), torch.zeros(3), desirable, kl=kl, beta=2.0, desirable_weight=3.0
    )
    loss.backward()
    sigma = reference.sigma
    rows = [3 * sigma(2 * (0.25 - 1)), sigma(2 * (-2 - 0.25)), sigma(2 * (0.5 - 0.25))]
    assert loss.item() == pytest.approx(sum(rows) / 3)
    assert kl.grad is None
    assert metrics["reward_chosen"].item() == 2.0
    assert metrics["reward_rejected"].item() == -1.5
    assert metrics["reward_margin"].item() == 3.5


@pytest.mark.parametrize("label", [True, False])
def test_kto_takes_completions_of_one_side_alone_and_none(label: bool) -> None:
    log_probs = torch.tensor([-1.0, -2.0], requires_grad=True)
    for count in (2, 0):
        labels = torch.full((count,), label)
        loss, metrics = kto_loss(log_probs[:count], torch.zeros(count), labels, kl=-1.0)
        assert all(x.isfinite() for x in (loss, *metrics.values()))
        assert metrics["kl"].item() == 0.0


def test_parts_of_kto_add_up() -> None:
    log_probs, ref = torch.randn(2, 5, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([1, 0, 0, 1, 1])
    whole, _ = kto_loss(log_probs, ref, labels, kl=0.1)
    parts = [
        kto_loss(log_probs[part], ref[part], labels[part], kl=0.1, n_completions=5)[0]
        for part in (slice(0, 2), slice(2, 5))
    ]
    torch.testing.assert_close(parts[0] + parts[1], whole)


@pytest.mark.parametrize("kind", ["nll", "dft"])
def test_fine_tuning_counts_tokens_and_adds_up(kind: str) -> None:
    log_probs = torch.tensor([-1.0, -2.0, torch.nan, -3.0], requires_grad=True)
    mask = torch.tensor([True, True, False, True])
    whole = sft_loss(log_probs, kind=kind, mask=mask)
    parts = [
        sft_loss(log_probs[part], kind=kind, mask=mask[part], n_tokens=torch.tensor(3))
        for part in (slice(0, 1), slice(1, 4))
    ]
    torch.testing.assert_close(parts[0] + parts[1], whole)
    whole.backward()
    assert log_probs.grad is not None
    scale = [math.exp(x) if kind == "dft" else 1.0 for x in (-1, -2, -3)]
    assert log_probs.grad.tolist() == pytest.approx(
        [-scale[0] / 3, -scale[1] / 3, 0, -scale[2] / 3]
    )


def test_fine_tuning_on_nothing_is_zero() -> None:
    assert sft_loss(torch.zeros(0)).item() == 0.0
    assert sft_loss(torch.ones(2), mask=torch.zeros(2)).item() == 0.0


ONE = Pair(torch.zeros(1), torch.zeros(1))
WRONG: list[tuple[Any, str]] = [
    (lambda: preference_loss(ONE, ONE, kind="sigmoyd"), "did you mean 'sigmoid'"),
    (lambda: preference_loss(ONE, ONE, kind={"ipoo": 1.0}), "did you mean 'ipo'"),
    (lambda: preference_loss(ONE, ONE, divergence="forwardkl"), "did you mean 'forward_kl'"),
    (lambda: preference_loss(ONE), "ref_log_probs must be given for kind 'sigmoid'"),
    (lambda: preference_loss(ONE, kind="simpo"), "lengths must be given for kind 'simpo'"),
    (lambda: preference_loss(ONE, ONE, kind="exo_pair"), r"label_smoothing must be in \(0, 1\)"),
    (
        lambda: preference_loss(ONE, ONE, kind="robust", label_smoothing=0.5),
        r"label_smoothing must be in \[0, 0.5\), got 0.5",
    ),
    (
        lambda: preference_loss(ONE, Pair(torch.zeros(1), torch.zeros(2))),
        r"ref_log_probs.rejected must have shape \(1,\), got \(2,\)",
    ),
    (
        lambda: preference_loss(ONE, ONE, weights=torch.ones(2)),
        r"weights must have shape \(1,\), got \(2,\)",
    ),
    (
        lambda: kto_loss(torch.zeros(2), torch.zeros(2), torch.ones(3)),
        r"desirable must have shape \(2,\), got \(3,\)",
    ),
    (
        lambda: completion_log_probs(torch.zeros(2), Sequences.of([3])),
        r"log_probs must have shape \(3,\), got \(2,\)",
    ),
    (lambda: sft_loss(torch.zeros(2), kind="dtf"), "did you mean 'dft'"),
]


@pytest.mark.parametrize(("call", "message"), WRONG, ids=[message for _, message in WRONG])
def test_what_does_not_fit_is_refused_by_name(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
