"""Pictures as PNG files, without a library for it."""

from __future__ import annotations

import struct
import zlib

import numpy as np

from sharpwave.types import Array


def png(pixels: Array) -> bytes:
    r"""A picture [height, width, 3] uint8 as the bytes of a PNG file.

    Example:
        >>> png(np.zeros((2, 3, 3), np.uint8))[:4]
        b'\x89PNG'

    Raises:
        ValueError: It has another shape or dtype.
    """
    if pixels.ndim != 3 or pixels.shape[2] != 3 or pixels.dtype != np.uint8 or not pixels.size:
        raise ValueError(
            f"pixels must be uint8 of shape (height, width, 3), got {pixels.dtype} {pixels.shape}"
        )
    height, width, _ = pixels.shape
    lines = np.zeros((height, 1 + 3 * width), np.uint8)  # each begins with its filter, none
    lines[:, 1:] = pixels.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = [(b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, content) for kind, content in parts)


def _chunk(kind: bytes, content: bytes) -> bytes:
    check = struct.pack(">I", zlib.crc32(kind + content))
    return struct.pack(">I", len(content)) + kind + content + check
