"""The best of n completions is the one that is worth most, drawn like any other."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from sharpwave.llm import TASKS, BestOfN, CausalModel, DigitTokenizer, Sampler
from sharpwave.nn import Transformer
from tests.unit.llm.models import VOCABULARY, make, spread

PROMPTS = torch.tensor([[1, 2, 3], [4, 5, 6], [7, 8, 9]])


def total(completions: list[Tensor], prompts: Tensor) -> list[float]:
    return [float(one[prompts.shape[1] :].sum()) for one in completions]


def test_the_best_has_the_highest_score() -> None:
    found = BestOfN(make("transformer"), total, n=5, max_new_tokens=4, seed=3).sample(PROMPTS)
    assert found.scores.shape == (3, 5)
    assert len(found.completions) == 15
    for row, best in enumerate(found.best):
        assert torch.equal(best[:3], PROMPTS[row])
        assert best[3:].sum() == found.scores[row].max()
    again = BestOfN(make("transformer"), total, 5, 4, seed=3)
    assert torch.equal(again.generate(PROMPTS), torch.stack(found.best))
    assert not torch.equal(again.generate(PROMPTS), torch.stack(found.best))  # draws move on


def test_one_is_plain_sampling() -> None:
    model = make("transformer")
    plain = Sampler(model, seed=3).generate(PROMPTS, 1, 4)
    found = BestOfN(model, total, n=1, max_new_tokens=4, seed=3).generate(PROMPTS)
    assert torch.equal(found, torch.stack(plain.sequences()))


def test_what_ends_early_is_padded() -> None:
    tokenizer, task = DigitTokenizer(), TASKS["copy4"]
    seen: list[str] = []

    def shortest(prompts: Any, completions: Any) -> list[float]:
        seen.extend(completions)
        return [-float(len(text)) for text in completions]

    model = spread(Transformer(14, hidden=32, seed=1))
    best = BestOfN(model, shortest, n=16, max_new_tokens=6, tokenizer=tokenizer)
    ids = best.generate(task.prompts(4))
    assert ids.shape == (4, 5 + 6)
    assert len(seen) == 64
    for row in ids.tolist():
        if tokenizer.eos_token_id in row:
            end = row.index(tokenizer.eos_token_id)
            assert set(row[end + 1 :]) <= {tokenizer.pad_token_id}
    assert (ids == tokenizer.pad_token_id).any()


def test_unscored_completions_are_not_chosen() -> None:
    def some(completions: list[Tensor], **_: Any) -> list[float | None]:
        return [-1.0 if row % 4 == 2 and row < 8 else None for row in range(len(completions))]

    scored = BestOfN(make("transformer"), lambda completions, _: some(completions), seed=1)
    found = scored.sample(PROMPTS)
    sequences = found.completions.sequences()
    for best, row in zip(found.best, (2, 6, 8), strict=True):
        assert torch.equal(best, sequences[row])


@pytest.mark.long
@pytest.mark.parametrize("n", [2, 8])
def test_the_mean_of_the_best_is_that_of_the_highest_of_n_draws(n: int) -> None:
    model = make("transformer")
    prompt, draws = PROMPTS[:1], 1000
    with torch.no_grad():
        probs = CausalModel.of(model).logits(prompt)[0, -1].double().softmax(-1)
    sums = probs.cumsum(0) ** n
    of_best = sums.diff(prepend=sums.new_zeros(1))
    values = torch.arange(VOCABULARY, dtype=torch.float64)
    mean = (of_best * values).sum()
    deviation = ((of_best * values.square()).sum() - mean.square()).sqrt()
    found = BestOfN(model, total, n, 1, seed=5).generate(prompt.expand(draws, 3))[:, 3].double()
    assert abs(found.mean() - mean) < 4 * deviation / draws**0.5


@pytest.mark.long(but=["2"])
@pytest.mark.parametrize("n", [2, 4, 16])
def test_the_best_of_n_stays_within_the_bound_of_its_divergence(n: int) -> None:
    """KL(best of n || sampling) ≤ log n − (n − 1) / n, as far as samples can tell."""
    model, draws = make("transformer"), 2000
    prompt = PROMPTS[:1]
    with torch.no_grad():
        log_probs = CausalModel.of(model).logits(prompt)[0, -1].double().log_softmax(-1)
    drawn = BestOfN(model, total, n, 1, seed=7).generate(prompt.expand(draws, 3))[:, 3]
    counts = torch.bincount(drawn, minlength=VOCABULARY).double()
    # Of tokens that were drawn; those that were not add nothing.
    terms = (counts / draws).clamp_min(1e-12).log()[drawn] - log_probs[drawn]
    bound = math.log(n) - (n - 1) / n
    # An estimate by frequencies is too large by (kinds − 1) / (2 draws), about.
    bias = (int((counts > 0).sum()) - 1) / (2 * draws)
    assert 0 < terms.mean() <= bound + bias + 3 * terms.std() / draws**0.5


@pytest.mark.long
def test_more_completions_have_a_better_best() -> None:
    model = make("transformer")
    prompt = PROMPTS[:1].expand(300, 3)
    means = [
        float(BestOfN(model, total, n, 1, seed=7).generate(prompt)[:, 3].double().mean())
        for n in (1, 2, 4, 8, 16)
    ]
    assert means == sorted(means)
    assert means[0] < means[-1]


def test_bad_input_is_named() -> None:
    model = make("transformer")
    with pytest.raises(ValueError, match="n must be at least 1, got 0"):
        BestOfN(model, total, 0)
    with pytest.raises(ValueError, match="max_new_tokens must be at least 1, got 0"):
        BestOfN(model, total, 2, 0)
    with pytest.raises(TypeError, match="reward_fn must be callable"):
        BestOfN(model, [3])
    with pytest.raises(ValueError, match="prompts must have one length, got 1 to 2 tokens"):
        BestOfN(model, total).generate([[1], [1, 2]])
