"""One file of a checkpoint: safetensors, with checksums in its metadata.

The file begins with the length of its header and the header, JSON with the place of every tensor.
The header begins with its own checksum, which is that of length and header with zeros in its place,
and has the checksums of the tensors in their order; so the checksum of the header stands for the
whole file, and every tensor can be read and checked without the others.

The library safetensors reads these files. It is not used here: it writes from memory only, has no
NumPy dtype for bfloat16, and maps files into memory, where what was read stays resident.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from sharpwave.errors import SharpwaveIOError
from sharpwave.storage.checkpoints.tensors import (
    CHUNK_BYTES,
    STORED_TYPES,
    StoredType,
    flat_bytes,
    is_shape,
    pieces,
)

__all__ = ["Entry", "TensorFile", "leaf_bytes", "naming", "write_tensors"]

DOCUMENT = "sharpwave"
"""The metadata's entry with all that is not a tensor."""
_WORTH_A_THREAD = 1 << 18
_DIGITS = 32
_ZEROS = b"0" * _DIGITS
_BEGIN = b'{"__metadata__":{"checksum":"'
_CHECKSUM = b'"checksum":"'


def write_tensors(
    file: BinaryIO, document: Mapping[str, Any], leaves: Mapping[str, Any], codes: dict[str, str]
) -> str:
    """Write a file from its beginning, tensor by tensor; its checksum.

    Args:
        file: Empty, and open to write.
        document: JSON values.
        leaves: Arrays and tensors by name.
        codes: Their dtypes, as safetensors names them.
    """
    # Words of eight bytes first, so that each tensor lies where its elements are aligned.
    names = sorted(leaves, key=lambda name: -STORED_TYPES[codes[name]].words.itemsize)
    entries: dict[str, Any] = {}
    end = 0
    for name in names:
        kind = STORED_TYPES[codes[name]]
        shape = kind.file_shape(tuple(leaves[name].shape))
        start, end = end, end + leaf_bytes(leaves[name], codes[name])
        entries[name] = {"dtype": codes[name], "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(document, allow_nan=False)
    file.write(_header(text, entries, ["0" * _DIGITS] * len(names)))
    checksums = []
    with ThreadPoolExecutor(1) as beside:
        for name in names:
            digest = _hash()
            for piece in pieces(leaves[name], STORED_TYPES[codes[name]]):
                _write_hashed(file, piece, digest, beside)
            checksums.append(digest.hexdigest())
    header = _header(text, entries, checksums)
    checksum = _hash(header).hexdigest()
    at = 8 + len(_BEGIN)
    file.seek(0)
    file.write(header[:at] + checksum.encode() + header[at + _DIGITS :])
    return checksum


def _write_hashed(file: BinaryIO, piece: Any, digest: Any, beside: Executor) -> None:
    """Write a piece while its checksum is computed: either takes about as long."""
    if memoryview(piece).nbytes < _WORTH_A_THREAD:
        digest.update(piece)
        file.write(piece)
        return
    hashed = beside.submit(digest.update, piece)
    try:
        file.write(piece)
    finally:
        hashed.result()  # it reads memory that may be used again


def _header(document: str, entries: dict[str, Any], checksums: list[str]) -> bytes:
    """Length and header; as long as ever whatever the checksums are."""
    metadata = {"checksum": "0" * _DIGITS, "tensors": "".join(checksums), DOCUMENT: document}
    text = json.dumps({"__metadata__": metadata, **entries}, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _hash(content: Any = b"") -> hashlib.blake2b:
    return hashlib.blake2b(content, digest_size=_DIGITS // 2)


@dataclass(frozen=True)
class Entry:
    """A tensor in a file."""

    kind: StoredType
    shape: tuple[int, ...]
    """Shape in words."""
    start: int
    """Offset of its bytes in the file."""
    n_bytes: int
    checksum: str | None
    """None in files that have only one for the whole."""


class TensorFile:
    """A file of tensors, open to read.

    Args:
        path: The file.

    Attributes:
        document: JSON values beside the tensors, as they stand in the file.
        entries: The tensors by name.
        checksum: That of the file.

    Raises:
        FileNotFoundError: There is none.
        SharpwaveIOError: It is not such a file, or its header is damaged.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        # What is no regular file might keep us waiting.
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        with naming(self.path):
            status = os.fstat(self._descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise ValueError("it is not a file")
            self.identity = status.st_dev, status.st_ino
            self._size = status.st_size
            length = int.from_bytes(self._bytes(0, 8), "little")
            if length > self._size - 8:
                raise ValueError("it is shorter than it says")
            self._header = self._bytes(0, 8 + length)
            header = json.loads(self._header[8:])
            metadata = header.pop("__metadata__")
            self.document = json.loads(metadata[DOCUMENT])
            self.checksum = str(metadata["checksum"])
            checksums = self._checksums(metadata.get("tensors"), len(header))
            self.entries = {
                name: self._entry(entry, checksum)
                for (name, entry), checksum in zip(header.items(), checksums, strict=True)
            }
            self._check_places()
        self.has_single_checksum = "tensors" not in metadata
        if self.has_single_checksum:
            self._verify_whole()

    def _checksums(self, digits: Any, count: int) -> Iterator[str | None] | list[None]:
        """The checksum of each tensor, after that of the header was found right."""
        if digits is None:
            return [None] * count
        at = 8 + len(_BEGIN)
        end = at + _DIGITS
        whole = self._header[:at] + _ZEROS + self._header[end:]
        right = _hash(whole).hexdigest().encode()
        if self._header[8:at] != _BEGIN or self._header[at:end] != right:
            raise ValueError("the checksum of its header does not fit")
        if len(digits) != count * _DIGITS:
            raise ValueError("it must have a checksum for every tensor")
        return (digits[i * _DIGITS : (i + 1) * _DIGITS] for i in range(count))

    def _entry(self, entry: Any, checksum: str | None) -> Entry:
        kind = STORED_TYPES[entry["dtype"]]
        shape = tuple(entry["shape"])
        if not is_shape(shape):
            raise ValueError(f"a tensor cannot have the shape {shape!r:.80}")
        start, end = entry["data_offsets"]
        if not (_is_count(start) and _is_count(end)) or end - start != kind.n_bytes(shape):
            raise ValueError(f"{kind.name} of shape {shape!r:.80} cannot lie at {start} to {end}")
        place = len(self._header) + start
        return Entry(kind, kind.word_shape(shape), place, end - start, checksum)

    def _check_places(self) -> None:
        """Every byte must belong to one tensor."""
        end = len(self._header)
        for entry in sorted(self.entries.values(), key=lambda one: (one.start, one.n_bytes)):
            if entry.start != end:
                raise ValueError("its tensors must lie one behind the other")
            end += entry.n_bytes
        if end != self._size:
            raise ValueError(f"it has {self._size} bytes, and should have {end}")

    # Content

    def read(self, name: str) -> npt.NDArray[Any]:
        """The words of a tensor, in memory of their own.

        Raises:
            SharpwaveIOError: Its checksum does not fit.
        """
        entry = self.entries[name]
        with naming(self.path):
            words = np.empty(entry.shape, entry.kind.words)
            content = flat_bytes(words)
            self._fill(content, entry.start)
            self._check(name, _hash(content).hexdigest())
            if words.dtype == np.bool_ and words.size and words.view(np.uint8).max() > 1:
                raise ValueError(f"{name} must be 0 or 1 everywhere")
        return words

    def verify(self, name: str | None = None) -> None:
        """Compare the checksum of a tensor, or of all, without keeping them in memory.

        Raises:
            SharpwaveIOError: It does not fit.
        """
        with naming(self.path):
            for one in self.entries if name is None else [name]:
                entry = self.entries[one]
                self._check(one, self._digest(entry.start, entry.n_bytes).hexdigest())

    def read_pieces(self, name: str) -> Iterator[npt.NDArray[Any]]:
        """The words of a tensor in order, little at a time; each piece replaces the one before.

        The checksum is not compared: `verify` does that.
        """
        entry = self.entries[name]
        size = entry.kind.words.itemsize
        words = np.empty(min(entry.n_bytes, CHUNK_BYTES) // size, entry.kind.words)
        with naming(self.path):
            for done in range(0, entry.n_bytes, words.nbytes or 1):
                piece = words[: (entry.n_bytes - done) // size]
                self._fill(flat_bytes(piece), entry.start + done)
                yield piece

    def close(self) -> None:
        """Close the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _check(self, name: str, checksum: str) -> None:
        expected = self.entries[name].checksum
        if expected is not None and checksum != expected:
            raise ValueError(f"the checksum of {name!r:.200} does not fit")

    def _verify_whole(self) -> None:
        """Compare the only checksum of a file: that of all of it, with zeros in its place."""
        with naming(self.path):
            at = self._header.find(_CHECKSUM) + len(_CHECKSUM)
            end = at + _DIGITS
            digest = _hash(self._header[:at] + _ZEROS + self._header[end:])
            start = len(self._header)
            self._digest(start, self._size - start, digest)
            if digest.hexdigest().encode() != self._header[at:end]:
                raise ValueError("its checksum does not fit")

    def _digest(
        self, start: int, n_bytes: int, digest: hashlib.blake2b | None = None
    ) -> hashlib.blake2b:
        digest = _hash() if digest is None else digest
        buffer = memoryview(bytearray(min(CHUNK_BYTES, n_bytes)))
        for done in range(0, n_bytes, len(buffer) or 1):
            piece = buffer[: n_bytes - done]
            self._fill(piece, start + done)
            digest.update(piece)
        return digest

    def _bytes(self, start: int, n_bytes: int) -> bytes:
        if n_bytes > self._size - start:
            raise ValueError("it is too short")
        buffer = bytearray(n_bytes)
        self._fill(memoryview(buffer), start)
        return bytes(buffer)

    def _fill(self, buffer: memoryview, start: int) -> None:
        done = 0
        while done < len(buffer):
            count = os.preadv(self._descriptor, [buffer[done:]], start + done)
            if count == 0:
                raise ValueError("it was cut while it was read")
            done += count


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Whatever goes wrong inside because of what a file holds names it.

    Raises:
        SharpwaveIOError: Something did.
    """
    try:
        yield
    except SharpwaveIOError:
        raise
    except OSError as error:
        raise SharpwaveIOError(f"{path}: cannot read the checkpoint: {error.strerror}") from error
    except Exception as error:  # a damaged or forged file can lead anywhere
        raise SharpwaveIOError(f"{path}: not a checkpoint or damaged: {error!r:.500}") from error


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63


def leaf_bytes(leaf: Any, code: str) -> int:
    """Bytes of an array or tensor in a file."""
    kind = STORED_TYPES[code]
    return kind.n_bytes(kind.file_shape(tuple(leaf.shape)))
