"""Gradient steps replayed as CUDA graphs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any

from sharpwave.lazy import torch
from sharpwave.nest import map_leaves
from sharpwave.train.batch import OnPolicyBatch
from sharpwave.train.replay import ReplayBatch

WARM_UP = 3
"""Steps that run as they are before a graph is captured, so that all that is lazy has happened."""

Step = Callable[["torch.Tensor"], "torch.Tensor"]
"""A gradient step on the rows of these indices, which returns its metrics."""


class GraphedSteps:
    """Runs gradient steps, at first as they are, then as one CUDA graph for each number of rows.

    A graph replays the same kernels on the same memory, so the batch and the indices live in memory
    of their own here. What the step reads beside them must not move either.
    """

    def __init__(self) -> None:
        self._stream = torch.cuda.Stream()
        self._batch: OnPolicyBatch | None = None
        self._graphs: dict[int, tuple[Any, torch.Tensor, torch.Tensor]] = {}
        self._updates = 0

    def take(self, batch: OnPolicyBatch) -> OnPolicyBatch:
        """The batch at the address where all batches of its shape lie."""
        if self._batch is None or self._batch.log_probs.shape != batch.log_probs.shape:
            columns: dict[str, Any] = {
                name: None if column is None else map_leaves(torch.clone, column)
                for name, column in vars(batch).items()
            }
            self._batch = replace(batch, **columns)
            self._graphs.clear()
            self._updates = 0
        else:
            self._batch.copy_(batch)
            self._updates += 1
        return self._batch

    def run(self, step: Step, rows: torch.Tensor) -> torch.Tensor:
        """One step; the first update runs as it is, to warm up what graphs cannot start."""
        if self._updates == 0:
            self._stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._stream):
                metrics = step(rows)
            torch.cuda.current_stream().wait_stream(self._stream)
            return metrics
        if len(rows) not in self._graphs:
            self._graphs[len(rows)] = self._capture(step, rows)
        graph, static_rows, metrics = self._graphs[len(rows)]
        static_rows.copy_(rows)
        graph.replay()
        return metrics.clone()

    def _capture(self, step: Step, rows: torch.Tensor) -> tuple[Any, torch.Tensor, torch.Tensor]:
        graph = torch.cuda.CUDAGraph()
        static_rows = rows.clone()
        with torch.cuda.graph(graph, stream=self._stream):
            metrics = step(static_rows)
        return graph, static_rows, metrics


GradientStep = Callable[[], "tuple[torch.Tensor, ReplayBatch]"]
"""A gradient step on a batch at a fixed address: its metrics, and the batch with its errors."""


class GraphedGradients:
    """Runs gradient steps on replayed batches, at first as they are, then as CUDA graphs.

    A graph replays the same kernels on the same memory: the batch must always lie at the address of
    the first one, and what a step does in Python happens only while it is captured.

    Args:
        generator: What the steps draw noise from.
    """

    def __init__(self, generator: torch.Generator) -> None:
        self._generator = generator
        self._stream = torch.cuda.Stream()
        self._pool = torch.cuda.graph_pool_handle()
        self._graphs: dict[Hashable, tuple[Any, torch.Tensor, ReplayBatch]] = {}
        self._runs: Counter[Hashable] = Counter()

    def run(self, key: Hashable, step: GradientStep) -> tuple[torch.Tensor, ReplayBatch]:
        """One step.

        Args:
            key: Steps of one key run the same kernels.
            step: The step.
        """
        self._runs[key] += 1
        if self._runs[key] <= WARM_UP:
            self._stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._stream):
                result = step()
            torch.cuda.current_stream().wait_stream(self._stream)
            return result
        if key not in self._graphs:
            self._graphs[key] = self._capture(step)
        graph, metrics, batch = self._graphs[key]
        graph.replay()
        return metrics.clone(), batch

    def _capture(self, step: GradientStep) -> tuple[Any, torch.Tensor, ReplayBatch]:
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self._generator)
        # A thread that collects meanwhile has nothing to do with the graph.
        with torch.cuda.graph(
            graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"
        ):
            metrics, batch = step()
        return graph, metrics, batch
