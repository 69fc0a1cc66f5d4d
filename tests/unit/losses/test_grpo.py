"""Properties of every kind of GRPO's losses."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from sharpwave.losses import GRPO_KINDS, Sequences, grpo_loss, grpo_totals, importance_weights
from tests.reference import grpo as reference

LENGTHS = st.lists(st.integers(0, 6), min_size=1, max_size=5)
SEEDS = st.integers(0, 10_000)
KINDS = sorted(GRPO_KINDS)
LEVELS = ["token", "sequence"]


class Batch:
    """Completions of these lengths, drawn from a seed."""

    def __init__(self, lengths: list[int], seed: int = 0, dtype: torch.dtype = torch.float64):
        generator = torch.Generator().manual_seed(seed)
        self.sequences = Sequences.of(lengths)

        def draw(count: int, scale: float) -> Tensor:
            return (scale * torch.randn(count, generator=generator, dtype=torch.float64)).to(dtype)

        count = sum(lengths)
        self.log_probs = -draw(count, 1).abs()
        self.old = self.log_probs + draw(count, 0.3)
        self.ref = self.log_probs + draw(count, 0.5)
        self.weights = draw(count, 0.3).exp()
        self.entropies = draw(count, 1).abs()
        self.mask = draw(count, 1) > -0.7
        self.advantages = draw(len(lengths), 1)

    def loss(self, **options: Any) -> tuple[Tensor, Tensor]:
        """The loss and its gradient by log-probability; options given replace the batch's."""
        log_probs = options.pop("log_probs", self.log_probs).detach().clone().requires_grad_()
        advantages = options.pop("advantages", self.advantages)
        options = {"ref_log_probs": self.ref, "max_length": 6, **options}
        old = options.pop("old", self.old)
        loss, _ = grpo_loss(log_probs, old, advantages, self.sequences, **options)
        loss.backward()
        assert log_probs.grad is not None
        return loss.detach(), log_probs.grad

    def part(self, first: int, last: int) -> Batch:
        """Completions from the first to before the last."""
        starts = [0, *self.sequences.lengths.cumsum(0).tolist()]
        part = Batch(self.sequences.lengths[first:last].tolist())
        for name in ("log_probs", "old", "ref", "weights", "entropies", "mask"):
            setattr(part, name, getattr(self, name)[starts[first] : starts[last]])
        part.advantages = self.advantages[first:last]
        return part


def padded(batch: Batch, tokens: Tensor) -> Tensor:
    lengths = batch.sequences.lengths
    places = torch.arange(6)[None] < lengths[:, None]
    return torch.zeros(places.shape, dtype=tokens.dtype).masked_scatter(places, tokens)


@pytest.mark.long
@given(
    LENGTHS,
    SEEDS,
    st.sampled_from(KINDS),
    st.sampled_from(LEVELS),
    st.sampled_from([("k1", True), ("k2", True), ("k2", False), ("k3", True), ("k3", False)]),
    st.sampled_from([None, 1.4]),
    st.booleans(),
)
def test_packed_completions_give_the_loss_and_gradient_of_padded_ones(
    lengths: list[int],
    seed: int,
    kind: str,
    level: str,
    kl: tuple[str, bool],
    delta: float | None,
    masked: bool,
) -> None:
    batch = Batch(lengths, seed)
    mask = batch.mask if masked else torch.ones_like(batch.mask)
    options: dict[str, Any] = {
        "kind": kind,
        "ratio_level": level,
        "clip_low": 0.2,
        "clip_high": 0.3,
        "delta": delta,
        "kl": kl[0],
        "kl_correction": kl[1],
        "kl_coef": 0.3,
    }
    loss, gradient = batch.loss(**options, weights=batch.weights, mask=mask if masked else None)

    rows = {name: padded(batch, getattr(batch, name)) for name in ("old", "ref", "weights")}
    rows["log_probs"] = padded(batch, batch.log_probs).requires_grad_()
    counts = padded(batch, mask)
    expected = reference.grpo_loss(rows, batch.advantages, counts, **options, max_length=6)
    if expected.requires_grad:
        expected.backward()
    torch.testing.assert_close(loss, expected.detach())
    by_row = rows["log_probs"].grad
    by_row = torch.zeros_like(rows["log_probs"]) if by_row is None else by_row
    torch.testing.assert_close(padded(batch, gradient), by_row)


@pytest.mark.parametrize("level", LEVELS)
def test_completions_of_one_length_weigh_the_same_per_completion_and_per_token(level: str) -> None:
    batch = Batch([4, 4, 4])
    options: dict[str, Any] = {"ratio_level": level, "kl_coef": 0.1}
    expected = batch.loss(kind="grpo", **options)
    torch.testing.assert_close(batch.loss(kind="bnpo", **options), expected)
    torch.testing.assert_close(batch.loss(kind="dapo", **options), expected)
    loss, gradient = batch.loss(kind="dr_grpo", **options)
    torch.testing.assert_close((loss * 6 / 4, gradient * 6 / 4), expected)


def test_one_completion_alone_is_its_mean_over_tokens() -> None:
    batch = Batch([5])
    expected = batch.loss(kind="grpo")
    torch.testing.assert_close(batch.loss(kind="bnpo"), expected)
    torch.testing.assert_close(batch.loss(kind="dapo"), expected)
    loss, gradient = batch.loss(kind="luspo")
    torch.testing.assert_close((loss / 5, gradient / 5), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_an_unmoved_policy_has_the_policy_gradient_whatever_the_kind(kind: str) -> None:
    batch = Batch([3, 1, 4])
    _, gradient = batch.loss(kind=kind, old=None)
    lengths = batch.sequences.spread(batch.sequences.lengths)
    by: dict[str, Any] = {
        "grpo": 3 * lengths,
        "sapo": 3 * lengths,
        "gmpo": 3 * lengths,
        "luspo": 3,
        "dr_grpo": 18,
    }
    torch.testing.assert_close(
        gradient, -batch.sequences.spread(batch.advantages) / by.get(kind, 8)
    )


@pytest.mark.parametrize("kind", KINDS)
def test_no_old_log_probs_means_those_of_now(kind: str) -> None:
    batch = Batch([3, 1, 4])
    options: dict[str, Any] = {"kind": kind, "kl_coef": 0.1}
    torch.testing.assert_close(
        batch.loss(old=None, **options), batch.loss(old=batch.log_probs, **options)
    )


@pytest.mark.parametrize("kl", ["k2", "k3"])
@pytest.mark.parametrize("correction", [True, False])
def test_a_policy_that_is_its_reference_feels_no_kl_at_all(kl: str, correction: bool) -> None:
    batch = Batch([3, 1, 4])
    options: dict[str, Any] = {"kl": kl, "kl_coef": 10.0, "kl_correction": correction}
    nothing = torch.zeros(3, dtype=torch.float64)
    loss, gradient = batch.loss(advantages=nothing, ref_log_probs=batch.log_probs, **options)
    assert loss.item() == 0.0
    assert not gradient.any()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "bnpo"])
@pytest.mark.parametrize("level", LEVELS)
def test_the_gradient_does_not_know_how_the_batch_was_cut(kind: str, level: str) -> None:
    whole = Batch([3, 1, 0, 6, 2, 4], dtype=torch.float32)
    options: dict[str, Any] = {"kind": kind, "ratio_level": level, "kl_coef": 0.1}

    def found(batch: Batch, totals: Tensor | None) -> tuple[Tensor, Tensor]:
        log_probs = batch.log_probs
        entropies = batch.entropies.clone().requires_grad_()
        loss, gradient = batch.loss(
            log_probs=log_probs, entropies=entropies, entropy_coef=0.1, mask=batch.mask,
            weights=batch.weights, totals=totals, **options,
        )  # fmt: skip
        assert entropies.grad is not None
        return loss, torch.stack((gradient, entropies.grad))

    parts = [whole.part(0, 2), whole.part(2, 3), whole.part(3, 6)]
    totals = torch.stack([grpo_totals(part.sequences, part.mask) for part in parts]).sum(0)
    pieces = [found(part, totals) for part in parts]
    loss, gradient = found(whole, None)
    close: dict[str, Any] = {"rtol": 1e-6, "atol": 1e-6}
    torch.testing.assert_close(torch.stack([piece[0] for piece in pieces]).sum(), loss, **close)
    torch.testing.assert_close(torch.cat([piece[1] for piece in pieces], 1), gradient, **close)


def test_equal_parts_of_bnpo_are_averaged() -> None:
    whole = Batch([3, 1, 2, 4])
    parts = [whole.part(0, 2), whole.part(2, 4)]
    totals = grpo_totals(whole.sequences)
    summed = sum(part.loss(kind="bnpo", totals=totals)[0] for part in parts)
    mean = sum(part.loss(kind="bnpo")[0] for part in parts) / 2
    torch.testing.assert_close(summed, mean)


@pytest.mark.long
@given(LENGTHS, SEEDS, st.sampled_from(KINDS), st.sampled_from(LEVELS), st.randoms())
def test_the_order_of_completions_does_not_matter(
    lengths: list[int], seed: int, kind: str, level: str, random: Any
) -> None:
    batch = Batch(lengths, seed)
    order = list(range(len(lengths)))
    random.shuffle(order)
    parts = [batch.part(i, i + 1) for i in order]
    shuffled = Batch([lengths[i] for i in order])
    for name in ("log_probs", "old", "ref", "advantages"):
        setattr(shuffled, name, torch.cat([getattr(part, name) for part in parts]))
    options: dict[str, Any] = {"kind": kind, "ratio_level": level, "kl_coef": 0.1}
    torch.testing.assert_close(shuffled.loss(**options)[0], batch.loss(**options)[0])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("lengths", [[], [0], [0, 3, 0], [2, 2]], ids=str)
def test_nothing_divides_by_zero(kind: str, level: str, lengths: list[int]) -> None:
    batch = Batch(lengths)
    for mask in (None, torch.zeros(sum(lengths))):
        log_probs = batch.log_probs.clone().requires_grad_()
        loss, metrics = grpo_loss(
            log_probs, batch.old, batch.advantages, batch.sequences, kind=kind, ratio_level=level,
            ref_log_probs=batch.ref, kl_coef=0.1, entropies=batch.entropies, entropy_coef=0.1,
            top_entropy=0.5, mask=mask, max_length=6,
        )  # fmt: skip
        loss.backward()
        assert log_probs.grad is not None
        assert all(x.isfinite().all() for x in (loss, log_probs.grad, *metrics.values()))
        if mask is not None or not sum(lengths):
            assert loss.item() == 0.0
            assert not log_probs.grad.any()


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_that_do_not_count_may_hold_anything(kind: str) -> None:
    batch = Batch([3, 2, 4])
    batch.mask = torch.tensor([1, 0, 1, 0, 0, 1, 1, 1, 0]).bool()
    expected = batch.loss(kind=kind, kl_coef=0.1, weights=batch.weights, mask=batch.mask)
    for name in ("log_probs", "old", "ref", "weights"):
        setattr(batch, name, getattr(batch, name).masked_fill(~batch.mask, torch.nan))
    found = batch.loss(kind=kind, kl_coef=0.1, weights=batch.weights, mask=batch.mask)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_ratios_beyond_all_measure_stay_finite(kind: str, advantage: float) -> None:
    log_probs = torch.tensor([-1.0, -500.0], requires_grad=True)
    far = torch.tensor([-500.0, -1.0])
    sequences, advantages = Sequences.of([1, 1]), torch.full((2,), advantage)
    loss, _ = grpo_loss(
        log_probs, far, advantages, sequences, kind=kind, ref_log_probs=far, kl_coef=0.1,
        max_length=2,
    )  # fmt: skip
    loss.backward()
    assert log_probs.grad is not None
    assert loss.isfinite()
    assert log_probs.grad.isfinite().all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])
def test_numbers_of_16_bits_are_computed_with_in_float32(kind: str, dtype: torch.dtype) -> None:
    narrow = Batch([3, 1, 4], dtype=dtype)
    wide = Batch([3, 1, 4], dtype=dtype)
    for name in ("log_probs", "old", "ref", "advantages"):
        setattr(wide, name, getattr(wide, name).float())
    loss, gradient = narrow.loss(kind=kind, kl_coef=0.1)
    expected, wide_gradient = wide.loss(kind=kind, kl_coef=0.1)
    assert (loss.dtype, gradient.dtype) == (torch.float32, dtype)
    assert loss.item() == expected.item()
    torch.testing.assert_close(gradient, wide_gradient.to(dtype), rtol=0, atol=0)


def test_metrics_carry_no_gradient_and_count_what_left_the_range() -> None:
    ratios = torch.tensor([0.5, 1.0, 1.5, 0.5, 1.5, 1.0])
    log_probs = ratios.log().requires_grad_()
    _, metrics = grpo_loss(
        log_probs, torch.zeros(6), torch.tensor([1.0, -1.0]), Sequences.of([3, 3]),
        ref_log_probs=torch.zeros(6), entropies=torch.full((6,), 2.0, requires_grad=True),
    )  # fmt: skip
    assert not any(metric.requires_grad for metric in metrics.values())
    assert metrics["clip_fraction_low"].item() == pytest.approx(1 / 6)
    assert metrics["clip_fraction_high"].item() == pytest.approx(1 / 6)
    assert metrics["clip_fraction"].item() == pytest.approx(2 / 6)
    assert metrics["ratio"].item() == pytest.approx(1.0)
    assert metrics["entropy"].item() == 2.0
    assert metrics["kl"].item() > 0


@given(st.integers(1, 30), SEEDS, st.floats(0.05, 1.0))
def test_top_entropy_keeps_the_tokens_from_a_quantile_on(
    count: int, seed: int, share: float
) -> None:
    batch = Batch([count], seed)
    _, gradient = batch.loss(
        kind="dapo", old=None, advantages=torch.ones(1, dtype=torch.float64),
        entropies=batch.entropies, top_entropy=share, mask=batch.mask,
    )  # fmt: skip
    left = batch.entropies[batch.mask]
    kept = left >= torch.quantile(left, 1 - share) if len(left) else left.bool()
    assert gradient[batch.mask].bool().tolist() == kept.tolist()
    assert not gradient[~batch.mask].any()


@given(LENGTHS, SEEDS, st.sampled_from(LEVELS), st.sampled_from(["truncate", "mask"]))
def test_importance_weights_are_those_of_a_loop(
    lengths: list[int], seed: int, level: str, mode: str
) -> None:
    batch = Batch(lengths, seed)
    found = importance_weights(
        batch.old, batch.log_probs, batch.sequences, level=level, mode=mode, cap=1.3, floor=0.8,
        mask=batch.mask,
    )  # fmt: skip
    logs = torch.where(batch.mask, batch.old - batch.log_probs, 0.0).tolist()
    ids = batch.sequences.ids.tolist()
    for token, own in enumerate(logs):
        other = sum(x for x, i in zip(logs, ids, strict=True) if i == ids[token])
        weight = math.exp(own if level == "token" else other)
        bounded = min(max(weight, 0.8), 1.3)
        expected = bounded if mode == "truncate" else weight * (weight == bounded)
        assert found[token].item() == pytest.approx(expected)


def test_a_token_that_the_sampler_did_not_score_is_not_corrected() -> None:
    old, sampler = torch.tensor([0.0, 0.5]), torch.tensor([torch.nan, 0.0])
    weights = importance_weights(old.requires_grad_(), sampler, Sequences.of([2]), level="token")
    assert weights.tolist() == pytest.approx([1.0, math.exp(0.5)])
    assert not weights.requires_grad


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"kind": "drgrpo"}, "kind must be one of grpo, .* got 'drgrpo'; did you mean 'dr_grpo'"),
    ({"ratio_level": "tokens"}, "ratio_level must be one of .*; did you mean 'token'"),
    ({"kl": "k4"}, "kl must be one of k1, k2, k3, got 'k4'"),
    ({"kind": "dr_grpo", "max_length": None}, "max_length must be given for kind 'dr_grpo'"),
    ({"kl_coef": 0.1, "ref_log_probs": None}, "ref_log_probs must be given for kl_coef 0.1"),
    ({"kl_coef": 0.1, "kl": "k1", "kl_correction": False}, "gradient is 0 on average"),
    ({"top_entropy": 0.5}, "entropies must be given"),
    ({"entropy_coef": 0.5}, "entropies must be given"),
    ({"log_probs": torch.zeros(4)}, r"log_probs must have shape \(5,\), got \(4,\)"),
    ({"advantages": torch.zeros(5)}, r"advantages must have shape \(2,\)"),
    ({"mask": torch.ones(2)}, r"mask must have shape \(5,\)"),
]


@pytest.mark.parametrize(
    ("options", "message"), WRONG, ids=lambda x: x if isinstance(x, str) else ""
)
def test_what_does_not_fit_is_refused_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Batch([3, 2]).loss(**options)


def test_lengths_must_be_a_row_of_counts() -> None:
    with pytest.raises(ValueError, match="lengths must not be negative, got -1"):
        Sequences.of([2, -1])
    with pytest.raises(ValueError, match=r"lengths must have shape \[B\]"):
        Sequences.of(torch.ones(2, 2))


def test_lengths_on_a_device_are_not_waited_for_where_their_sum_is_known() -> None:
    lengths = torch.tensor([2, 0, 3])
    known = Sequences.of(lengths, total=5)
    assert torch.equal(known.ids, Sequences.of(lengths).ids)
    elsewhere = torch.empty(3, dtype=torch.int64, device="meta")  # has nothing to wait for
    assert Sequences.of(elsewhere, total=5).ids.shape == (5,)


def test_importance_weights_know_their_words() -> None:
    tokens = torch.zeros(2)
    with pytest.raises(ValueError, match="level must be one of token, sequence"):
        importance_weights(tokens, tokens, Sequences.of([2]), level="word")
    with pytest.raises(ValueError, match="did you mean 'truncate'"):
        importance_weights(tokens, tokens, Sequences.of([2]), mode="truncated")
