"""Tensor buffers in files: safetensors, written whole or not at all, read without running code."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from sharpwave.errors import SharpwaveIOError
from sharpwave.storage.checkpoints import read_checkpoint, write_checkpoint
from sharpwave.tensors.buffers.base import ResetStrategy
from sharpwave.tensors.buffers.fields import Nest, TensorField

if TYPE_CHECKING:
    from sharpwave.tensors.buffers.base import TensorBuffer

BufferT = TypeVar("BufferT", bound="TensorBuffer")

_KIND = "tensor buffer"


def save(buffer: Any, path: str | os.PathLike[str]) -> None:
    """Write a buffer to a file."""
    nests = buffer.fields.nests
    header = {
        "kind": _KIND,
        "class": type(buffer).__name__,
        "options": buffer._options(),
        "obs": _to_json(nests["obs"]),
        "action": _to_json(nests["action"]),
        "extras": {name: _to_json(nests[name]) for name in nests if name not in buffer.STEP},
    }
    state = buffer.state_dict()
    columns = {name: column.cpu() for name, column in state["fields"].items()}
    state["fields"] = {name: _as_bytes(column) for name, column in columns.items()}
    write_checkpoint(path, header, state)


def load(cls: type[BufferT], path: str | os.PathLike[str], options: Mapping[str, Any]) -> BufferT:
    """The buffer that `save` wrote, with some of its arguments changed."""
    header, state = read_checkpoint(path)
    if header.get("kind") != _KIND or header.get("class") != cls.__name__:
        held = header.get("class") or "checkpoint of something else"
        raise SharpwaveIOError(f"{path} holds a {held}, not a {cls.__name__}")
    try:
        saved = dict(header["options"])
        saved["reset_strategy"] = ResetStrategy(saved["reset_strategy"])
        for name in ("obs", "action"):
            nest = _from_json(header[name])
            saved[f"{name}_shape"] = _each(nest, "shape")
            saved[f"{name}_dtype"] = _each(nest, "dtype")
        saved["extra_fields"] = {name: _from_json(nest) for name, nest in header["extras"].items()}
        make: Any = cls
        buffer: Any = make(**{**saved, **options})
        leaves = dict(zip(buffer.fields.names, buffer.fields.leaves, strict=True))
        state["fields"] = {
            name: torch.tensor(column).view(leaves[name].dtype)
            for name, column in state["fields"].items()
        }
        buffer.load_state_dict(_tensors(state))
    except (KeyError, ValueError, TypeError) as error:
        raise SharpwaveIOError(f"{path} does not fit: {error}") from error
    loaded: BufferT = buffer
    return loaded


def _as_bytes(column: torch.Tensor) -> torch.Tensor:
    """The column as integers of the same size, since NumPy lacks some dtypes."""
    if column.dtype.itemsize > 8:
        raise TypeError(f"fields of dtype {column.dtype} cannot be saved")
    sizes = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return column.view(sizes[column.dtype.itemsize])


def _tensors(state: Any) -> Any:
    if isinstance(state, dict):
        return {key: _tensors(value) for key, value in state.items()}
    return (
        state
        if isinstance(state, torch.Tensor) or not hasattr(state, "dtype")
        else torch.tensor(state)
    )


def _to_json(nest: Nest) -> Any:
    if isinstance(nest, TensorField):
        return [str(nest.dtype).removeprefix("torch."), list(nest.shape)]
    return {key: _to_json(inner) for key, inner in nest.items()}


def _from_json(saved: Any) -> Nest:
    if isinstance(saved, dict):
        return {key: _from_json(inner) for key, inner in saved.items()}
    dtype = vars(torch).get(saved[0])  # nothing is imported for a name
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"{saved[0]!r} is not a dtype")  # noqa: TRY004
    return TensorField(dtype, tuple(saved[1]))


def _each(nest: Nest, attribute: str) -> Any:
    if isinstance(nest, TensorField):
        return getattr(nest, attribute)
    return {key: _each(inner, attribute) for key, inner in nest.items()}
