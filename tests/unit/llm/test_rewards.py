"""Reward functions are called in their form, and what they give is checked."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
import torch

from sharpwave.errors import NonFiniteError
from sharpwave.llm import Completions, DigitTokenizer, Prompts, RewardFailed, Rewards

TOKENIZER = DigitTokenizer()
PROMPTS = Prompts.of([{"prompt": "12=", "answer": 3}, {"prompt": "45=", "answer": 9}], TOKENIZER)
COMPLETIONS = Completions(
    prompts=PROMPTS.tokens,
    prompt=torch.tensor([0, 0, 1, 1]),
    tokens=torch.tensor([3, 13, 4, 9, 9, 13]),
    offsets=torch.tensor([0, 2, 3, 5, 6]),
    log_probs=torch.zeros(6),
    plain_log_probs=torch.zeros(6),
    finished=torch.tensor([True, False, False, True]),
)


def test_with_a_tokenizer_functions_get_text_and_columns_by_name() -> None:
    seen: dict[str, Any] = {}

    def all_names(**given: Any) -> list[float]:
        seen.update(given)
        return [0.0] * 4

    def some(completions: list[str], answer: list[int]) -> list[float]:
        return [float(text == str(right)) for text, right in zip(completions, answer, strict=True)]

    scored = Rewards([all_names, some], weights=[1, 0.5], tokenizer=TOKENIZER)(PROMPTS, COMPLETIONS)
    assert seen == {
        "prompts": ["12=", "12=", "45=", "45="],
        "completions": ["3", "4", "99", ""],
        "completion_ids": [[3, 13], [4], [9, 9], [13]],
        "answer": [3, 3, 9, 9],
    }
    assert scored.by_name["some"].tolist() == [1.0, 0.0, 0.0, 0.0]
    assert scored.rewards.tolist() == [0.5, 0.0, 0.0, 0.0]


def test_without_one_they_get_tokens() -> None:
    def rewards(completions: list[torch.Tensor], prompts: torch.Tensor) -> list[float]:
        assert [one.tolist() for one in completions[:2]] == [[1, 2, 11, 3, 13], [1, 2, 11, 4]]
        assert prompts.tolist() == [[1, 2, 11]] * 2 + [[4, 5, 11]] * 2
        return [1.0, 2.0, 3.0, 4.0]

    assert Rewards(rewards)(PROMPTS, COMPLETIONS).rewards.tolist() == [1.0, 2.0, 3.0, 4.0]
    assert Rewards(lambda c, _: torch.ones(len(c)))(PROMPTS, COMPLETIONS).rewards.sum() == 4


def test_async_functions_are_awaited() -> None:
    async def slowly(completions: Any, prompts: Any) -> list[float]:
        return list(await asyncio.gather(*(asyncio.sleep(0, float(i)) for i in range(4))))

    assert Rewards(slowly)(PROMPTS, COMPLETIONS).rewards.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert Rewards(slowly, timeout=60)(PROMPTS, COMPLETIONS).rewards.tolist() == [0, 1, 2, 3]


def test_none_and_too_slow_leave_completions_unscored() -> None:
    over = threading.Event()

    def some(completions: Any, prompts: Any) -> list[float | None]:
        return [1.0, None, 2.0, None]

    def stuck(completions: Any, prompts: Any) -> list[float]:
        over.wait(60)
        return [5.0] * 4

    scored = Rewards([some, stuck], timeout=2.0)(PROMPTS, COMPLETIONS)
    over.set()
    assert scored.rewards[[0, 2]].tolist() == [1.0, 2.0]
    assert scored.rewards[[1, 3]].isnan().all()
    assert scored.by_name["stuck"].isnan().all()


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ([1.0], "must give a number for each of 4 completions, got 1"),
        ([1.0, "x", 1.0, 1.0], "must give numbers or None, got 'x' in row 1"),
        (None, "unscored"),
    ],
)
def test_what_is_no_reward_is_named(given: Any, error: str) -> None:
    rewards = Rewards({"mine": lambda *_: given})
    if given is None:
        assert rewards(PROMPTS, COMPLETIONS).rewards.isnan().all()
        return
    with pytest.raises(RewardFailed, match=f"reward function 'mine' {error}"):
        rewards(PROMPTS, COMPLETIONS)


def test_what_goes_wrong_is_named() -> None:
    def broken(completions: Any, prompts: Any) -> list[float]:
        raise ZeroDivisionError("oh")

    with pytest.raises(RewardFailed, match=r"'broken' raised ZeroDivisionError\('oh'\)") as caught:
        Rewards(broken)(PROMPTS, COMPLETIONS)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    with pytest.raises(NonFiniteError, match="got nan from 'f' in row 2"):
        Rewards({"f": lambda *_: [0.0, 0.0, float("nan"), 0.0]})(PROMPTS, COMPLETIONS)
    with pytest.raises(ValueError, match="weights must have 1 numbers"):
        Rewards(broken, weights=[1, 2])
    with pytest.raises(TypeError, match="must be callable, got 3"):
        Rewards([3])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="got none"):
        Rewards([])
    assert Rewards([broken, broken, broken]).names == ("broken", "broken_2", "broken_3")
