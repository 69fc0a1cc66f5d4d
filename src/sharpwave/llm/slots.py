"""Completions in progress, and one step of all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sharpwave.core.notice import notice
from sharpwave.llm.cache import SlotCache, first
from sharpwave.llm.draw import Options, draw, uniforms
from sharpwave.llm.model import CausalModel

__all__ = ["Slots", "TokenStep"]

STEPS = 8
"""Steps in a row that a device takes before the host looks who has ended."""

FEWEST = 16
"""Minimum number of slots of a graph."""


class TokenStep(NamedTuple):
    """The tokens of a step, one in each of some slots.

    Attributes:
        rows: The completions that tokens belong to; -1 for none.
        tokens: The tokens.
        log_probs: Log-probabilities under the distribution that the tokens were drawn from.
        plain_log_probs: Log-probabilities under softmax(logits / temperature).
        ends: True for tokens that end a completion.
    """

    rows: Tensor
    tokens: Tensor
    log_probs: Tensor
    plain_log_probs: Tensor
    ends: Tensor


class Slots:
    """Slots in which completions grow token by token, in memory laid out once.

    A step asks nothing of the host. On a CUDA device it is therefore captured in a graph, and
    repeated: launching the kernels of a small model one by one takes longer than running them.

    Args:
        model: The model.
        n_slots: Completions at a time.
        capacity: Maximum number of tokens of a sequence, prompt included.
        options: Sampling options.
        stop: Tokens that end a completion.

    Attributes:
        rows: [S] the completion in each slot; -1 for none.
    """

    def __init__(
        self,
        model: CausalModel,
        n_slots: int,
        capacity: int,
        options: Options,
        stop: tuple[int, ...],
    ) -> None:
        self.model, self.options = model, options
        self.n_slots, self.capacity = n_slots, capacity
        self.cache = model.make_cache(n_slots, capacity)
        device = model.device
        self.rows = torch.full((n_slots,), -1, dtype=torch.int64, device=device)
        self._tokens = torch.zeros_like(self.rows)
        self._counts = torch.zeros_like(self.rows)
        self._keys = torch.zeros_like(self.rows)
        self._most = torch.zeros((), dtype=torch.int64, device=device)
        self._seen: Tensor | None = None
        if options.repetition_penalty != 1:
            self._seen = torch.zeros((n_slots, model.vocab_size), dtype=torch.bool, device=device)
        self._stops = torch.zeros(model.vocab_size, dtype=torch.bool, device=device)
        self._stops[[token for token in stop if token < model.vocab_size]] = True
        self._has_graph = device.type == "cuda" and isinstance(self.cache, SlotCache)
        self._graphs: dict[int, _Graph] = {}
        self._pool: Any = None
        self._n_steps = 1
        self._weights: tuple[int, ...] = ()
        self._whole = self.rows, self._tokens, self._counts, self._keys, self._seen

    def __len__(self) -> int:
        return len(self.rows)

    def restart(self, max_new_tokens: int) -> None:
        """Empty all slots, also those that were not kept."""
        self.rows, self._tokens, self._counts, self._keys, self._seen = self._whole
        self.cache.restart()
        self.rows.fill_(-1)
        self._most.fill_(max_new_tokens)
        self._n_steps = min(STEPS, max(1, max_new_tokens // 4))
        weights = tuple(parameter.data_ptr() for parameter in self.model.module.parameters())
        if weights != self._weights:
            self._graphs.clear()  # they read weights where they were
            self._weights = weights

    def begin(
        self, at: Tensor, rows: Tensor, keys: Tensor, prompts: Any, which: Tensor
    ) -> TokenStep:
        """Read prompts and draw the first tokens of completions in some slots.

        Args:
            at: [R] the slots.
            rows: [R] the completions.
            keys: [R] keys of their random numbers.
            prompts: A `TokenBatch` of prompts.
            which: [R] the prompt of each.
        """
        logits, read = self.model.prefill(prompts, self.cache)
        self.cache.put(read, which, at, prompts.lengths)
        self.rows[at] = rows
        self._keys[at] = keys
        self._counts[at] = 0
        if self._seen is not None:
            seen = torch.zeros((len(prompts), self._seen.shape[1]), dtype=torch.bool)
            seen = seen.to(self.rows.device)
            numbers = torch.arange(len(prompts), device=seen.device)
            seen[numbers.repeat_interleave(prompts.lengths), prompts.tokens] = True
            self._seen[at] = seen[which]
        return self._settle(logits[which], at)

    def advance(self) -> TokenStep:
        """Some more tokens of every completion."""
        if self._has_graph and len(self) not in self._graphs:
            self._capture()
        if not self._has_graph:
            return self._step()
        return self._graphs[len(self)].replay(self._n_steps)

    def shrink(self, n_active: int) -> None:
        """Go on with fewer slots where half of them or more are idle.

        Only the slots in use, or where each number of slots is a graph, half as many.
        """
        n_slots = len(self)
        if n_active * 2 > n_slots:
            return
        if self._has_graph and n_slots < 2 * FEWEST:
            return
        at = (self.rows < 0).sort(stable=True).indices  # those in use first
        at = at[: n_slots // 2 if self._has_graph else n_active]
        self.cache.keep(at)
        self.rows, self._tokens, self._counts, self._keys = (
            first(x, at) for x in (self.rows, self._tokens, self._counts, self._keys)
        )
        if self._seen is not None:
            self._seen = first(self._seen, at)

    def _step(self) -> TokenStep:
        return self._settle(self.model.decode(self._tokens, self.cache), slice(None))

    def _settle(self, logits: Tensor, at: Any) -> TokenStep:
        """Draw a token in some slots, and see which completions that ends."""
        counts, rows = self._counts[at], self.rows[at].clone()
        seen = None if self._seen is None else self._seen[at]
        options = self.options
        drawn = draw(
            logits,
            uniforms(self._keys[at], counts),
            options,
            seen=seen,
            too_early=counts < options.min_tokens if options.min_tokens else None,
            stops=self._stops,
        )
        ends = self._stops[drawn.tokens]
        counts = counts + 1
        self._counts[at] = counts
        self._tokens[at] = drawn.tokens
        self.rows[at] = rows.masked_fill(ends | (counts >= self._most), -1)
        self.cache.forget(self.rows < 0)
        if seen is not None and self._seen is not None:
            self._seen[at] = seen.scatter(1, drawn.tokens[:, None], True)
        return TokenStep(rows, drawn.tokens, drawn.log_probs, drawn.plain_log_probs, ends)

    def _capture(self) -> None:
        """Capture a step of so many slots, which leaves everything as it was."""
        moved = [self.rows, self._tokens, self._counts, self.cache.lengths]
        moved += [] if self._seen is None else [self._seen]
        before = [tensor.clone() for tensor in moved]

        def restore() -> None:
            for tensor, old in zip(moved, before, strict=True):
                tensor.copy_(old)

        try:
            self._pool = self._pool or torch.cuda.graph_pool_handle()
            self._graphs[len(self)] = _Graph(self._step, restore, self.model.device, self._pool)
        except Exception as error:  # an architecture may ask the host
            self._has_graph = False
            notice(f"a step of {type(self.model.module).__name__} is not a CUDA graph: {error}")
            restore()


class _Graph:
    """A step in a CUDA graph, and room for what several of them draw."""

    def __init__(
        self,
        step: Callable[[], TokenStep],
        restore: Callable[[], None],
        device: torch.device,
        pool: Any,
    ) -> None:
        stream = torch.cuda.Stream(device)
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            for _ in range(2):  # what is compiled and chosen at a first call
                drawn = step()
                restore()
            self._history = TokenStep(*(x.new_zeros((STEPS, *x.shape)) for x in drawn))
            self._place = torch.zeros(1, dtype=torch.int64, device=device)
        torch.cuda.current_stream(device).wait_stream(stream)
        self._graph: Any = torch.cuda.CUDAGraph()
        # One pool for all, because one of them runs at a time; other threads may go on meanwhile.
        with torch.cuda.graph(self._graph, pool=pool, capture_error_mode="thread_local"):
            for column, new in zip(self._history, step(), strict=True):
                column.index_copy_(0, self._place, new[None])
            self._place += 1

    def replay(self, n_steps: int) -> TokenStep:
        """The tokens of `n_steps` steps, one after another."""
        self._place.zero_()
        for _ in range(n_steps):
            self._graph.replay()
        return TokenStep(*(column[:n_steps].flatten().clone() for column in self._history))
