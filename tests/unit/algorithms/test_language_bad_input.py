"""Mistakes of users of language models are named, and the edges of models are no errors."""

from __future__ import annotations

import math
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import sharpwave as sw
from sharpwave.errors import NonFiniteError
from sharpwave.llm import DigitTokenizer, Preferences, Prompts, RewardFailed
from sharpwave.nn import Transformer

TOKENIZER = DigitTokenizer()
PAIR = {"prompt": "12=", "chosen": "1", "rejected": "2"}
TOKENS = [{"prompt": [1], "chosen": [2], "rejected": [3]}]


def small(**options: Any) -> Transformer:
    return Transformer(14, hidden=16, heads=2, layers=1, seed=1, **options)


def zero(completions: Any, prompts: Any) -> list[float]:
    return [0.0] * len(completions)


def length(completions: Any, prompts: Any) -> list[float]:
    return [float(len(one)) for one in completions]


def grpo(model: Any = None, reward_fn: Any = zero, **options: Any) -> sw.GRPO:
    return sw.GRPO(model or small(), reward_fn=reward_fn, n_prompts=2, seed=3, **options)


class NoLogits(nn.Module):
    """A module that gives something else."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, ids: Tensor) -> Any:
        return {"hidden": ids}


CASES: dict[str, tuple[Any, type[Exception], str]] = {
    "no module": (lambda: grpo("gpt2"), TypeError, "model must be a torch module, got str"),
    "no logits": (lambda: grpo(NoLogits()), TypeError, r"logits \[B, L, V\] for tokens .*got dict"),
    "no tokenizer": (
        lambda: grpo().train(["12="], n_updates=1),
        TypeError,
        "tokenizer must be given for prompts that are text, such as '12='",
    ),
    "no reward": (lambda: sw.GRPO(small()), TypeError, "reward_fn must be given"),
    "no preference": (lambda: sw.OnlineDPO(small()), TypeError, "got neither"),
    "misspelt option": (lambda: grpo(grup_size=2), TypeError, "grup_size.*group_size"),
    "misspelt loss": (lambda: sw.DPO(small(), loss="sigmiod"), ValueError, "got 'sigmiod'"),
    "empty prompt": (
        lambda: grpo().train([[1], []], n_updates=1),
        ValueError,
        "prompts must not be empty, got none of a token in row",
    ),
    "no prompts": (lambda: grpo().train([], n_updates=1), ValueError, "at least one, got none"),
    "token outside": (
        lambda: grpo().train([[1], [14]], n_updates=1),
        ValueError,
        "tokens from 0 to 13, got 14 to 14 in row",
    ),
    "no room": (
        lambda: grpo(small(max_positions=6)).train([[1] * 5], n_updates=1),
        ValueError,
        "must fit into 6 positions, got 5 and 8 in row 0",
    ),
    "no room at all": (
        lambda: grpo(small(max_positions=6), truncate_prompt="start").train([[1]], n_updates=1),
        ValueError,
        "max_new_tokens must leave room for prompts",
    ),
    "group of one": (lambda: grpo(group_size=1), ValueError, "group_size must be at least 2"),
    "equal pairs": (
        lambda: sw.DPO(small(), dataset=[{**PAIR, "rejected": "1"}] * 3, tokenizer=TOKENIZER),
        ValueError,
        "got 3 of which each has empty or equal completions",
    ),
    "long pairs": (
        lambda: sw.DPO(small(max_positions=4), dataset=[PAIR], tokenizer=TOKENIZER),
        ValueError,
        "an example that fits into 4 positions, got 5 tokens in the shortest of 1",
    ),
    "pair outside": (
        lambda: sw.DPO(small(), dataset=[{**TOKENS[0], "chosen": [99]}]),
        ValueError,
        "dataset must hold tokens from 0 to 13, got 1 to 99",
    ),
    "judge without tokenizer": (
        lambda: sw.OnlineDPO(small(), preference_fn=Judge()),
        TypeError,
        "tokenizer must be given for a judge",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_wrong_is_named(case: str) -> None:
    make, error, message = CASES[case]
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize(
    ("reward", "error", "message"),
    [
        (lambda c, _: [1.0] * (len(c) - 1), RewardFailed, "for each of 8 completions, got 7"),
        (lambda c, _: [0.0, math.nan] * (len(c) // 2), NonFiniteError, "got nan .* in row 1"),
        (lambda c, _: [0.0, math.inf] * (len(c) // 2), NonFiniteError, "got inf .* in row 1"),
        (lambda c, _: ["x"] * len(c), RewardFailed, "numbers or None, got 'x' in row 0"),
        (lambda *_: 1 / 0, RewardFailed, "raised ZeroDivisionError"),
    ],
)
def test_what_could_not_be_scored_is_kept_in_the_error(
    reward: Any, error: type[Exception], message: str
) -> None:
    one = grpo(reward_fn=reward)
    with pytest.raises(error, match=message) as caught:
        one.train([[1, 2], [3]], n_updates=1)
    assert isinstance(caught.value, RewardFailed)
    written = caught.value.completions
    assert written is not None
    assert len(written) == 8
    assert {len(x) for x in written.prompts} == {1, 2}


def test_long_prompts_lose_their_first_tokens_where_that_is_asked_for() -> None:
    seen: list[list[int]] = []

    def looks(completions: list[Tensor], prompts: Tensor) -> list[float]:
        seen.extend(prompts.tolist())
        return length(completions, prompts)

    model = small(max_positions=6)
    one = grpo(model, reward_fn=looks, truncate_prompt="start", max_new_tokens=3)
    one.train([[1, 2, 3, 4, 5], [6, 7, 8]], n_updates=1)
    assert sorted(map(tuple, seen)) == [(3, 4, 5)] * 4 + [(6, 7, 8)] * 4
    assert len(one.predict([[1] * 20])[0]) == 3
    rows = [{**PAIR, "prompt": "123456="}, {**PAIR, "chosen": "1234567"}, PAIR]
    cut = sw.DPO(model, dataset=rows, tokenizer=TOKENIZER, truncate_prompt="start")
    examples = cut.loop.examples
    assert examples is not None
    assert [x.tolist() for x in examples.prompts] == [[4, 5, 6, 11], [1, 2, 11]]
    assert examples.dropped == 1
    assert cut.train(n_updates=1)["grad_norm"] > 0


def test_examples_without_room_or_difference_are_dropped_and_counted() -> None:
    rows = [PAIR, {**PAIR, "rejected": "1"}, {**PAIR, "chosen": ""}, {**PAIR, "chosen": "1" * 9}]
    dpo = sw.DPO(small(max_positions=6), dataset=rows, tokenizer=TOKENIZER, n_pairs=1)
    assert dpo.loop.subject == "1 pairs, 3 dropped"
    assert dpo.train(n_updates=1)["grad_norm"] > 0
    sft = sw.SFT(
        small(max_positions=6),
        dataset=[{"prompt": "1=", "completion": "1" * n} for n in (1, 2, 8)],
        tokenizer=TOKENIZER,
    )
    assert sft.loop.examples is not None
    assert sft.loop.examples.dropped == 1
    with pytest.raises(ValueError, match="must fit into 6 positions"):
        dpo.train_step(torch.ones(1, 5).long(), torch.ones(1, 2).long(), torch.zeros(1, 2).long())


class Padded(DigitTokenizer):
    """Its token of the end fills up, too."""

    pad_token_id = DigitTokenizer.eos_token_id


class Endless(DigitTokenizer):
    """It has no token of the end."""

    eos_token_id = None  # type: ignore[assignment]


@pytest.mark.long(but=["grpo-never-eos"])
@pytest.mark.parametrize(
    "tokenizer", [DigitTokenizer(), Padded(), Endless()], ids=["eos", "pad is eos", "no eos"]
)
@pytest.mark.parametrize("writes_end", [True, False], ids=["at once", "never"])
@pytest.mark.parametrize("loss", ["dapo", "grpo", "dr_grpo", "gmpo"])
def test_masks_come_from_lengths(tokenizer: Any, writes_end: bool, loss: str) -> None:
    """Whatever tokens end a completion or fill up, the tokens written are learned from."""

    class Module(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.logits = nn.Parameter(torch.zeros(14))
            self.logits.data[13 if writes_end else 5] = 50.0

        def forward(self, ids: Tensor) -> Tensor:
            return self.logits.expand(*ids.shape, 14)

    calls = 0

    def differs(completions: Any, **_: Any) -> list[float]:
        nonlocal calls
        calls += 1
        return [float(row % 2) for row in range(len(completions))]

    one = sw.GRPO(
        Module(), reward_fn=differs, tokenizer=tokenizer, loss=loss, max_new_tokens=3,
        n_prompts=2, mask_cut=False, seed=3,
    )  # fmt: skip
    batch = one.rollout(["12=", "3="])
    ends_at_once = writes_end and tokenizer.eos_token_id is not None
    assert batch.completion_lengths.tolist() == [1 if ends_at_once else 3] * 8
    assert batch.loss_mask is None
    metrics = one.update(batch)
    assert all(math.isfinite(float(x)) for x in metrics.values())
    cut = sw.GRPO(Module(), reward_fn=differs, tokenizer=tokenizer, mask_cut=True, max_new_tokens=3)
    metrics = cut.update(cut.rollout(["12=", "3="]))
    assert all(math.isfinite(float(x)) for x in metrics.values())
    assert calls == 2


def test_an_evaluation_without_a_score_has_no_mean() -> None:
    one = grpo(reward_fn=lambda completions, _: [None] * len(completions))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = one.evaluate([[1, 2]])
        assert math.isnan(result.mean)
        assert math.isnan(result.std)
        assert result.returns == ()
        assert len(result.samples or ()) == 1
        assert "over 0 completions" in str(result)


def test_numbers_that_the_cpu_cannot_compute_with_become_float32(
    capsys: pytest.CaptureFixture[str],
) -> None:
    module = small().to(torch.float8_e4m3fn)
    one = grpo(module, reward_fn=length)
    assert "does not compute with torch.float8_e4m3fn" in capsys.readouterr().err
    assert next(module.parameters()).dtype == torch.float32
    assert one.train([[1, 2]], n_updates=1)["skipped_updates"] == 1
    grpo(small().to(torch.bfloat16))
    assert capsys.readouterr().err == ""


class Judge:
    """One of TRL's kind: it fails on the second pair."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def judge(self, prompts: list[str], completions: list[list[str]]) -> list[int]:
        self.seen += zip(prompts, completions, strict=True)
        return [-1 if row == 1 else row % 2 for row in range(len(prompts))]


def test_judges_read_texts() -> None:
    judge = Judge()
    one = sw.OnlineDPO(
        small(), preference_fn=judge, tokenizer=TOKENIZER, max_new_tokens=4, n_prompts=3, seed=1
    )
    batch = one.rollout(["12=", "3=", "456="])
    assert [prompt for prompt, _ in judge.seen] == ["12=", "3=", "456="]
    assert all(len(pair) == 2 and isinstance(pair[0], str) for _, pair in judge.seen)
    assert len(batch) == 4  # two pairs; the judge did not know which of the other is better
    assert batch.group is not None
    assert batch.group.tolist() == [0, 0, 2, 2]
    assert one.evaluate(["1="]).returns in ((0.0,), (1.0,))

    def by_name(prompts: list[str], completions: list[list[str]]) -> list[int | None]:
        return [None if one == other else int(other > one) for one, other in completions]

    found = Preferences(by_name, TOKENIZER).compare(
        Prompts.of(["1=", "2="], TOKENIZER),
        [torch.tensor([1, 13]), torch.tensor([5])],
        [torch.tensor([2]), torch.tensor([5, 13])],
    )
    assert found[0] == 1
    assert found[1].isnan()


def test_pairs_without_a_preference_are_dropped_and_counted() -> None:
    def of_three(pairs: Any) -> list[int | None]:
        return [None, 0, 1][: len(pairs)]

    one = sw.OnlineDPO(small(), preference_fn=of_three, n_prompts=3, seed=1)
    metrics = one.train([[1], [2], [3]], n_updates=1)
    assert metrics["dropped_fraction"] == pytest.approx(1 / 3)
    nothing = sw.OnlineDPO(small(), reward_fn=zero, n_prompts=3, seed=1)
    metrics = nothing.train([[1], [2], [3]], n_updates=1)
    assert metrics["dropped_fraction"] == 1
    assert metrics["skipped_updates"] == 1
