"""Examples to learn from: prompts with completions that are given, in a drawn order."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from sharpwave.llm.batch import TokenBatch
from sharpwave.llm.model import CausalModel
from sharpwave.llm.prompts import PROMPT, encode, epoch_rows, is_text, read_rows
from sharpwave.llm.store import CompletionStore
from sharpwave.storage.folder import is_store

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Demonstrations", "Examples", "Pairs", "Ratings"]

Row = tuple[Tensor, tuple[Tensor, ...]]
"""A prompt, and its completions."""


@dataclass(frozen=True, eq=False)
class Examples:
    """Prompts, and for each of them one or several completions.

    Attributes:
        prompts: Tokens [P_i] of each prompt.
        completions: Tokens of its completions, in the order of `columns`.
        dropped: Examples of the source that have nothing to teach.
        ref_log_probs: Log-probabilities of their tokens under the reference, likewise; None where
            they are computed when they are needed.
        good: Labels of the examples, true for good ones; None where all of them are.
    """

    prompts: list[Tensor]
    completions: list[tuple[Tensor, ...]]
    dropped: int = 0
    ref_log_probs: list[tuple[Tensor, ...]] | None = None
    good: list[bool] | None = None

    columns: ClassVar[tuple[str, ...]]
    """Names of the completions in files and datasets."""

    @classmethod
    def of(cls, source: Any, tokenizer: Any = None) -> Self:
        """Examples from whatever holds them.

        Args:
            source: A sequence of dicts with `"prompt"` and the names of `columns`, or of tuples in
                this order; a dataset with such columns; a .jsonl or .parquet file of such rows; or
                a tuple of tensors, tokens [B, L] of each column; or a `CompletionStore`, or its
                folder. Prompts and completions are tokens, texts, or lists of chat messages
                (`{"role": ..., "content": ...}`).
            tokenizer: Turns text into tokens; its token of the end is put after texts.

        Raises:
            TypeError: There is text and no tokenizer, or a row of another kind.
            ValueError: A column is missing, or no example has something to teach.
        """
        if isinstance(source, cls):
            return source
        if isinstance(source, str | os.PathLike) and is_store(source):
            source = CompletionStore(source, read_only=True)
        if isinstance(source, CompletionStore):
            source = cls.replayed(source)
        given = cls.expanded(_rows(source, (PROMPT, *cls.columns)))
        rows = [cls._encoded(row, number, tokenizer) for number, row in enumerate(given)]
        kept = [number for number, (_, several) in enumerate(rows) if cls.teaches(*several)]
        if not kept:
            raise ValueError(
                f"dataset must hold an example to learn from, got {len(rows)} of which each has "
                "empty or equal completions"
            )
        return cls(
            [rows[number][0] for number in kept],
            [rows[number][1] for number in kept],
            len(rows) - len(kept),
            good=cls.labels([given[number] for number in kept]),
        )

    @classmethod
    def of_padded(cls, *columns: Tensor, **masks: Tensor | None) -> Self:
        """Examples of rectangular tensors, none of which is dropped.

        Args:
            *columns: Tokens [B, L] of the prompts and of each column.
            **masks: [B, L] by the name of a column (`prompt_mask`), true where a token is valid and
                false where it is padding; where there is none, all are valid.

        Raises:
            TypeError: A mask has another name.
            ValueError: A shape does not fit.
        """
        names = (PROMPT, *cls.columns)
        for name in masks.keys() - {f"{name}_mask" for name in names}:
            raise TypeError(f"masks must belong to {', '.join(names)}, got {name!r}")
        valid = []
        for name, given in zip(names, columns, strict=True):
            tokens, mask = torch.as_tensor(given), masks.get(f"{name}_mask")
            shape = tuple(tokens.shape)
            if len(shape) != 2 or shape[0] != len(columns[0]):
                raise ValueError(f"{name} must have shape [{len(columns[0])}, L], got {shape}")
            if mask is not None and tuple(mask.shape) != shape:
                raise ValueError(f"{name}_mask must have shape {shape}, got {tuple(mask.shape)}")
            rows = list(tokens.long())
            if mask is not None:
                rows = [row[is_valid.bool()] for row, is_valid in zip(rows, mask, strict=True)]
            valid.append(rows)
        return cls(valid[0], list(zip(*valid[1:], strict=True)))

    @classmethod
    def teaches(cls, *completions: Tensor) -> bool:
        """Return whether there is something to learn from the completions of an example."""
        return all(len(one) for one in completions)

    @classmethod
    def expanded(cls, rows: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """An example for each row, where rows hold several."""
        return rows

    @classmethod
    def labels(cls, rows: list[Mapping[str, Any]]) -> list[bool] | None:  # noqa: ARG003
        """Labels of the examples, true for good ones; None where rows have none."""
        return None

    @classmethod
    def replayed(cls, store: CompletionStore) -> list[Any]:
        """Rows of what was written in runs before."""
        raise TypeError(f"dataset must be of rows, got completions in {store.buffer.folder}")

    @classmethod
    def named(cls, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """A row with the names of `columns`, where it comes in another form."""
        return row

    @classmethod
    def _encoded(cls, row: Mapping[str, Any], number: int, tokenizer: Any) -> Row:
        row = cls.named(row)
        wanted = (PROMPT, *cls.columns)
        if not row.keys() >= set(wanted):
            raise ValueError(
                f"dataset must have the columns {', '.join(wanted)}, got {sorted(row)} in row "
                f"{number}"
            )
        prompt = _tokens(row[PROMPT], tokenizer)
        given = [row[name] for name in cls.columns]
        return prompt, tuple(_completion(x, row[PROMPT], prompt, tokenizer) for x in given)

    def __len__(self) -> int:
        return len(self.prompts)

    def select(self, rows: Sequence[int]) -> Self:
        """Some of the examples, in this order."""
        ref = self.ref_log_probs
        return type(self)(
            [self.prompts[x] for x in rows],
            [self.completions[x] for x in rows],
            ref_log_probs=None if ref is None else [ref[x] for x in rows],
            good=None if self.good is None else [self.good[x] for x in rows],
        )

    def with_reference(self, log_probs: Tensor) -> Self:
        """The same with the log-probabilities [T] of all tokens of completions, in order."""
        several = [one for completions in self.completions for one in completions]
        single = iter(log_probs.split([len(one) for one in several]))
        ref = [tuple(next(single) for _ in several) for several in self.completions]
        return replace(self, ref_log_probs=ref)

    def rows(self, first: int, count: int, seed: int) -> list[int]:
        """Rows of examples number `first` to `first + count` in the order of a seed.

        Every epoch has all of them, in an order of its own.
        """
        return epoch_rows(len(self), first, count, seed)

    def batch(self, device: torch.device | str = "cpu") -> TokenBatch:
        """All examples, the completions of each one after another."""
        both = list(zip(self.prompts, self.completions, strict=True))
        sequences = [torch.cat([prompt, one]) for prompt, several in both for one in several]
        lengths = torch.tensor([len(prompt) for prompt, several in both for _ in several])
        ref = self.ref_log_probs
        flat = None if ref is None else torch.cat([one for several in ref for one in several])
        columns: dict[str, Any] = {"ref_log_probs": flat}
        if self.good is not None:
            columns["advantages"] = torch.tensor([1.0 if x else -1.0 for x in self.good])
        lengths = lengths.to(sequences[0].device)
        return TokenBatch.of_sequences(sequences, lengths, **columns).to(device)

    def fitting(self, model: CausalModel, truncate_prompt: str = "no") -> Self:
        """Those that a model has room for; the others are dropped and counted.

        Args:
            model: The model.
            truncate_prompt: "start" cuts off the first tokens of prompts that are too long.

        Raises:
            ValueError: It has room for none.
        """
        room = model.max_positions
        if room is None:
            return self
        longest = [max(map(len, several)) for several in self.completions]
        prompts = self.prompts
        if truncate_prompt == "start":
            prompts = [x[-max(room - n, 1) :] for x, n in zip(prompts, longest, strict=True)]
        fits = [len(x) + n <= room for x, n in zip(prompts, longest, strict=True)]
        if not any(fits):
            shortest = min(len(x) + n for x, n in zip(prompts, longest, strict=True))
            raise ValueError(
                f"dataset must hold an example that fits into {room} positions, got {shortest} "
                f"tokens in the shortest of {len(self)}"
            )
        kept = [row for row, one in enumerate(fits) if one]
        return replace(
            self.select(kept),
            prompts=[prompts[row] for row in kept],
            dropped=self.dropped + len(self) - len(kept),
        )

    def check(self, model: CausalModel) -> Self:
        """The same, which a model can read.

        Raises:
            ValueError: A prompt is empty, a token outside the vocabulary, or a sequence too long.
        """
        for row, prompt in enumerate(self.prompts):
            if not len(prompt):
                raise ValueError(f"prompts must not be empty, got none of a token in row {row}")
        batch = self.batch()
        low, high = int(batch.tokens.min()), int(batch.tokens.max())
        if low < 0 or high >= model.vocab_size:
            raise ValueError(
                f"dataset must hold tokens from 0 to {model.vocab_size - 1}, got {low} to {high}"
            )
        longest = int(batch.lengths.max())
        if model.max_positions is not None and longest > model.max_positions:
            row = int(batch.lengths.argmax()) // len(self.columns)
            raise ValueError(
                f"prompt and completion must fit into {model.max_positions} positions, got "
                f"{longest} in row {row}"
            )
        return self


class Pairs(Examples):
    """Prompts, each with a completion that was chosen and one that was rejected.

    Pairs of equal completions, and those with an empty one, are dropped. Chats may come without a
    prompt: the messages that both begin with are it.

    Example:
        >>> rows = [{"prompt": "31=", "chosen": "13", "rejected": "31"}]
        >>> pairs = Pairs.of(rows, sw.llm.DigitTokenizer())
        >>> pairs.batch().lengths.tolist()
        [6, 6]
    """

    columns = ("chosen", "rejected")

    @classmethod
    def replayed(cls, store: CompletionStore) -> list[Any]:
        """The best and the worst completion of each prompt."""
        return store.pairs()

    @classmethod
    def teaches(cls, *completions: Tensor) -> bool:
        """Return whether a pair has two different completions."""
        return super().teaches(*completions) and not torch.equal(*completions)

    @classmethod
    def named(cls, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """A row with its prompt, which whole chats begin with."""
        chosen: Any = row.get("chosen")
        rejected: Any = row.get("rejected")
        if not (_is_chat(chosen) and _is_chat(rejected)) or _is_chat(row.get(PROMPT)):
            return row
        most = min(len(chosen), len(rejected)) - 1
        n_shared = next((i for i in range(most) if chosen[i] != rejected[i]), most)
        return {
            PROMPT: list(chosen[:n_shared]),
            "chosen": list(chosen[n_shared:]),
            "rejected": list(rejected[n_shared:]),
        }


class Demonstrations(Examples):
    """Prompts, each with the completion that is to be written.

    In place of `prompt` and `completion` a row may have `messages`, a chat whose last message is
    the completion, or `text` (texts alone will do, too), all of which is to be written.

    Example:
        >>> both = {"prompt": "31=", "completion": "13"}, {"prompt": "2=", "completion": "2"}
        >>> examples = Demonstrations.of(both, sw.llm.DigitTokenizer())
        >>> examples.batch().completion_lengths.tolist()
        [3, 2]
    """

    columns = ("completion",)

    @classmethod
    def replayed(cls, store: CompletionStore) -> list[Any]:
        """The best completion of each prompt."""
        return store.best()

    @classmethod
    def of(cls, source: Any, tokenizer: Any = None) -> Self:
        """Examples from whatever holds them, texts among it; see `Examples.of`."""
        if isinstance(source, list | tuple) and all(isinstance(row, str) for row in source):
            source = [{"text": row} for row in source]
        return super().of(source, tokenizer)

    @classmethod
    def named(cls, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """A row with its completion, which is the last message of a chat."""
        messages = row.get("messages")
        if messages is None:
            return row
        return {PROMPT: list(messages[:-1]), "completion": list(messages[-1:])}

    @classmethod
    def _encoded(cls, row: Mapping[str, Any], number: int, tokenizer: Any) -> Row:
        if "text" not in row or "completion" in row:
            return super()._encoded(row, number, tokenizer)
        tokens = _tokens(row["text"], tokenizer)
        if isinstance(row["text"], str):
            tokens = _ended(tokens, tokenizer)
        # The first token follows nothing that it could be predicted from.
        return tokens[:1], (tokens[1:],)


class Ratings(Demonstrations):
    """Prompts, each with a completion and a `label` that says whether it is a good one.

    Pairs of a chosen and a rejected completion are two of them. In a batch the advantage of a good
    completion is 1, that of another -1.

    Example:
        >>> good = {"prompt": [1], "completion": [2, 3], "label": True}
        >>> Ratings.of([good, {**good, "completion": [4], "label": False}]).batch().advantages
        tensor([ 1., -1.])
    """

    @classmethod
    def replayed(cls, store: CompletionStore) -> list[Any]:
        """The best completion of each prompt, a good one, and the worst."""
        return store.pairs()

    @classmethod
    def expanded(cls, rows: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """An example for each row, and two for a pair."""
        found: list[Mapping[str, Any]] = []
        for row in rows:
            if "chosen" not in row or "rejected" not in row:
                found.append(row)
                continue
            both = Pairs.named(row)
            found += [
                {PROMPT: both.get(PROMPT), "completion": both[name], "label": name == "chosen"}
                for name in Pairs.columns
            ]
        return found

    @classmethod
    def labels(cls, rows: list[Mapping[str, Any]]) -> list[bool] | None:
        """Labels of the completions, true for good ones.

        Raises:
            ValueError: A row does not say so.
        """
        for number, row in enumerate(rows):
            if row.get("label") not in (True, False):
                raise ValueError(
                    f"dataset must have a column label that is true or false, got "
                    f"{row.get('label')!r:.40} in row {number}"
                )
        return [bool(row["label"]) for row in rows]


def _rows(source: Any, names: tuple[str, ...]) -> list[Mapping[str, Any]]:
    """A dict for each example."""
    if isinstance(source, str | os.PathLike):
        return read_rows(Path(source), "dataset")
    if isinstance(source, Mapping):
        raise TypeError("dataset must be a sequence, a file or a dataset, got a dict")
    if isinstance(source, tuple) and source and all(map(_is_table, source)):
        sizes = {len(column) for column in source}
        if len(source) != len(names) or len(sizes) != 1:
            shapes = [tuple(column.shape) for column in source]
            raise ValueError(f"dataset must have tokens [B, L] of {', '.join(names)}, got {shapes}")
        return [dict(zip(names, row, strict=True)) for row in zip(*source, strict=True)]
    rows = list(source)
    for number, row in enumerate(rows):
        is_tuple = isinstance(row, list | tuple) and len(row) == len(names)
        if not isinstance(row, Mapping) and not is_tuple:
            raise TypeError(
                f"dataset must hold dicts or tuples of {', '.join(names)}, got {row!r:.60} in row "
                f"{number}"
            )
    return [x if isinstance(x, Mapping) else dict(zip(names, x, strict=True)) for x in rows]


def _completion(value: Any, prompt: Any, tokens: Tensor, tokenizer: Any) -> Tensor:
    """The tokens of a completion, after those of its prompt."""
    if _is_chat(value):
        whole = _template(tokenizer, [*(prompt if _is_chat(prompt) else ()), *value])
        if not torch.equal(whole[: len(tokens)], tokens):
            raise ValueError(
                "the chat template must give a prompt the same tokens with and without its answer, "
                f"got {tokens.tolist()[-8:]} and {whole[: len(tokens)].tolist()[-8:]} at its end"
            )
        return whole[len(tokens) :]
    if not isinstance(value, str):
        return _tokens(value, tokenizer)
    if tokenizer is None:
        raise TypeError(f"tokenizer must be given for texts, such as {value!r:.60}")
    # What begins a text (such as a token of the beginning) stands before the prompt already.
    plain = "add_special_tokens" in inspect.signature(tokenizer.encode).parameters
    ids = tokenizer.encode(value, **({"add_special_tokens": False} if plain else {}))
    return _ended(torch.as_tensor(ids, dtype=torch.int64), tokenizer)


def _ended(tokens: Tensor, tokenizer: Any) -> Tensor:
    """A text with the token of the end after it, where the tokenizer has one."""
    end = getattr(tokenizer, "eos_token_id", None)
    if end is None or not len(tokens) or int(tokens[-1]) == end:
        return tokens
    return torch.cat([tokens, tokens.new_tensor([end])])


def _template(tokenizer: Any, messages: list[Any]) -> Tensor:
    if tokenizer is None:
        raise TypeError(f"tokenizer must be given for chats, such as {messages!r:.60}")
    ids = tokenizer.apply_chat_template(messages, add_generation_prompt=False, tokenize=True)
    ids = ids["input_ids"] if isinstance(ids, Mapping) else ids
    return torch.as_tensor(ids, dtype=torch.int64).reshape(-1)


def _tokens(value: Any, tokenizer: Any) -> Tensor:
    """The tokens of a prompt, or those that are given."""
    if is_text(value):
        return encode(value, tokenizer)
    found = torch.as_tensor(value)
    if found.ndim != 1 or (len(found) and (found.is_floating_point() or found.is_complex())):
        raise TypeError(f"dataset must hold texts, chats or lists of tokens, got {value!r:.60}")
    return found.long()


def _is_chat(value: Any) -> bool:
    return is_text(value) and not isinstance(value, str)


def _is_table(value: Any) -> bool:
    return isinstance(value, Tensor | np.ndarray) and value.ndim == 2
