"""Sequences without padding: what is told of a token stays with it, however a batch is cut."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from sharpwave.llm import CausalModel, TokenBatch, score, score_all
from tests.unit.llm.models import VOCABULARY, make


def batch_of(shapes: list[tuple[int, int]], seed: int = 0) -> TokenBatch:
    """Sequences with so many prompt and completion tokens, whose columns say where they belong."""
    generator = torch.Generator().manual_seed(seed)
    rows = [torch.randint(VOCABULARY, (p + c,), generator=generator) for p, c in shapes]
    total = sum(c for _, c in shapes)
    return TokenBatch.of_sequences(
        rows,
        torch.tensor([p for p, _ in shapes]),
        advantages=torch.arange(len(rows), dtype=torch.float32),
        group=torch.arange(len(rows)),
        old_log_probs=torch.arange(total, dtype=torch.float32),
        loss_mask=torch.arange(total) % 2 == 0,
    )


def rows_of(batch: TokenBatch) -> list[Tensor]:
    return list(batch.tokens.split(batch.lengths.tolist()))


shapes = st.lists(st.tuples(st.integers(1, 6), st.integers(0, 6)), min_size=1, max_size=8)


@given(shapes, st.randoms(use_true_random=False), st.integers(1, 40))
def test_columns_stay_with_their_tokens(
    lengths: list[tuple[int, int]], random: Any, max_tokens: int
) -> None:
    batch = batch_of(lengths)
    completions = [row[p:] for row, (p, _) in zip(rows_of(batch), lengths, strict=True)]
    assert batch.completion_tokens.tolist() == torch.cat(completions).tolist()
    order = list(range(len(lengths)))
    random.shuffle(order)
    chosen = batch.select(torch.tensor(order))
    assert [x.tolist() for x in rows_of(chosen)] == [rows_of(batch)[i].tolist() for i in order]
    assert chosen.advantages is not None
    assert chosen.advantages.tolist() == order
    first = torch.tensor([0, *(c for _, c in lengths)]).cumsum(0).tolist()
    told = [number for i in order for number in range(first[i], first[i + 1])]
    assert chosen.old_log_probs is not None
    assert chosen.old_log_probs.tolist() == told
    assert chosen.loss_mask is not None
    assert chosen.loss_mask.tolist() == [number % 2 == 0 for number in told]

    parts = [part.tolist() for part in batch.cut(max_tokens)]
    assert sorted(row for part in parts for row in part) == list(range(len(lengths)))
    for part in parts:
        longest = max(sum(lengths[i]) for i in part)
        assert len(part) == 1 or len(part) * longest <= max_tokens
    packed = [part.tolist() for part in batch.cut(max_tokens, padded=False)]
    assert sorted(row for part in packed for row in part) == list(range(len(lengths)))
    assert len(packed) <= len(parts)
    for part in packed:
        assert len(part) == 1 or sum(sum(lengths[i]) for i in part) <= max_tokens
    assert [p for row in rows_of(batch) for p in range(len(row))] == batch.positions.tolist()


def test_padding_is_on_the_right() -> None:
    batch = batch_of([(2, 3), (1, 0), (3, 1)])
    padded = batch.padded()
    assert padded.shape == (3, 5)
    for row, tokens in zip(padded, rows_of(batch), strict=True):
        assert row[: len(tokens)].tolist() == tokens.tolist()
        assert not row[len(tokens) :].any()


SHAPES = [(3, 4), (1, 1), (5, 2), (2, 6), (4, 0)]


def by_hand(model: CausalModel, batch: TokenBatch, temperature: float) -> list[Tensor]:
    """Log-probabilities and entropies, sequence by sequence."""
    found = []
    for row, prompt in zip(rows_of(batch), batch.prompt_lengths.tolist(), strict=True):
        logits = model.logits(row[None])[0, prompt - 1 : -1].double() / temperature
        log_probs = logits.log_softmax(-1)
        picked = log_probs.gather(1, row[prompt:, None])[:, 0]
        found.append(torch.stack([picked, -(log_probs.exp() * log_probs).sum(-1)]))
    return list(torch.cat(found, 1))


@pytest.mark.long(only=["Llama"])
@pytest.mark.parametrize("kind", ["transformer", "plain", "Llama"])
def test_scores_are_those_of_each_sequence_alone(kind: str) -> None:
    model = CausalModel.of(make(kind))
    batch = batch_of(SHAPES)
    wanted = by_hand(model, batch, 0.7)
    found = score(model, batch, temperature=0.7, entropy=True)
    assert found.entropies is not None
    torch.testing.assert_close(found.log_probs.double(), wanted[0], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(found.entropies.double(), wanted[1], atol=1e-5, rtol=1e-5)
    for max_tokens in (1, 12, 1000):
        cut = score_all(model, batch, max_tokens=max_tokens, temperature=0.7)
        torch.testing.assert_close(cut.double(), wanted[0], atol=1e-5, rtol=1e-5)
        assert not cut.requires_grad


@pytest.mark.long(only=["Llama"])
@pytest.mark.parametrize("kind", ["transformer", "Llama"])
def test_gradients_do_not_know_of_padding(kind: str) -> None:
    module = make(kind)
    model = CausalModel.of(module)
    batch = batch_of(SHAPES)
    weights = torch.linspace(-1, 1, len(batch.sequence))
    gradients = []
    for padded in (True, False):
        module.zero_grad()
        if padded:
            found = score(model, batch, entropy=True)
            assert found.entropies is not None
            loss = (found.log_probs * weights).sum() + found.entropies.sum()
        else:
            log_probs, entropies = by_hand(model, batch, 1.0)
            loss = (log_probs * weights).sum() + entropies.sum()
        loss.backward()
        gradients.append([p.grad.clone() for p in module.parameters() if p.grad is not None])
    assert len(gradients[0]) == len(gradients[1])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)
