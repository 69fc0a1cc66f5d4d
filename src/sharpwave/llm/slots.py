"""Completions in progress, and one step of all of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from sharpwave.llm.cache import SlotCache
from sharpwave.llm.draw import Options, draw, uniforms
from sharpwave.llm.model import CausalModel
from sharpwave.notice import notice

__all__ = ["Slots", "Step"]

STEPS = 8
"""Steps in a row that a device takes before the host looks who has ended."""


class Step(NamedTuple):
    """What was drawn, a token in each of some slots.

    Attributes:
        rows: The completions that tokens belong to; -1 for none.
        tokens: The tokens.
        log_probs: Of the tokens under the distribution that they were drawn from.
        plain_log_probs: Of the tokens under softmax(logits / temperature).
        ends: Which of them end a completion.
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
        capacity: Tokens of the longest, its prompt included.
        options: What distributions become before tokens are drawn.
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
        self.capacity = capacity
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
        self._graph: Any = None
        self._history: Step | None = None
        self._weights: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.rows)

    def restart(self, max_new_tokens: int) -> None:
        """Empty all slots."""
        self.rows.fill_(-1)
        self._most.fill_(max_new_tokens)
        weights = tuple(parameter.data_ptr() for parameter in self.model.module.parameters())
        if weights != self._weights:
            self._graph = None  # it reads weights where they were
            self._weights = weights

    def begin(self, at: Tensor, rows: Tensor, keys: Tensor, prompts: Any, which: Tensor) -> Step:
        """Read prompts and draw the first tokens of completions in some slots.

        Args:
            at: [R] the slots.
            rows: [R] the completions.
            keys: [R] what their draws depend on.
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

    def advance(self) -> Step:
        """Some more tokens of every completion."""
        if not self._has_graph:
            return self._step()
        if self._graph is None:
            self._capture()
        if self._graph is None:
            return self._step()
        assert self._history is not None
        n_steps = min(STEPS, max(1, int(self._most) // 4))
        self._place.zero_()
        for _ in range(n_steps):
            self._graph.replay()
        return Step(*(column[:n_steps].flatten().clone() for column in self._history))

    def keep(self, at: Tensor) -> None:
        """Go on with some of the slots."""
        self.cache.keep(at)
        self.rows, self._counts, self._keys = self.rows[at], self._counts[at], self._keys[at]
        self._tokens = self._tokens[at]
        if self._seen is not None:
            self._seen = self._seen[at]

    @property
    def can_shrink(self) -> bool:
        """Whether some of the slots can go on alone, in other memory."""
        return not self._has_graph

    def _step(self) -> Step:
        return self._settle(self.model.decode(self._tokens, self.cache), slice(None))

    def _settle(self, logits: Tensor, at: Any) -> Step:
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
        return Step(rows, drawn.tokens, drawn.log_probs, drawn.plain_log_probs, ends)

    def _capture(self) -> None:
        """Capture a step, which leaves everything as it was."""
        moved = [self.rows, self._tokens, self._counts, self.cache.lengths]
        moved += [] if self._seen is None else [self._seen]
        before = [tensor.clone() for tensor in moved]
        stream = torch.cuda.Stream(self.model.device)
        stream.wait_stream(torch.cuda.current_stream(self.model.device))
        with torch.cuda.stream(stream):
            for _ in range(2):  # what is compiled and chosen at a first call
                step = self._step()
                _restore(moved, before)
            self._history = Step(*(x.new_zeros((STEPS, *x.shape)) for x in step))
            self._place = torch.zeros(1, dtype=torch.int64, device=self.rows.device)
        torch.cuda.current_stream(self.model.device).wait_stream(stream)
        graph: Any = torch.cuda.CUDAGraph()
        try:
            # Another thread may learn meanwhile, and ask the device for memory.
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                for column, new in zip(self._history, self._step(), strict=True):
                    column.index_copy_(0, self._place, new[None])
                self._place += 1
        except Exception as error:  # an architecture may ask the host
            self._has_graph = False
            notice(f"a step of {type(self.model.module).__name__} is not a CUDA graph: {error}")
            graph = None
            _restore(moved, before)
        self._graph = graph


def _restore(tensors: list[Tensor], before: list[Tensor]) -> None:
    for tensor, old in zip(tensors, before, strict=True):
        tensor.copy_(old)
