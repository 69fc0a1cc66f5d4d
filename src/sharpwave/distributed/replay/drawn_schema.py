"""Validation of the steps that a shard elsewhere answers with, before anything is made of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from sharpwave.buffers import ReplayBuffer
from sharpwave.buffers.views import View
from sharpwave.distributed.codec import Packed
from sharpwave.distributed.replay.columns import as_columns, nested, text_of_view
from sharpwave.distributed.replay.draws import split_ids
from sharpwave.distributed.replay.messages import IDS, LEAVES, STATE, state_of, vector, without
from sharpwave.distributed.replay.shard import Description, Drawn
from sharpwave.errors import WireError
from sharpwave.types import Array, BatchDict, Ids

__all__ = ["DrawnSchema"]

Form = tuple[np.dtype[Any], tuple[int, ...]]
"""Dtype of a column, and shape of one of its rows."""


class DrawnSchema:
    """Names, dtypes and shapes of the steps that a shard draws.

    Args:
        held: Description of what the shard holds, its schema included.
    """

    def __init__(self, held: Description) -> None:
        assert held.schema is not None
        self._schema, self._is_prioritized = held.schema, held.alpha is not None
        self._streams = None if held.n_envs is None else 1
        self._squeezes = held.squeezes
        self._forms: dict[str, dict[str, Form]] = {}

    def drawn(self, packed: Packed, count: int, view: View | None) -> Drawn:
        """The steps in an answer.

        Args:
            packed: The answer.
            count: Number of steps that were asked for.
            view: View of the steps.

        Raises:
            WireError: They are not what was asked for.
        """
        state, ids = state_of(packed), vector(packed, IDS, "u", np.uint64)
        if not min(count, 1) <= len(ids) <= count:
            raise WireError(f"steps must be 1 to {count}, got {len(ids)}")
        if count and not state.total > 0:
            raise WireError(f"the total of a shard with steps must be positive, got {state.total}")
        shards, epochs, _ = split_ids(ids)
        if shards.any() or epochs.any():
            raise WireError(f"{IDS} must be of the shard's own steps, got {ids.max()}")
        steps = without(packed.columns, IDS, LEAVES, STATE)
        self._check_columns(steps, ids, view)
        leaves = self._leaves(packed, ids) if self._is_prioritized else None
        batch = nested(self._schema, {name: column.copy() for name, column in steps.items()})
        return Drawn(state, batch, ids.copy(), leaves)

    def _check_columns(self, steps: BatchDict, ids: Ids, view: View | None) -> None:
        form = self._form(view)
        if steps.keys() != form.keys():
            raise WireError(f"steps must have the columns {list(form)}, got {list(steps)}")
        for name, (dtype, of_step) in form.items():
            column: Any = steps[name]
            shape = (len(ids), *of_step)
            if column.dtype != dtype or column.shape != shape:
                raise WireError(
                    f"{name} must be {dtype} {shape}, got {column.dtype} {column.shape}"
                )
        if not np.isfinite(steps.get("rewards", 0.0)).all():
            raise WireError("rewards must be finite, got NaN or inf")

    def _form(self, view: View | None) -> dict[str, Form]:
        """The columns of a view's batches, of which an empty buffer of such steps knows."""
        name = text_of_view(view)
        if name not in self._forms:
            capacity = max(leaf.field.stack for leaf in self._schema.leaves)
            buffer = ReplayBuffer(capacity, fields=self._schema, n_envs=self._streams)
            columns = as_columns(buffer.batch(1, view=view))
            form = {path: (x.dtype, x.shape[1:]) for path, x in columns.items()}
            if self._squeezes:
                for path in {"actions", "prev_actions"} & form.keys():
                    dtype, shape = form[path]
                    form[path] = dtype, shape[:-1] if shape[-1:] == (1,) else shape
            self._forms[name] = form
        return self._forms[name]

    def _leaves(self, packed: Packed, ids: Ids) -> Array:
        leaves = vector(packed, LEAVES, "f", np.float64)
        if len(leaves) != len(ids) or not (np.isfinite(leaves) & (leaves >= 0.0)).all():
            raise WireError(f"{LEAVES} must be {len(ids)} finite numbers from 0 on, got {leaves}")
        return leaves
