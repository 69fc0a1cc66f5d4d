"""Images as PNG files in memory, and back."""

from __future__ import annotations

import io

import numpy as np

from sharpwave.core.optional import require
from sharpwave.types import Array

CHANNELS = (1, 3, 4)
SMALLEST = 8
"""Below this many pixels a side, an array of bytes is rather something else."""


def is_image(dtype: str, shape: tuple[int, ...]) -> bool:
    """Return whether values are images: bytes, 1, 3 or 4 channels as the last or first axis."""
    if dtype != "uint8" or len(shape) != 3:
        return False
    sides = shape[:2] if channels_last(shape) else shape[1:]
    return (shape[2] in CHANNELS or shape[0] in CHANNELS) and min(sides) >= SMALLEST


def channels_last(shape: tuple[int, ...]) -> bool:
    """Return whether the last axis is that of the channels."""
    return shape[2] in CHANNELS


def encode_png(image: Array) -> bytes:
    """An image [height, width, channels] as PNG, without losses."""
    pillow = require("PIL.Image", extra="lerobot")
    content = io.BytesIO()
    pixels = image[:, :, 0] if image.shape[2] == 1 else image
    pillow.fromarray(np.ascontiguousarray(pixels)).save(content, format="PNG", compress_level=1)
    return content.getvalue()


def decode_image(where: str, content: bytes) -> Array:
    """The pixels [height, width, channels] of an image file.

    Raises:
        ValueError: It is no image.
    """
    pillow = require("PIL.Image", extra="lerobot")
    try:
        pixels: Array = np.asarray(pillow.open(io.BytesIO(content)))
    except OSError as error:
        raise ValueError(f"{where} is no image: {error}") from error
    return pixels[:, :, np.newaxis] if pixels.ndim == 2 else pixels
