"""Prompts to learn from: tokens or text, with columns for reward functions, in a drawn order."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = ["Prompts", "encode", "epoch_rows", "is_text", "read_rows"]

PROMPT = "prompt"
"""The column of files and datasets that holds the prompt."""


@dataclass(frozen=True, eq=False)
class Prompts:
    """Prompts, and what is known of each.

    Attributes:
        tokens: Tokens [P_i] of each prompt.
        texts: Each prompt as it was given: text, or messages of a chat; None where it was tokens.
        columns: Other columns of each prompt by name, which reward functions receive.

    Example:
        >>> prompts = Prompts.of([[1, 2], [3]])
        >>> len(prompts), prompts.tokens[0].tolist()
        (2, [1, 2])
    """

    tokens: list[Tensor]
    texts: list[Any] | None = None
    columns: dict[str, list[Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, source: Any, tokenizer: Any = None) -> Prompts:
        """Prompts from whatever holds them.

        Args:
            source: Tokens [B, P], or a sequence of tokens, of texts, of lists of chat messages
                (`{"role": ..., "content": ...}`) or of dicts with `"prompt"` and other columns; a
                dataset with columns; or a .jsonl or .parquet file of such rows.
            tokenizer: Turns text into tokens: one with `encode(text)`, and for messages
                `apply_chat_template`.

        Raises:
            TypeError: There is text and no tokenizer, or a row of another kind.
            ValueError: There are no prompts, or rows with other columns.
        """
        if isinstance(source, Prompts):
            return source
        if isinstance(source, str | os.PathLike):
            return cls._of_rows(read_rows(Path(source), "prompts"), tokenizer)
        if isinstance(source, Tensor | np.ndarray):
            if source.ndim != 2:
                raise ValueError(f"prompts must be tokens [B, P], got shape {tuple(source.shape)}")
            return cls(list(torch.as_tensor(source, dtype=torch.int64)))
        if isinstance(source, Mapping):
            raise TypeError("prompts must be a sequence, a file or a dataset, got a dict")
        rows = list(source)
        if not rows:
            raise ValueError("prompts must hold at least one, got none")
        if isinstance(rows[0], Mapping):
            return cls._of_rows(rows, tokenizer)
        if is_text(rows[0]):
            return cls([encode(row, tokenizer) for row in rows], rows)
        return cls([torch.as_tensor(row, dtype=torch.int64) for row in rows])

    @classmethod
    def _of_rows(cls, rows: Sequence[Mapping[str, Any]], tokenizer: Any) -> Prompts:
        for number, row in enumerate(rows):
            if row.keys() != rows[0].keys():
                raise ValueError(
                    f"prompts must have the same columns in every row, got {sorted(row)} in row "
                    f"{number} after {sorted(rows[0])}"
                )
        if not rows or PROMPT not in rows[0]:
            found = sorted(rows[0]) if rows else "no row"
            raise ValueError(f"prompts must have a column {PROMPT!r}, got {found}")
        made = cls.of([row[PROMPT] for row in rows], tokenizer)
        others = [name for name in rows[0] if name != PROMPT]
        return cls(made.tokens, made.texts, {x: [row[x] for row in rows] for x in others})

    def __len__(self) -> int:
        return len(self.tokens)

    def select(self, rows: Sequence[int]) -> Prompts:
        """Some of the prompts, in this order."""
        return Prompts(
            [self.tokens[row] for row in rows],
            None if self.texts is None else [self.texts[row] for row in rows],
            {name: [column[row] for row in rows] for name, column in self.columns.items()},
        )

    def shortened(self, longest: int) -> Prompts:
        """The same, of whose tokens the last are kept, at most so many.

        Raises:
            ValueError: There is no room for a token.

        Example:
            >>> [x.tolist() for x in Prompts.of([[1, 2, 3], [4]]).shortened(2).tokens]
            [[2, 3], [4]]
        """
        if longest < 1:
            raise ValueError(
                f"max_new_tokens must leave room for prompts, got {longest} tokens of it"
            )
        return replace(self, tokens=[tokens[-longest:] for tokens in self.tokens])

    def rows(self, first: int, count: int, seed: int) -> list[int]:
        """The rows of prompts number `first` to `first + count` in the order of a seed.

        Every epoch has all prompts, in an order of its own; which prompt has a number follows from
        the seed alone, so a run goes on exactly.

        Example:
            >>> prompts = Prompts.of([[1], [2], [3]])
            >>> sorted(prompts.rows(3, 3, seed=0))
            [0, 1, 2]
        """
        return epoch_rows(len(self), first, count, seed)


def epoch_rows(n_rows: int, first: int, count: int, seed: int) -> list[int]:
    """Numbers `first` to `first + count` of rows that are shuffled anew in every epoch."""
    found: list[int] = []
    while len(found) < count:
        epoch, place = divmod(first + len(found), n_rows)
        rng = np.random.Generator(np.random.Philox([seed, epoch]))
        found += rng.permutation(n_rows)[place : place + count - len(found)].tolist()
    return found


def is_text(row: Any) -> bool:
    """Return whether a prompt is text, or messages of a chat."""
    return isinstance(row, str) or (
        isinstance(row, list | tuple) and len(row) > 0 and isinstance(row[0], Mapping)
    )


def encode(text: Any, tokenizer: Any) -> Tensor:
    """The tokens of a prompt that is text, or messages of a chat."""
    if tokenizer is None:
        raise TypeError(f"tokenizer must be given for prompts that are text, such as {text!r:.60}")
    if isinstance(text, str):
        ids = tokenizer.encode(text)
    else:
        ids = tokenizer.apply_chat_template(text, add_generation_prompt=True, tokenize=True)
        ids = ids["input_ids"] if isinstance(ids, Mapping) else ids
    return torch.as_tensor(ids, dtype=torch.int64).reshape(-1)


def read_rows(path: Path, name: str) -> list[Mapping[str, Any]]:
    """The rows of a .jsonl or .parquet file, which is given as the argument of this name."""
    if path.suffix == ".parquet":
        from sharpwave.core.optional import require

        rows: list[Mapping[str, Any]] = (
            require("pyarrow.parquet", extra="arrow").read_table(path).to_pylist()
        )
        return rows
    if path.suffix != ".jsonl":
        raise ValueError(f"{name} must be a .jsonl or .parquet file, got {str(path)!r}")
    found: list[Mapping[str, Any]] = []
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as error:
                raise ValueError(f"{path} line {number} is not JSON: {error}") from None
            if not isinstance(row, dict):
                raise TypeError(f"{path} line {number} must be an object, got {line!r:.60}")
            found.append(row)
    return found
