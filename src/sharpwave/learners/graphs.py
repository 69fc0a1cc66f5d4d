"""Updates replayed as CUDA graphs: wrappers around methods of a learner.

A graph replays the same kernels on the same memory. Batches that always lie at the same place are
read there, others are copied to where the first one lay. What an update does in Python happens only
while it is captured.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import fields, is_dataclass, replace
from typing import Any

from sharpwave.core.lazy import torch
from sharpwave.core.tree import leaves, map_leaves

__all__ = ["replay_as_graphs"]

WARM_UP = 3
"""Calls that run as they are before a graph is captured, so that all that is lazy has happened."""


def replay_as_graphs(learner: Any) -> None:
    """Have the method of a learner that `captured` names replayed as CUDA graphs."""
    if learner.captured == "update":
        learner.update = GraphedUpdates(learner).update
    else:
        graphs = GraphedMinibatches(learner)
        learner.update = graphs.update
        setattr(learner, learner.captured, graphs.step)


class _Graphs:
    """Runs calls, at first as they are, then as one graph for each key.

    Args:
        generator: What the calls draw noise from.
    """

    def __init__(self, generator: torch.Generator) -> None:
        self._generator = generator
        self._stream = torch.cuda.Stream()
        self._pool = torch.cuda.graph_pool_handle()
        self._graphs: dict[Hashable, tuple[Any, Any]] = {}
        self._runs: Counter[Hashable] = Counter()

    def clear(self) -> None:
        """Forget all graphs: the memory that they read has moved."""
        self._graphs.clear()
        self._runs.clear()

    def run(self, key: Hashable, call: Callable[[], Any]) -> Any:
        """The result of a call; that of a graph lies in memory that the next replay overwrites."""
        self._runs[key] += 1
        if self._runs[key] <= WARM_UP:
            self._stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._stream):
                result = call()
            torch.cuda.current_stream().wait_stream(self._stream)
            return result
        if key not in self._graphs:
            self._graphs[key] = self._capture(call)
        graph, result = self._graphs[key]
        graph.replay()
        return result

    def _capture(self, call: Callable[[], Any]) -> tuple[Any, Any]:
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self._generator)
        # A thread that collects meanwhile has nothing to do with the graph.
        with torch.cuda.graph(
            graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"
        ):
            result = call()
        return graph, result


class _Memory:
    """The place where all batches of one form lie.

    A column is read where it is for as long as all batches have it there, as rollouts do that are
    collected into the same memory. From the first batch on that has it elsewhere it is copied.
    """

    def __init__(self) -> None:
        self._batch: Any = None
        self._copied: set[str] = set()

    def take(self, batch: Any) -> tuple[Any, bool]:
        """The batch at the address of the one before, and whether it is at a new one."""
        if self._batch is None or _form(self._batch) != _form(batch):
            self._batch, self._copied = batch, set()
            return self._batch, True
        moved: dict[str, Any] = {}
        for name, column in _columns(self._batch).items():
            given = getattr(batch, name)
            if name in self._copied:
                _each(_copy, column, given)
            elif _places(column) != _places(given):
                moved[name] = _each(torch.clone, given)
        if moved:
            self._copied |= moved.keys()
            self._batch = replace(self._batch, **moved)
        return self._batch, bool(moved)


class _Methods:
    """The methods of a learner as they are now."""

    def __init__(self, learner: Any) -> None:
        self._learner = learner
        names = [name for name in dir(type(learner)) if callable(getattr(type(learner), name))]
        self._assigned = {name: vars(learner).get(name) for name in names if name[0] != "_"}
        self._made_of = learner.made_of()

    def have_other_networks(self) -> bool:
        """Return whether a part of a network, or a method of one, was replaced since."""
        return bool(self._learner.made_of() != self._made_of)

    def are_others(self, captured: str) -> bool:
        """Return whether a method was reassigned since, beside those that replay graphs."""
        now = vars(self._learner)
        return any(
            now.get(name) is not method
            for name, method in self._assigned.items()
            if name not in ("update", captured)
        )


class GraphedUpdates:
    """Replays whole updates, one graph for each `update_kind`."""

    def __init__(self, learner: Any) -> None:
        self._learner = learner
        self._methods = _Methods(learner)
        self._update = learner.update
        self._graphs = _Graphs(learner.generator)
        self._memory = _Memory()

    def update(self, batch: Any) -> dict[str, Any]:
        """Learn from a batch, and count it."""
        learner = self._learner
        kind = learner.update_kind()
        methods = self._methods
        if kind is None or methods.are_others("update") or methods.have_other_networks():
            return self._update(batch)  # type: ignore[no-any-return]
        before = learner.updates
        static, is_new = self._memory.take(replace(batch, indices=None))
        if is_new:
            self._graphs.clear()
        metrics = self._graphs.run(kind, lambda: self._measured(static))
        learner.updates = before + 1  # a replay does not count
        return {name: value.clone() for name, value in metrics.items()}

    def _measured(self, batch: Any) -> dict[str, torch.Tensor]:
        found = self._update(batch)
        return {k: torch.as_tensor(x, device=self._learner.device) for k, x in found.items()}


class GraphedMinibatches:
    """Replays the gradient steps of an update, one graph for each number of rows."""

    def __init__(self, learner: Any) -> None:
        self._captured, self._methods = learner.captured, _Methods(learner)
        self._update = learner.update
        self._step = getattr(learner, learner.captured)
        self._graphs = _Graphs(learner.generator)
        self._memory = _Memory()
        self._rows: dict[int, torch.Tensor] = {}
        self._is_changed = False

    def update(self, batch: Any) -> dict[str, Any]:
        """Learn from a batch."""
        self._is_changed = self._methods.have_other_networks()
        static, is_new = self._memory.take(batch)
        if is_new:
            self._graphs.clear()
        return self._update(static)  # type: ignore[no-any-return]

    def step(self, batch: Any, rows: torch.Tensor) -> torch.Tensor:
        """One gradient step on some rows."""
        if self._is_changed or self._methods.are_others(self._captured):
            return self._step(batch, rows)  # type: ignore[no-any-return]
        static = self._rows.setdefault(len(rows), rows.clone())
        static.copy_(rows)
        metrics: torch.Tensor = self._graphs.run(len(rows), lambda: self._step(batch, static))
        return metrics.clone()


def _columns(batch: Any) -> dict[str, Any]:
    assert is_dataclass(batch)
    found = {field.name: getattr(batch, field.name) for field in fields(batch)}
    return {name: column for name, column in found.items() if column is not None}


def _each(function: Callable[..., Any], *trees: Any) -> Any:
    return map_leaves(function, *trees)


def _copy(mine: torch.Tensor, theirs: torch.Tensor) -> None:
    if mine.data_ptr() != theirs.data_ptr():
        mine.copy_(theirs)


def _form(batch: Any) -> list[Any]:
    return [
        (name, path, leaf.shape, leaf.dtype)
        for name, column in _columns(batch).items()
        for path, leaf in leaves(column)
    ]


def _places(column: Any) -> list[Any]:
    return [(leaf.data_ptr(), leaf.stride()) for _, leaf in leaves(column)]
