"""Rollouts replayed as CUDA graphs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from sharpwave.core.lazy import torch
from sharpwave.core.notice import notice
from sharpwave.core.tree import leaves, map_leaves

if TYPE_CHECKING:
    from sharpwave.tensors.collector import TensorCollector

__all__ = ["GraphedRollouts"]

REPLACEABLE = ("act", "values")
"""Methods of a learner that graphs stand for."""


class Chosen(NamedTuple):
    """Actions of a step, in memory that keeps them until the next rollout."""

    acted: Any
    """By the actor: actions, log-probabilities, values, and its recurrent state."""
    actions: Any
    """As the environments take them."""


class GraphedRollouts:
    """Replays what a collector does in a rollout as CUDA graphs.

    Graph t stores what step t - 1 led to, and acts for step t; between two graphs the environment
    steps, and what it gives is copied to where the next graph reads it. An environment that can be
    captured itself is part of the one graph that is the whole rollout. Random numbers are those of
    a rollout without graphs.

    Args:
        collector: The collector, whose environments lie on its CUDA device.
        learner: The learner that acts.
    """

    def __init__(self, collector: TensorCollector, learner: Any) -> None:
        self._collector = collector
        self._steps: Any = collector.steps
        self._actor: Any = collector.actor
        self._learner = learner
        self._stream = torch.cuda.Stream(collector.device)
        self._pool = torch.cuda.graph_pool_handle()
        self._graphs: list[tuple[Any, Any]] = []
        self._made_of = learner.made_of()
        self._buffer: Any = None  # which the graphs write to, by its addresses
        self._discounts: Any = None
        self._first: dict[str, Any] = {}
        self._given: list[dict[str, Any]] = []  # of even and of odd steps
        self._is_given_up = False

    @property
    def can_collect(self) -> bool:
        """True if graphs stand for what would happen without them."""
        learner = self._learner
        if self._is_given_up or self._collector.buffer is None:
            return False
        is_replaced = any(name in vars(learner) for name in REPLACEABLE)
        return not is_replaced and learner.made_of() == self._made_of

    def clear(self) -> None:
        """Forget all graphs: the memory that they read has moved."""
        self._graphs, self._given, self._first = [], [], {}

    def collect(self) -> int:
        """Collect a rollout into the buffer of the collector, with its advantages.

        Returns:
            The steps that were taken: all, or fewer where the environment gave something else than
            it did before. Those that are left are to be taken without graphs.
        """
        collector = self._collector
        buffer: Any = collector.buffer
        discounts = buffer.gamma, buffer.gae_lambda
        if buffer is not self._buffer or discounts != self._discounts:
            self.clear()
            self._buffer, self._discounts = buffer, discounts
        self._begin()
        if self._steps.env.capturable:
            self._collect_at_once()
        else:
            taken = self._collect_in_turn()
            if taken < collector.n_steps:
                return taken
        self._end()
        return collector.n_steps

    def _collect_at_once(self) -> None:
        """One graph for environment and policy."""
        environment = self._steps.env.env  # what lies below keeps the last observations too
        before = None if self._graphs else dict(_tensors_of(environment))
        self._run(0, self._all)
        if before is not None:
            _check_in_place(before, dict(_tensors_of(environment)))

    def _all(self) -> None:
        for _ in range(self._collector.n_steps):
            self._collector.step()
        self._finish()

    def _collect_in_turn(self) -> int:
        """Graphs and steps of the environment by turns; the steps that were taken."""
        collector, steps = self._collector, self._steps
        chosen = self._run(0, self._choose)
        for t in range(collector.n_steps):
            parts = steps.parts(steps.env.step_tensors(chosen.actions))
            place = self._place(t, parts)
            if place is None:
                self._leave(t, chosen)
                collector.take(chosen.acted, steps.taken(chosen.actions, parts))
                return t + 1
            _copy_all(place, parts)
            chosen = self._run(t + 1, partial(self._go_on, t, chosen, place))
        return collector.n_steps

    def _choose(self) -> Chosen:
        acted = self._collector.act()
        return Chosen(acted, self._steps.to_env(acted.actions))

    def _go_on(self, t: int, chosen: Chosen, place: dict[str, Any]) -> Chosen:
        self._collector.take(chosen.acted, self._steps.taken(chosen.actions, place))
        if t + 1 < self._collector.n_steps:
            return self._choose()
        self._finish()
        return chosen

    def _begin(self) -> None:
        """Put what the first step is acted on to where the first graph reads it."""
        collector = self._collector
        buffer: Any = collector.buffer
        now = {
            "obs": collector.obs,
            "masks": collector.masks,
            "starts": collector.starts,
            "memory": self._actor.state,
        }
        now = {name: tree for name, tree in now.items() if tree is not None}
        if _form(now) != _form(self._first):
            self.clear()
            self._first = {name: map_leaves(torch.clone, tree) for name, tree in now.items()}
        _copy_all(self._first, now)
        self._go_to(self._first)
        buffer.begin(self._first["starts"])

    def _go_to(self, state: dict[str, Any]) -> None:
        collector = self._collector
        collector.obs, collector.starts = state["obs"], state["starts"]
        collector.masks = state.get("masks")
        self._actor.state = state.get("memory")

    def _finish(self) -> None:
        """Value the rollout, and put what it led to where the next one begins."""
        collector = self._collector
        collector.compute_advantages()
        now = {
            "obs": collector.obs,
            "masks": collector.masks,
            "starts": collector.starts,
            "memory": self._actor.state,
        }
        _copy_all(self._first, {name: now[name] for name in self._first})

    def _end(self) -> None:
        """Do what no graph does: the part of a rollout that Python keeps."""
        buffer: Any = self._collector.buffer
        self._go_to(self._first)
        # The update reads the memory of before the rollout, which the next one overwrites.
        if self._actor.state is not None:
            self._actor.state = map_leaves(torch.clone, self._actor.state)
        buffer.begin(self._first["starts"])
        buffer.was_filled()

    def _leave(self, t: int, chosen: Chosen) -> None:
        """Go on without graphs after t steps and the choice of the next action."""
        self._is_given_up = True
        collector = self._collector
        buffer: Any = collector.buffer
        if t:
            before = self._given[(t - 1) % 2]
            collector.obs, collector.masks = before["obs"], before.get("action_mask")
            collector.starts = before["terminated"] | before["truncated"]
        else:
            self._go_to(self._first)
        self._actor.state = chosen.acted.state
        buffer.begin(collector.starts)
        buffer.was_filled(t)
        notice("the environment gives other tensors now: rollouts go on without CUDA graphs")

    def _place(self, t: int, parts: dict[str, Any]) -> dict[str, Any] | None:
        """The memory for what step t gives; None where it is of another form than before."""
        if len(self._given) <= t % 2:
            self._given.append({name: map_leaves(torch.clone, x) for name, x in parts.items()})
        place = self._given[t % 2]
        if "final_obs" in place and "final_obs" not in parts:  # where no episode ended
            parts["final_obs"] = parts["obs"]
        if place.keys() != parts.keys():
            return None
        alike = (_are_alike(place[name], part) for name, part in parts.items())
        return place if all(alike) else None

    def _run(self, t: int, call: Callable[[], Any]) -> Any:
        if t == len(self._graphs):
            self._graphs.append(self._capture(call))
        graph, result = self._graphs[t]
        graph.replay()
        return result

    def _capture(self, call: Callable[[], Any]) -> tuple[Any, Any]:
        graph = torch.cuda.CUDAGraph()
        for generator in self._generators():
            graph.register_generator_state(generator)
        torch.cuda.synchronize(self._collector.device)
        with torch.cuda.stream(self._stream):
            # A thread that does something else meanwhile has nothing to do with the graph.
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                result = call()
            except BaseException:
                with contextlib.suppress(RuntimeError):
                    graph.capture_end()
                raise
            graph.capture_end()
        return graph, result

    def _generators(self) -> list[Any]:
        found = [self._learner.explore_generator]
        if self._steps.env.capturable:
            found += [x for _, x in _parts_of(self._steps.env) if isinstance(x, torch.Generator)]
        on_device = {id(x): x for x in found if x.device.type == "cuda"}
        return list(on_device.values())


def _are_alike(place: Any, tree: Any) -> bool:
    if isinstance(place, torch.Tensor) and isinstance(tree, torch.Tensor):
        return place.shape == tree.shape and place.dtype == tree.dtype
    return _form(place) == _form(tree)


def _form(tree: Any) -> list[Any]:
    return [(path, leaf.shape, leaf.dtype) for path, leaf in leaves(tree)]


def _copy_all(places: dict[str, Any], tree: dict[str, Any]) -> None:
    """Copy a tree to where another of its form lies, in as few launches as it has dtypes."""
    groups: dict[Any, tuple[list[Any], list[Any]]] = {}
    for name, place in places.items():
        part = tree[name]
        pairs = [(place, part)]
        if not isinstance(place, torch.Tensor):
            pairs = [(a, b) for (_, a), (_, b) in zip(leaves(place), leaves(part), strict=True)]
        for to, leaf in pairs:
            if to.data_ptr() != leaf.data_ptr():
                group = groups.setdefault(to.dtype, ([], []))
                group[0].append(to)
                group[1].append(leaf)
    for to_all, all_leaves in groups.values():
        torch._foreach_copy_(to_all, all_leaves)


def _parts_of(environment: Any) -> Iterator[tuple[str, Any]]:
    """Attributes of an environment and of those that it wraps."""
    seen: set[int] = set()
    inner: Any = environment
    while inner is not None and id(inner) not in seen:
        seen.add(id(inner))
        yield from getattr(inner, "__dict__", {}).items()
        inner = vars(inner).get("env") if hasattr(inner, "__dict__") else None


def _tensors_of(environment: Any) -> Iterator[tuple[str, int]]:
    """Addresses of the tensors that an environment keeps, by attribute."""
    for name, value in _parts_of(environment):
        for path, leaf in leaves(value) if isinstance(value, dict | tuple) else [("", value)]:
            if isinstance(leaf, torch.Tensor):
                yield f"{name}.{path}" if path else name, leaf.data_ptr()


def _check_in_place(before: dict[str, int], after: dict[str, int]) -> None:
    moved = sorted(name for name, address in before.items() if after.get(name) != address)
    if moved:
        raise ValueError(
            f"env must keep its state in the same memory to be captured (state.copy_(new), not "
            f"state = new), got {', '.join(moved)} elsewhere after a step: set capturable = False"
        )
