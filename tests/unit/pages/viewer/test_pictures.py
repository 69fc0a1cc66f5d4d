"""Images of any layout become PNG files that hold exactly their pixels."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sharpwave.pages.viewer.pictures import Pixels, draw, heat_map, layout_of, to_png

CHANNELS = {0: 1, 2: 3, 6: 4}


def decoded(png: bytes) -> Pixels:
    """The pixels of a PNG file of 8 bits whose rows are plain or differences from the row above."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    place, data = 8, b""
    while place < len(png):
        length, name = struct.unpack(">I4s", png[place : place + 8])
        body = png[place + 8 : place + 8 + length]
        (checksum,) = struct.unpack(">I", png[place + 8 + length : place + 12 + length])
        assert checksum == zlib.crc32(name + body)
        if name == b"IHDR":
            width, height, depth, color = struct.unpack(">IIBB", body[:10])
            assert depth == 8
        elif name == b"IDAT":
            data += body
        place += 12 + length
    channels = CHANNELS[color]
    rows = np.frombuffer(zlib.decompress(data), np.uint8).reshape(height, 1 + width * channels)
    pixels = np.zeros((height, width * channels), np.uint8)
    for i, row in enumerate(rows):
        assert row[0] in (0, 2)
        pixels[i] = row[1:] + (pixels[i - 1] if row[0] == 2 and i else 0)
    return pixels.reshape(height, width, channels)


@given(
    st.sampled_from([1, 3, 4]).flatmap(
        lambda n: hnp.arrays(np.uint8, st.tuples(st.integers(1, 9), st.integers(1, 9), st.just(n)))
    )
)
def test_png_holds_the_pixels(pixels: Pixels) -> None:
    assert np.array_equal(decoded(to_png(pixels)), pixels)


@pytest.mark.parametrize(
    ("shape", "kind", "drawn"),
    [
        ((9, 12), "gray", (9, 12, 1)),
        ((9, 12, 1), "gray", (9, 12, 1)),
        ((9, 12, 3), "rgb", (9, 12, 3)),
        ((3, 9, 12), "rgb", (9, 12, 3)),
        ((1, 9, 12), "gray", (9, 12, 1)),
        ((4, 9, 12), "tiles", (9, 4 * 13 - 1, 1)),
        ((9, 12, 4), "tiles", (9, 4 * 13 - 1, 1)),
        ((2, 9, 12, 3), "tiles", (9, 2 * 13 - 1, 3)),
        ((2, 3, 9, 12), "tiles", (9, 2 * 13 - 1, 3)),
        ((6, 9, 12), "tiles", (2 * 10 - 1, 4 * 13 - 1, 1)),
    ],
)
def test_layouts_are_told_by_their_shape(
    shape: tuple[int, ...], kind: str, drawn: tuple[int, ...]
) -> None:
    value = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    layout = layout_of(shape, value)
    assert layout is not None
    assert layout.kind == kind
    assert draw(value, layout).shape == drawn


@pytest.mark.parametrize("shape", [(), (3,), (4, 4), (84, 3), (3, 84), (100,), (2, 2, 9, 9, 3)])
def test_small_and_narrow_values_are_no_images(shape: tuple[int, ...]) -> None:
    assert layout_of(shape) is None


def test_channels_first_and_last_give_the_same_picture() -> None:
    value = np.random.default_rng(0).integers(0, 256, (9, 12, 3), np.uint8)
    first, last = layout_of((3, 9, 12)), layout_of((9, 12, 3))
    assert first is not None
    assert last is not None
    assert np.array_equal(draw(value, last), value)
    assert np.array_equal(draw(value.transpose(2, 0, 1), first), value)


def test_a_constant_fourth_channel_is_opacity() -> None:
    value = np.random.default_rng(0).integers(0, 256, (9, 12, 4), np.uint8)
    value[..., 3] = 255
    layout = layout_of(value.shape, value)
    assert layout is not None
    assert layout.kind == "rgba"
    assert np.array_equal(draw(value, layout), value)


def test_tiles_stand_side_by_side_in_order() -> None:
    value = np.stack([np.full((8, 8), 10 * i, np.uint8) for i in range(1, 6)])
    layout = layout_of(value.shape, value)
    assert layout is not None
    picture = draw(value, layout)[..., 0]
    assert [int(picture[0, 9 * i]) for i in range(4)] == [10, 20, 30, 40]
    assert int(picture[9, 0]) == 50


@pytest.mark.parametrize(
    ("dtype", "low", "high"), [("float32", -2.0, 2.0), ("int16", -2, 2), ("float64", -2.0, 2.0)]
)
def test_other_numbers_are_scaled(dtype: str, low: float, high: float) -> None:
    value = np.zeros((8, 8), dtype)
    value[0, :3] = [-2, 0, 2]
    layout = layout_of(value.shape)
    assert layout is not None
    picture = draw(value, layout, low, high)[..., 0]
    assert picture[0, :3].tolist() == [0, 128, 255]


def test_what_is_no_number_is_drawn_black_and_out_of_range_is_clipped() -> None:
    value = np.full((8, 8), 0.5, np.float32)
    value[0, :4] = [np.nan, np.inf, -np.inf, 9.0]
    layout = layout_of(value.shape)
    assert layout is not None
    assert draw(value, layout, 0.0, 1.0)[0, :4, 0].tolist() == [0, 255, 0, 255]


def test_truth_is_white() -> None:
    value = np.zeros((8, 8), np.bool_)
    value[0, 0] = True
    layout = layout_of(value.shape)
    assert layout is not None
    assert draw(value, layout)[0, :2, 0].tolist() == [255, 0]


def test_large_images_shrink_by_means() -> None:
    value: Any = np.zeros((16, 32), np.uint8)
    value[::2] = 100
    layout = layout_of(value.shape)
    assert layout is not None
    picture = draw(value, layout, longest=16)
    assert picture.shape == (8, 16, 1)
    assert (picture == 50).all()


def test_heat_maps_run_from_low_to_high_and_show_nan_gray() -> None:
    pixels = heat_map(np.array([[0.0, 5.0, 10.0, np.nan, 99.0]]), 0.0, 10.0)
    assert pixels.shape == (1, 5, 3)
    brightness = pixels.astype(int).sum(axis=2)[0]
    assert brightness[0] < brightness[1] < brightness[2] == brightness[4]
    assert pixels[0, 3].tolist() == [128, 128, 128]
