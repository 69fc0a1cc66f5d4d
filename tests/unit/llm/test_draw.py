"""Tokens are drawn from the distribution that is said, by numbers that depend on nothing else."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from sharpwave.llm.draw import Options, draw, mixed
from sharpwave.llm.draw import uniforms as next_uniforms


def uniforms(seed: int, *keys: torch.Tensor) -> torch.Tensor:
    return next_uniforms(mixed(seed, *keys), torch.zeros_like(keys[0]))


LOGITS = torch.tensor([2.0, 1.0, 0.5, 0.0, -1.0, -3.0])
DRAWS = 20_000


def kept_by_hand(options: Options) -> np.ndarray[Any, Any]:
    """The distribution in plain NumPy."""
    logits = LOGITS.numpy().astype(np.float64)
    logits = logits + [options.logit_bias.get(i, 0.0) for i in range(len(logits))]
    probs = np.exp(logits / options.temperature)
    probs /= probs.sum()
    keep = np.ones(len(probs), bool)
    order = np.argsort(-probs)
    if options.top_k:
        keep[order[options.top_k :]] = False
    keep &= probs >= options.min_p * probs.max()
    probs = np.where(keep, probs, 0)
    probs /= probs.sum()
    if options.top_p < 1:
        before = np.cumsum(probs[order]) - probs[order]
        probs[order[before >= options.top_p]] = 0
    return probs / probs.sum()  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"temperature": 0.5},
        {"temperature": 3.0},
        {"top_k": 2},
        {"top_k": 99},
        {"top_p": 0.7},
        {"top_p": 1e-6},
        {"min_p": 0.3},
        {"temperature": 1.5, "top_k": 4, "top_p": 0.8, "min_p": 0.1},
        {"logit_bias": {0: -math.inf, 3: 2.0}},
    ],
    ids=str,
)
def test_draws_have_the_frequencies_of_the_distribution(given: dict[str, Any]) -> None:
    options = Options(**given)
    expected = kept_by_hand(options)
    numbers = uniforms(5, torch.arange(DRAWS))
    drawn = draw(LOGITS.expand(DRAWS, -1), numbers, options)
    counts = np.bincount(drawn.tokens.numpy(), minlength=len(expected))
    assert not counts[expected == 0].any()
    possible = expected > 0
    chi = ((counts - DRAWS * expected)[possible] ** 2 / (DRAWS * expected[possible])).sum()
    assert chi < 6 + 6 * math.sqrt(2 * len(expected))  # six deviations
    tokens = drawn.tokens.numpy()
    np.testing.assert_allclose(drawn.log_probs.numpy(), np.log(expected[tokens]), atol=1e-5)
    plain = (LOGITS / options.temperature).log_softmax(-1)
    np.testing.assert_allclose(drawn.plain_log_probs.numpy(), plain[tokens].numpy(), atol=1e-6)


def test_temperature_0_takes_the_most_likely_token() -> None:
    drawn = draw(LOGITS[None], torch.tensor([0.99]), Options(temperature=0))
    assert drawn.tokens.tolist() == [0]
    assert drawn.log_probs.tolist() == [0.0]
    assert drawn.plain_log_probs.item() == pytest.approx(LOGITS.log_softmax(-1)[0].item())


@pytest.mark.parametrize("number", [0.0, 0.5, 1 - 2**-53])
def test_tokens_without_probability_are_never_drawn(number: float) -> None:
    logits = torch.tensor([[-math.inf, 0.0, -math.inf, 1.0, -math.inf]])
    token = draw(logits, torch.tensor([number], dtype=torch.float64), Options()).tokens.item()
    assert token in (1, 3)


def test_repeated_tokens_become_less_likely() -> None:
    seen = torch.tensor([[True, False, False, False, True, False]])
    drawn = draw(LOGITS[None], torch.tensor([0.0]), Options(repetition_penalty=2.0), seen=seen)
    changed = torch.tensor([1.0, 1.0, 0.5, 0.0, -2.0, -3.0]).log_softmax(-1)
    assert drawn.log_probs.item() == pytest.approx(changed[drawn.tokens].item())


def test_a_completion_does_not_end_too_early() -> None:
    early = torch.tensor([True, False])
    logits = torch.tensor([[9.0, 0.0], [9.0, 0.0]])
    options = Options(min_tokens=1)
    stops = torch.tensor([True, False])
    drawn = draw(logits, torch.tensor([0.5, 0.5]), options, too_early=early, stops=stops)
    assert drawn.tokens.tolist() == [1, 0]


def test_numbers_are_uniform_and_free_of_each_other() -> None:
    keys = torch.arange(100_000)
    a, b = (uniforms(seed, keys).numpy() for seed in (0, 1))
    for numbers in (a, b):
        assert abs(numbers.mean() - 0.5) < 0.005
        counts = np.histogram(numbers, 50, (0, 1))[0]
        assert ((counts - 2000) ** 2 / 2000).sum() < 50 + 6 * 10
    assert abs(np.corrcoef(a, b)[0, 1]) < 0.02
    assert abs(np.corrcoef(a[1:], a[:-1])[0, 1]) < 0.02
    zeros = torch.zeros_like(keys)
    assert abs(np.corrcoef(uniforms(0, keys, zeros), uniforms(0, zeros, keys))[0, 1]) < 0.02
    assert a.max() < 1


def test_numbers_depend_on_seed_and_keys_alone() -> None:
    keys, positions = torch.arange(12), torch.arange(12) % 5
    together = uniforms(2**63 + 1, keys, positions)
    alone = [uniforms(2**63 + 1, keys[i : i + 1], positions[i : i + 1]) for i in range(12)]
    assert torch.equal(together, torch.cat(alone))
    assert len(set(together.tolist())) == 12


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("temperature", -1.0),
        ("temperature", math.inf),
        ("top_k", -1),
        ("top_p", 0.0),
        ("top_p", 1.5),
        ("min_p", 2.0),
        ("repetition_penalty", 0.0),
        ("min_tokens", -1),
    ],
)
def test_impossible_options_are_named(option: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{option} must be .*, got {value}"):
        Options(**{option: value})
