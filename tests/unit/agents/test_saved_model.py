"""Language models come out of their checkpoints, and into folders that others open."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from sharpwave.agents import load_run
from sharpwave.agents.language import LanguageAgent
from sharpwave.algorithms.dpo import DPO
from sharpwave.algorithms.grpo import GRPO
from sharpwave.algorithms.ppo import PPO
from sharpwave.algorithms.sft import SFT
from sharpwave.errors import SharpwaveIOError
from sharpwave.llm import TASKS, DigitTokenizer
from sharpwave.nn import Transformer
from tests.unit.llm.models import Plain, hugging_face

TASK = TASKS["copy4"]
ROWS = [{"prompt": x, "completion": x[:4]} for x in TASK.prompts(40)]
IDS = torch.tensor([[1, 2, 3, 4, 11]])


def with_adapter(model: Any, **options: Any) -> Any:
    peft = pytest.importorskip("peft")
    options = {"r": 4, "target_modules": ["q_proj", "v_proj"], **options}
    return peft.get_peft_model(model, peft.LoraConfig(**options))


def tokenizer(template: str | None = None, words: str = "0123456789+=") -> Any:
    """One of transformers, of a few characters."""
    tokenizers = pytest.importorskip("tokenizers")
    transformers = pytest.importorskip("transformers")
    symbols = [*words, "<pad>", "<eos>", "<unk>"]
    model = tokenizers.models.WordLevel(
        {symbol: i for i, symbol in enumerate(symbols)}, unk_token="<unk>"
    )
    made = tokenizers.Tokenizer(model)
    made.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
    found = transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token="<eos>", pad_token="<pad>", unk_token="<unk>"
    )
    found.chat_template = template
    return found


def sft(model: nn.Module, words: Any = None, **options: Any) -> SFT:
    words = DigitTokenizer() if words is None else words
    return SFT(model, 3e-3, dataset=ROWS, tokenizer=words, seed=1, **options)


def saved(tmp_path: Path, model: nn.Module, words: Any = None) -> tuple[SFT, Path]:
    """An agent after two updates, and its checkpoint."""
    agent = sft(model, words)
    agent.train(n_updates=2)
    agent.save(tmp_path / "agent.safetensors")
    return agent, tmp_path / "agent.safetensors"


def logits(agent: LanguageAgent) -> torch.Tensor:
    with torch.no_grad(), agent.model.evaluating():
        return agent.model.logits(IDS)


def kinds() -> dict[str, Any]:
    return {
        "transformer": lambda: Transformer(14, hidden=32, seed=5),
        "llama": hugging_face,
        "tied": lambda: hugging_face("Qwen2", tie_word_embeddings=True),
        "adapter": lambda: with_adapter(hugging_face()),
    }


@pytest.mark.long(but=["transformer"])
@pytest.mark.parametrize("kind", kinds())
@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")
def test_an_agent_comes_back_without_its_model_and_goes_on_bit_for_bit(
    kind: str, tmp_path: Path
) -> None:
    first, path = saved(tmp_path, kinds()[kind]())
    second = SFT.from_checkpoint(path, dataset=ROWS)
    assert type(second.model.module) is type(first.model.module)
    assert torch.equal(logits(second), logits(first))
    drawn = torch.random.get_rng_state()
    ends = [agent.train(n_updates=2)["loss"] for agent in (first, second)]
    assert ends[0] == ends[1]
    assert torch.equal(logits(second), logits(first))
    assert torch.equal(torch.random.get_rng_state(), drawn)
    assert load_run(path).logits(IDS).shape == (1, 5, first.model.vocab_size)


@pytest.mark.long
def test_the_model_of_a_run_is_the_one_that_learned(tmp_path: Path) -> None:
    agent = sft(Transformer(14, hidden=32))
    agent.train(n_updates=2, run_dir=tmp_path / "run")
    model = load_run(tmp_path / "run")
    assert isinstance(model.tokenizer, DigitTokenizer)
    assert not model.module.training
    with torch.no_grad():
        assert torch.equal(model.logits(IDS), logits(agent))
    agent.save(tmp_path / "run" / "checkpoints" / "best.safetensors")
    assert load_run(tmp_path / "run").eos == (13,)


def test_a_reference_of_its_own_comes_back(tmp_path: Path) -> None:
    pairs = [{"prompt": "12=", "chosen": "12", "rejected": "21"}]
    given: dict[str, Any] = {"dataset": pairs, "tokenizer": DigitTokenizer(), "seed": 0}
    reference = Transformer(14, hidden=16, seed=8)
    agent = DPO(Transformer(14, hidden=32), reference, **given)
    agent.train(n_updates=1)
    agent.save(tmp_path / "dpo.safetensors")
    again = DPO.from_checkpoint(tmp_path / "dpo.safetensors", dataset=pairs)
    assert again.learner.reference.module.arguments == reference.arguments
    assert again.train(n_updates=1)["loss"] == agent.train(n_updates=1)["loss"]


@pytest.mark.long
def test_a_tokenizer_comes_back_with_its_template(tmp_path: Path) -> None:
    template = "{% for m in messages %}{{ m.content }}={% endfor %}"
    words = tokenizer(template)
    _, path = saved(tmp_path, Transformer(15, hidden=16), words)
    found = load_run(path).tokenizer
    assert found.encode("12=3") == words.encode("12=3")
    assert found.chat_template == template
    assert found.eos_token_id == words.eos_token_id


def test_a_module_of_ones_own_is_asked_for(tmp_path: Path) -> None:
    agent, path = saved(tmp_path, Plain(Transformer(14, hidden=16)))
    with pytest.raises(TypeError, match=r"model must be given: Plain is not"):
        SFT.from_checkpoint(path)
    with pytest.raises(TypeError, match=r"model must be given"):
        load_run(path)
    again = SFT.from_checkpoint(path, model=Plain(Transformer(14, hidden=16)), dataset=ROWS)
    assert torch.equal(logits(again), logits(agent))


def test_a_tokenizer_of_ones_own_is_asked_for(tmp_path: Path) -> None:
    class Mine:
        """Digits of a user."""

        encode, decode = DigitTokenizer.encode, DigitTokenizer.decode

    agent = sft(Transformer(14, hidden=16), Mine())
    agent.save(tmp_path / "mine.safetensors")
    with pytest.raises(TypeError, match=r"tokenizer must be given: .*Mine is not"):
        SFT.from_checkpoint(tmp_path / "mine.safetensors")
    again = SFT.from_checkpoint(tmp_path / "mine.safetensors", tokenizer=Mine(), dataset=ROWS)
    assert torch.equal(logits(again), logits(agent))


@pytest.mark.long(but=["size"])
@pytest.mark.parametrize(
    ("model", "words", "difference"),
    [
        (lambda: Transformer(14, hidden=64), None, "its model has hidden 32, not 64"),
        (lambda: Plain(Transformer(14)), None, "its model is nn.Transformer, not Plain"),
        (lambda: Transformer(15, hidden=32), tokenizer, "its model has vocab_size 14, not 15"),
    ],
    ids=["size", "kind", "vocabulary"],
)
def test_another_model_is_refused(model: Any, words: Any, difference: str, tmp_path: Path) -> None:
    _, path = saved(tmp_path, Transformer(14, hidden=32))
    agent = sft(model(), None if words is None else words())
    before = logits(agent)
    with pytest.raises((ValueError, SharpwaveIOError), match=difference):
        agent.load_checkpoint(path)
    assert torch.equal(logits(agent), before)
    with pytest.raises((ValueError, SharpwaveIOError), match=difference):
        SFT.from_checkpoint(path, model=model(), tokenizer=words and words(), dataset=ROWS)


@pytest.mark.long
@pytest.mark.parametrize(
    ("other", "difference"),
    [
        (lambda: tokenizer("{{ messages }}"), "its tokenizer has another chat template"),
        (lambda: tokenizer(None, "9876543210+="), "its tokenizer has another vocabulary"),
        (DigitTokenizer, "its tokenizer is one of transformers, not DigitTokenizer"),
    ],
    ids=["template", "vocabulary", "kind"],
)
def test_another_tokenizer_is_refused(other: Any, difference: str, tmp_path: Path) -> None:
    _, path = saved(tmp_path, Transformer(15, hidden=16), tokenizer())
    with pytest.raises(ValueError, match=difference):
        SFT.from_checkpoint(path, tokenizer=other(), dataset=ROWS)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")
def test_another_architecture_or_adapter_is_refused(tmp_path: Path) -> None:
    _, path = saved(tmp_path, with_adapter(hugging_face()))
    for model, difference in {
        hugging_face(hidden_size=16): "its model has head_dim 8, not 4, has hidden_size 32, not 16",
        hugging_face("Mistral"): "its model is LlamaForCausalLM, not MistralForCausalLM",
        hugging_face(): "its model has the adapters default, not none",
        with_adapter(hugging_face(), r=2): "has an adapter default that has r 4, not 2",
    }.items():
        with pytest.raises(ValueError, match=difference):
            SFT.from_checkpoint(path, model=model, dataset=ROWS)


def test_what_is_no_language_model_is_said(tmp_path: Path) -> None:
    PPO("CartPole-v1", hidden=(4,), seed=0).save(tmp_path / "ppo.safetensors")
    with pytest.raises(ValueError, match=r"holds 'ppo' without a language model"):
        load_run(tmp_path / "ppo.safetensors")
    with pytest.raises(SharpwaveIOError, match="no checkpoint here"):
        load_run(tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("merge", [True, False])
@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")
def test_transformers_opens_what_is_saved(merge: bool, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    hugging_face(vocab_size=15).save_pretrained(tmp_path / "base")
    base = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    with torch.no_grad():
        untrained = base(IDS).logits
    words = tokenizer("{{ messages }}")
    agent = sft(with_adapter(base), words)
    agent.train(n_updates=3)
    before = logits(agent)
    agent.save_pretrained(tmp_path / "out", merge=merge)
    assert torch.equal(logits(agent), before), "saving changes nothing"
    assert (tmp_path / "out" / "adapter_config.json").exists() != merge
    found = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    with torch.no_grad():
        assert torch.allclose(found(IDS).logits, before, atol=1e-5)
        assert not torch.allclose(found(IDS).logits, untrained, atol=1e-3)
    again = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert again.encode("12=") == words.encode("12=")
    assert again.chat_template == words.chat_template


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")
def test_what_nobody_could_open_is_not_saved(tmp_path: Path) -> None:
    agent = sft(with_adapter(hugging_face()))
    with pytest.raises(ValueError, match=r"merge must be true for an adapter of a model"):
        agent.save_pretrained(tmp_path / "out", merge=False)
    assert not (tmp_path / "out").exists()


def test_a_plain_module_has_no_pretrained_form(tmp_path: Path) -> None:
    agent = GRPO(Transformer(14, hidden=16), reward_fn=TASK.reward, tokenizer=DigitTokenizer())
    with pytest.raises(TypeError, match=r"causal models of Hugging Face, got Transformer"):
        agent.save_pretrained(tmp_path / "out")
