"""KTO: completions that are good or not, compared with the divergence from the reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import sharpwave as sw
from sharpwave.llm import TASKS, DigitTokenizer, Ratings
from sharpwave.losses import kto_loss
from sharpwave.nn import Transformer

TOKENIZER = DigitTokenizer()
ROWS = [
    {"prompt": row["prompt"], "completion": row[name], "label": name == "chosen"}
    for row in TASKS["copy4"].pairs(24)
    for name in ("chosen", "rejected")
]


def transformer(seed: int = 1) -> Transformer:
    model = Transformer(14, hidden=16, heads=2, layers=1, seed=seed)
    with torch.no_grad():
        model.embedding.mul_(10)
    return model


def agent(model: Any = None, **options: Any) -> sw.KTO:
    given = {"dataset": ROWS, "tokenizer": TOKENIZER, "n_examples": 8, "learning_rate": 1e-3}
    return sw.KTO(transformer() if model is None else model, seed=3, **{**given, **options})


def weights(one: sw.KTO) -> torch.Tensor:
    return torch.cat([p.detach().reshape(-1) for p in one.model.module.parameters()])


def total(model: Transformer, prompt: torch.Tensor, completion: torch.Tensor) -> torch.Tensor:
    """The log-probability of a completion."""
    row = torch.cat([prompt, completion])
    found: torch.Tensor = model(row[None])[0, len(prompt) - 1 : -1].log_softmax(-1)
    return found.gather(1, row[len(prompt) :, None]).sum()


def test_the_loss_is_that_of_completions_and_of_those_of_other_prompts() -> None:
    model, reference = transformer(), transformer(seed=2)
    one = agent(model, ref_model=reference, beta=0.5, undesirable_weight=2.0)
    prompts = torch.tensor([[1, 2], [3, 4], [5, 6]])
    completions = torch.tensor([[7, 8, 0], [9, 0, 0], [1, 2, 3]])
    mask = torch.tensor([[1, 1, 0], [1, 0, 0], [1, 1, 1]])
    labels = torch.tensor([True, False, True])
    rows = [x[m.bool()] for x, m in zip(completions, mask, strict=True)]
    sums = torch.stack([total(model, p, c) for p, c in zip(prompts, rows, strict=True)])
    ref = torch.stack([total(reference, p, c) for p, c in zip(prompts, rows, strict=True)])
    others = [rows[1], rows[2], rows[0]]
    apart = [
        total(model, p, c) - total(reference, p, c) for p, c in zip(prompts, others, strict=True)
    ]
    wanted, _ = kto_loss(
        sums, ref, labels, kl=torch.stack(apart).mean(), beta=0.5, undesirable_weight=2.0
    )
    found, metrics = one.compute_loss(prompts, completions, labels, completion_mask=mask)
    torch.testing.assert_close(found, wanted)
    assert set(metrics) >= {"kl", "chosen_reward", "rejected_reward", "reward_margin"}
    found.backward()
    gradient = torch.cat([p.grad.reshape(-1) for p in model.parameters() if p.grad is not None])
    model.zero_grad()
    wanted.backward()
    expected = torch.cat([p.grad.reshape(-1) for p in model.parameters() if p.grad is not None])
    torch.testing.assert_close(gradient, expected, atol=1e-6, rtol=1e-4)
    without, _ = agent(model, ref_model=reference, beta=0.5, loss="apo_zero_unpaired").compute_loss(
        prompts, completions, labels, completion_mask=mask
    )
    torch.testing.assert_close(without, kto_loss(sums, ref, labels, beta=0.5)[0])


@pytest.mark.long
@pytest.mark.parametrize("max_tokens", [10, 4096])
def test_the_cut_into_micro_batches_changes_nothing(max_tokens: int) -> None:
    one, whole = agent(max_tokens=max_tokens), agent()
    one.train(n_updates=3)
    whole.train(n_updates=3)
    torch.testing.assert_close(weights(one), weights(whole), atol=1e-6, rtol=0)


@pytest.mark.long
def test_what_is_good_becomes_likelier(tmp_path: Path) -> None:
    one = agent(learning_rate=3e-3)
    first = one.evaluate(ROWS).mean
    metrics = one.train(n_updates=120)
    assert metrics["reward_margin"] > 0.05
    assert one.evaluate(ROWS).mean > max(first, 0.8)
    one.save(tmp_path / "kto")
    again = sw.KTO.from_checkpoint(
        tmp_path / "kto", model=transformer(9), dataset=ROWS, tokenizer=TOKENIZER
    )
    one.train(n_updates=2)
    again.train(n_updates=2)
    assert torch.equal(weights(one), weights(again))


def test_pairs_are_two_completions_each(tmp_path: Path) -> None:
    pairs = TASKS["copy4"].pairs(24)
    found, wanted = Ratings.of(pairs, TOKENIZER), Ratings.of(ROWS, TOKENIZER)
    assert found.good == wanted.good == [True, False] * 24
    for one, other in zip(found.completions, wanted.completions, strict=True):
        assert torch.equal(one[0], other[0])
    cached = agent(dataset=pairs, cache_reference=tmp_path / "cache")
    cached.train(n_updates=2)
    plain = agent(dataset=pairs)
    plain.train(n_updates=2)
    torch.testing.assert_close(weights(cached), weights(plain))


def test_labels_that_are_missing_are_named() -> None:
    with pytest.raises(ValueError, match="label that is true or false, got None in row 0"):
        agent(dataset=[{"prompt": "1=", "completion": "2"}])
    with pytest.raises(ValueError, match="label that is true or false, got 'yes' in row 1"):
        agent(dataset=[ROWS[0], {**ROWS[0], "label": "yes"}])


def test_a_single_completion_has_no_other_prompt() -> None:
    metrics = agent().train_step(torch.tensor([[1, 2]]), torch.tensor([[3]]), [True])
    assert metrics["loss"] == pytest.approx(0.5)
    assert metrics["kl"] == 0
