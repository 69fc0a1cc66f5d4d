"""Supervised fine-tuning: every token of a completion counts the same, those of prompts not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from sharpwave.algorithms.sft import SFT, SFTLearner
from sharpwave.llm import TASKS, DigitTokenizer, TokenBatch
from sharpwave.nn import Transformer
from tests.unit.llm.models import hugging_face

TASK = TASKS["sort3"]


def answers(n: int, seed: int = 0) -> list[dict[str, str]]:
    assert TASK.answer is not None
    return [{"prompt": x, "completion": TASK.answer(x)} for x in TASK.prompts(n, seed)]


# Completions of different lengths: the mean over tokens is not that over examples.
ROWS = [{**row, "completion": row["completion"][: 1 + i % 3]} for i, row in enumerate(answers(40))]
OPTIONS: dict[str, Any] = {
    "dataset": ROWS,
    "tokenizer": DigitTokenizer(),
    "learning_rate": 2e-3,
    "n_examples": 6,
    "seed": 3,
}


def transformer(seed: int = 0) -> Transformer:
    model = Transformer(14, hidden=32, seed=seed)
    with torch.no_grad():
        model.embedding.mul_(10)
    return model


def agent(model: Any = None, **options: Any) -> SFT:
    return SFT(transformer() if model is None else model, **{**OPTIONS, **options})


def weights(one: SFT) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in one.model.module.parameters()]


def tokens(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(10, shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("kind", ["nll", "dft"])
def test_the_gradient_is_that_of_the_formula(kind: str) -> None:
    module = transformer().double()
    one = agent(module, loss=kind)
    prompt, completion = tokens(4, 3), tokens(4, 5, seed=1)
    lengths = torch.tensor([5, 1, 3, 2])
    terms = []
    for row, (first, rest) in enumerate(zip(prompt, completion, strict=True)):
        rest = rest[: lengths[row]]
        found = module(torch.cat([first, rest])[None])[0, 2:-1].log_softmax(-1)
        terms.append(found.gather(1, rest[:, None])[:, 0])
    log_probs = torch.cat(terms)
    wanted = -(log_probs * (log_probs.detach().exp() if kind == "dft" else 1)).mean()
    loss, metrics = one.compute_loss(
        prompt, completion, completion_mask=torch.arange(5) < lengths[:, None]
    )
    torch.testing.assert_close(loss, wanted, atol=1e-12, rtol=0)
    torch.testing.assert_close(metrics["log_prob"], log_probs.detach().mean())
    parameters = list(module.parameters())
    found, by_hand = (torch.autograd.grad(x, parameters) for x in (loss, wanted))
    for gradient, other in zip(found, by_hand, strict=True):
        torch.testing.assert_close(gradient, other, atol=1e-12, rtol=1e-8)


@pytest.mark.parametrize("masked", [False, True])
def test_the_cut_into_micro_batches_changes_nothing(masked: bool) -> None:
    agents = [agent(max_tokens=size) for size in (1, 4096)]
    batch = agents[0].examples(ROWS[:10]).batch()
    if masked:
        batch = batch.replace(loss_mask=torch.arange(len(batch.sequence)) % 3 > 0)
    assert len(list(batch.cut(1))) == 10
    metrics = [one.update(batch) for one in agents]
    pairs = zip(*(one.model.module.parameters() for one in agents), strict=True)
    for one, other in pairs:
        torch.testing.assert_close(one.grad, other.grad, atol=1e-6, rtol=0)
    for name in metrics[0]:
        torch.testing.assert_close(metrics[0][name], metrics[1][name], atol=1e-5, rtol=1e-5)


@pytest.mark.long
def test_a_run_goes_on_bit_for_bit(tmp_path: Path) -> None:
    """`train` equals a loop of one's own, and a checkpoint goes on with it."""
    whole, own, first = (agent() for _ in range(3))
    metrics = whole.train(n_updates=4)
    examples = own.loop.examples
    assert examples is not None
    for update in range(4):
        own.update(examples.select(examples.rows(6 * update, 6, seed=3)).batch())
    first.train(n_updates=2)
    first.save(tmp_path / "two")
    given = {name: OPTIONS[name] for name in ("dataset", "tokenizer")}
    second = SFT.from_checkpoint(tmp_path / "two", model=transformer(seed=9), **given)
    again = second.train(n_updates=2)
    for other in (own, second):
        assert all(map(torch.equal, weights(whole), weights(other)))
    assert again["mean_loss"] == pytest.approx(metrics["mean_loss"])
    assert "reference" not in second.learner.networks


def test_evaluation_is_the_mean_log_probability_of_a_token() -> None:
    one = agent()
    found = one.evaluate(ROWS[:5])
    for value, row in zip(found.returns, ROWS, strict=False):
        examples = one.examples([row])
        completion = examples.completions[0][0][None]
        loss, _ = one.compute_loss(examples.prompts[0][None], completion)
        assert value == pytest.approx(-loss.item(), abs=1e-6)
    assert found.lengths == (2, 3, 4, 2, 3)


def test_an_override_is_what_learns() -> None:
    class Nothing(SFTLearner):
        def loss(self, part: TokenBatch, total: Any) -> Any:
            return super().loss(part, total)[0] * 0, {}

    one = agent(learner=Nothing)
    before = weights(one)
    one.train(n_updates=2)
    assert all(map(torch.equal, before, weights(one)))


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated")
def test_adapters_learn() -> None:
    peft = pytest.importorskip("peft")
    module = hugging_face(vocab_size=14, eos_token_id=13)
    module = peft.get_peft_model(module, peft.LoraConfig(r=2, target_modules=["q_proj"]))
    before = {name: x.clone() for name, x in module.state_dict().items()}
    agent(module).train(n_updates=2)
    moved = {name for name, x in module.state_dict().items() if not torch.equal(x, before[name])}
    assert moved
    assert all("lora" in name for name in moved)


def test_bad_input_is_named() -> None:
    with pytest.raises(ValueError, match="dataset must be given"):
        agent(dataset=None).train(n_updates=1)
    with pytest.raises(TypeError, match="unknown option 'beta'"):
        agent(beta=0.1)
    with pytest.raises(ValueError, match="loss must be one of 'nll', 'dft', got 'mse'"):
        agent(loss="mse")
    with pytest.raises(ValueError, match="n_examples must be greater than 0"):
        agent(n_examples=0)
    with pytest.raises(ValueError, match=r"completion must have shape \[4, L\], got \(3, 2\)"):
        agent().train_step(tokens(4, 3), tokens(3, 2))


@pytest.mark.long
def test_a_tiny_model_learns_to_sort() -> None:
    one = SFT(
        Transformer(14, seed=1),
        2e-3,
        dataset=answers(4000, seed=1),
        tokenizer=DigitTokenizer(),
        n_examples=64,
        max_new_tokens=4,
        seed=1,
    )
    one.train(n_updates=150)
    prompts = TASK.prompts(100, seed=2)
    right = TASK.reward(prompts, one.predict(prompts))
    assert sum(right) / len(right) > 0.9
