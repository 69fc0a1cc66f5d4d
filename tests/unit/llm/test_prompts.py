"""Prompts come from anything that holds them, in an order that a seed decides."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sharpwave.llm import TASKS, DigitTokenizer, Prompts

TOKENIZER = DigitTokenizer()
ROWS = [{"prompt": "12=", "answer": 3}, {"prompt": "4=", "answer": 4}]


def tokens(prompts: Prompts) -> list[list[int]]:
    return [one.tolist() for one in prompts.tokens]


@pytest.mark.parametrize(
    "source", [torch.tensor([[1, 2], [3, 4]]), np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]]
)
def test_tokens(source: Any) -> None:
    prompts = Prompts.of(source)
    assert tokens(prompts) == [[1, 2], [3, 4]]
    assert prompts.texts is None
    assert Prompts.of(prompts) is prompts


def test_texts_and_columns(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    lines = tmp_path / "prompts.jsonl"
    lines.write_text("\n".join(json.dumps(row) for row in ROWS) + "\n\n")
    table = tmp_path / "prompts.parquet"
    parquet.write_table(arrow.Table.from_pylist(ROWS), table)
    for source in (ROWS, lines, str(table)):
        prompts = Prompts.of(source, TOKENIZER)
        assert tokens(prompts) == [[1, 2, 11], [4, 11]]
        assert prompts.texts == ["12=", "4="]
        assert prompts.columns == {"answer": [3, 4]}
    chosen = Prompts.of(ROWS, TOKENIZER).select([1, 1, 0])
    assert chosen.columns == {"answer": [4, 4, 3]}
    assert chosen.texts == ["4=", "4=", "12="]


def test_messages_go_through_the_template_of_the_tokenizer() -> None:
    class Chat(DigitTokenizer):
        def apply_chat_template(self, messages: Any, **options: Any) -> list[int]:
            assert options == {"add_generation_prompt": True, "tokenize": True}
            return [len(messages), *self.encode(messages[-1]["content"])]

    messages = [{"role": "user", "content": "12"}]
    prompts = Prompts.of([messages], Chat())
    assert tokens(prompts) == [[1, 1, 2]]
    assert prompts.texts == [messages]


def test_every_epoch_has_all_prompts_in_an_order_of_its_own() -> None:
    prompts = Prompts.of([[i] for i in range(1, 11)])
    drawn = prompts.rows(0, 25, seed=1)
    assert sorted(drawn[:10]) == sorted(drawn[10:20]) == list(range(10))
    assert drawn[:10] != drawn[10:20]
    pieces = [row for first in range(0, 25, 4) for row in prompts.rows(first, 4, seed=1)]
    assert pieces[:25] == drawn
    assert prompts.rows(0, 10, seed=2) != drawn[:10]


def test_bad_prompts_are_named(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="tokenizer must be given for prompts that are text"):
        Prompts.of(["12="])
    with pytest.raises(ValueError, match="at least one"):
        Prompts.of([])
    with pytest.raises(ValueError, match=r"tokens \[B, P\], got shape \(3,\)"):
        Prompts.of(torch.arange(3))
    with pytest.raises(ValueError, match=r"same columns .* in row 1"):
        Prompts.of([ROWS[0], {"prompt": "1="}], TOKENIZER)
    with pytest.raises(ValueError, match="column 'prompt', got \\['text'\\]"):
        Prompts.of([{"text": "1="}], TOKENIZER)
    with pytest.raises(TypeError, match="got a dict"):
        Prompts.of({"prompt": ["1="]}, TOKENIZER)
    with pytest.raises(ValueError, match=r"\.jsonl or \.parquet file, got 'prompts.txt'"):
        Prompts.of("prompts.txt")
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"prompt": "1="}\n{"prompt"\n')
    with pytest.raises(ValueError, match="line 2 is not JSON"):
        Prompts.of(broken, TOKENIZER)
    broken.write_text('{"prompt": "1="}\n7\n')
    with pytest.raises(TypeError, match="line 2 must be an object"):
        Prompts.of(broken, TOKENIZER)


@pytest.mark.parametrize("name", sorted(TASKS))
def test_the_answers_of_tasks_are_right(name: str) -> None:
    task = TASKS[name]
    prompts = task.prompts(50, seed=3)
    assert prompts == task.prompts(50, seed=3)
    assert len(set(prompts)) > 10
    for prompt in prompts:
        assert TOKENIZER.decode(TOKENIZER.encode(prompt)) == prompt
    if task.answer is not None:
        answers = [task.answer(prompt) for prompt in prompts]
        assert task.reward(prompts, answers) == [1.0] * 50
        assert {len(answer) for answer in answers} == {task.n_tokens}
    assert task.reward(prompts, [""] * 50) == [0.0] * 50


def test_tasks_by_hand() -> None:
    assert TASKS["copy4"].reward(["1234="], ["1934"]) == [0.75]
    assert TASKS["sort3"].reward(["312="], ["123"]) == [1.0]
    assert TASKS["mod10"].reward(["7+5="], ["2"]) == [1.0]
    assert TASKS["even"].reward(["12="], ["24681111"]) == [0.5]
    with pytest.raises(ValueError, match="text must hold"):
        TOKENIZER.encode("a")
