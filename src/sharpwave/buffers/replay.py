"""Replay buffer in host memory, sampled uniformly."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, TypeAlias, TypeVar

import numpy as np

from sharpwave import _native
from sharpwave.buffers.batch import Batch, to_torch
from sharpwave.buffers.schema import (
    BATCH_NAMES,
    STEP,
    Field,
    FieldSpec,
    Schema,
    native_fields,
    row_plan,
)
from sharpwave.buffers.selectors import Recent, Selector, Uniform, draw_ids, draw_seed
from sharpwave.buffers.views import Hindsight, View
from sharpwave.core.tree import map_leaves
from sharpwave.types import Array, BatchDict, Ids, Nested

Self = TypeVar("Self", bound="ReplayBuffer")


def shortcut_schema(obs_dim: int, act_dim: int) -> Schema:
    """The schema of flat float32 transitions with uint8 flags."""
    return Schema(
        {
            "obs": Field("float32", (_dim("obs_dim", obs_dim),)),
            "action": Field("float32", (_dim("act_dim", act_dim),)),
            "reward": Field("float32"),
            "terminated": Field("uint8"),
            "truncated": Field("uint8"),
            "next_obs": Field("float32", (obs_dim,)),
        }
    )


def _dim(name: str, value: object) -> int:
    return check_count(name, value, 1)


def check_count(name: str, value: object, low: int, high: int = 2**63 - 1) -> int:
    """An integer from `low` to `high`, or an error that names the argument."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be an integer, got {type(value).__name__}")
    if value < low:
        raise ValueError(f"{name} must be at least {low}, got {value}")
    if value > high:
        raise ValueError(f"{name} must be at most {high}, got {value}")
    return int(value)


def check_rewritten(given: Iterable[str], known: Iterable[str], fixed: Iterable[str]) -> None:
    """Refuse names of columns that `update` does not write.

    Args:
        given: Names that are to be written.
        known: Those that the buffer has.
        fixed: Those of them that never change.
    """
    names, never = tuple(known), {*fixed, *(BATCH_NAMES.get(name, name) for name in fixed)}
    extra = [name for name in names if name not in never]
    for name in given:
        if name in never:
            raise ValueError(
                f"update() must get extra columns, got {name!r}: what happened does not change"
            )
        if name not in names:
            raise TypeError(
                f"update() got an unexpected keyword argument {name!r}; "
                f"the extra columns are {extra}"
            )


def _rows_of(name: str, shape: tuple[int, ...], value: Any) -> Array:
    """The values of a column for ids of this shape, as rows."""
    array = np.asarray(value)
    if array.shape[: len(shape)] != shape:
        raise ValueError(
            f"{name} must have a shape that begins like that of indices, {shape}, got {array.shape}"
        )
    return array.reshape(int(np.prod(shape)), *array.shape[len(shape) :])


EngineMaker: TypeAlias = "Callable[[Schema, dict[str, Any]], _native.Engine]"
"""From a schema and the options of a buffer to what holds its rows."""


def engine_arguments(
    schema: Schema, options: Mapping[str, Any]
) -> tuple[list[Any], bool, int, int, int, bool, tuple[str, float, float, bool, bool] | None]:
    """The arguments of the engine of a buffer with these options."""
    return (
        native_fields(schema),
        options["stream_rows"],
        options["capacity"],
        options["n_envs"] or 0,
        options["seed"],
        options["oversample"],
        options["priorities"],
    )


def engine_in_memory(schema: Schema, options: Mapping[str, Any]) -> _native.Engine:
    """An engine that holds its rows in memory."""
    try:
        return _native.Engine(*engine_arguments(schema, options))
    except MemoryError:
        raise MemoryError(f"there is no memory for capacity {options['capacity']}") from None


class ReplayBuffer(_native.RowBuffer):
    """Replay buffer of the newest `capacity` steps, drawn uniformly.

    The rows live in native memory, one contiguous record each. Any number of threads may push and
    sample at the same time; every row of a batch is one step, never a mixture.

    Three forms::

        ReplayBuffer(capacity, obs_dim, act_dim)            # flat float32 observations and actions
        ReplayBuffer(capacity, fields={"obs": ...})         # fields of any form, nested too
        ReplayBuffer.for_env(env, capacity)                 # what an environment's spaces say

    With `n_envs` the steps of each environment are kept in order (stream rows): an observation is
    stored once, although it is the `next_obs` of one step and the `obs` of the next, frame stacks
    share their frames, and the views that need neighbors (`NStep`, `Sequence`, `Hindsight`) work.

    Args:
        capacity: Steps to keep; the oldest go first. With stream rows every environment keeps its
            share, and the observation after the end of an episode takes the place of a step.
        obs_dim: Length of flat float32 observations.
        act_dim: Length of flat float32 actions. With 1, a batch's `actions` have shape [B].
        fields: Field by name, instead of the two dims (see `Schema`).
        n_envs: Keep the steps of this many environments in order.
        seed: Random seed of draws that are not given one.

    Raises:
        TypeError, ValueError: For arguments that make no sense, by name.
        MemoryError: If there is not that much memory.

    Example:
        >>> import numpy as np
        >>> buffer = ReplayBuffer(capacity=1000, obs_dim=3, act_dim=1)
        >>> buffer.push(np.zeros(3), 0.5, 1.0, False, False, np.ones(3))
        >>> batch = buffer.sample(1, seed=7)
        >>> batch["rewards"]
        array([1.], dtype=float32)
    """

    __slots__ = ("__weakref__", "_options", "_schema")

    def __init__(
        self,
        capacity: int,
        obs_dim: int | None = None,
        act_dim: int | None = None,
        *,
        fields: Mapping[str, FieldSpec] | Schema | None = None,
        n_envs: int | None = None,
        seed: int = 0,
    ) -> None:
        self._make(capacity, obs_dim, act_dim, fields=fields, n_envs=n_envs, seed=seed)

    def _make(
        self,
        capacity: int,
        obs_dim: int | None,
        act_dim: int | None,
        *,
        fields: Mapping[str, FieldSpec] | Schema | None,
        n_envs: int | None,
        seed: int,
        stream_rows: bool | None = None,
        oversample: bool = False,
        priorities: tuple[str, float, float, bool, bool] | None = None,
        make_engine: EngineMaker = engine_in_memory,
    ) -> None:
        """Builds the engine; everything that tells buffers apart is an argument here."""
        capacity = check_count("capacity", capacity, 1)
        seed = check_count("seed", seed, 0, 2**64 - 1)
        if n_envs is not None:
            n_envs = check_count("n_envs", n_envs, 1)
        if stream_rows is None:
            stream_rows = n_envs is not None
        shortcut = fields is None
        if fields is not None:
            if obs_dim is not None or act_dim is not None:
                raise TypeError("fields must not be given together with obs_dim and act_dim")
            schema = fields if isinstance(fields, Schema) else Schema(fields)
        elif obs_dim is None or act_dim is None:
            raise TypeError("obs_dim and act_dim must both be given, or fields")
        else:
            schema = shortcut_schema(obs_dim, act_dim)
        if stream_rows:
            schema = schema.with_next_obs()
        options: dict[str, Any] = {
            "capacity": capacity,
            "shortcut": shortcut,
            "n_envs": n_envs,
            "stream_rows": stream_rows,
            "oversample": oversample,
            "seed": seed,
            "priorities": priorities,
        }
        plan = row_plan(
            schema, squeeze=shortcut, priorities=priorities is not None, streams=n_envs is not None
        )
        super().__init__(make_engine(schema, options), plan)
        self._schema = schema
        self._options = options

    @classmethod
    def for_env(
        cls: type[Self],
        env: Any,
        capacity: int,
        *,
        n_envs: int | None = None,
        stack: int = 1,
        axis: int = 0,
        extra: Mapping[str, FieldSpec] | None = None,
        **options: Any,
    ) -> Self:
        """A buffer of stream rows for an environment's steps.

        Args:
            env: A Gymnasium environment or vector environment; only its spaces are read.
            capacity: Steps to keep over all environments.
            n_envs: Number of environments; `env.num_envs` for a vector environment, otherwise
                1.
            stack: Image observations are stacks of this many frames along `axis`: every frame is
                stored once.
            axis: The axis of the frames.
            extra: More columns by name.
            **options: Further arguments of the class.
        """
        schema = Schema.from_env(env, stack=stack, axis=axis)
        if extra:
            schema = Schema({**schema.fields, **extra})
        count = n_envs if n_envs is not None else int(getattr(env, "num_envs", 1))
        return cls._for_schema(schema, capacity, count, options)

    @classmethod
    def _for_schema(
        cls: type[Self], schema: Schema, capacity: int, n_envs: int, options: dict[str, Any]
    ) -> Self:
        """The buffer that `for_env` returns."""
        return cls(capacity, fields=schema, n_envs=n_envs, **options)

    @property
    def capacity(self) -> int:
        """Steps the buffer keeps at most."""
        return int(self._options["capacity"])

    @property
    def schema(self) -> Schema:
        """The fields of a row."""
        return self._schema

    @property
    def n_envs(self) -> int | None:
        """The environments whose steps are kept in order, or None."""
        count: int | None = self._options["n_envs"]
        return count

    @property
    def is_prioritized(self) -> bool:
        """True if steps are drawn by priority."""
        return self._options["priorities"] is not None

    @property
    def seed(self) -> int:
        """The seed of the buffer's own draws."""
        return int(self._options["seed"])

    @property
    def is_full(self) -> bool:
        """True if a push overwrites the oldest step."""
        return bool(self._engine.is_full)

    def sample_recent(
        self, batch_size: int, window_size: int, seed: int | None = None, **options: Any
    ) -> BatchDict:
        """Like `sample`, from the newest `window_size` steps."""
        return self.sample(batch_size, seed, selector=Recent(window_size), **options)

    def batch(
        self,
        batch_size: int,
        *,
        view: View | None = None,
        selector: Selector | None = None,
        indices: bool = False,
        torch: bool = False,
    ) -> Batch:
        """Arrays for `sample(batch_size, view=view, selector=selector, out=...)` to fill.

        Args:
            batch_size: Rows of the batch.
            view: The view that will be sampled.
            selector: The selector that will draw.
            indices: Hold the ids of the steps too.
            torch: Make torch tensors over the memory instead of NumPy arrays.
        """
        arrays, memory = self._allocate(batch_size, view, selector, indices)
        return Batch(to_torch(arrays) if torch else arrays, memory)

    def epoch(
        self,
        batch_size: int,
        seed: int | None = None,
        *,
        view: View | None = None,
        drop_last: bool = False,
    ) -> Iterator[BatchDict]:
        """Batches that visit every step that the view may draw once, in random order.

        Steps that are overwritten while the epoch runs are left out.

        Args:
            batch_size: Rows of a batch; the last one may be smaller.
            seed: Random seed of the order.
            view: View of the steps.
            drop_last: Leave out a last batch that is smaller.
        """
        check_count("batch_size", batch_size, 1)
        ids = self.indices(view)
        key = draw_seed(self, seed)
        return self._epoch(ids, key, batch_size, view, drop_last=drop_last)

    def _epoch(
        self, ids: Ids, key: int, batch_size: int, view: View | None, *, drop_last: bool
    ) -> Iterator[BatchDict]:
        end = len(ids) - len(ids) % batch_size if drop_last else len(ids)
        for begin in range(0, end, batch_size):
            order = _native.permuted(len(ids), key, begin, min(begin + batch_size, len(ids)))
            alive, batch = self._gather_alive(ids[order], view)
            if len(alive) > 0:
                yield batch

    def _gather_alive(self, ids: Ids, view: View | None = None) -> tuple[Ids, BatchDict]:
        """The ids that are still in the buffer, and their batch."""
        while True:
            ids = ids[self._engine.alive(ids).view(np.bool_)]
            try:
                return ids, self.gather(ids, view=view)
            except IndexError:  # a writer beside us overwrote a step in between
                continue

    def indices(self, view: View | None = None) -> Ids:
        """The ids of all steps in the buffer, oldest first (environment by environment).

        Args:
            view: Only of the steps that this view may draw.
        """
        ids: Ids = self._engine.ids() if view is None else self._drawable(view)
        return ids

    def update(self, indices: Any, **fields: Nested) -> int:
        """Write extra columns of steps over.

        Every row changes at once for whoever reads beside it, and the new values are kept like
        those of a push.

        Args:
            indices: Ids of steps, of any shape; of a `Sequence` of arrivals [B, T], where those
                that are no step (2**64 - 1) are passed over. Of equal ids the last one counts.
            **fields: New values by the name of their column, `[*indices.shape, ...]` each. What
                happened cannot be changed: obs, action, reward and flags are refused.

        Returns:
            How many of the steps had been overwritten meanwhile; their values are dropped.

        Raises:
            TypeError, ValueError: For names and values that do not fit; nothing has changed then.
            IndexError: For an id that was never handed out. Nothing has changed then.

        Example:
            >>> columns = {"obs": "float32", "next_obs": "float32", "latent": ("float16", (2,))}
            >>> buffer = ReplayBuffer(10, fields=columns)
            >>> buffer.push(obs=0, next_obs=1, latent=[0, 0])
            >>> buffer.update([0], latent=[[3, 4]])
            0
            >>> buffer.gather([0])["latent"]
            array([[3., 4.]], dtype=float16)
        """
        ids = np.asarray(indices)
        check_rewritten(fields, tuple(self._schema.fields), STEP)
        values = {
            name: map_leaves(partial(_rows_of, name, ids.shape), value)
            for name, value in fields.items()
        }
        return self._rewrite(ids.reshape(-1), values)

    def clear(self) -> None:
        """Forget all steps. Ids go on: those handed out before stay unknown for ever."""
        self._engine.clear()

    def stats(self) -> dict[str, float]:
        """Numbers about the buffer's life.

        Returns:
            size, capacity and fill; pushed and sampled, the steps ever pushed and drawn;
            replay_ratio, their quotient; sampled_age, how many steps of the same environment (and
            observations after episodes) had been pushed since a drawn one, on average; bytes in use
            and bytes_per_step of a full buffer; stale_updates, the priorities and columns dropped
            because their step was overwritten.
        """
        found: dict[str, float] = dict(self._engine.stats())
        size = len(self)
        found.update(
            size=size,
            capacity=self.capacity,
            fill=size / self.capacity,
            replay_ratio=found["sampled"] / found["pushed"] if found["pushed"] else 0.0,
            bytes_per_step=found["bytes"] / self.capacity,
        )
        return found

    def _sample_custom(
        self,
        batch_size: int,
        seed: int | None,
        view: View | None,
        selector: Selector | None,
        out: Any,
        indices: bool,
    ) -> BatchDict:
        """The rest of `sample`: views and selectors that draw in Python."""
        if out is not None:
            raise ValueError("out must be None for a view or selector that draws in Python")
        if isinstance(view, Hindsight):
            return view.sample(self, batch_size, seed, selector, indices=indices)
        if selector is None:
            raise TypeError(f"view must be a sharpwave view, got {type(view).__name__}")
        for _ in range(16):
            try:
                ids = draw_ids(self, selector, batch_size, seed, view)
                arrays, memory = self._allocate(batch_size, view, Uniform(), indices)
                self.gather(ids, view=view, out=Batch(arrays, memory))
            except IndexError:  # a writer beside us overwrote a step in between
                continue
            return arrays
        raise RuntimeError("steps are overwritten faster than they can be read")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the buffer to a folder: content, priorities, counters and generator.

        The folder changes from the old state to the new one at once: a crash in between leaves the
        old one. Rows are streamed in small pieces, with a checksum each. Pushes of other
        threads wait until the rows are written, and samples behind them.

        Raises:
            SharpwaveIOError: If the folder exists and holds something else, or cannot be written.
        """
        from sharpwave.buffers import snapshot
        from sharpwave.storage import generations

        generations.save(path, partial(snapshot.dump, self))

    @classmethod
    def load(cls: type[Self], path: str | os.PathLike[str]) -> Self:
        """The buffer that `save` wrote. It goes on exactly where the saved one was.

        Raises:
            SharpwaveIOError: If there is no complete save, a checksum does not fit, or it is of
                another class.
        """
        from sharpwave.buffers import snapshot
        from sharpwave.storage import generations

        return generations.load(path, cls.__name__, partial(snapshot.fill, cls))

    def __reduce__(self) -> tuple[Any, ...]:
        from sharpwave.buffers import snapshot

        attributes = getattr(self, "__dict__", None)  # of subclasses
        return snapshot.rebuild, (type(self), snapshot.to_memory(self)), attributes

    def __repr__(self) -> str:
        if not hasattr(self, "_schema"):
            return f"{type(self).__name__}(not initialized)"
        fields = ", ".join(self._schema.fields)
        return f"{type(self).__name__}({len(self)} of {self.capacity} steps: {fields})"
