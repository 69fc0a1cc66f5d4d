"""Images of fields: detection, and conversion to pictures that a browser shows."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sharpwave.types import Array

Pixels = npt.NDArray[np.uint8]

SMALLEST_SIDE = 8
"""Anything narrower is a vector or a matrix, not an image."""

MOST_TILES = 16
"""Images in one value that are drawn side by side."""

_COLORS = {1: 0, 3: 2, 4: 6}
"""Color types of PNG by number of channels: gray, RGB, RGBA."""

_HEAT = np.array(
    [[38, 42, 92], [47, 111, 183], [58, 168, 172], [147, 207, 132], [248, 216, 92]], np.float64
)
"""The colors of a heat map, from low to high."""


@dataclass(frozen=True)
class Layout:
    """Axes of rows, columns, colors and tiles in a value that is an image.

    Attributes:
        kind: gray, rgb, rgba, or tiles: several images side by side.
        axes: Transposition of the value to [tiles, height, width, channels], each axis by its
            number in the value, -1 for one that it has not.
    """

    kind: str
    axes: tuple[int, int, int, int]

    def normal(self, value: Array) -> Array:
        """The value as [tiles, height, width, channels].

        Example:
            >>> Layout("rgb", (-1, 1, 2, 0)).normal(np.zeros((3, 8, 9))).shape
            (1, 8, 9, 3)
        """
        present = [axis for axis in self.axes if axis >= 0]
        moved = value.transpose(present)
        shape = [value.shape[axis] if axis >= 0 else 1 for axis in self.axes]
        return moved.reshape(shape)


def layout_of(shape: tuple[int, ...], example: Array | None = None) -> Layout | None:
    """Layout of a field of this shape as an image, None when it is none.

    Four channels are colors with an opacity when the fourth is the same everywhere in `example`,
    and four frames of a stack otherwise.

    Args:
        shape: Shape of one value.
        example: One value, to tell the two apart.

    Example:
        >>> layout_of((84, 84, 3)).kind, layout_of((4, 84, 84)).kind, layout_of((84, 3))
        ('rgb', 'tiles', None)
    """
    if len(shape) == 2:
        return Layout("gray", (-1, 0, 1, -1)) if _sides(shape) else None
    if len(shape) == 3:
        return _with_channels(shape, example)
    if len(shape) == 4 and 1 <= shape[0] <= MOST_TILES:
        if shape[3] in (1, 3) and _sides(shape[1:3]):
            return Layout("tiles", (0, 1, 2, 3))
        if shape[1] in (1, 3) and _sides(shape[2:]):
            return Layout("tiles", (0, 2, 3, 1))
    return None


def _with_channels(shape: tuple[int, ...], example: Array | None) -> Layout | None:
    # The axis of the channels is the short one; the last where both ends are.
    for channels, rows, columns in ((2, 0, 1), (0, 1, 2)):
        n = shape[channels]
        if not _sides((shape[rows], shape[columns])) or n > MOST_TILES or n < 1:
            continue
        if n == 1:
            return Layout("gray", (-1, rows, columns, channels))
        if n == 3:
            return Layout("rgb", (-1, rows, columns, channels))
        if n == 4 and example is not None and np.ptp(example.take(3, channels)) == 0:
            return Layout("rgba", (-1, rows, columns, channels))
        return Layout("tiles", (channels, rows, columns, -1))
    return None


def _sides(sides: tuple[int, ...]) -> bool:
    return min(sides) >= SMALLEST_SIDE


def draw(
    value: Array, layout: Layout, low: float = 0.0, high: float = 255.0, longest: int = 512
) -> Pixels:
    """A value as pixels [height, width, 1, 3 or 4].

    Args:
        value: An image, of any number type. uint8 and bool are taken as they are, the others are
            scaled so that `low` is black and `high` is white.
        layout: Its axes.
        low: Value drawn as black.
        high: Value drawn as white.
        longest: Images with a longer side are shrunk, by means over squares.
    """
    tiles = _to_bytes(layout.normal(value), low, high)
    _, height, width, _ = tiles.shape
    factor = -(-max(height, width) // longest)
    if factor > 1:
        tiles = _shrunk(tiles, factor)
    n, height, width, channels = tiles.shape
    # Rows of at most four tiles, with a line between them.
    across = min(n, 4)
    grid = np.full((-(-n // across) * across, height + 1, width + 1, channels), 128, np.uint8)
    grid[:n, :-1, :-1] = tiles
    rows = grid.reshape(-1, across, *grid.shape[1:]).transpose(0, 2, 1, 3, 4)
    joined = rows.reshape(-1, across * (width + 1), channels)
    return np.ascontiguousarray(joined[:-1, :-1])


def _to_bytes(image: Array, low: float, high: float) -> Pixels:
    if image.dtype == np.uint8:
        return image
    if image.dtype == np.bool_:
        return image.astype(np.uint8) * np.uint8(255)
    span = high - low if high > low else 1.0
    scaled = np.nan_to_num((image.astype(np.float64) - low) * (255.0 / span), nan=0.0)
    return np.clip(np.rint(scaled), 0, 255).astype(np.uint8)


def _shrunk(tiles: Pixels, factor: int) -> Pixels:
    n, height, width, channels = tiles.shape
    height, width = height // factor, width // factor
    cut = tiles[:, : height * factor, : width * factor]
    squares = cut.reshape(n, height, factor, width, factor, channels)
    means: Pixels = np.rint(squares.mean(axis=(2, 4))).astype(np.uint8)
    return means


def heat_map(values: Array, low: float, high: float) -> Pixels:
    """Numbers [height, width] as colors [height, width, 3], from `low` to `high`; gray for NaN."""
    span = high - low if high > low else 1.0
    finite = np.isfinite(values)
    share = np.clip((np.where(finite, values, low).astype(np.float64) - low) / span, 0.0, 1.0)
    at = share * (len(_HEAT) - 1)
    below = np.minimum(at.astype(np.intp), len(_HEAT) - 2)
    weight = (at - below)[..., None]
    colors = _HEAT[below] * (1 - weight) + _HEAT[below + 1] * weight
    colors[~finite] = 128.0
    pixels: Pixels = np.rint(colors).astype(np.uint8)
    return pixels


def to_png(pixels: Pixels, *, level: int = 6) -> bytes:
    """Pixels [height, width, 1, 3 or 4] as a PNG file.

    Every row is stored as its difference from the row above, which is what images of games shrink
    best by without trying.

    Example:
        >>> to_png(np.zeros((2, 2, 3), np.uint8))[1:4]
        b'PNG'
    """
    height, width, channels = pixels.shape
    rows = np.empty((height, 1 + width * channels), np.uint8)
    rows[:, 0] = 2
    flat = pixels.reshape(height, -1)
    rows[0, 1:] = flat[0]
    np.subtract(flat[1:], flat[:-1], out=rows[1:, 1:])
    header = struct.pack(">IIBBBBB", width, height, 8, _COLORS[channels], 0, 0, 0)
    return b"".join(
        [
            b"\x89PNG\r\n\x1a\n",
            _chunk(b"IHDR", header),
            _chunk(b"IDAT", zlib.compress(rows.tobytes(), level)),
            _chunk(b"IEND", b""),
        ]
    )


def _chunk(name: bytes, content: bytes) -> bytes:
    body = name + content
    return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))
