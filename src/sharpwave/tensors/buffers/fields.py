"""Fields of a step of N environments: named tensors with dtype and shape, nested in dicts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sharpwave.types import Nested

__all__ = ["Fields", "TensorField", "field_tree"]


@dataclass(frozen=True)
class TensorField:
    """A field of one environment's step.

    Attributes:
        dtype: Any torch dtype.
        shape: The shape without the axis of the environments.
    """

    dtype: torch.dtype
    shape: tuple[int, ...] = ()


def field_tree(name: str, shape: Any, dtype: Any) -> Nested:
    """Fields from what users write: a shape or a dict of shapes, with a dtype or a dict of them.

    Example:
        >>> field_tree("obs", {"image": (8, 8), "speed": ()}, {"image": torch.uint8})
        {'image': TensorField(dtype=torch.uint8, shape=(8, 8)), \
'speed': TensorField(dtype=torch.float32, shape=())}
    """
    if isinstance(shape, Mapping):
        if not shape:
            raise ValueError(f"{name}_shape must not be an empty dict")
        dtypes = dtype if isinstance(dtype, Mapping) else dict.fromkeys(shape, dtype)
        unknown = set(dtypes) - set(shape)
        if unknown:
            raise ValueError(f"{name}_dtype must have keys of {name}_shape, got {sorted(unknown)}")
        return {
            _checked_key(name, key): field_tree(name, inner, dtypes.get(key, torch.float32))
            for key, inner in shape.items()
        }
    if not isinstance(dtype, torch.dtype):
        raise TypeError(f"{name}_dtype must be a torch dtype, got {dtype!r}")
    return TensorField(dtype, _checked_shape(name, shape))


def extra_fields(given: Mapping[str, Any] | None, taken: tuple[str, ...]) -> dict[str, Nested]:
    """More fields by name, each a `(dtype, shape)` pair, a dtype, or a dict of these."""
    fields: dict[str, Nested] = {}
    for name, spec in (given or {}).items():
        if name in taken:
            raise ValueError(f"extra_fields must not use the name {name!r}")
        fields[_checked_key("extra_fields", name)] = _extra(name, spec)
    return fields


def _extra(name: str, spec: Any) -> Nested:
    if isinstance(spec, Mapping):
        return {_checked_key(name, key): _extra(f"{name}.{key}", one) for key, one in spec.items()}
    if isinstance(spec, TensorField):
        return spec
    if isinstance(spec, torch.dtype):
        return TensorField(spec)
    if isinstance(spec, tuple) and len(spec) == 2 and isinstance(spec[0], torch.dtype):
        return TensorField(spec[0], _checked_shape(name, spec[1]))
    raise TypeError(
        f"extra_fields must be a dtype, a (dtype, shape) pair or a dict of these, "
        f"got {spec!r} for {name!r}"
    )


def _checked_key(name: str, key: object) -> str:
    if not isinstance(key, str) or not key or "." in key:
        raise ValueError(f"keys of {name} must be non-empty strings without dots, got {key!r}")
    return key


def _checked_shape(name: str, shape: Any) -> tuple[int, ...]:
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    if not all(isinstance(n, int) and n >= 0 for n in sizes):
        raise ValueError(f"{name}_shape must be a tuple of sizes or a dict of them, got {shape!r}")
    return sizes


class Fields:
    """The fields of a buffer, and how nested values meet a flat list of tensors.

    Args:
        trees: A tree of `TensorField` by name.

    Example:
        >>> fields = Fields({"obs": {"x": TensorField(torch.float32, (2,))}})
        >>> fields.names
        ('obs.x',)
        >>> fields.flat({"obs": {"x": [[1, 2]]}}, n=1)
        [tensor([[1., 2.]])]
    """

    def __init__(self, trees: Mapping[str, Nested]) -> None:
        self.trees = dict(trees)
        pairs = [pair for name, tree in self.trees.items() for pair in _leaves(name, tree)]
        self.names = tuple(name for name, _ in pairs)
        self.leaves = tuple(leaf for _, leaf in pairs)
        self._has_dicts = self.names != tuple(self.trees)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fields) and self.trees == other.trees

    def __hash__(self) -> int:
        return hash((self.names, self.leaves))

    def flat(self, values: Mapping[str, Nested], n: int) -> list[Tensor]:
        """The tensors [n, ...] of a step, checked and in the dtypes of their fields.

        Raises:
            TypeError: Where a dict is missing, or is where a tensor should be.
            ValueError: For shapes and keys that do not fit.
        """
        found: list[Tensor] = []
        for name, tree in self.trees.items():
            value = values[name]
            if (  # what most steps are is asked first: this runs for every one
                type(tree) is TensorField
                and type(value) is Tensor
                and value.dtype is tree.dtype
                and value.shape == (n, *tree.shape)
                and not value.requires_grad
            ):
                found.append(value)
            else:
                _collect(name, tree, value, n, found)
        return found

    def as_they_are(
        self, values: Mapping[str, Nested], n: int, device: torch.device
    ) -> list[Tensor]:
        """The tensors [n, ...] of a batch, to be written to.

        Raises:
            ValueError: One of them is not such as its field has on this device, or not contiguous.
        """
        found: list[Tensor] = []
        for name, tree in self.trees.items():
            for path, field, value in _fields_with(name, tree, values[name]):
                fits = (
                    isinstance(value, Tensor)
                    and value.shape == (n, *field.shape)
                    and value.dtype is field.dtype
                    and value.device == device
                    and value.is_contiguous()
                )
                if not fits:
                    what = (
                        f"{value.dtype} of shape {tuple(value.shape)} on {value.device}"
                        if isinstance(value, Tensor)
                        else type(value).__name__
                    )
                    raise ValueError(
                        f"{path} of out must be a contiguous {field.dtype} of shape "
                        f"{(n, *field.shape)} on {device}, got {what}"
                    )
                found.append(value)
        return found

    def nested(self, tensors: list[Tensor]) -> dict[str, Nested]:
        """The opposite of `flat`."""
        if not self._has_dicts:
            return dict(zip(self.names, tensors, strict=True))
        left = iter(tensors)
        return {name: _tree_like(tree, left) for name, tree in self.trees.items()}


def _leaves(name: str, tree: Nested) -> Iterator[tuple[str, TensorField]]:
    if isinstance(tree, TensorField):
        yield name, tree
        return
    for key, inner in tree.items():
        yield from _leaves(f"{name}.{key}", inner)


def _fields_with(name: str, tree: Nested, value: Nested) -> Iterator[tuple[str, TensorField, Any]]:
    if isinstance(tree, TensorField):
        yield name, tree, value
        return
    for key, inner in tree.items():
        yield from _fields_with(f"{name}.{key}", inner, value[key])


def _collect(name: str, tree: Nested, value: Nested, n: int, found: list[Tensor]) -> None:
    if isinstance(tree, TensorField):
        found.append(_checked(name, tree, value, n))
        return
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} must be a dict with {sorted(tree)}, got {type(value).__name__}")
    if value.keys() != tree.keys():
        raise ValueError(f"{name} must have the keys {sorted(tree)}, got {sorted(value)}")
    for key, inner in tree.items():
        _collect(f"{name}.{key}", inner, value[key], n, found)


def _checked(name: str, field: TensorField, value: Any, n: int) -> Tensor:
    if isinstance(value, Mapping) or value is None:
        raise TypeError(f"{name} must be a tensor, got {type(value).__name__}")
    tensor = torch.as_tensor(value).detach()
    expected = (n, *field.shape)
    if tensor.shape != expected:
        # [n] and [n, 1] are told apart by nobody.
        if _without_last_one(tuple(tensor.shape)) != _without_last_one(expected):
            raise ValueError(f"{name} must have shape {expected}, got {tuple(tensor.shape)}")
        tensor = tensor.reshape(expected)
    return tensor if tensor.dtype == field.dtype else tensor.to(field.dtype)


def _without_last_one(shape: tuple[int, ...]) -> tuple[int, ...]:
    return shape[:-1] if len(shape) > 1 and shape[-1] == 1 else shape


def _tree_like(tree: Nested, left: Iterator[Tensor]) -> Nested:
    if isinstance(tree, TensorField):
        return next(left)
    return {key: _tree_like(inner, left) for key, inner in tree.items()}
