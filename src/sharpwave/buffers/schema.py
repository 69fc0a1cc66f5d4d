"""Schema of a row: named fields with dtype, shape and role, nested where observations are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from sharpwave.core.flags import flag
from sharpwave.types import as_dtype

STEP = ("obs", "action", "reward", "terminated", "truncated", "next_obs")
"""The fields of a step, in the order of `push`."""

BATCH_ORDER = ("obs", "next_obs", "action", "reward", "terminated", "truncated")
"""The same in the order of `push_batch`, which is also the order of a batch."""

BATCH_NAMES = {"action": "actions", "reward": "rewards"}

RESERVED = frozenset({"priority", "priorities", "stream", "streams", "indices", "weights"})
RESERVED_IN_BATCH = frozenset({"discounts", "mask", "is_first", *BATCH_NAMES.values()})


@dataclass(frozen=True)
class Field:
    """One field of a row.

    Attributes:
        dtype: bool, an integer of 8 to 64 bits, float16, float32 or float64.
        shape: The shape of one row's value.
        stack: The value is this many frames, newest last, along `axis`. With stream rows every
            frame is stored once, however many stacks it is part of.
        axis: The axis of the frames.
        finite: Refuse NaN and infinities. Rewards always do.

    Example:
        >>> Field("uint8", (4, 84, 84), stack=4).shape
        (4, 84, 84)
    """

    dtype: npt.DTypeLike
    shape: tuple[int, ...] = ()
    stack: int = field(default=1, kw_only=True)
    axis: int = field(default=0, kw_only=True)
    finite: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        given: Any = self.shape
        shape = (given,) if isinstance(given, int | np.integer) else given
        if not _is_shape(shape):
            raise TypeError(f"shape must be a tuple of integers, got {self.shape!r}")
        if not _is_dtype(self.dtype):
            raise TypeError(f"dtype must be a NumPy dtype or its name, got {self.dtype!r}")
        stack = _checked_int("stack", self.stack)
        axis = _checked_int("axis", self.axis)
        object.__setattr__(self, "dtype", np.dtype(self.dtype).name)
        object.__setattr__(self, "shape", tuple(_checked_int("shape", n) for n in shape))
        object.__setattr__(self, "stack", stack)
        object.__setattr__(self, "axis", axis + len(shape) if axis < 0 else axis)
        object.__setattr__(self, "finite", flag("finite", self.finite))


Node: TypeAlias = "Field | dict[str, Node] | tuple[Node, ...]"
"""A field, or a dict or tuple of nodes."""

FieldSpec: TypeAlias = Any
"""A `Field`, a dtype, a `(dtype, shape)` pair, or a dict, list or tuple of these."""


def as_node(spec: FieldSpec) -> Node:
    """A node from what users write for a field.

    Raises:
        TypeError: If `spec` is none of the forms of `FieldSpec`.
    """
    if isinstance(spec, Field):
        return spec
    if isinstance(spec, Mapping):
        return {_checked_key(key): as_node(value) for key, value in spec.items()}
    if isinstance(spec, tuple) and len(spec) == 2 and _is_dtype(spec[0]) and _is_shape(spec[1]):
        return Field(spec[0], spec[1])
    if isinstance(spec, list | tuple):
        return tuple(as_node(value) for value in spec)
    if _is_dtype(spec):
        return Field(spec)
    raise TypeError(
        f"a field must be a Field, a dtype, a (dtype, shape) pair or a tree of these, got {spec!r}"
    )


def _checked_key(key: object) -> str:
    if not isinstance(key, str) or not key or "." in key:
        raise ValueError(f"field names must be non-empty strings without dots, got {key!r}")
    key.encode()  # lone surrogates are no text: a ValueError
    return key


def _checked_int(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be an integer, got {type(value).__name__}")
    if not -(2**31) <= value < 2**31:
        raise ValueError(f"{name} must be below 2**31, got {value}")
    return int(value)


def _is_dtype(value: object) -> bool:
    if isinstance(value, np.dtype):
        return True
    if not isinstance(value, str | type) or value is type(None):
        return False
    try:
        as_dtype(value)
    except TypeError:
        return False
    return True


def _is_shape(value: object) -> bool:
    if isinstance(value, int):
        return True
    return isinstance(value, list | tuple) and all(isinstance(n, int | np.integer) for n in value)


@dataclass(frozen=True)
class Leaf:
    """A field with its place in the schema."""

    argument: str
    path: tuple[str | int, ...]
    field: Field

    @property
    def name(self) -> str:
        """The dotted name, as the schema and files call it: obs.image."""
        return ".".join([self.argument, *map(str, self.path)])

    @property
    def spelled(self) -> str:
        """The name as code spells it: obs["image"]."""
        return self.argument + "".join(
            f'["{key}"]' if isinstance(key, str) else f"[{key}]" for key in self.path
        )


class Schema:
    """The fields of a buffer's rows, in order.

    Args:
        fields: Field by name. The names obs, action, reward, terminated, truncated and next_obs are
            those of a step; any other name is an extra column. Observations may be nested dicts and
            tuples.

    Example:
        >>> obs = {"image": ("uint8", (8, 8)), "speed": "float32"}
        >>> schema = Schema({"obs": obs, "reward": "float32"})
        >>> [leaf.name for leaf in schema.leaves]
        ['obs.image', 'obs.speed', 'reward']
    """

    def __init__(self, fields: Mapping[str, FieldSpec]) -> None:
        if not isinstance(fields, Mapping):
            raise TypeError(f"fields must be a dict, got {type(fields).__name__}")
        given = {_checked_key(name): as_node(spec) for name, spec in fields.items()}
        taken = (RESERVED | RESERVED_IN_BATCH) & set(given)
        if taken:
            raise ValueError(f"fields must not use the reserved names {sorted(taken)}")
        ordered = [name for name in STEP if name in given] + [
            name for name in given if name not in STEP
        ]
        self.fields: dict[str, Node] = {name: given[name] for name in ordered}
        self.leaves: tuple[Leaf, ...] = tuple(
            leaf for name, node in self.fields.items() for leaf in _leaves(name, node, ())
        )

    def with_next_obs(self) -> Schema:
        """The schema with a next_obs like its obs, where it has none."""
        if "obs" not in self.fields or "next_obs" in self.fields:
            return self
        return Schema({**self.fields, "next_obs": self.fields["obs"]})

    @classmethod
    def from_spaces(cls, observation: Any, action: Any, *, stack: int = 1, axis: int = 0) -> Schema:
        """The schema of an environment's steps.

        Args:
            observation: A Gymnasium space: Box, Discrete, MultiDiscrete, MultiBinary, or a Dict or
                Tuple of them.
            action: The action space.
            stack: Observations of at least three dimensions are stacks of this many frames along
                `axis`.
            axis: The axis of the frames.
        """
        return cls(
            {
                "obs": _node_of_space(observation, stack, axis),
                "action": _node_of_space(action, 1, 0),
                "reward": "float32",
                "terminated": "bool",
                "truncated": "bool",
                "next_obs": _node_of_space(observation, stack, axis),
            }
        )

    @classmethod
    def from_env(cls, env: Any, *, stack: int = 1, axis: int = 0) -> Schema:
        """The schema of the steps of a Gymnasium environment or vector environment."""
        observation = getattr(env, "observation_space", None)
        action = getattr(env, "action_space", None)
        if observation is None or action is None:
            raise TypeError(f"env must have spaces, got {type(env).__name__}")
        observation = getattr(env, "single_observation_space", observation)
        action = getattr(env, "single_action_space", action)
        return cls.from_spaces(observation, action, stack=stack, axis=axis)

    def to_json(self) -> dict[str, Any]:
        """The schema as JSON values."""
        return {name: _to_json(node) for name, node in self.fields.items()}

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> Schema:
        """The schema that `to_json` wrote."""
        return cls({name: _from_json(node) for name, node in saved.items()})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schema) and self.fields == other.fields

    def __hash__(self) -> int:
        return hash(self.leaves)

    def __repr__(self) -> str:
        return f"Schema({self.fields})"


def _leaves(argument: str, node: Node, path: tuple[str | int, ...]) -> Iterator[Leaf]:
    if isinstance(node, Field):
        yield Leaf(argument, path, node)
        return
    items: list[tuple[str | int, Node]] = (
        list(node.items()) if isinstance(node, dict) else list(enumerate(node))
    )
    if not items:
        raise ValueError(f"field '{argument}' must not have an empty dict or tuple")
    for key, child in items:
        yield from _leaves(argument, child, (*path, key))


def _to_json(node: Node) -> Any:
    if isinstance(node, Field):
        return {
            "dtype": node.dtype,
            "shape": list(node.shape),
            "stack": node.stack,
            "axis": node.axis,
            "finite": node.finite,
        }
    if isinstance(node, dict):
        return {"dict": {key: _to_json(child) for key, child in node.items()}}
    return {"tuple": [_to_json(child) for child in node]}


def _from_json(saved: Any) -> Node:
    if "dict" in saved:
        return {key: _from_json(child) for key, child in saved["dict"].items()}
    if "tuple" in saved:
        return tuple(_from_json(child) for child in saved["tuple"])
    return Field(
        saved["dtype"],
        tuple(saved["shape"]),
        stack=saved["stack"],
        axis=saved["axis"],
        finite=saved["finite"],
    )


def _node_of_space(space: Any, stack: int, axis: int) -> Node:
    children = getattr(space, "spaces", None)
    if isinstance(children, Mapping):
        return {key: _node_of_space(child, stack, axis) for key, child in children.items()}
    if isinstance(children, tuple | list):
        return tuple(_node_of_space(child, stack, axis) for child in children)
    if getattr(space, "dtype", None) is None or getattr(space, "shape", None) is None:
        raise ValueError(f"spaces must have a fixed dtype and shape, got {space}")
    shape = tuple(int(n) for n in space.shape)
    frames = stack if len(shape) >= 3 else 1
    return Field(space.dtype, shape, stack=frames, axis=axis if frames > 1 else 0)


def native_fields(schema: Schema) -> list[tuple[str, str, list[int], str, int, int, bool, int]]:
    """The leaves as `_native.Engine` takes them."""
    obs = {leaf.path: i for i, leaf in enumerate(schema.leaves) if leaf.argument == "obs"}
    rows = []
    for leaf in schema.leaves:
        role = leaf.argument if leaf.argument in STEP else "extra"
        twin = obs.get(leaf.path, -1) if role == "next_obs" else -1
        f = leaf.field
        rows.append((leaf.name, str(f.dtype), list(f.shape), role, f.stack, f.axis, f.finite, twin))
    return rows


def _widths(node: Any, path: tuple[str | int, ...]) -> list[int]:
    """The number of entries of every dict and tuple on the way down."""
    widths = []
    for key in path:
        widths.append(len(node))
        node = node[key]
    return widths


def row_plan(schema: Schema, *, squeeze: bool, priorities: bool, streams: bool) -> dict[str, Any]:
    """Mapping of leaves to the arguments of `push` and arrays of a batch (`_native.RowBuffer`).

    Args:
        schema: The schema.
        squeeze: Actions of shape (1,) come back without that axis.
        priorities: `push` takes a priority.
        streams: `push` takes a stream.
    """
    names = list(schema.fields)
    index = {leaf: i for i, leaf in enumerate(schema.leaves)}
    leaves = []
    for leaf in schema.leaves:
        squeezed = squeeze and leaf.argument == "action" and leaf.field.shape == (1,)
        shape = () if squeezed else leaf.field.shape
        widths = _widths(schema.fields[leaf.argument], leaf.path)
        leaves.append((names.index(leaf.argument), leaf.path, leaf.spelled, shape, widths))

    def node(
        key: str | int, argument: str, value: Node, path: tuple[str | int, ...]
    ) -> tuple[Any, ...]:
        if isinstance(value, Field):
            return (key, index[Leaf(argument, path, value)])
        kind = "dict" if isinstance(value, dict) else "tuple"
        items = value.items() if isinstance(value, dict) else enumerate(value)
        return (key, kind, [node(k, argument, child, (*path, k)) for k, child in items])

    step = [name for name in names if name in STEP]
    extras = [name for name in names if name not in STEP]
    push_names = names + ["priority"] * priorities + ["stream"] * streams
    batch_names = [BATCH_NAMES.get(name, name) for name in names]
    batch_names += ["priorities"] * priorities + ["streams"] * streams
    order = [name for name in BATCH_ORDER if name in names] + extras
    return {
        "push_names": push_names,
        "batch_names": batch_names,
        "batch_order": [names.index(name) for name in BATCH_ORDER if name in names],
        "n_arguments": len(names),
        "n_positional": len(step) + (1 if priorities and not extras else 0),
        "priority_argument": len(names) if priorities else -1,
        "stream_argument": len(names) + priorities if streams else -1,
        "leaves": leaves,
        "nodes": [
            node(BATCH_NAMES.get(name, name), name, schema.fields[name], ()) for name in order
        ],
    }
