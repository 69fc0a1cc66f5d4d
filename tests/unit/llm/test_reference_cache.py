"""Outputs of a reference on a dataset are computed once, and only used where they belong."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch

import sharpwave as sw
from sharpwave.errors import SharpwaveIOError
from sharpwave.llm import TASKS, CausalModel, DigitTokenizer
from sharpwave.nn import Transformer
from tests.unit.llm.models import hugging_face

PAIRS = [
    {"prompt": x, "chosen": x[: 1 + i % 4], "rejected": x[3::-1] + "0"}
    for i, x in enumerate(TASKS["copy4"].prompts(12))
]


def agent(cache: Any = None, *, seed: int = 1, pairs: Any = PAIRS, **options: Any) -> sw.DPO:
    options = {"tokenizer": DigitTokenizer(), "n_pairs": 4, "learning_rate": 1e-3, **options}
    model = options.pop("model", None) or Transformer(14, hidden=16, heads=2, layers=1, seed=seed)
    return sw.DPO(model, dataset=pairs, cache_reference=cache, seed=3, **options)


def weights(one: sw.DPO) -> torch.Tensor:
    return torch.cat([p.detach().reshape(-1) for p in one.model.module.parameters()])


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[CausalModel]:
    """The references that computed something."""
    found: list[CausalModel] = []
    score = sw.DPOLearner.score_reference

    def counted(self: Any, batch: Any) -> Any:
        found.append(self.reference)
        return score(self, batch)

    monkeypatch.setattr(sw.DPOLearner, "score_reference", counted)
    return found


@pytest.mark.long
def test_learning_is_the_same_and_the_reference_asked_once(
    tmp_path: Path, passes: list[CausalModel]
) -> None:
    plain = agent()
    plain.train(n_updates=5)
    assert len(passes) == 5
    passes.clear()
    first, second = agent(tmp_path / "cache"), agent(tmp_path / "cache")
    first.train(n_updates=5)
    assert len(passes) == 1
    second.train(n_updates=5)
    assert len(passes) == 1
    torch.testing.assert_close(weights(first), weights(plain))
    assert torch.equal(weights(first), weights(second))


@pytest.mark.long
def test_a_run_goes_on_with_its_cache(tmp_path: Path, passes: list[CausalModel]) -> None:
    """The model has moved by then; what it is held near to has not."""
    whole = agent(tmp_path / "cache")
    whole.train(n_updates=4)
    one = agent(tmp_path / "cache")
    one.train(n_updates=2)
    one.save(tmp_path / "two")
    again = sw.DPO.from_checkpoint(
        tmp_path / "two",
        model=Transformer(14, hidden=16, heads=2, layers=1),
        tokenizer=DigitTokenizer(),
        dataset=PAIRS,
        cache_reference=tmp_path / "cache",
    )
    again.train(n_updates=2)
    assert torch.equal(weights(again), weights(whole))
    assert len(passes) == 1
    copied = copy.deepcopy(one)
    copied.train(n_updates=2)
    assert torch.equal(weights(copied), weights(whole))


class OtherTokenizer(DigitTokenizer):
    """One that a cache does not know."""


@pytest.mark.parametrize(
    ("options", "difference"),
    [
        ({"seed": 2}, "the weights of the reference differ"),
        ({"pairs": PAIRS[:-1]}, "the tokens of the dataset differ"),
        ({"pairs": PAIRS[::-1]}, "the tokens of the dataset differ"),
    ],
)
def test_a_cache_of_something_else_is_refused(
    options: dict[str, Any], difference: str, tmp_path: Path
) -> None:
    agent(tmp_path / "cache").train(n_updates=1)
    other = agent(tmp_path / "cache", **options)
    before = weights(other)
    with pytest.raises(ValueError, match=difference):
        other.train(n_updates=1)
    assert torch.equal(before, weights(other))


@pytest.mark.long
def test_another_tokenizer_or_template_is_refused(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")

    def tokenizer(template: str) -> Any:
        words = {str(i): i for i in range(10)} | {"<unk>": 10}
        made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
        made.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
        found = transformers.PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>")
        found.chat_template = template
        return found

    agent(tmp_path / "cache", tokenizer=tokenizer("one")).train(n_updates=1)
    agent(tmp_path / "cache", tokenizer=tokenizer("one")).train(n_updates=1)
    with pytest.raises(ValueError, match=r"the tokenizer .*chat template"):
        agent(tmp_path / "cache", tokenizer=tokenizer("two")).train(n_updates=1)
    with pytest.raises(ValueError, match="the tokenizer is "):
        agent(tmp_path / "cache").train(n_updates=1)


def test_files_of_another_kind_are_refused(tmp_path: Path) -> None:
    one = agent()
    one.save(tmp_path / "checkpoint")
    with pytest.raises(ValueError, match="there is something else than reference log-prob"):
        agent(tmp_path / "checkpoint").train(n_updates=1)
    (tmp_path / "text").write_text("no file of ours")
    with pytest.raises(SharpwaveIOError):
        agent(tmp_path / "text").train(n_updates=1)
    with pytest.raises(ValueError, match="cache_reference must be None"):
        agent(tmp_path / "cache", loss="simpo")
    rows = [{"prompt": "1", "completion": "2"}]
    with pytest.raises(ValueError, match="cache_reference must be None"):
        sw.SFT(
            Transformer(14),
            dataset=rows,
            tokenizer=DigitTokenizer(),
            cache_reference=tmp_path / "x",
        )


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated")
def test_an_adapter_that_has_learned_leaves_the_cache_as_it_is(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    module = hugging_face(vocab_size=14, eos_token_id=13)
    module = peft.get_peft_model(module, peft.LoraConfig(r=2, target_modules=["q_proj"]))
    one = agent(tmp_path / "cache", model=module)
    one.train(n_updates=2)
    assert one.train(n_updates=1)["grad_norm"] > 0
