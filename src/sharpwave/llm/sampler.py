"""Sampling from a language model, many completions at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from sharpwave.llm.completions import Completions
from sharpwave.llm.draw import Drawn, Options, draw, mixed, uniforms
from sharpwave.llm.model import CausalModel

__all__ = ["Sampler"]

_REFILL = 8
"""New prompts begin when one in so many slots is free: each beginning is a pass of the model."""


class Sampler:
    """Draws completions from a model whose weights it reads where they lie.

    Completions fill slots. A slot whose completion has ended takes the next one, so short ones do
    not wait for long ones; a prompt with several completions is read once. What is drawn for a
    prompt depends on the seed, on the prompt's number and on the completion's, not on the slots.

    Args:
        model: What `CausalModel.of` takes.
        max_rows: Completions at a time.
        cache_tokens: Tokens that may be remembered at a time, over all slots; any number when None.
        stop: Tokens that end a completion, beside those of the model.
        seed: Of all draws.
        tokenizer: For prompts that are text.
        **options: Fields of `sharpwave.llm.draw.Options`, such as `temperature` and `top_p`.

    Attributes:
        drawn: Prompts so far; the next one has this number.
        version: Of the model's weights, which whoever changes them counts.

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
        stop: Iterable[int] = (),
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
        self.stop = tuple(sorted({*self.model.eos, *stop}))
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
            max_new_tokens: Tokens of a completion at most.
            keys: Numbers of the prompts, which decide what is drawn for them; those that follow
                `drawn` when not given.

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
            work = _Work(self, tokens, n, max_new_tokens, torch.as_tensor(list(keys)))
            work.finish()
        return work.result(self.version)  # in tensors that learning may keep

    def state_dict(self) -> dict[str, Any]:
        """Where the draws stand."""
        return {"drawn": self.drawn, "version": self.version}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        self.drawn, self.version = int(state["drawn"]), int(state["version"])


class _Work:
    """One call of `generate`: a queue of completions, and the slots that they pass through."""

    def __init__(
        self, sampler: Sampler, prompts: list[Tensor], n: int, max_new: int, keys: Tensor
    ) -> None:
        self.model, self.options = sampler.model, sampler.options
        self.seed, self.stop, self.n, self.max_new = sampler.seed, sampler.stop, n, max_new
        self.device = device = self.model.device
        self.prompts, self.keys = prompts, keys.to(device)
        longest = max(len(prompt) for prompt in prompts)
        capacity = longest + max_new
        n_rows = min(sampler.max_rows, len(prompts) * n)
        if sampler.cache_tokens is not None:
            n_rows = max(1, min(n_rows, sampler.cache_tokens // capacity))
        self.queue = deque(range(len(prompts) * n))
        self.cache = self.model.make_cache(n_rows, capacity)
        # The completion in each slot, -1 for none, how many tokens it has, and what its draws
        # depend on beside that.
        self.row = torch.full((n_rows,), -1, dtype=torch.int64, device=device)
        self.count = torch.zeros_like(self.row)
        self.key = torch.zeros_like(self.row)
        self.logits = torch.zeros((n_rows, self.model.vocab_size), device=device)
        self.seen: Tensor | None = None
        if self.options.repetition_penalty != 1:
            self.seen = torch.zeros_like(self.logits, dtype=torch.bool)
        # What every step drew, as (rows, tokens, log_probs, plain_log_probs, ends) of all slots.
        self.steps: list[tuple[Tensor, ...]] = []
        self._stops = torch.zeros(self.model.vocab_size, dtype=torch.bool, device=device)
        self._stops[[token for token in self.stop if token < self.model.vocab_size]] = True

    def finish(self) -> None:
        """Draw until every completion has ended."""
        if self.max_new == 0:
            return
        n_active = 0
        while self.queue or n_active:
            n_slots = len(self.row)
            if self.queue and (n_slots - n_active) * _REFILL >= n_slots:
                self._begin()
            elif not self.queue and n_active * 2 <= n_slots:
                self._compact()
            drawn = self._draw()
            ends = self._stops[drawn.tokens]
            self.steps.append(
                (self.row, drawn.tokens, drawn.log_probs, drawn.plain_log_probs, ends)
            )
            if self.seen is not None:
                self.seen.scatter_(1, drawn.tokens[:, None], True)
            self.count = self.count + 1
            self.row = self.row.masked_fill(ends | (self.count >= self.max_new), -1)
            n_active = int((self.row >= 0).sum())
            if n_active:
                self.logits = self.model.decode(drawn.tokens, self.cache).float()

    def _begin(self) -> None:
        """Read prompts into free slots, each once for all of its completions."""
        free = (self.row < 0).nonzero()[:, 0]
        rows = [self.queue.popleft() for _ in range(min(len(free), len(self.queue)))]
        slots, numbers = free[: len(rows)], torch.tensor(rows, device=self.device)
        indices = numbers // self.n
        needed, which = indices.unique(return_inverse=True)
        prompts = [self.prompts[i] for i in needed.tolist()]
        lengths = torch.tensor([len(prompt) for prompt in prompts], device=self.device)
        ids = torch.nn.utils.rnn.pad_sequence(prompts, batch_first=True)
        logits, read = self.model.prefill(ids, lengths, self.cache)
        self.cache.put(read, which, slots, lengths)
        self.logits[slots] = logits.float()[which]
        self.row = self.row.index_copy(0, slots, numbers)  # what steps remember stays
        self.count[slots] = 0
        self.key[slots] = mixed(self.seed, self.keys[indices], numbers % self.n)
        if self.seen is not None:
            self.seen[slots] = False
            for slot, index in zip(slots.tolist(), indices.tolist(), strict=True):
                self.seen[slot, self.prompts[index]] = True

    def _compact(self) -> None:
        """Go on with the slots that are in use."""
        slots = (self.row >= 0).nonzero()[:, 0]
        self.cache.keep(slots)
        self.row, self.count, self.key = self.row[slots], self.count[slots], self.key[slots]
        self.logits = self.logits[slots]
        if self.seen is not None:
            self.seen = self.seen[slots]

    def _draw(self) -> Drawn:
        numbers = uniforms(self.key, self.count)
        return draw(
            self.logits,
            numbers,
            self.options,
            seen=self.seen,
            too_early=self.count < self.options.min_tokens if self.options.min_tokens else None,
            stops=self.stop,
        )

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
        offsets = torch.zeros(total + 1, dtype=torch.int64, device=self.device)
        torch.cumsum(torch.bincount(rows, minlength=total), 0, out=offsets[1:])
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
    for row, prompt in enumerate(tokens):
        if not len(prompt):
            raise ValueError(f"prompts must not be empty, got none of a token in row {row}")
        if int(prompt.min()) < 0 or int(prompt.max()) >= model.vocab_size:
            raise ValueError(
                f"prompts must hold tokens from 0 to {model.vocab_size - 1}, got "
                f"{int(prompt.min())} to {int(prompt.max())} in row {row}"
            )
        room = model.max_positions
        if room is not None and len(prompt) + max_new_tokens > room:
            raise ValueError(
                f"prompt and max_new_tokens must fit into {room} positions, got {len(prompt)} and "
                f"{max_new_tokens} in row {row}"
            )
    return [prompt.to(model.device) for prompt in tokens]
