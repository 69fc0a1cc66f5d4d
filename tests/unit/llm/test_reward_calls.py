"""Reward functions run in threads and processes, each for a while; networks give rewards too."""

from __future__ import annotations

import copy
import multiprocessing
import os
import pickle
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sharpwave.llm import DigitTokenizer, Prompts, RewardFailed, RewardModel, Rewards
from tests.unit.llm import reward_functions as functions
from tests.unit.llm.test_rewards import COMPLETIONS, PROMPTS, TOKENIZER


@pytest.fixture
def in_processes() -> Iterator[Any]:
    made: list[Rewards] = []

    def make(*args: Any, **options: Any) -> Rewards:
        made.append(Rewards(*args, pool="process", **options))
        return made[-1]

    yield make
    for one in made:
        one.close()
    assert multiprocessing.active_children() == []


@pytest.mark.long
def test_functions_run_in_processes_that_stay(in_processes: Any) -> None:
    rewards = in_processes([functions.process, functions.lengths], workers=2)
    first, second = (rewards(PROMPTS, COMPLETIONS).by_name for _ in range(2))
    assert first["lengths"].tolist() == [5.0, 4.0, 5.0, 4.0]
    assert os.getpid() not in first["process"].tolist()
    known = {*first["process"].tolist(), *second["process"].tolist()}
    assert known <= {float(one.pid or 0) for one in multiprocessing.active_children()}
    by_text = in_processes(functions.answers, tokenizer=TOKENIZER)
    assert by_text(PROMPTS, COMPLETIONS).rewards.tolist() == [1.0, 0.0, 0.0, 0.0]


@pytest.mark.long
def test_processes_that_fail_are_named_and_those_that_hang_are_ended(in_processes: Any) -> None:
    rewards = in_processes(functions.stuck_on_short, timeout=5.0, rows_per_call=1)
    found = rewards(PROMPTS, COMPLETIONS).rewards
    assert found[[0, 2]].tolist() == [1.0, 1.0]
    assert found[[1, 3]].isnan().all()
    assert len(multiprocessing.active_children()) <= 2
    with pytest.raises(RewardFailed, match=r"(?s)'broken' raised .*ZeroDivisionError: oh"):
        in_processes(functions.broken)(PROMPTS, COMPLETIONS)
    again = in_processes(functions.deadly)
    for _ in range(2):
        with pytest.raises(RewardFailed, match=r"'deadly' raised .*its process ended"):
            again(PROMPTS, COMPLETIONS)


def test_threads_run_at_the_same_time() -> None:
    together = threading.Barrier(4, timeout=30)

    def meets(completions: Any, prompts: Any) -> list[float]:
        together.wait()
        return [float(len(one)) for one in completions]

    scored = Rewards({"a": meets, "b": meets}, workers=4, rows_per_call=2)(PROMPTS, COMPLETIONS)
    assert scored.by_name["a"].tolist() == scored.by_name["b"].tolist() == [5.0, 4.0, 5.0, 4.0]


def test_only_the_completions_of_a_slow_call_are_unscored() -> None:
    over = threading.Event()

    def slow_on_short(completions: Any, prompts: Any) -> list[float]:
        if len(completions[0]) < 5:
            over.wait(60)
        return [1.0]

    rewards = Rewards(slow_on_short, timeout=2.0, workers=4, rows_per_call=1)
    found = rewards(PROMPTS, COMPLETIONS).rewards
    over.set()
    assert found[[0, 2]].tolist() == [1.0, 1.0]
    assert found[[1, 3]].isnan().all()
    for thread in threading.enumerate():
        assert thread.daemon or thread is threading.main_thread()  # none keeps the program


def test_parts_get_their_rows() -> None:
    seen: list[Any] = []

    def some(completions: list[str], answer: list[int], prompts: list[str]) -> list[float]:
        seen.append((completions, answer, prompts))
        return [0.0] * len(completions)

    Rewards(some, tokenizer=TOKENIZER, rows_per_call=3)(PROMPTS, COMPLETIONS)
    assert seen == [
        (["3", "4", "99"], [3, 3, 9], ["12=", "12=", "45="]),
        ([""], [9], ["45="]),
    ]

    def last_is_bad(completions: Any, prompts: Any) -> list[Any]:
        assert len(prompts) == len(completions)
        return ["x" if len(completions) == 1 else 0.0] * len(completions)

    with pytest.raises(RewardFailed, match="got 'x' in row 3"):
        Rewards(last_is_bad, rows_per_call=3)(PROMPTS, COMPLETIONS)

    def raises(completions: Any, prompts: Any) -> list[float]:
        if len(completions) == 1:
            raise ZeroDivisionError
        return [0.0] * 3

    with pytest.raises(RewardFailed, match="for completions 3 to 3") as caught:
        Rewards(raises, rows_per_call=3)(PROMPTS, COMPLETIONS)
    assert caught.value.completions is COMPLETIONS


def test_normalized_rewards_weigh_alike() -> None:
    def large(completions: Any, prompts: Any) -> list[float | None]:
        return [1000.0, 3000.0, 5.0, None]

    def small(completions: Any, prompts: Any) -> list[float]:
        return [0.3, 0.1, 0.2, 0.4]

    scored = Rewards([large, small], normalize=True)(PROMPTS, COMPLETIONS)
    # Within each prompt a function gives -1 and 1, or 0 where it scored one alone.
    torch.testing.assert_close(
        scored.rewards, torch.tensor([0.0, 0.0, -1.0, 1.0]), atol=3e-3, rtol=0
    )
    assert scored.by_name["large"][:3].tolist() == [1000.0, 3000.0, 5.0]
    nothing = Rewards(lambda *_: [None] * 4, normalize=True)(PROMPTS, COMPLETIONS)
    assert nothing.rewards.isnan().all()


class Sums(nn.Module):
    """Sums of valid tokens, times a weight; it counts its passes."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(2.0))
        self.shapes: list[tuple[int, ...]] = []

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Scores."""
        assert not self.training
        self.shapes.append(tuple(ids.shape))
        return (ids * mask).sum(1) * self.weight


def test_a_network_gives_rewards() -> None:
    module = Sums()
    wanted = [2.0 * float(one.sum()) for one in COMPLETIONS.sequences()]
    for tokenizer in (None, TOKENIZER):  # it reads tokens also where others read text
        rewards = Rewards(module, tokenizer=tokenizer)
        assert rewards.names == ("Sums",)
        assert rewards(PROMPTS, COMPLETIONS).rewards.tolist() == wanted
    assert module.training
    assert module.weight.grad is None
    module.shapes.clear()
    assert (
        Rewards(RewardModel(module, max_tokens=5))(PROMPTS, COMPLETIONS).rewards.tolist() == wanted
    )
    assert sorted(module.shapes) == [(1, 4), (1, 4), (1, 5), (1, 5)]
    with_text = Rewards(RewardModel(module, DigitTokenizer()), tokenizer=TOKENIZER)
    texts = [one.sum() - (13 if 13 in one else 0) for one in COMPLETIONS.sequences()]
    assert with_text(PROMPTS, COMPLETIONS).rewards.tolist() == [2.0 * float(x) for x in texts]
    with pytest.raises(TypeError, match="module must be a torch module"):
        RewardModel(3)  # type: ignore[arg-type]
    with pytest.raises(RewardFailed, match="Two must give a number for each of 4"):
        Rewards(Two())(PROMPTS, COMPLETIONS)


class Two(nn.Module):
    """A module that gives two numbers."""

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Two scores."""
        return torch.ones(len(ids), 2)


@pytest.mark.long
@pytest.mark.parametrize("pad", [0, None])
def test_a_classifier_of_hugging_face_gives_rewards(pad: int | None) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        vocab_size=16,
        num_labels=1,
        pad_token_id=pad,
    )
    model = transformers.LlamaForSequenceClassification(config).eval()
    found = Rewards(model, tokenizer=TOKENIZER)(PROMPTS, COMPLETIONS).rewards
    with torch.no_grad():
        alone = [model(one[None]).logits.item() for one in COMPLETIONS.sequences()]
    torch.testing.assert_close(found, torch.tensor(alone))


def test_a_chat_is_read_by_the_template_of_the_reward_model() -> None:
    class Tokenizer:
        def apply_chat_template(self, messages: Any, **_: Any) -> list[int]:
            return [len(messages), *(len(one["content"]) for one in messages)]

    chats = [[{"role": "user", "content": "12="}], [{"role": "user", "content": "4"}]]
    prompts = Prompts(PROMPTS.tokens, chats)
    rewards = Rewards(RewardModel(Sums(), Tokenizer()), tokenizer=TOKENIZER)
    assert rewards(prompts, COMPLETIONS).rewards.tolist() == [12.0, 12.0, 10.0, 6.0]


def test_copies_have_threads_and_processes_of_their_own() -> None:
    rewards = Rewards(functions.lengths, workers=2)
    rewards(PROMPTS, COMPLETIONS)
    for made in (copy.deepcopy(rewards), pickle.loads(pickle.dumps(rewards))):
        assert made._calls is None
        assert made(PROMPTS, COMPLETIONS).rewards.tolist() == [5.0, 4.0, 5.0, 4.0]


def test_options_are_checked() -> None:
    with pytest.raises(TypeError, match="import by its name, for pool='process'"):
        Rewards(lambda *_: [], pool="process")
    with pytest.raises(ValueError, match="pool must be 'thread' or 'process', got 'fiber'"):
        Rewards(functions.lengths, pool="fiber")  # type: ignore[arg-type]
    for name in ("workers", "rows_per_call"):
        with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
            Rewards(functions.lengths, **{name: 0})  # type: ignore[arg-type]
