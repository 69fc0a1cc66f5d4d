"""Tensors and arrays as bytes: dtypes of safetensors, and those among them that NumPy lacks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from sharpwave.core.lazy import torch

__all__ = ["RawTensor", "StoredArray", "as_arrays", "to_tensor"]

_MAX_DIMENSIONS = 64
"""Of arrays in NumPy."""

CHUNK_BYTES = 2 * 2**20
"""Bytes that are copied at once where a tensor cannot be written or read in place.

Two such copies live at a time: the one that is written, and the next one.
"""


@dataclass(frozen=True, eq=False)
class RawTensor:
    """A tensor whose dtype NumPy lacks, such as bfloat16: its words, and what they stand for.

    Attributes:
        words: The elements as integers of the same size.
        dtype: The name of the dtype in PyTorch.

    Example:
        >>> RawTensor(np.array([0x3F80], np.int16), "bfloat16").tensor().item()
        1.0
    """

    words: npt.NDArray[Any]
    dtype: str

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the tensor."""
        return self.words.shape

    def tensor(self) -> torch.Tensor:
        """The tensor, in the memory of the words."""
        return torch.from_numpy(self.words).view(getattr(torch, self.dtype))


StoredArray: TypeAlias = npt.NDArray[Any] | RawTensor


@dataclass(frozen=True)
class StoredType:
    """A dtype in a file.

    Attributes:
        words: The NumPy dtype of its elements, or of integers of that size.
        name: The name of the dtype in PyTorch.
        is_raw: NumPy lacks the dtype.
        per_word: Elements in one word; a word is what PyTorch counts as an element.
    """

    words: np.dtype[Any]
    name: str
    is_raw: bool = False
    per_word: int = 1

    def n_bytes(self, shape: tuple[int, ...]) -> int:
        """Bytes of a tensor of this shape, as the file counts it."""
        return math.prod(self.word_shape(shape)) * self.words.itemsize

    def word_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape in words of the shape that a file says."""
        if self.per_word == 1:
            return shape
        if not shape or shape[-1] % self.per_word:
            raise ValueError(f"the last dimension of {shape} is no multiple of {self.per_word}")
        return (*shape[:-1], shape[-1] // self.per_word)

    def file_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The opposite of `word_shape`."""
        return shape if self.per_word == 1 else (*shape[:-1], shape[-1] * self.per_word)

    def array(self, words: npt.NDArray[Any]) -> StoredArray:
        """The array that a reader gets for words of this dtype."""
        return RawTensor(words, self.name) if self.is_raw else words


def _plain(code: str, name: str) -> StoredType:
    return StoredType(np.dtype(code), name)


def _raw(code: str, name: str, per_word: int = 1) -> StoredType:
    return StoredType(np.dtype(code), name, is_raw=True, per_word=per_word)


STORED_TYPES: dict[str, StoredType] = {
    "F64": _plain("<f8", "float64"),
    "F32": _plain("<f4", "float32"),
    "F16": _plain("<f2", "float16"),
    "I64": _plain("<i8", "int64"),
    "I32": _plain("<i4", "int32"),
    "I16": _plain("<i2", "int16"),
    "I8": _plain("<i1", "int8"),
    "U64": _plain("<u8", "uint64"),
    "U32": _plain("<u4", "uint32"),
    "U16": _plain("<u2", "uint16"),
    "U8": _plain("<u1", "uint8"),
    "BOOL": _plain("?", "bool"),
    "C64": _plain("<c8", "complex64"),
    "BF16": _raw("<i2", "bfloat16"),
    "F8_E4M3": _raw("<u1", "float8_e4m3fn"),
    "F8_E4M3FNUZ": _raw("<u1", "float8_e4m3fnuz"),
    "F8_E5M2": _raw("<u1", "float8_e5m2"),
    "F8_E5M2FNUZ": _raw("<u1", "float8_e5m2fnuz"),
    "F8_E8M0": _raw("<u1", "float8_e8m0fnu"),
    "F4": _raw("<u1", "float4_e2m1fn_x2", per_word=2),
}
"""By the names of safetensors."""

_CODES = {kind.name: code for code, kind in STORED_TYPES.items()}
_INTEGERS = {1: "uint8", 2: "int16"}
"""PyTorch's integers of the sizes that raw words have."""


def is_shape(shape: Sequence[Any]) -> bool:
    """Return whether an array can have this shape, which a file says, with any dtype."""
    return (
        len(shape) <= _MAX_DIMENSIONS
        and all(type(length) is int and length >= 0 for length in shape)
        and math.prod(max(length, 1) for length in shape) < 2**59  # also where one is 0
    )


def is_tensor(value: Any) -> bool:
    """Return whether a leaf of a tree is a tensor, without a need for PyTorch."""
    return hasattr(value, "detach")


def code_of(value: Any, name: str) -> str:
    """The name that safetensors has for the dtype of an array or tensor.

    Raises:
        TypeError: It has none.
    """
    if isinstance(value, np.ndarray):
        code = _CODES.get(value.dtype.name)
    elif isinstance(value, RawTensor):
        code = _CODES.get(value.dtype)
    else:
        code = _CODES.get(str(value.dtype).removeprefix("torch."))
        if str(value.layout) != "torch.strided" or value.device.type == "meta":
            raise TypeError(
                f"{name} must be a dense tensor, got {value.layout} on {value.device.type}"
            )
    if code is None:
        kind = "a tensor" if is_tensor(value) else "an array"
        raise TypeError(f"{name} must hold numbers, got {kind} of {value.dtype}")
    return code


def words_of(value: Any, kind: StoredType) -> Any:
    """The array or tensor in words, in the memory of the value."""
    if isinstance(value, RawTensor):
        return value.words
    if not is_tensor(value):
        return value
    value = value.detach().resolve_conj().resolve_neg()
    if kind.is_raw:
        value = value.view(getattr(torch, _INTEGERS[kind.words.itemsize]))
    return value.numpy() if value.device.type == "cpu" else value


def pieces(value: Any, kind: StoredType) -> Iterator[memoryview]:
    """The bytes of an array or tensor in order of its elements: in place, or little at a time."""
    words = words_of(value, kind)
    if isinstance(words, np.ndarray) and words.flags.c_contiguous and words.dtype == kind.words:
        yield flat_bytes(words)
        return
    for block in _blocks(words):
        array = block.cpu().numpy() if is_tensor(block) else block
        yield flat_bytes(np.ascontiguousarray(array, kind.words))


def flat_bytes(array: npt.NDArray[Any]) -> memoryview:
    """The memory of a contiguous array."""
    return array.reshape(-1).view(np.uint8).data


def _blocks(words: Any) -> Iterator[Any]:
    """Blocks of an array or tensor, each of about `CHUNK_BYTES` at most."""
    if words.nbytes <= CHUNK_BYTES or words.ndim == 0:
        yield words
        return
    rows = CHUNK_BYTES // (words.nbytes // len(words))
    if rows == 0:
        for row in words:
            yield from _blocks(row)
    else:
        for first in range(0, len(words), rows):
            yield words[first : first + rows]


def to_tensor(array: Any) -> torch.Tensor:
    """A tensor in the memory of an array that a checkpoint held, of the dtype that was saved."""
    if is_tensor(array):
        return array  # type: ignore[no-any-return]
    return array.tensor() if isinstance(array, RawTensor) else torch.from_numpy(array)


def as_arrays(state: Any) -> Any:
    """A copy of a tree of arrays and tensors, all of them as `read_checkpoint` would give them."""
    if is_tensor(state):
        kind = STORED_TYPES.get(_CODES.get(str(state.dtype).removeprefix("torch."), ""))
        if kind is None or not kind.is_raw:
            return state.detach().cpu().numpy().copy()
        return kind.array(words_of(state.cpu(), kind).copy())
    if isinstance(state, RawTensor):
        return RawTensor(state.words.copy(), state.dtype)
    if isinstance(state, np.ndarray):
        return state.copy()
    if isinstance(state, dict):
        return {key: as_arrays(inner) for key, inner in state.items()}
    if isinstance(state, list | tuple):
        return type(state)(as_arrays(inner) for inner in state)
    return state
