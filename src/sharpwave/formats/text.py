"""Texts in fields of numbers: UTF-8 bytes, zeros behind."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from sharpwave.types import Array


def encode_text(texts: Sequence[str], width: int | None = None) -> npt.NDArray[np.uint8]:
    """Texts as rows of bytes, [N, width].

    Args:
        texts: N of them.
        width: Bytes of a row; by default as many as the longest needs, and at least one.

    Raises:
        ValueError: A text is longer, or has a zero character.

    Example:
        >>> encode_text(["go", "left"])
        array([[103, 111,   0,   0],
               [108, 101, 102, 116]], dtype=uint8)
    """
    encoded = [text.encode() for text in texts]
    if width is None:
        width = max(map(len, encoded), default=0) or 1
    rows = np.zeros((len(encoded), width), np.uint8)
    for row, text in zip(rows, encoded, strict=True):
        if len(text) > width or 0 in text:
            raise ValueError(
                f"texts must have at most {width} bytes and no zeros, got {text.decode()!r}"
            )
        row[: len(text)] = np.frombuffer(text, np.uint8)
    return rows


def decode_text(rows: Array) -> list[str]:
    """The texts that `encode_text` made rows of.

    Example:
        >>> decode_text(encode_text(["go", "left"]))
        ['go', 'left']
    """
    return [bytes(row).rstrip(b"\0").decode() for row in rows]
