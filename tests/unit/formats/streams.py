"""Episodes of every kind, made up."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from sharpwave.formats import Episode, EpisodeStream
from sharpwave.formats.spec import EpisodeField, EpisodeSchema
from sharpwave.types import Array

DTYPES = (
    *("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
    *("float16", "float32", "float64"),
)
SHAPES: tuple[tuple[int, ...], ...] = ((), (1,), (3,), (2, 3), (8, 9, 3), (1, 8, 8), (2, 1, 2, 1))

Spec = dict[str, tuple[str, tuple[int, ...]]]


def make_stream(
    fields: Spec, meta: Spec | None = None, lengths: tuple[int, ...] = (1, 4, 2), seed: int = 0
) -> EpisodeStream:
    """Episodes of random bits; rewards are numbers, flags are set at the last step alone."""
    rng = np.random.default_rng(seed)
    schema = EpisodeSchema(
        {name: EpisodeField(*spec) for name, spec in fields.items()},
        {name: EpisodeField(*spec) for name, spec in (meta or {}).items()},
    )
    episodes = [
        Episode(
            {name: _values(rng, name, field, length) for name, field in schema.fields.items()},
            {name: _values(rng, name, f, 1)[0] for name, f in schema.meta_fields.items()},
        )
        for length in lengths
    ]
    return EpisodeStream("made up", schema, np.array(lengths, np.int64), lambda: episodes)


def _values(rng: np.random.Generator, name: str, field: EpisodeField, rows: int) -> Array:
    shape = (rows, *field.shape)
    if field.role in ("terminated", "truncated"):
        flags = np.zeros(shape, field.dtype)
        flags[-1] = rng.integers(2)
        return flags
    if field.role == "reward" and field.dtype.startswith("float"):
        return rng.normal(size=shape).astype(field.dtype)
    if field.dtype == "bool":
        return rng.integers(0, 2, shape).astype(np.bool_)
    dtype = np.dtype(field.dtype)
    content = rng.bytes(int(np.prod(shape)) * dtype.itemsize)
    return np.frombuffer(content, dtype).reshape(shape).copy()


def assert_same(got: EpisodeStream, expected: EpisodeStream) -> None:
    """Fields, order and bytes are equal."""
    assert got.schema == expected.schema
    assert got.lengths.tolist() == expected.lengths.tolist()
    assert len(got) == len(expected)
    for one, other in zip(got, expected, strict=True):
        for values, others in ((one.steps, other.steps), (one.meta, other.meta)):
            assert values.keys() == others.keys()
            for name in values:
                assert values[name].dtype == others[name].dtype, name
                assert values[name].shape == others[name].shape, name
                assert values[name].tobytes() == others[name].tobytes(), name


@st.composite
def streams(draw: Any) -> EpisodeStream:
    """Any schema that has observations and actions, and any lengths."""
    spec = st.tuples(st.sampled_from(DTYPES), st.sampled_from(SHAPES))
    nested = st.fixed_dictionaries({"obs.image": spec, "obs.arm.angle": spec, "obs.0": spec})
    observations: Spec = draw(st.one_of(st.fixed_dictionaries({"obs": spec}), nested))
    fields = {**observations, **draw(st.fixed_dictionaries({"action": spec}))}
    flag = st.just(("bool", ()))
    fields |= draw(
        st.fixed_dictionaries(
            {},
            optional={
                "reward": st.sampled_from([("float32", ()), ("float64", ()), ("int32", ())]),
                "terminated": flag,
                "truncated": flag,
                "info.x": spec,
                "log prob/é": spec,
            },
        )
    )
    finals = {"final_" + name: of for name, of in observations.items()}
    meta: Spec = draw(st.one_of(st.just({}), st.just(finals)))
    meta |= draw(
        st.fixed_dictionaries(
            {},
            optional={
                "seed": st.sampled_from([("int64", ()), ("uint64", ())]),
                "options.level": spec,
                "id": spec,
                "task": spec,
            },
        )
    )
    lengths = draw(st.lists(st.integers(1, 6), min_size=1, max_size=5))
    return make_stream(fields, meta, tuple(lengths), draw(st.integers(0, 2**32)))
