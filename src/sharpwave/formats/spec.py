"""Schema of steps and episodes: named fields with dtype, shape and default, also as JSON."""

from __future__ import annotations

import json
import math
from collections import namedtuple
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from sharpwave import _native
from sharpwave.buffers.schema import Field
from sharpwave.core.flags import flag
from sharpwave.errors import SharpwaveIOError
from sharpwave.types import as_dtype

__all__ = ["EpisodeField", "EpisodeSchema"]

TYPES = {"int": "int32", "float": "float32", "bool": "bool"}
"""Dtypes by their short names."""

ROLES = {
    "obs": "obs",
    "observation": "obs",
    "observations": "obs",
    "state": "obs",
    "action": "action",
    "actions": "action",
    "reward": "reward",
    "rewards": "reward",
    "terminated": "terminated",
    "truncated": "truncated",
}
"""The roles that names stand for; all other fields are extras."""

_DTYPES = frozenset(
    {"bool", "float16", "float32", "float64"}
    | {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
)

FieldTree = dict[str, Any]
"""Fields, or trees of them, by name."""


@dataclass(frozen=True)
class EpisodeField:
    """One field of a step or an episode.

    Attributes:
        dtype: bool, an integer of 8 to 64 bits, float16, float32 or float64.
        shape: The shape of one value.
        default: Value in a step that is stored without the field; zeros if None.
        role: obs, action, reward, terminated, truncated or extra; told by the name.
        finite: Refuse NaN and infinities. Rewards always do.
    """

    dtype: str
    shape: tuple[int, ...] = ()
    default: float | bool | None = None
    role: str = "extra"
    finite: bool = False

    def __post_init__(self) -> None:
        name = TYPES.get(str(self.dtype), self.dtype)
        try:
            dtype = as_dtype(name).name
        except TypeError:
            dtype = ""
        if dtype not in _DTYPES:
            raise ValueError(f"dtype must be bool, an integer or a float type, got {self.dtype!r}")
        given: Any = self.shape
        shape = (given,) if isinstance(given, int | np.integer) else tuple(given)
        if any(isinstance(n, bool) or not isinstance(n, int | np.integer) for n in shape):
            raise TypeError(f"shape must be integers, got {self.shape!r}")
        if any(n < 1 for n in shape) or math.prod(shape) >= 2**40:
            raise ValueError(f"shape must be of positive numbers, got {self.shape!r}")
        object.__setattr__(self, "dtype", dtype)
        object.__setattr__(self, "shape", tuple(int(n) for n in shape))
        object.__setattr__(self, "finite", flag("finite", self.finite))
        if self.default is not None:
            object.__setattr__(self, "default", _checked_default(self))

    @property
    def row_bytes(self) -> int:
        """Bytes of one value."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    def filled(self) -> np.ndarray[Any, Any]:
        """The default as an array."""
        return np.full(self.shape, self.default or 0, dtype=self.dtype)


def _checked_default(field: EpisodeField) -> float | bool:
    given = np.asarray(field.default)
    if given.ndim != 0 or given.dtype.kind not in "biuf":
        raise TypeError(f"the default must be a number, got {field.default!r}")
    with np.errstate(all="ignore"):
        cast = given.astype(field.dtype)
    exact = bool(cast == given) or np.dtype(field.dtype).kind == "f"
    if not exact or (math.isinf(float(cast)) and not math.isinf(float(given))):
        raise ValueError(f"the default must fit {field.dtype}, got {field.default!r}")
    value: float | bool = cast.item()
    if (field.finite or field.role == "reward") and not math.isfinite(value):
        raise ValueError(f"the default must be finite, got {value}")
    return value


class EpisodeSchema:
    """The fields of steps and of episodes, in the order given.

    Args:
        fields: Fields of a step by name: a type, `(type, shape)`, `(type, shape, default)`, a
            `Field`, an `EpisodeField`, or a dict of these.
        meta_fields: The same for an episode.

    Attributes:
        fields: The fields of a step by flat names, dotted where nested.
        meta_fields: The fields of an episode likewise.
        nest: The fields of a step as nested as they were given.
        meta_nest: The fields of an episode likewise.

    Example:
        >>> schema = EpisodeSchema({"obs": {"image": ("uint8", (8, 8))}, "reward": "float"})
        >>> list(schema.fields)
        ['obs.image', 'reward']
    """

    def __init__(
        self, fields: Mapping[str, Any], meta_fields: Mapping[str, Any] | None = None
    ) -> None:
        self.nest: FieldTree = _as_tree(fields, "fields")
        self.meta_nest: FieldTree = _as_tree(meta_fields or {}, "meta_fields")
        self.fields = dict(_flat(self.nest))
        self.meta_fields = dict(_flat(self.meta_nest))
        if not self.fields:
            raise ValueError("fields must not be empty")
        most = max(len(self.fields), len(self.meta_fields))
        if most > _native.MAX_EPISODE_FIELDS:
            raise ValueError(
                f"fields and meta_fields must be at most {_native.MAX_EPISODE_FIELDS}, got {most}"
            )
        shared = sorted(set(self.nest) & set(self.meta_nest))
        if shared:
            raise ValueError(
                f"fields and meta_fields must have different names, got {shared} twice"
            )

    def to_json(self) -> dict[str, Any]:
        """The schema as JSON values."""
        return {
            "fields": {name: _to_json(field) for name, field in self.fields.items()},
            "meta_fields": {name: _to_json(field) for name, field in self.meta_fields.items()},
        }

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> EpisodeSchema:
        """The schema that `to_json` wrote."""
        return cls(
            *(
                {name: _from_json(field) for name, field in saved[group].items()}
                for group in ("fields", "meta_fields")
            )
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, EpisodeSchema):
            return False
        return list(self.fields.items()) == list(other.fields.items()) and list(
            self.meta_fields.items()
        ) == list(other.meta_fields.items())

    def __hash__(self) -> int:
        return hash((tuple(self.fields.items()), tuple(self.meta_fields.items())))

    def __repr__(self) -> str:
        return f"EpisodeSchema({self.nest}, {self.meta_nest})"


def _as_tree(given: Mapping[str, Any], argument: str) -> FieldTree:
    if not isinstance(given, Mapping):
        raise TypeError(f"{argument} must be a dict, got {type(given).__name__}")
    tree: FieldTree = {}
    for name, spec in given.items():
        if not isinstance(name, str):
            raise TypeError(f"{argument} must have names that are strings, got {name!r}")
        parts = name.split(".")
        if not all(parts) or parts[0].startswith("_"):
            raise ValueError(
                f"{argument} must have names that are not empty and do not start with an "
                f"underscore, got {name!r}"
            )
        name.encode()  # lone surrogates are no text: a ValueError
        place = tree
        for part in parts[:-1]:
            inner = place.setdefault(part, {})
            place = {parts[-1]: inner} if isinstance(inner, EpisodeField) else inner
        if parts[-1] in place:
            raise ValueError(f"{argument} has {name!r} twice, or as a part of another field")
        role = ROLES.get(parts[0], "extra") if argument == "fields" else "extra"
        place[parts[-1]] = _as_node(spec, name, role)
    return tree


def _as_node(spec: Any, name: str, role: str) -> EpisodeField | FieldTree:
    if isinstance(spec, Mapping):
        if not spec:
            raise ValueError(f"field {name!r} must not be an empty dict")
        tree: FieldTree = {}
        for key, inner in spec.items():
            if not isinstance(key, str) or not key or "." in key:
                raise ValueError(
                    f"field {name!r} must have names that are strings without dots, got {key!r}"
                )
            tree[key] = _as_node(inner, f"{name}.{key}", role)
        return tree
    try:
        if isinstance(spec, EpisodeField):
            return EpisodeField(spec.dtype, spec.shape, spec.default, role, spec.finite)
        if isinstance(spec, Field):
            return EpisodeField(str(spec.dtype), spec.shape, None, role, spec.finite)
        if isinstance(spec, list | tuple):
            dtype, shape, default = _spec_parts(spec)
            return EpisodeField(dtype, shape, default, role)
        return EpisodeField(spec, (), None, role)
    except (TypeError, ValueError) as error:
        raise type(error)(f"field {name!r}: {error}") from None


def _spec_parts(spec: Any) -> tuple[Any, Any, Any]:
    if not 1 <= len(spec) <= 3:
        raise TypeError(
            f"a field must be type, (type, shape) or (type, shape, default), got {spec!r}"
        )
    dtype, shape, default = (*spec, (), None)[:3] if len(spec) == 1 else (*spec, None)[:3]
    if not isinstance(shape, int | np.integer | list | tuple):
        raise TypeError(f"shape must be integers, got {shape!r}")
    return dtype, shape, default


def _flat(tree: FieldTree, path: str = "") -> Iterator[tuple[str, EpisodeField]]:
    for key, node in tree.items():
        name = f"{path}.{key}" if path else key
        if isinstance(node, dict):
            yield from _flat(node, name)
        else:
            yield name, node


def _to_json(field: EpisodeField) -> dict[str, Any]:
    saved: dict[str, Any] = {"dtype": field.dtype, "shape": list(field.shape), "role": field.role}
    if field.default is not None:
        # JSON has no NaN and no infinity.
        finite = isinstance(field.default, bool | int) or math.isfinite(field.default)
        saved["default"] = field.default if finite else str(field.default)
    if field.finite:
        saved["finite"] = True
    return saved


def _from_json(saved: Mapping[str, Any]) -> EpisodeField:
    default = saved.get("default")
    return EpisodeField(
        saved["dtype"],
        tuple(saved["shape"]),
        float(default) if isinstance(default, str) else default,
        saved.get("role", "extra"),
        saved.get("finite", False),
    )


def native_group(tree: FieldTree) -> dict[str, Any]:
    """A group of fields as `_native.EpisodeRows` takes it."""
    arguments = list(tree)
    leaves, fields, defaults = [], [], []
    for number, (argument, node) in enumerate(tree.items()):
        for name, field in _flat({argument: node}):
            path = tuple(name.split(".")[1:])
            widths, inner = [], node
            for key in path:
                widths.append(len(inner))
                inner = inner[key]
            spelled = argument + "".join(f'["{key}"]' for key in path)
            leaves.append((number, path, spelled, field.shape, widths))
            fields.append((name, field.dtype, field.shape, field.role, field.finite))
            defaults.append(field.filled().tobytes())
    return {
        "fields": fields,
        "defaults": defaults,
        "default_values": [_default_value(node) for node in tree.values()],
        "memory": _memory(*arguments),
        "plan": {
            "push_names": arguments,
            "batch_names": arguments,
            "batch_order": [],
            "n_arguments": len(arguments),
            "n_positional": 0,
            "priority_argument": -1,
            "stream_argument": -1,
            "leaves": leaves,
            "nodes": [],
        },
    }


@cache
def _memory(*names: str) -> type[tuple[Any, ...]]:
    return namedtuple("Memory", names, rename=True)


def _default_value(node: EpisodeField | FieldTree) -> Any:
    if isinstance(node, dict):
        return {key: _default_value(inner) for key, inner in node.items()}
    value = node.filled()
    value.flags.writeable = False  # one object for all steps
    return value if value.ndim else value[()]


FORMAT = "sharpwave episodes"
VERSION = 1


def describe(schema: EpisodeSchema) -> str:
    """The fields as JSON."""
    return json.dumps({"format": FORMAT, "version": VERSION, **schema.to_json()})


def described(origin: str, text: str) -> EpisodeSchema:
    """The fields that `describe` wrote.

    Raises:
        SharpwaveIOError: The note is damaged or of a later version.
    """
    try:
        note = json.loads(text)
        if note["version"] != VERSION:
            raise SharpwaveIOError(
                f"{origin} was written by a later version of this library: "
                f"its description has version {note['version']}, this one reads {VERSION}"
            )
        return EpisodeSchema.from_json(note)
    except (KeyError, TypeError, ValueError) as error:
        raise SharpwaveIOError(f"{origin} has a damaged description: {error!r}") from error
