"""Transitions as flat columns with dotted names, validated against a schema, and nested again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields as dataclass_fields
from functools import lru_cache
from typing import Any

import numpy as np

from sharpwave.buffers.schema import BATCH_NAMES, Field, Node, Schema
from sharpwave.buffers.views import NStep, Sequence, Transition, View
from sharpwave.core.tree import leaves
from sharpwave.types import Array, BatchDict, Nested

__all__ = ["as_columns", "nested", "row_bytes", "steps_of", "text_of_view", "view_of_text"]

Columns = dict[str, Array]
_VIEWS: dict[str, Any] = {view.__name__: view for view in (Transition, NStep, Sequence)}


def steps_of(schema: Schema, given: Mapping[str, Nested]) -> tuple[int, Columns]:
    """The steps of a push as columns of the schema's dtypes and shapes.

    Everything is checked before any shard hears of it, so that a refused push changes nothing.

    Args:
        schema: The fields of a step.
        given: Arguments of `push_batch`, but for streams and priorities.

    Returns:
        How many steps there are, and their columns.

    Raises:
        TypeError: A field is missing or unknown.
        ValueError: A column has another shape or length, or is not finite where it must be.
    """
    wanted = {BATCH_NAMES.get(name, name): node for name, node in schema.fields.items()}
    for name in wanted:
        if name not in given:
            raise TypeError(f"push_batch must get {name}, got {', '.join(given) or 'nothing'}")
    for name in given:
        if name not in wanted:
            raise TypeError(f"push_batch got {name}, which is no field: {', '.join(wanted)}")
    columns: Columns = {}
    n: int | None = None
    for name, node in wanted.items():
        for path, field, value in _pairs(name, node, given[name]):
            column = _column(path, field, value, n)
            n = len(column)
            columns[path] = column
    return n or 0, columns


def _pairs(path: str, node: Node, value: Nested) -> list[tuple[str, Field, Any]]:
    """The fields of a node, each with its name and its column."""
    if isinstance(node, Field):
        return [(path, node, value)]
    keys: list[Any] = list(node) if isinstance(node, dict) else list(range(len(node)))
    fits = isinstance(value, Mapping) if isinstance(node, dict) else isinstance(value, list | tuple)
    if not fits or len(value) != len(keys):
        kind = "a dict" if isinstance(node, dict) else "a tuple"
        raise TypeError(f"{path} must be {kind} of {keys}, got {type(value).__name__}")
    found: list[tuple[str, Field, Any]] = []
    for key in keys:
        if isinstance(value, Mapping) and key not in value:
            raise TypeError(f"{path} must have {key!r}, got {list(value)}")
        found += _pairs(f"{path}.{key}", node[key], value[key])
    return found


def _column(path: str, field: Field, value: Any, n: int | None) -> Array:
    column = np.asarray(value)
    if column.dtype.kind not in "biuf":
        raise TypeError(f"{path} must be numbers, got {column.dtype}")
    with np.errstate(over="ignore"):
        column = np.ascontiguousarray(column, np.dtype(field.dtype).newbyteorder("="))
    shape = (len(column) if column.ndim else 0, *field.shape) if n is None else (n, *field.shape)
    if column.shape != shape:
        if column.ndim == 0 or column.size != int(np.prod(shape)):
            raise ValueError(f"{path} must have shape {shape}, got {column.shape}")
        column = column.reshape(shape)
    is_reward = path == "rewards"
    if (is_reward or field.finite) and not np.isfinite(column).all():
        raise ValueError(f"{'reward' if is_reward else path} must be finite, got {column}")
    return column


def as_columns(batch: Mapping[str, Nested]) -> Columns:
    """The arrays of a batch by dotted names."""
    return {path: np.asarray(leaf) for path, leaf in leaves(dict(batch))}


def nested(schema: Schema, columns: Mapping[str, Array]) -> BatchDict:
    """A batch of columns, nested where the schema is.

    Raises:
        KeyError: A part of a tree is missing.
    """
    nodes = {BATCH_NAMES.get(name, name): node for name, node in schema.fields.items()}
    if "action" in schema.fields:
        nodes["prev_actions"] = schema.fields["action"]  # of arrivals
    found: BatchDict = {}
    for path in columns:
        name = path.partition(".")[0]
        if name not in found:
            node = nodes.get(name)
            found[name] = columns[path] if node is None else _built(node, name, columns)
    return found


def _built(node: Node, path: str, columns: Mapping[str, Array]) -> Nested:
    if isinstance(node, dict):
        return {key: _built(child, f"{path}.{key}", columns) for key, child in node.items()}
    if isinstance(node, tuple):
        return tuple(_built(child, f"{path}.{i}", columns) for i, child in enumerate(node))
    return columns[path]


def row_bytes(schema: Schema) -> int:
    """Bytes of a step in a batch, ids and weights included."""
    return 16 + sum(
        np.dtype(leaf.field.dtype).itemsize * int(np.prod(leaf.field.shape))
        for leaf in schema.leaves
    )


def text_of_view(view: View | None) -> str:
    """A view that needs no code, as a text.

    Raises:
        ValueError: It calls a function of this process, or draws in Python.

    Example:
        >>> text_of_view(NStep(3, 0.9))
        '["NStep", {"n": 3, "gamma": 0.9, "fields": null}]'
        >>> view_of_text(text_of_view(NStep(3, 0.9))) == NStep(3, 0.9)
        True
    """
    if view is None:
        return "null"
    name = type(view).__name__
    if _VIEWS.get(name) is not type(view):
        raise ValueError(f"view must be one of {', '.join(_VIEWS)} for a shard, got {name}")
    return _text(view)  # type: ignore[arg-type]


@lru_cache(maxsize=64)
def _text(view: Any) -> str:
    name = type(view).__name__
    options = {
        one.name: getattr(view, one.name) for one in dataclass_fields(_VIEWS[name]) if one.init
    }
    return json.dumps([name, options])


@lru_cache(maxsize=64)
def view_of_text(text: str) -> View | None:
    """The view that `text_of_view` wrote.

    Raises:
        ValueError: It is none.
    """
    try:
        said = json.loads(text)
        if said is None:
            return None
        name, options = said
        view: View = _VIEWS[name](**options)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ValueError(
            f"view must be one of {', '.join(_VIEWS)} with its options: {error}"
        ) from None
    return view
