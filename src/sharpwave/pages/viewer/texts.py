"""Texts that are kept as bytes, told by their content."""

from __future__ import annotations

import numpy as np

from sharpwave.formats.text import decode_text
from sharpwave.types import Array


def as_texts(values: Array) -> list[str] | None:
    """The texts that rows of bytes [n, width] spell, None when they are no texts.

    Example:
        >>> as_texts(np.array([[103, 111, 0], [117, 112, 0]], np.uint8))
        ['go', 'up']
        >>> as_texts(np.array([[1, 2, 3]], np.uint8)) is None
        True
    """
    if values.dtype != np.uint8 or values.ndim != 2 or values.shape[1] < 2:
        return None
    try:
        texts = decode_text(values)
    except UnicodeDecodeError:
        return None
    return texts if all(text.isprintable() for text in texts) and any(texts) else None
