"""Messages come back as they were, and anything else is a named error."""

import itertools
import json
import struct
import tracemalloc
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sharpwave.distributed.codec import LIMIT, Packed, pack, unpack
from sharpwave.errors import WireError
from tests.examples import examples

HEADER = struct.Struct("<4sIIIIQ")

DTYPES = st.one_of(
    hnp.boolean_dtypes(),
    hnp.integer_dtypes(endianness="?"),
    hnp.unsigned_integer_dtypes(endianness="?"),
    hnp.floating_dtypes(endianness="?", sizes=(16, 32, 64)),
)
SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)
NAMES = st.text(min_size=1, max_size=20)
COLUMNS = st.dictionaries(
    NAMES,
    DTYPES.flatmap(lambda dtype: hnp.arrays(dtype, SHAPES)),
    max_size=4,
)
META = st.dictionaries(
    NAMES,
    st.one_of(
        st.integers(-(2**63), 2**64 - 1),
        st.floats(allow_nan=False),
        st.text(max_size=20),
        st.booleans(),
        st.none(),
    ),
    max_size=4,
)


def forged(form: Any, body: bytes = b"", meta: Any = None, /, **header: int) -> bytes:
    """A message with a right checksum, whatever its form and meta say."""
    texts = [x if isinstance(x, bytes) else json.dumps(x).encode() for x in (form, meta or {})]
    rest = b"".join(texts)
    body = bytes(-(HEADER.size + len(rest)) % 64) + body if body else body
    lengths = {"form": len(texts[0]), "meta": len(texts[1])}
    fields = {"version": 1, **lengths, "length": HEADER.size + len(rest + body), **header}

    def head(checksum: int) -> bytes:
        lengths = fields["form"], fields["meta"]
        return HEADER.pack(b"SWAV", fields["version"], *lengths, checksum, fields["length"])

    return head(zlib.crc32(rest + body, zlib.crc32(head(0)))) + rest + body


def message() -> bytes:
    columns = {"obs": np.arange(12, dtype=np.float32).reshape(3, 4), "done": np.ones(3, np.bool_)}
    return pack("unroll", columns, {"version": 3, "name": "CartPole-v1"})


@settings(max_examples=examples(60))
@given(kind=NAMES, columns=COLUMNS, meta=META)
def test_what_is_packed_is_unpacked(
    kind: str, columns: dict[str, Any], meta: dict[str, Any]
) -> None:
    packed = unpack(pack(kind, columns, meta))
    assert packed.kind == kind
    assert packed.meta == meta
    assert [type(value) for value in packed.meta.values()] == [type(x) for x in meta.values()]
    assert list(packed.columns) == list(columns)
    for name, column in columns.items():
        found = packed.columns[name]
        assert found.dtype == column.dtype.newbyteorder("<")
        np.testing.assert_array_equal(found, column)


def test_columns_are_views_at_multiples_of_64_bytes() -> None:
    data = message()
    packed = unpack(data)
    start = np.frombuffer(data, np.uint8).ctypes.data
    for column in packed.columns.values():
        assert (column.ctypes.data - start) % 64 == 0
        assert 0 <= column.ctypes.data - start < len(data)
        with pytest.raises(ValueError, match="read-only"):
            column[...] = 0
    # Nor where the message itself can be written.
    assert not unpack(memoryview(bytearray(data))).columns["obs"].flags.writeable


@pytest.mark.long
def test_any_flipped_bit_is_an_error() -> None:
    data = message()
    for position in range(8 * len(data)):
        broken = bytearray(data)
        broken[position // 8] ^= 1 << position % 8
        with pytest.raises(WireError):
            unpack(bytes(broken))


@given(st.data())
def test_a_changed_byte_is_an_error(draw: st.DataObject) -> None:
    data = bytearray(message())
    position = draw.draw(st.integers(0, len(data) - 1))
    data[position] ^= draw.draw(st.integers(1, 255))
    with pytest.raises(WireError):
        unpack(bytes(data))


def test_a_cut_or_longer_message_is_an_error() -> None:
    data = message()
    for length in range(len(data)):
        with pytest.raises(WireError):
            unpack(data[:length])
    with pytest.raises(WireError, match="must be whole, got"):
        unpack(data + b"\0")


@given(st.binary(max_size=200))
def test_noise_is_an_error(noise: bytes) -> None:
    with pytest.raises(WireError):
        unpack(noise)


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=12,
)


@pytest.mark.long
@settings(max_examples=examples(120))
@given(
    st.one_of(
        JSON,
        st.tuples(st.text(max_size=3), JSON),
        st.tuples(st.just("kind"), st.lists(JSON, max_size=3)),
        st.tuples(
            st.just("kind"),
            st.lists(
                st.tuples(
                    st.text(max_size=2),
                    st.sampled_from(["<f4", "|O", "<f8", "|b1", "<U9", "<c8", "<f4,<f4", ""]),
                    st.lists(st.integers(-3, 2**70), max_size=5),
                ),
                max_size=3,
            ),
        ),
    ),
    st.binary(max_size=80),
    JSON,
)
def test_a_forged_form_is_an_error_or_describes_the_message(
    form: Any, body: bytes, meta: Any
) -> None:
    try:
        packed = unpack(forged(form, body, meta))
    except WireError:
        return
    assert isinstance(packed, Packed)
    assert sum(column.nbytes for column in packed.columns.values()) <= len(body)


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        (b"", "at least 28 bytes, got 0"),
        (b"GET / HTTP/1.1\r\nHost: host\r\n\r\n", r"must begin with b'SWAV', got b'GET '"),
        (forged(["a", []], version=2), "must be of version 1, got 2"),
        (forged(["a", []], form=2**31), "must have at most 11 bytes, got 2147483650"),
        (forged(["a", []], meta=2**31), "must have at most 11 bytes, got 2147483657"),
        (forged(["a", []], length=2**60), "must be whole, got"),
        (forged(b"[" * 100_000), "the form must be JSON: RecursionError"),
        (forged(b"\xff"), "the form must be JSON: UnicodeDecodeError"),
        (forged(b"9" * 10_000), "the form must be JSON: ValueError"),
        (forged({"kind": "a"}), "must be a kind and columns, got {'kind': 'a'}"),
        (forged(["", []]), "must be a kind and columns"),
        (
            forged(["a", []], b"", {"x": [1]}),
            "meta must be plain values by name, got {'x': \\[1\\]}",
        ),
        (forged(["a", []], b"", {"x": 2**64}), "meta must be plain values"),
        (forged(["a", [["x", "|O", [1]]]], bytes(64)), "dtype of 'x' must be one of"),
        (forged(["a", [["x", "<f4"]]]), "a column must be a name, a dtype and a shape"),
        (forged(["a", [["x", "<f4", [-1]]]]), "the shape of 'x' must be at most 16 sizes"),
        (forged(["a", [["x", "<f4", [True]]]]), "the shape of 'x' must be"),
        (forged(["a", [["x", "<f4", [1] * 17]]]), "the shape of 'x' must be"),
        (forged(["a", [["x", "<f8", [2**62]]]]), "column 'x' of float64"),
        (forged(["a", [["x", "<f8", [2**62, 0]]]]), "column 'x' of float64"),
        (forged(["a", []], b"more"), "the columns must fill"),
        (forged(["a", []], b"", [1]), "meta must be plain values by name, got \\[1\\]"),
        (
            forged(["a", [["x", "<f4", [0]], ["x", "<f4", [0]]]]),
            "must have different names",
        ),
        (forged(["a\x1b[31m", []]), "expected a message of kind 'a', got 'a\\\\x1b"),
    ],
    ids=itertools.count(),
)
def test_an_error_says_what_was_expected_and_what_came(broken: bytes, says: str) -> None:
    with pytest.raises(WireError, match=says):
        unpack(broken, kind="a")


def test_nothing_is_allocated_for_a_message_that_lies() -> None:
    too_long = bytes(2**20)
    lies = [forged(["a", [["x", "<f8", [2**shift, 2]]]], bytes(64)) for shift in range(3, 70)]
    tracemalloc.start()
    try:
        with pytest.raises(WireError, match="at most 1000 bytes, got 1048576"):
            unpack(too_long, limit=1000)
        for lie in lies:
            with pytest.raises(WireError):
                unpack(lie)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()
    assert len(lies[0]) < LIMIT


@pytest.mark.parametrize(
    ("columns", "meta", "error", "says"),
    [
        ({"x": np.array([object()])}, {}, TypeError, "column 'x' must be an array of flags"),
        ({"x": np.array(["text"])}, {}, TypeError, "got <U4"),
        ({"x": np.zeros(3, np.complex64)}, {}, TypeError, "got complex64"),
        ({"": np.zeros(3)}, {}, ValueError, "names must have 1 to 200 characters"),
        ({}, {"x": [1]}, TypeError, "meta must be plain values by name, got 'x'"),
        ({}, {"x": 2**64}, TypeError, "must be plain values"),
        ({}, {f"x{i}": "y" * 1000 for i in range(2000)}, ValueError, "must take 1048576 bytes"),
    ],
)
def test_what_no_message_can_hold_is_refused(
    columns: Any, meta: Any, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        pack("kind", columns, meta)
