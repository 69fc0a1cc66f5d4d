"""Tied tensors: several names of the same memory, which a checkpoint holds once."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from sharpwave.storage.checkpoints.tensors import RawTensor, is_shape, is_tensor

Ints = tuple[int, ...]


@dataclass(frozen=True)
class Alias:
    """A tensor that is another one of the file, or a view of all of it.

    Attributes:
        of: The name of the other.
        shape: The shape that the other one is brought into, in words.
        axes: The order of axes that it then has.
    """

    of: str
    shape: Ints
    axes: Ints

    def fits(self, shape: Ints) -> bool:
        """Return whether a tensor of this shape can be brought into that of the alias."""
        return is_shape(self.shape) and math.prod(shape) == math.prod(self.shape)

    def of_words(self, words: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The view, in the memory of the other one's words."""
        return words.reshape(self.shape).transpose(self.axes)

    def to_json(self) -> dict[str, Any]:
        """Plain values, for the file."""
        return {"of": self.of, "shape": list(self.shape), "axes": list(self.axes)}

    @classmethod
    def from_json(cls, value: Any) -> Alias:
        """The opposite of `to_json`.

        Raises:
            ValueError: The axes are no order of the dimensions.
        """
        shape, axes = (tuple(int(x) for x in value[name]) for name in ("shape", "axes"))
        if sorted(axes) != list(range(len(shape))):
            raise ValueError(f"axes must be an order of {len(shape)} dimensions, got {axes!r:.80}")
        return cls(str(value["of"]), shape, axes)


@dataclass(frozen=True)
class _Layout:
    """Place of a tensor in memory; `order` sorts its axes as the memory has them."""

    place: tuple[Any, ...]
    shape: Ints
    strides: Ints
    order: Ints

    @property
    def is_contiguous(self) -> bool:
        return self.order == tuple(range(len(self.shape)))

    @property
    def memory_shape(self) -> Ints:
        return tuple(self.shape[axis] for axis in self.order)


def find_aliases(leaves: dict[str, Any], codes: dict[str, str]) -> dict[str, Alias]:
    """The leaves that need not be written, since another one covers the same memory exactly."""
    groups: dict[Any, list[tuple[str, _Layout]]] = {}
    for name, leaf in leaves.items():
        layout = _layout(leaf, codes[name])
        if layout is not None:
            groups.setdefault(layout.place, []).append((name, layout))
    found: dict[str, Alias] = {}
    for group in groups.values():
        found.update(_aliases(group))
    return found


def _aliases(group: list[tuple[str, _Layout]]) -> Iterable[tuple[str, Alias]]:
    base, layout = next((one for one in group if one[1].is_contiguous), group[0])
    for name, other in group:
        if name == base:
            continue
        if (other.shape, other.strides) == (layout.shape, layout.strides):
            yield name, Alias(base, other.shape, tuple(range(len(other.shape))))
        elif layout.is_contiguous:
            axes = sorted(range(len(other.order)), key=lambda axis: other.order[axis])
            yield name, Alias(base, other.memory_shape, tuple(axes))


def _layout(leaf: Any, code: str) -> _Layout | None:
    """None for what has no memory that another one could share."""
    if is_tensor(leaf):
        if leaf.numel() == 0 or leaf.is_conj() or leaf.is_neg():
            return None
        device = "" if leaf.device.type == "cpu" else str(leaf.device)
        strides = tuple(stride * leaf.element_size() for stride in leaf.stride())
        place = (device, leaf.data_ptr(), code)
        return _arranged(place, tuple(leaf.shape), strides, leaf.nbytes)
    array = leaf.words if isinstance(leaf, RawTensor) else leaf
    if array.size == 0:
        return None
    swapped = "" if array.dtype.isnative else " swapped"
    place = ("", array.__array_interface__["data"][0], code + swapped)
    return _arranged(place, array.shape, array.strides, array.nbytes)


def _arranged(place: tuple[Any, ...], shape: Ints, strides: Ints, n_bytes: int) -> _Layout:
    # An axis of length 1 may have any stride; it stays where it is.
    order = list(range(len(shape)))
    long = [axis for axis in order if shape[axis] > 1]
    for axis, sorted_axis in zip(long, sorted(long, key=lambda a: -strides[a]), strict=True):
        order[axis] = sorted_axis
    expected = n_bytes
    for axis in order:
        expected //= shape[axis]
        if shape[axis] > 1 and strides[axis] != expected:  # it has gaps, or overlaps itself
            return _Layout((*place, shape, strides), shape, strides, tuple(order))
    return _Layout((*place, n_bytes), shape, strides, tuple(order))
