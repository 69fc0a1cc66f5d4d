"""A text depends on seed, prompt and number alone; slots, batches and caches do not show in it."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from sharpwave.llm import CausalModel, Sampler, TokenBatch, score_all
from sharpwave.llm import sampler as sampling
from sharpwave.llm.cache import SlotCache, TokenCache
from tests.unit.llm.models import VOCABULARY, Plain, hugging_face, make, spread

PROMPTS = [[1, 2, 3], [4, 5], [6] * 7, [3], [9, 8, 7, 6, 5]] * 2
KINDS = ["transformer", "plain", "Llama"]


def sample(model: Any, **options: Any) -> Any:
    given = {"seed": 3, "stop": [0], **options}
    return Sampler(model, **given).generate(PROMPTS, n=3, max_new_tokens=9)


@pytest.mark.long(but=["transformer"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_text_in_any_number_of_slots(kind: str) -> None:
    model = make(kind)
    texts = [sample(model, max_rows=rows) for rows in (1, 4, 7, 64)]
    for other in texts[1:]:
        assert torch.equal(texts[0].tokens, other.tokens)
        assert torch.equal(texts[0].offsets, other.offsets)
        assert torch.equal(texts[0].finished, other.finished)
        torch.testing.assert_close(texts[0].log_probs, other.log_probs, atol=1e-4, rtol=0)


@pytest.mark.long
def test_the_same_text_with_little_memory() -> None:
    model = make("transformer")
    assert torch.equal(sample(model).tokens, sample(model, cache_tokens=40).tokens)


def test_a_cache_gives_what_no_cache_gives() -> None:
    model = make("transformer")
    assert isinstance(CausalModel.of(model).make_cache(1, 4), SlotCache)
    assert isinstance(CausalModel.of(Plain(model)).make_cache(1, 4), TokenCache)
    assert torch.equal(sample(model).tokens, sample(Plain(model)).tokens)


@pytest.mark.long(only=["Llama"])
@pytest.mark.parametrize("kind", KINDS)
def test_log_probs_are_those_that_scoring_computes(kind: str) -> None:
    model = make(kind)
    written = sample(model, temperature=1.3)
    scored = score_all(
        CausalModel.of(model), TokenBatch.of(written), max_tokens=64, temperature=1.3
    )
    torch.testing.assert_close(written.log_probs, scored, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(written.plain_log_probs, scored, atol=1e-5, rtol=1e-5)


def test_completions_end_at_a_stop_and_not_before() -> None:
    written = sample(make("transformer"))
    rows = list(written)
    assert len(rows) == 30
    assert written.prompt.tolist() == [i // 3 for i in range(30)]
    for row, finished in zip(rows, written.finished.tolist(), strict=True):
        assert finished == (row[-1].item() == 0)
        assert 0 not in row[:-1]
        assert finished or len(row) == 9
    assert written.finished.any()
    assert not written.finished.all()
    first = written.sequences()[0]
    assert first[:3].tolist() == PROMPTS[0]
    assert torch.equal(first[3:], rows[0])


def test_no_stop_before_the_fewest_tokens() -> None:
    written = sample(make("transformer"), min_tokens=4)
    assert written.lengths.min() >= 5  # four, and the one that ends it


def test_calls_draw_others_and_keys_the_same() -> None:
    sampler = Sampler(make("transformer"), seed=3)
    first, second = (sampler.generate(PROMPTS, max_new_tokens=9) for _ in range(2))
    assert not torch.equal(first.tokens, second.tokens)
    assert sampler.drawn == 2 * len(PROMPTS)
    again = sampler.generate(PROMPTS, max_new_tokens=9, keys=range(len(PROMPTS)))
    assert torch.equal(first.tokens, again.tokens)
    reversed_ = sampler.generate(PROMPTS[::-1], max_new_tokens=9, keys=range(len(PROMPTS))[::-1])
    assert [x.tolist() for x in reversed_][::-1] == [x.tolist() for x in first]
    sampler.load_state_dict({"drawn": len(PROMPTS), "version": 0})
    assert torch.equal(sampler.generate(PROMPTS, max_new_tokens=9).tokens, second.tokens)


@pytest.mark.long
@pytest.mark.parametrize(
    "kind", ["Llama", "Qwen2", "Qwen3", "Mistral", "Gemma3Text", "Cohere", "GPTNeoX", "Mixtral"]
)
def test_greedy_text_is_that_of_transformers(kind: str) -> None:
    """Architectures whose attention takes keys and values in slots, and others, alike."""
    model = hugging_face(kind)
    prompts = torch.randint(2, VOCABULARY, (6, 5), generator=torch.Generator().manual_seed(0))
    ours = Sampler(model, temperature=0, max_rows=4).generate(prompts, max_new_tokens=10)
    theirs = model.generate(prompts, max_new_tokens=10, do_sample=False)
    for row, text in zip(ours.sequences(), theirs, strict=True):
        assert text[: len(row)].tolist() == row.tolist()


@pytest.mark.long
def test_a_window_of_attention_is_kept() -> None:
    model = hugging_face("Mistral", sliding_window=4)
    face = CausalModel.of(model)
    assert isinstance(face.make_cache(2, 4), SlotCache)
    assert isinstance(face.make_cache(2, 5), TokenCache)
    prompts = torch.randint(2, VOCABULARY, (3, 3), generator=torch.Generator().manual_seed(0))
    ours = Sampler(model, temperature=0).generate(prompts, max_new_tokens=10)
    theirs = model.generate(prompts, max_new_tokens=10, do_sample=False)
    for row, text in zip(ours.sequences(), theirs, strict=True):
        assert text[: len(row)].tolist() == row.tolist()


def test_weights_are_read_where_they_lie() -> None:
    model = make("transformer")
    sampler = Sampler(model, temperature=0)
    before = sampler.generate(PROMPTS, max_new_tokens=6)
    spread(model, -0.5)
    assert not torch.equal(before.tokens, sampler.generate(PROMPTS, max_new_tokens=6).tokens)


def test_dropout_does_not_touch_samples() -> None:
    model = torch.nn.Sequential(make("plain"), torch.nn.Dropout(0.5))
    model.train()
    written = sample(model)
    assert torch.equal(written.tokens, sample(make("plain")).tokens)
    assert model.training


@pytest.mark.parametrize(
    ("prompts", "max_new", "error"),
    [
        ([[1], []], 4, "prompts must not be empty, got none of a token in row 1"),
        ([], 4, "prompts must hold at least one"),
        ([[1], [99]], 4, "tokens from 0 to 15, got 99 to 99 in row 1"),
        ([[-1]], 4, "got -1 to -1 in row 0"),
        ([[1] * 1020], 8, "must fit into 1024 positions, got 1020 and 8 in row 0"),
        ([[1]], -1, "max_new_tokens must be at least 0, got -1"),
    ],
)
def test_bad_prompts_are_named(prompts: Any, max_new: int, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        Sampler(make("transformer")).generate(prompts, max_new_tokens=max_new)


def test_a_model_that_gives_no_logits_is_refused() -> None:
    with pytest.raises(TypeError, match=r"model must give logits \[B, L, V\]"):
        Sampler(torch.nn.Flatten())
    with pytest.raises(TypeError, match="model must be a torch module, got str"):
        Sampler("gpt2")
    with pytest.raises(TypeError, match="temperatur"):
        Sampler(make("transformer"), temperatur=1.0)


def test_no_tokens_at_all() -> None:
    written = Sampler(make("transformer")).generate(PROMPTS, max_new_tokens=0)
    assert written.lengths.tolist() == [0] * len(PROMPTS)
    assert not written.finished.any()


class Letters:
    """A tokenizer of sixteen letters, some of two."""

    def decode(self, tokens: list[int], **_: Any) -> str:
        return "".join("aa" if token == 2 else "abcdefghijklmnop"[token] for token in tokens)


@pytest.mark.long
@pytest.mark.parametrize("max_rows", [3, 64])
def test_a_text_ends_a_completion_with_the_token_that_completes_it(max_rows: int) -> None:
    model, letters = make("transformer"), Letters()
    options: dict[str, Any] = {"seed": 3, "tokenizer": letters, "max_rows": max_rows}
    free = Sampler(model, **options).generate(PROMPTS, n=4, max_new_tokens=20)
    texts = [letters.decode(row.tolist()) for row in free]
    stop = next(text[6:9] for text in texts)
    ended = Sampler(model, stop=[stop], **options).generate(PROMPTS, n=4, max_new_tokens=20)
    n_ended = 0
    for row, whole, log_probs, finished in zip(
        ended, free, ended.log_probs.split(ended.lengths.tolist()), ended.finished, strict=True
    ):
        assert torch.equal(row, whole[: len(row)])
        assert len(log_probs) == len(row)
        found = [stop in letters.decode(row[:k].tolist()) for k in range(1, len(row) + 1)]
        assert bool(finished) == any(found)
        assert not any(found[:-1])
        assert finished or len(row) == 20
        n_ended += any(found)
    assert 0 < n_ended < len(free)


def test_texts_that_cannot_end_anything_are_named() -> None:
    with pytest.raises(TypeError, match="stop must hold tokens where there is no tokenizer"):
        Sampler(make("transformer"), stop=["x"])
    with pytest.raises(ValueError, match="stop must not hold an empty text"):
        Sampler(make("transformer"), stop=["x", ""], tokenizer=Letters())


def test_long_prompts_are_read_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make("transformer")
    wanted = sample(model)
    monkeypatch.setattr(sampling, "_READ", 14)
    face, read = CausalModel.of(model), []
    prefill = face.prefill

    def counted(prompts: Any, cache: Any) -> Any:
        read.append(len(prompts) * int(prompts.lengths.max()))
        return prefill(prompts, cache)

    monkeypatch.setattr(face, "prefill", counted)
    assert torch.equal(sample(face).tokens, wanted.tokens)
    assert len(read) > 3
    assert max(read) <= 14


def test_a_copy_draws_the_same_in_memory_of_its_own() -> None:
    sampler = Sampler(make("transformer"), seed=3)
    sampler.generate(PROMPTS, max_new_tokens=3)
    sampler._slots = sampler._make_slots([torch.tensor([1])], 1, 4)
    twin = copy.deepcopy(sampler)
    assert twin._slots is None
    assert twin.drawn == sampler.drawn
    texts = [one.generate(PROMPTS, max_new_tokens=5).tokens for one in (sampler, twin)]
    assert torch.equal(*texts)
