"""Sampling from a language model, many completions at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from sharpwave.llm.batch import TokenBatch
from sharpwave.llm.completions import Completions
from sharpwave.llm.draw import Options, mixed
from sharpwave.llm.model import CausalModel
from sharpwave.llm.slots import Slots, TokenStep

__all__ = ["Sampler"]

_REFILL = 8
"""New prompts begin when one in so many slots is free: each beginning is a pass of the model."""

_READ = 1 << 16
"""Tokens of prompts that are read in one pass, with their padding."""

_ROUND = 64
"""Capacity of slots on a device is a multiple of so many tokens, so that the next call fits."""


class Sampler:
    """Draws completions from a model whose weights it reads where they lie.

    Completions fill slots. A slot whose completion has ended takes the next one, so short ones do
    not wait for long ones; a prompt with several completions is read once. What is drawn for a
    prompt depends on the seed, on the prompt's number and on the completion's, not on the slots.

    Args:
        model: The model, as `CausalModel.of` takes it.
        max_rows: Maximum number of completions at a time (batch size).
        cache_tokens: Capacity of the key-value cache in tokens, of all slots; unbounded when None.
        stop: Tokens and texts that end a completion, beside the tokens of the model. A text is
            complete with the last token that is kept.
        seed: Seed of all draws.
        tokenizer: For prompts that are text.
        **options: Fields of `sharpwave.llm.draw.Options`, such as `temperature` and `top_p`.

    Attributes:
        drawn: Prompts so far; the next one has this number.
        version: Version of the model's weights, counted by the code that changes them.

    Raises:
        TypeError: An option does not exist.
        ValueError: An option has an impossible value.

    Example:
        >>> sampler = Sampler(sw.nn.Transformer(vocab_size=8), temperature=0)
        >>> sampler.generate([[1, 2, 3]], max_new_tokens=2).tokens.shape
        torch.Size([2])
    """

    def __init__(
        self,
        model: Any,
        *,
        max_rows: int = 256,
        cache_tokens: int | None = None,
        stop: Iterable[int | str] = (),
        seed: int = 0,
        tokenizer: Any = None,
        **options: Any,
    ) -> None:
        if max_rows < 1:
            raise ValueError(f"max_rows must be at least 1, got {max_rows}")
        self.model = CausalModel.of(model, tokenizer)
        self.options = Options(**options)
        self.max_rows = max_rows
        self.cache_tokens = cache_tokens
        given = (stop,) if isinstance(stop, str) else tuple(stop)
        self.stop_texts = tuple(one for one in given if isinstance(one, str))
        tokens = {int(one) for one in given if not isinstance(one, str)}
        self.stop = tuple(sorted({*self.model.eos, *tokens}))
        if self.stop_texts and self.model.tokenizer is None:
            raise TypeError("stop must hold tokens where there is no tokenizer, got text")
        if "" in self.stop_texts:
            raise ValueError("stop must not hold an empty text")
        self._slots: Slots | None = None
        self.seed = seed
        self.drawn = 0
        self.version = 0

    @torch.no_grad()
    def generate(
        self,
        prompts: Any,
        n: int = 1,
        max_new_tokens: int = 64,
        *,
        keys: Sequence[int] | None = None,
    ) -> Completions:
        """Draw completions of prompts.

        Args:
            prompts: Tokens [B, P], or one sequence of tokens for each prompt.
            n: Completions of each prompt.
            max_new_tokens: Maximum number of tokens of a completion.
            keys: Numbers of the prompts, which with the seed determine their samples; those that
                follow `drawn` when not given.

        Raises:
            ValueError: A prompt is empty, has a token outside the vocabulary, or leaves no room.
        """
        tokens = check_prompts(prompts, self.model, max_new_tokens)
        if n < 1:
            raise ValueError(f"n must be at least 1, got {n}")
        if keys is None:
            keys = range(self.drawn, self.drawn + len(tokens))
            self.drawn += len(tokens)
        elif len(keys) != len(tokens):
            raise ValueError(f"keys must have {len(tokens)} numbers, got {len(keys)}")
        with self.model.evaluating(), torch.inference_mode():
            slots = self._make_slots(tokens, n, max_new_tokens)
            texts = _Texts(self.stop_texts, self.model.tokenizer)
            work = _Work(slots, tokens, n, torch.as_tensor(list(keys)), self.seed, texts)
            if max_new_tokens:
                work.finish()
        return work.result(self.version)  # in tensors that learning may keep

    def _make_slots(self, prompts: list[Tensor], n: int, max_new_tokens: int) -> Slots:
        """Empty slots, on a device those of the last call where they fit."""
        capacity = max(len(prompt) for prompt in prompts) + max_new_tokens
        n_slots = min(self.max_rows, len(prompts) * n)
        is_kept = self.model.device.type == "cuda"
        if is_kept:
            room = self.model.max_positions or capacity
            capacity = max(capacity, min(-(-capacity // _ROUND) * _ROUND, room))
        if self.cache_tokens is not None:
            n_slots = max(1, min(n_slots, self.cache_tokens // capacity))
        slots = self._slots
        if slots is None or (slots.n_slots, slots.capacity) != (n_slots, capacity):
            self._slots = slots = None  # before there are others
            slots = Slots(self.model, n_slots, capacity, self.options, self.stop)
        self._slots = slots if is_kept else None
        slots.restart(max_new_tokens)
        return slots

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_slots": None}  # graphs of a device stay there

    def release(self) -> None:
        """Free the memory of a device that is kept for the next call."""
        self._slots = None

    def state_dict(self) -> dict[str, Any]:
        """State of the draws, for a checkpoint."""
        return {"drawn": self.drawn, "version": self.version}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        self.drawn, self.version = int(state["drawn"]), int(state["version"])


class _Work:
    """One call of `generate`: a queue of completions, and the slots that they pass through."""

    def __init__(
        self, slots: Slots, prompts: list[Tensor], n: int, keys: Tensor, seed: int, texts: _Texts
    ) -> None:
        self.slots, self.prompts, self.n, self.seed = slots, prompts, n, seed
        self.device = slots.rows.device
        self.keys = keys.to(self.device)
        self.queue = deque(range(len(prompts) * n))
        self.steps: list[TokenStep] = []
        self.texts = texts

    def finish(self) -> None:
        """Draw until every completion has ended."""
        slots, n_active = self.slots, 0
        while self.queue or n_active:
            n_slots = len(slots)
            if self.queue and (n_slots - n_active) * _REFILL >= n_slots:
                self._begin()
                n_active = self._active()
            elif not self.queue:
                slots.shrink(n_active)
            if n_active:
                self._record(slots.advance())
                n_active = self._active()

    def _active(self) -> int:
        return int((self.slots.rows >= 0).sum())

    def _begin(self) -> None:
        """Read prompts into free slots, each once for all of its completions."""
        free = (self.slots.rows < 0).nonzero()[:, 0]
        begun = 0
        while self.queue and begun < len(free):
            rows, needed = self._next(len(free) - begun)
            prompts = TokenBatch.of_sequences(
                [self.prompts[i] for i in needed],
                torch.zeros(len(needed), dtype=torch.int64, device=self.device),
            )
            numbers = torch.tensor(rows, device=self.device)
            which = torch.tensor([needed.index(row // self.n) for row in rows], device=self.device)
            keys = mixed(self.seed, self.keys[numbers // self.n], numbers % self.n)
            at = free[begun : begun + len(rows)]
            self._record(self.slots.begin(at, numbers, keys, prompts, which))
            begun += len(rows)

    def _next(self, most: int) -> tuple[list[int], list[int]]:
        """The next completions, and their prompts, of not too many tokens together."""
        rows: list[int] = []
        needed: list[int] = []
        longest = 0
        while self.queue and len(rows) < most:
            prompt = self.queue[0] // self.n
            if not needed or needed[-1] != prompt:  # completions of a prompt follow each other
                longest = max(longest, len(self.prompts[prompt]))
                if needed and longest * (len(needed) + 1) > _READ:
                    break
                needed.append(prompt)
            rows.append(self.queue.popleft())
        return rows, needed

    def _record(self, step: TokenStep) -> None:
        self.steps.append(step)
        ended = self.texts.ended(step)
        if ended:
            is_over = torch.isin(self.slots.rows, torch.tensor(ended, device=self.device))
            self.slots.rows.masked_fill_(is_over, -1)

    def result(self, version: int) -> Completions:
        """All completions, in order."""
        total = len(self.prompts) * self.n
        columns = [torch.cat(column) for column in zip(*self.steps, strict=True)]
        if not columns:
            empty = torch.zeros(0, device=self.device)
            columns = [empty.long(), empty.long(), empty, empty, empty.bool()]
        rows = columns[0]
        # A slot's tokens stand in the order of the steps, and idle slots, of row -1, before all.
        order = rows.argsort(stable=True)[int((rows < 0).sum()) :]
        rows, tokens, log_probs, plain_log_probs, ends = (column[order] for column in columns)
        offsets = _offsets(rows, total)
        if self.texts.cuts:
            position = torch.arange(len(rows), device=self.device) - offsets[rows]
            last = torch.full((total,), len(rows), device=self.device)
            cut = torch.tensor(list(self.texts.cuts.items()), device=self.device)
            last[cut[:, 0]] = cut[:, 1]
            ends = ends | (position == last[rows] - 1)
            kept = position < last[rows]
            columns = [x[kept] for x in (rows, tokens, log_probs, plain_log_probs, ends)]
            rows, tokens, log_probs, plain_log_probs, ends = columns
            offsets = _offsets(rows, total)
        finished = torch.zeros(total, dtype=torch.bool, device=self.device)
        finished[rows[ends]] = True
        return Completions(
            prompts=self.prompts,
            prompt=torch.arange(total, device=self.device) // self.n,
            tokens=tokens,
            offsets=offsets,
            log_probs=log_probs,
            plain_log_probs=plain_log_probs,
            finished=finished,
            version=version,
        )


class _Texts:
    """Watches for texts that end a completion.

    Attributes:
        cuts: Number of tokens of a completion that such a text ended; later ones are dropped.
    """

    def __init__(self, stop: tuple[str, ...], tokenizer: Any) -> None:
        self._stop, self._tokenizer = stop, tokenizer
        self._tokens: dict[int, list[int]] = {}
        self.cuts: dict[int, int] = {}

    def ended(self, step: TokenStep) -> list[int]:
        """The completions that a step ended by a text."""
        if not self._stop:
            return []
        ended = []
        for row, token in zip(step.rows.tolist(), step.tokens.tolist(), strict=True):
            if row < 0 or row in self.cuts:
                continue
            tokens = self._tokens.setdefault(row, [])
            tokens.append(token)
            # A token is at least a byte of text, so an end is found among the last few of them.
            recent = tokens[-4 * max(map(len, self._stop)) - 8 :]
            text = self._tokenizer.decode(recent)
            if any(stop in text for stop in self._stop):
                self.cuts[row] = len(tokens)
                ended.append(row)
        return ended


def _offsets(rows: Tensor, total: int) -> Tensor:
    """[N + 1] boundaries of each of `total` rows among ordered ones."""
    offsets = torch.zeros(total + 1, dtype=torch.int64, device=rows.device)
    torch.cumsum(torch.bincount(rows, minlength=total), 0, out=offsets[1:])
    return offsets


def check_prompts(prompts: Any, model: CausalModel, max_new_tokens: int) -> list[Tensor]:
    """Prompts as tokens on the device of a model.

    Raises:
        ValueError: A prompt is empty, has a token outside the vocabulary, or leaves no room.
    """
    if max_new_tokens < 0:
        raise ValueError(f"max_new_tokens must be at least 0, got {max_new_tokens}")
    tokens = [torch.as_tensor(prompt, dtype=torch.int64).reshape(-1) for prompt in prompts]
    if not tokens:
        raise ValueError("prompts must hold at least one, got none")
    lengths = [len(prompt) for prompt in tokens]
    if 0 in lengths:
        raise ValueError(
            f"prompts must not be empty, got none of a token in row {lengths.index(0)}"
        )
    if _leave(torch.cat(tokens), model.vocab_size):
        row = next(i for i, prompt in enumerate(tokens) if _leave(prompt, model.vocab_size))
        least, most = (int(one) for one in tokens[row].aminmax())
        raise ValueError(
            f"prompts must hold tokens from 0 to {model.vocab_size - 1}, got {least} to {most} in "
            f"row {row}"
        )
    room = model.max_positions
    if room is not None and max(lengths) + max_new_tokens > room:
        raise ValueError(
            f"prompt and max_new_tokens must fit into {room} positions, got {max(lengths)} and "
            f"{max_new_tokens} in row {lengths.index(max(lengths))}"
        )
    return [prompt.to(model.device) for prompt in tokens]


def _leave(tokens: Tensor, vocab_size: int) -> bool:
    """Return whether some of the tokens lie outside the vocabulary."""
    return bool(((tokens < 0) | (tokens >= vocab_size)).any())
