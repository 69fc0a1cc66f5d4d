"""Examples come from anything that holds them; those that teach nothing are dropped and counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from sharpwave.llm import CausalModel, Demonstrations, DigitTokenizer, Examples, Pairs
from sharpwave.nn import Transformer

TOKENIZER = DigitTokenizer()
ROWS = [
    {"prompt": "31=", "chosen": "13", "rejected": "31"},
    {"prompt": "2=", "chosen": "2", "rejected": ""},
    {"prompt": "2=", "chosen": "2", "rejected": "2"},
    {"prompt": "2=", "chosen": "2", "rejected": "1"},
]
END = TOKENIZER.eos_token_id


def listed(pairs: Examples) -> list[list[list[int]]]:
    both = zip(pairs.prompts, pairs.completions, strict=True)
    return [[prompt.tolist(), *(one.tolist() for one in several)] for prompt, several in both]


def test_texts_end_and_useless_pairs_are_dropped(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    lines, table = tmp_path / "pairs.jsonl", tmp_path / "pairs.parquet"
    lines.write_text("\n".join(map(json.dumps, ROWS)))
    parquet.write_table(arrow.Table.from_pylist(ROWS), table)
    tuples = [tuple(row.values()) for row in ROWS]
    for source in (ROWS, tuples, lines, str(table)):
        pairs = Pairs.of(source, TOKENIZER)
        assert listed(pairs) == [
            [[3, 1, 11], [1, 3, END], [3, 1, END]],
            [[2, 11], [2, END], [1, END]],
        ]
        assert pairs.dropped == 2
        assert Pairs.of(pairs) is pairs


def test_tokens_are_taken_as_they_are() -> None:
    rows = [{"prompt": [3, 1], "chosen": [1, 3], "rejected": [3], "other": "x"}]
    assert listed(Pairs.of(rows)) == [[[3, 1], [1, 3], [3]]]
    tensors = tuple(torch.tensor([[1, 2], [3, 4]]) + 5 * i for i in range(3))
    assert listed(Pairs.of(tensors)) == [[[1, 2], [6, 7], [11, 12]], [[3, 4], [8, 9], [13, 14]]]


class Chat(DigitTokenizer):
    """Turns have a sign before them; a prompt ends with that of the answer."""

    def apply_chat_template(self, messages: Any, **options: Any) -> dict[str, list[int]]:
        assert options["tokenize"]
        ids = [id for one in messages for id in [10, *self.encode(one["content"])]]
        return {"input_ids": [*ids, *([10] if options["add_generation_prompt"] else [])]}


def message(content: str) -> dict[str, str]:
    return {"role": "user", "content": content}


def test_chats_begin_with_their_prompt() -> None:
    prompt, one, other = [message("31")], [message("13")], [message("31")]
    wanted = [[[10, 3, 1, 10], [1, 3], [3, 1]]]
    rows: list[dict[str, Any]] = [
        {"prompt": prompt, "chosen": one, "rejected": other},
        {"chosen": prompt + one, "rejected": prompt + other},
        {"prompt": "31", "chosen": prompt + one, "rejected": prompt + other},
    ]
    for row in rows:
        assert listed(Pairs.of([row], Chat())) == wanted

    class Changing(Chat):
        def apply_chat_template(self, messages: Any, **options: Any) -> Any:
            found = super().apply_chat_template(messages, **options)
            return {"input_ids": [len(messages), *found["input_ids"]]}

    with pytest.raises(ValueError, match="the chat template must give a prompt the same tokens"):
        Pairs.of(rows[:1], Changing())


def test_a_batch_has_both_of_a_pair_one_after_another() -> None:
    batch = Pairs.of(ROWS, TOKENIZER).select([1, 0]).batch()
    assert batch.lengths.tolist() == [4, 4, 6, 6]
    assert batch.prompt_lengths.tolist() == [2, 2, 3, 3]
    assert batch.completion_tokens.tolist() == [2, END, 1, END, 1, 3, END, 3, 1, END]
    parts = [part.tolist() for part in batch.cut(8, together=2)]
    assert parts == [[0, 1], [2, 3]]
    assert [part.tolist() for part in batch.cut(1, together=2)] == parts
    assert [part.tolist() for part in batch.cut(24, together=2)] == [[0, 1, 2, 3]]


def test_every_epoch_has_all_examples() -> None:
    pairs = Pairs.of(ROWS * 4, TOKENIZER)
    whole = pairs.rows(0, 24, seed=5)
    assert all(sorted(whole[i : i + 8]) == list(range(8)) for i in (0, 8, 16))
    assert pairs.rows(3, 7, seed=5) == whole[3:10]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ([{"prompt": "1=", "chosen": "1"}], "columns prompt, chosen, rejected, got"),
        (ROWS[1:3], "an example to learn from, got 2"),
        ([], "an example to learn from, got 0"),
        ((torch.zeros(2, 3), torch.zeros(2, 3)), r"tokens \[B, L\] of prompt, chosen, rejected"),
        ("pairs.csv", "a .jsonl or .parquet file, got 'pairs.csv'"),
    ],
)
def test_bad_datasets_are_named(source: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Pairs.of(source, TOKENIZER)


def test_rows_of_other_kinds_are_named() -> None:
    with pytest.raises(TypeError, match="got a dict"):
        Pairs.of({"prompt": []})
    with pytest.raises(TypeError, match="tuples of prompt, chosen, rejected, got 3 in row 0"):
        Pairs.of([3])
    with pytest.raises(TypeError, match="tokenizer must be given"):
        Pairs.of([{"prompt": [1], "chosen": "1", "rejected": "2"}])
    with pytest.raises(TypeError, match="lists of tokens"):
        Pairs.of([{"prompt": [1], "chosen": [0.5], "rejected": [2]}])


def test_what_a_model_cannot_read_is_named() -> None:
    model = CausalModel.of(Transformer(14, hidden=32, max_positions=8))
    for row, wanted in [
        ([[], [1], [2]], "prompts must not be empty, got none of a token in row 0"),
        ([[1], [14], [2]], "dataset must hold tokens from 0 to 13, got 1 to 14"),
        ([[1] * 5, [1], [2] * 4], "fit into 8 positions, got 9 in row 0"),
    ]:
        with pytest.raises(ValueError, match=wanted):
            Pairs.of([tuple(row)]).check(model)


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ([{"prompt": "31=", "completion": "13"}], [[3, 1, 11], [1, 3, END]]),
        ([("31=", "13")], [[3, 1, 11], [1, 3, END]]),
        ([{"prompt": [3, 1], "completion": [1, 3]}], [[3, 1], [1, 3]]),
        ((torch.tensor([[3, 1]]), torch.tensor([[1, 3]])), [[3, 1], [1, 3]]),
        (["31=13"], [[3], [1, 11, 1, 3, END]]),
        ([{"text": "31=13"}], [[3], [1, 11, 1, 3, END]]),
        ([{"text": [3, 1, 1, 3]}], [[3], [1, 1, 3]]),
        ([{"messages": [message("31"), message("13")]}], [[10, 3, 1, 10], [1, 3]]),
    ],
)
def test_demonstrations(source: Any, wanted: list[list[int]]) -> None:
    assert listed(Demonstrations.of(source, Chat())) == [wanted]


def test_demonstrations_without_a_completion_are_dropped() -> None:
    found = Demonstrations.of(["1", "", "23"], TOKENIZER)
    assert listed(found) == [[[1], [END]], [[2], [3, END]]]
    assert found.dropped == 1
    with pytest.raises(ValueError, match="columns prompt, completion, got"):
        Demonstrations.of([{"prompt": "1"}], TOKENIZER)
