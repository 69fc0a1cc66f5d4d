"""Rollouts of one's own: several turns, with tokens that the model did not write."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest
import torch

import sharpwave as sw
from sharpwave.llm import DigitTokenizer, Prompts, Sampler, TokenBatch
from sharpwave.nn import Transformer
from tests.unit.algorithms.test_grpo import transformer

EXAMPLE = Path(__file__).parents[3] / "examples" / "calculator.py"
FOREIGN = torch.tensor([9, 9])


def with_foreign(prompts: Prompts, sampler: Sampler, n: int) -> TokenBatch:
    """Completions of three tokens and two that nobody drew."""
    written = sampler.generate(prompts.tokens, n, 3)
    sequences = [torch.cat([one, FOREIGN]) for one in written.sequences()]
    lengths = torch.tensor([len(prompts.tokens[row]) for row in written.prompt])
    own = [torch.tensor([True] * len(one) + [False] * 2) for one in written]
    return TokenBatch.of_sequences(sequences, lengths, loss_mask=torch.cat(own))


def total(completions: Any, prompts: Any) -> list[float]:
    return [float(one.sum()) for one in completions]


def test_what_the_model_did_not_write_is_not_learned_from() -> None:
    prompts = [[1, 2], [3, 4, 5]]
    options: dict[str, Any] = {"reward_fn": total, "kl_coef": 0.0, "max_new_tokens": 3, "seed": 5}
    own = sw.GRPO(transformer(), rollout_fn=with_foreign, **options)
    batch = own.rollout(prompts)
    assert batch.learned_lengths.tolist() == [3] * 8
    assert batch.completion_lengths.tolist() == [5] * 8
    metrics = own.update(batch)
    # The tokens at the end change nothing before them: it is the update without them.
    plain = sw.GRPO(transformer(), **options)
    wanted = plain.update(plain.rollout(prompts))
    torch.testing.assert_close(metrics["loss"], wanted["loss"])
    torch.testing.assert_close(metrics["grad_norm"], wanted["grad_norm"])
    for one, other in zip(
        own.model.module.parameters(), plain.model.module.parameters(), strict=True
    ):
        torch.testing.assert_close(one, other)


def test_online_dpo_compares_what_the_model_wrote() -> None:
    prompts = [[1, 2], [3, 4]]
    options: dict[str, Any] = {"reward_fn": total, "max_new_tokens": 3, "seed": 5, "loss": "ipo"}
    own = sw.OnlineDPO(transformer(), rollout_fn=with_foreign, **options)
    plain = sw.OnlineDPO(transformer(), **options)
    found, wanted = own.update(own.rollout(prompts)), plain.update(plain.rollout(prompts))
    torch.testing.assert_close(found["loss"], wanted["loss"])
    torch.testing.assert_close(found["grad_norm"], wanted["grad_norm"])


def test_evaluations_and_predictions_are_rollouts_too() -> None:
    agent = sw.GRPO(transformer(), reward_fn=total, rollout_fn=with_foreign, max_new_tokens=3)
    assert [one.tolist()[-2:] for one in agent.predict([[1, 2]])] == [[9, 9]]
    assert agent.evaluate([[1, 2]]).lengths == (5,)


@pytest.mark.parametrize(
    ("rollout", "error", "message"),
    [
        (lambda p, s, n: s.generate(p.tokens, n), TypeError, "must give a TokenBatch, got Compl"),
        (
            lambda p, s, _: with_foreign(p, s, 1),
            ValueError,
            "must give 4 completions for each of 2 prompts, got 2 in all",
        ),
        (
            lambda p, s, n: with_foreign(p.select([1, 0]), s, n),
            ValueError,
            "the completions of each prompt one after another, got another prompt in row 0",
        ),
    ],
)
def test_what_is_no_rollout_is_named(rollout: Any, error: Any, message: str) -> None:
    agent = sw.GRPO(Transformer(14), reward_fn=total, rollout_fn=rollout)
    with pytest.raises(error, match=message):
        agent.train_step([[1, 2], [3, 4]])


def test_the_calculator_speaks_between_two_turns() -> None:
    example = runpy.run_path(str(EXAMPLE))
    tokenizer = DigitTokenizer()

    class Scripted(Sampler):
        """Writes what a model would that has learned."""

        def generate(self, prompts: Any, n: int = 1, max_new_tokens: int = 64, **_: Any) -> Any:
            found = super().generate(prompts, n, max_new_tokens)
            texts = [tokenizer.decode(prompts[row].tolist()) for row in found.prompt]
            right = {"7+5": "7+5=0", "7+57+5=12": "12", "2+1": "2+1+3", "2+12+1+3": "3"}
            tokens = [torch.tensor(tokenizer.encode(right[text])) for text in texts]
            sizes = torch.tensor([0, *map(len, tokens)])
            nothing = torch.zeros(int(sizes.sum()))
            return sw.llm.Completions(
                prompts=found.prompts,
                prompt=found.prompt,
                tokens=torch.cat(tokens),
                offsets=sizes.cumsum(0),
                log_probs=nothing,
                plain_log_probs=nothing,
                finished=found.finished,
            )

    prompts = Prompts.of(["7+5", "2+1"], tokenizer)
    batch = example["ask_and_answer"](prompts, Scripted(Transformer(14)), 1)
    texts = [tokenizer.decode(one.tolist()) for one in batch.tokens.split(batch.lengths.tolist())]
    assert texts == ["7+57+5=1212", "2+12+1+33"]  # what is no question has no answer
    assert batch.loss_mask.tolist() == [True] * 4 + [False] * 2 + [True] * 2 + [True] * 6
    assert example["score"](["7+5", "2+1"], ["7+5=1212", "2+1+33"]) == [1.0, pytest.approx(5 / 6)]


def test_the_sampler_of_two_turns_agrees_with_the_trainer() -> None:
    example = runpy.run_path(str(EXAMPLE))
    agent = sw.GRPO(
        transformer(), reward_fn=example["score"], rollout_fn=example["ask_and_answer"],
        prompts=["7+5", "2+1", "3+3"], tokenizer=DigitTokenizer(), n_prompts=3, group_size=8,
        seed=0,
    )  # fmt: skip
    metrics = agent.train(n_updates=2)
    assert metrics["sampler_mismatch_max"] < 1e-5
    assert metrics["grad_norm"] > 0
