"""Checkpoints: one file, written whole or not at all, read without running code.

A checkpoint is a safetensors file. Its arrays lie in the file under dotted names; everything else
is JSON in the file's metadata, with the name of an array where one stood. A checksum of the whole
file is in its metadata too, so that damage is noticed.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np

from sharpwave.errors import SharpwaveIOError
from sharpwave.files import replace_file

FORMAT = "sharpwave checkpoint"
VERSION = 1

_ARRAY = "$array"
_TUPLE = "$tuple"
_FLOAT = "$float"
_METADATA_KEY = "sharpwave"
_CHECKSUM = b'"checksum":"'
_ZEROS = b"0" * 32


def write_checkpoint(path: str | os.PathLike[str], header: dict[str, Any], state: Any) -> None:
    """Write a checkpoint in the place of the one at `path`, which stays if anything fails.

    Args:
        path: The file.
        header: JSON values that say what this is, such as the algorithm and its config.
        state: Nested dicts, lists and tuples of arrays, tensors, numbers, strings and None.

    Raises:
        SharpwaveIOError: The file cannot be written.
        TypeError: The state holds something else; nothing was written.
    """
    from safetensors.numpy import save

    path = Path(path)
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    document = {
        "format": FORMAT,
        "version": VERSION,
        "header": header,
        "state": _to_json(state, "state", arrays),
    }
    metadata = {_METADATA_KEY: json.dumps(document, allow_nan=False), "checksum": _ZEROS.decode()}
    content = _signed(save(arrays, metadata=metadata))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, content)
    except OSError as error:
        raise SharpwaveIOError(
            error.errno, f"cannot write the checkpoint: {error.strerror}", str(path)
        ) from error


def read_header(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What a checkpoint says of itself: algorithm, config, environment, versions.

    Raises:
        SharpwaveIOError: There is no checkpoint of a known version at `path`.
    """
    header: dict[str, Any] = _read(path)[0]["header"]
    return header


def read_checkpoint(path: str | os.PathLike[str]) -> tuple[dict[str, Any], Any]:
    """(header, state) of a checkpoint.

    Raises:
        SharpwaveIOError: There is no checkpoint of a known version at `path`, or it is damaged.
    """
    document, arrays = _read(path)
    try:
        return document["header"], _from_json(document["state"], arrays)
    except KeyError as error:
        raise SharpwaveIOError(f"{path}: damaged checkpoint, {error} is missing") from error


def _read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    from safetensors import SafetensorError
    from safetensors.numpy import load

    if not Path(path).is_file():
        raise SharpwaveIOError(f"{path}: no checkpoint here")
    try:
        content = _verified(Path(path).read_bytes())
        length = int.from_bytes(content[:8], "little")
        metadata = json.loads(content[8 : 8 + length])["__metadata__"]
        document, arrays = json.loads(metadata[_METADATA_KEY]), load(content)
    except OSError as error:
        raise SharpwaveIOError(f"{path}: cannot read the checkpoint: {error.strerror}") from error
    except (SafetensorError, ValueError, KeyError) as error:
        raise SharpwaveIOError(f"{path}: not a checkpoint or damaged: {error}") from error
    if document.get("format") != FORMAT:
        raise SharpwaveIOError(f"{path}: a safetensors file, but not a checkpoint of sharpwave")
    if document.get("version") != VERSION:
        raise SharpwaveIOError(
            f"{path}: checkpoint version {document.get('version')}, this library reads {VERSION}"
        )
    return document, arrays


def _signed(content: bytes) -> bytes:
    """A file with its checksum in the place of zeros."""
    return content.replace(_CHECKSUM + _ZEROS, _CHECKSUM + _digest(content), 1)


def _verified(content: bytes) -> bytes:
    """The file, if its checksum is that of the file with zeros in the checksum's place.

    Raises:
        ValueError: It is not.
    """
    found = content.find(_CHECKSUM)
    if found < 0:
        raise ValueError("it has no checksum")
    start = found + len(_CHECKSUM)
    end = start + len(_ZEROS)
    if _digest(content[:start] + _ZEROS + content[end:]) != content[start:end]:
        raise ValueError("its checksum does not fit")
    return content


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=len(_ZEROS) // 2).hexdigest().encode()


def _to_json(value: Any, name: str, arrays: dict[str, np.ndarray[Any, Any]]) -> Any:
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "biuf":
            raise TypeError(f"{name} must hold numbers, got an array of {value.dtype}")
        while name in arrays:  # {"a.b": ...} beside {"a": {"b": ...}}
            name += "_"
        arrays[name] = np.asarray(value, order="C")
        return {_ARRAY: name}
    if isinstance(value, dict):
        return {str(key): _to_json(inner, f"{name}.{key}", arrays) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        parts = [_to_json(inner, f"{name}.{i}", arrays) for i, inner in enumerate(value)]
        return {_TUPLE: parts} if isinstance(value, tuple) else parts
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return {_FLOAT: str(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(
        f"{name} must be an array, a number, a string or a nest of these, got {value!r}"
    )


def _from_json(value: Any, arrays: dict[str, Any]) -> Any:
    if isinstance(value, dict):
        if _ARRAY in value:
            return arrays[value[_ARRAY]]
        if _TUPLE in value:
            return tuple(_from_json(inner, arrays) for inner in value[_TUPLE])
        if _FLOAT in value:
            return float(value[_FLOAT])
        return {key: _from_json(inner, arrays) for key, inner in value.items()}
    if isinstance(value, list):
        return [_from_json(inner, arrays) for inner in value]
    return value
