"""Selectors: sampling strategies that pick the steps to draw, for any view."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from sharpwave import _native
from sharpwave.types import Array, BatchDict, Ids

if TYPE_CHECKING:
    from sharpwave.buffers.replay import ReplayBuffer
    from sharpwave.buffers.views import View


NativeSelector: TypeAlias = tuple[int, int, int]
"""The kind, the window of recent steps, and the rows of windows that are fresh."""
_UNIFORM, _RECENT, _PRIORITY, _NONE = range(4)


class Selector(Protocol):
    """A selector that the native core draws (`_spec`), or that draws in Python (None)."""

    @property
    def _spec(self) -> NativeSelector | None: ...


class PythonSelector(Protocol):
    """A selector that draws ids itself."""

    def draw(
        self, buffer: ReplayBuffer, batch_size: int, seed: int | None, view: View | None
    ) -> Ids:
        """The ids of a batch, all of steps that the view may draw."""
        ...


@dataclass(frozen=True)
class Uniform:
    """Uniform sampling: every step is equally likely."""

    _spec: NativeSelector = field(default=(_UNIFORM, 0, 0), init=False, repr=False, compare=False)


@dataclass(frozen=True)
class Recent:
    """Uniform sampling of the newest `window` steps, of several environments each its share."""

    window: int
    _spec: NativeSelector = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if isinstance(self.window, bool) or not isinstance(self.window, int | np.integer):
            raise TypeError(f"window must be an integer, got {type(self.window).__name__}")
        if self.window < 1:
            raise ValueError(f"window must be at least 1, got {self.window}")
        object.__setattr__(self, "_spec", (_RECENT, min(int(self.window), 2**62), 0))


@dataclass(frozen=True)
class Prioritized:
    """Prioritized sampling, which a `PrioritizedReplayBuffer` does without a selector, too."""

    _spec: NativeSelector = field(default=(_PRIORITY, 0, 0), init=False, repr=False, compare=False)


@dataclass(frozen=True)
class Fresh:
    """Online queue: every window of a length once, as soon as it is complete, in order.

    The steps of an environment are cut into windows one after another (without the last observation
    of an episode, where that would be the first row of arrivals alone), and environments take
    turns. The first draw begins with the oldest steps there are. What was handed out is remembered
    by the buffer, by the length, and saved with it; windows that were overwritten before they were
    drawn are passed over.

    So a draw is not a function of content and seed: it changes what the next one gives.

    Attributes:
        length: Rows of the view's windows, `context` included; 1 for single steps.
        then: Draws the rest of a batch when there are too few windows: `Uniform`, `Recent` or
            `Prioritized`. Without it, that is an error.

    Example:
        >>> from sharpwave import ReplayBuffer, Sequence
        >>> fields = {"obs": "float32", "next_obs": "float32"}
        >>> buffer = ReplayBuffer(100, fields=fields, n_envs=1)
        >>> for t in range(9):
        ...     buffer.push(obs=t, next_obs=t + 1)
        >>> batch = buffer.sample(3, 0, view=Sequence(3), selector=Fresh(3))
        >>> batch["obs"].tolist()
        [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0], [6.0, 7.0, 8.0]]
    """

    length: int
    then: Selector | None = None
    _spec: NativeSelector = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if isinstance(self.length, bool) or not isinstance(self.length, int | np.integer):
            raise TypeError(f"length must be an integer, got {type(self.length).__name__}")
        if not 1 <= self.length <= 2**21:
            raise ValueError(f"length must be from 1 to {2**21}, got {self.length}")
        spec: Any = (_NONE, 0, 0)
        if self.then is not None:
            spec = getattr(self.then, "_spec", None)
            if not isinstance(self.then, Uniform | Recent | Prioritized):
                raise TypeError(
                    "then must be Uniform(), Recent(...), Prioritized() or None, "
                    f"got {self.then!r}: a Mixture takes others"
                )
        object.__setattr__(self, "_spec", (*spec[:2], int(self.length)))


@dataclass(frozen=True)
class WithoutReplacement:
    """Uniform sampling without replacement: no step comes twice in a batch."""

    _spec: None = field(default=None, init=False, repr=False, compare=False)

    def draw(
        self, buffer: ReplayBuffer, batch_size: int, seed: int | None, view: View | None
    ) -> Ids:
        """The ids of a batch."""
        ids = buffer.indices(view)
        if batch_size > 0 and len(buffer) == 0:
            raise ValueError("buffer is empty: push steps before sampling")
        _check_batch(batch_size, len(ids))
        return _drawn(ids, _native.permuted(len(ids), draw_seed(buffer, seed), 0, batch_size))


@dataclass(frozen=True)
class Where:
    """Conditional sampling: every step for which a condition holds is equally likely.

    The condition is asked of the whole content at every draw: meant for content that is small or
    seldom drawn.

    Attributes:
        condition: From a batch to a bool array [B].
    """

    condition: Callable[[BatchDict], Array]
    _spec: None = field(default=None, init=False, repr=False, compare=False)

    def draw(
        self, buffer: ReplayBuffer, batch_size: int, seed: int | None, view: View | None
    ) -> Ids:
        """The ids of a batch."""
        kept = []
        ids = buffer.indices(view)
        for begin in range(0, len(ids), 16384):
            chunk, batch = buffer._gather_alive(ids[begin : begin + 16384])
            holds = np.asarray(self.condition(batch))
            if holds.shape != chunk.shape or holds.dtype != np.bool_:
                raise ValueError(
                    f"condition must return a bool array of shape {chunk.shape}, "
                    f"got {holds.dtype} {holds.shape}"
                )
            kept.append(chunk[holds])
        fitting = np.concatenate(kept) if kept else ids
        if batch_size > 0 and len(fitting) == 0:
            if not buffer._engine.alive(ids).all():
                raise IndexError("the steps were overwritten before they could be read")
            raise ValueError("no step in the buffer fulfils the condition")
        generator = np.random.Generator(np.random.Philox(draw_seed(buffer, seed)))
        return _drawn(fitting, generator.integers(0, max(len(fitting), 1), batch_size))


@dataclass(frozen=True)
class Mixture:
    """Mixture of selectors: each gives a fixed share of every batch, in their order.

    What a `Fresh` lacks to its share comes from the part after it.

    Attributes:
        parts: Pairs of a share and a selector, or shares by selector; the shares add up to 1.
    """

    parts: tuple[tuple[float, Selector], ...] | Mapping[Any, float]
    _spec: None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if isinstance(self.parts, Mapping):
            pairs_of = tuple((share, selector) for selector, share in self.parts.items())
            object.__setattr__(self, "parts", pairs_of)
        pairs = isinstance(self.parts, tuple | list) and all(
            isinstance(part, tuple | list)
            and len(part) == 2
            and isinstance(part[0], int | float | np.integer | np.floating)
            for part in self.parts
        )
        if not pairs:
            raise TypeError(f"parts must be pairs of a share and a selector, got {self.parts!r}")
        shares = [share for share, _ in self.parts]
        if not all(0 <= share <= 1 for share in shares) or not abs(sum(shares) - 1) <= 1e-6:
            raise ValueError(f"the shares of parts must be positive and add up to 1, got {shares}")
        for _, selector in self.parts:
            check_selector("parts", selector)

    def draw(
        self, buffer: ReplayBuffer, batch_size: int, seed: int | None, view: View | None
    ) -> Ids:
        """The ids of a batch."""
        parts: Any = self.parts
        ends = np.round(np.cumsum([share for share, _ in parts]) * batch_size).astype(int)
        ends[-1] = batch_size
        key = draw_seed(buffer, seed)
        drawn: list[Ids] = []
        done = 0
        for i, (end, (_, selector)) in enumerate(zip(ends.tolist(), parts, strict=True)):
            count = max(end - done, 0)
            if isinstance(selector, Fresh) and selector.then is None and i + 1 < len(parts):
                drawn.append(buffer._take_fresh(view, selector.length, count))
            else:
                drawn.append(draw_ids(buffer, selector, count, (key + i) % 2**64, view))
            done += len(drawn[-1])
        return np.concatenate(drawn)


def check_selector(name: str, selector: object) -> None:
    """Raise a TypeError that names the argument unless it is a selector."""
    spec = getattr(selector, "_spec", None)
    native = isinstance(spec, tuple) and len(spec) == 3
    if not native and not callable(getattr(selector, "draw", None)):
        raise TypeError(f"{name} must be a sharpwave selector, got {type(selector).__name__}")


def draw_ids(
    buffer: ReplayBuffer, selector: Selector, batch_size: int, seed: int | None, view: View | None
) -> Ids:
    """The ids that a selector draws for a view."""
    check_selector("selector", selector)
    if selector._spec is None:
        python: PythonSelector = selector  # type: ignore[assignment]
        return python.draw(buffer, batch_size, seed, view)
    from sharpwave.buffers.views import Transition

    bare = Transition(()) if view is None else replace(view, fields=())  # type: ignore[type-var]
    batch = buffer.sample(batch_size, seed, view=bare, selector=selector, indices=True)
    ids: Ids = batch["indices"]
    return ids if ids.ndim == 1 else ids[:, 0].copy()  # of arrivals every row has one


def draw_seed(buffer: ReplayBuffer, seed: int | None) -> int:
    """The seed given, or the next one of the buffer's own generator."""
    if seed is not None:
        if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
            raise TypeError(f"seed must be an integer or None, got {type(seed).__name__}")
        if not 0 <= seed < 2**64:
            raise ValueError(f"seed must be from 0 to 2**64 - 1, got {seed}")
        return int(seed)
    sequence = np.random.SeedSequence([buffer.seed, buffer._engine.next_call()])
    return int(sequence.generate_state(1, np.uint64)[0])


def _check_batch(batch_size: int, available: int) -> None:
    if batch_size > available:
        raise ValueError(
            f"batch_size must be at most {available}, the steps to draw from, got {batch_size}"
        )


def _drawn(ids: Ids, positions: Array) -> Ids:
    drawn: Ids = ids[positions]
    return drawn
