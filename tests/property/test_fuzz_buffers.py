"""Junk in every argument: an ordinary error or a result, never a crash, never half a change."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps

from sharpwave import (
    Field,
    Hindsight,
    Mixture,
    NStep,
    OfflineDatasetBuffer,
    PrioritizedReplayBuffer,
    Recent,
    ReplayBuffer,
    Schema,
    Sequence,
    Transition,
    Uniform,
    VectorWriter,
    Where,
    WithoutReplacement,
)
from sharpwave.buffers import snapshot
from tests.examples import examples
from tests.reference import casts

ORDINARY = (TypeError, ValueError, IndexError, MemoryError, OSError)
INTEGER_DTYPES = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
DTYPES = ["bool", *INTEGER_DTYPES, "float16", "float32", "float64"]


class Hostile:
    """Raises from every protocol a conversion may try."""

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("no array")

    def __float__(self) -> float:
        raise ValueError("no float")

    def __index__(self) -> int:
        raise TypeError("no index")

    def __len__(self) -> int:
        return 3

    def __getitem__(self, _: Any) -> Any:
        raise IndexError("no item")

    def __bool__(self) -> bool:
        raise ValueError("no truth")


def no_reward(achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
    return np.zeros(len(achieved_goal))


class Liar:
    """Claims to be a view, a selector and a batch."""

    _spec = (0, 1, 2)
    _memory = object()


class Shrinking(list[int]):
    """Is longer when asked than when read."""

    def __len__(self) -> int:
        return 1 << 20


# Sizes between these would only be slow: the memory is really there.
INTEGERS = [-(2**70), -(2**63), -1, 0, 1, 2, 3, 7, 2**53 + 1, 2**61, 2**63 - 1, 2**63, 2**64, 2**70]
OBJECTS: list[Callable[[], Any]] = [
    lambda: None,
    lambda: ...,
    object,
    Hostile,
    Liar,
    Shrinking,
    dict,
    set,
    list,
    tuple,
    str,
    lambda: {"obs": 1},
    lambda: {"achieved_goal": [1], "desired_goal": None},
    lambda: [[1, 2], [3]],
    lambda: [[[[[[1]]]]]],
    lambda: [None, 1.0],
    lambda: ["1", "2", "3"],
    lambda: [1, 2, 3],
    lambda: [1.5, float("nan"), float("inf")],
    lambda: [2**70, 1, 1],
    lambda: (1, 2, 3),
    lambda: range(3),
    lambda: iter([1, 2, 3]),
    lambda: b"123",
    lambda: bytearray(12),
    lambda: memoryview(bytearray(12)).cast("f"),
    lambda: "text",
    lambda: "\ud800",
    lambda: "a" * 5000,
    lambda: "nul\0",
    lambda: True,
    lambda: 1.5,
    lambda: float("nan"),
    lambda: float("-inf"),
    lambda: 1e40,
    lambda: 1e308,
    lambda: 1j,
    lambda: Decimal("1.5"),
    lambda: Fraction(1, 3),
    lambda: int,
    lambda: len,
    lambda: np.float32,
    lambda: np.dtype("f4,i4"),
    lambda: np.array(1.0),
    lambda: np.array([[1, 2, 3]])[:, ::-1],
    lambda: np.zeros((0, 3)),
    lambda: np.zeros((3, 0)),
    lambda: np.zeros(3, ">f8"),
    lambda: np.zeros(3, "M8[ns]"),
    lambda: np.zeros(3, "m8[s]"),
    lambda: np.zeros(3, "S4"),
    lambda: np.array(["a", "b"], np.dtypes.StringDType()),
    lambda: np.zeros(3, object),
    lambda: np.zeros(3, "f4,i4"),
    lambda: np.zeros(3, np.longdouble),
    lambda: np.zeros(3, np.clongdouble),
    lambda: np.broadcast_to(np.float32(1), (3,)),
    lambda: np.ma.masked_array(np.zeros(3), np.array([True, False, True])),
    lambda: np.lib.stride_tricks.as_strided(np.zeros(3), (3,), (0,)),
    lambda: np.frombuffer(b"\0" * 13, "V13"),
    lambda: np.frombuffer(b"\0" * 13, np.uint8)[1:].view(np.float32),
    lambda: np.uint8(255),
    lambda: np.float16(1),
    lambda: np.longdouble(1),
    lambda: np.complex64(1),
    lambda: np.bool_(True),
    lambda: np.str_("x"),
    lambda: np.datetime64("2020"),
    lambda: torch.zeros(3, requires_grad=True),
    lambda: torch.zeros(3, dtype=torch.complex64),
    lambda: torch.zeros(3, dtype=torch.bfloat16),
    lambda: torch.zeros(3).to_sparse(),
    lambda: torch.zeros(3, device="meta"),
    lambda: torch.zeros(3, 3).T,
    lambda: torch.tensor(1.0),
    Transition,
    Uniform,
    WithoutReplacement,
    lambda: NStep(2),
    lambda: Sequence(2, pad=True),
    lambda: Recent(2),
    lambda: Hindsight(no_reward),
    lambda: Where(lambda b: b["rewards"] >= 0),
    lambda: ReplayBuffer(2, 1, 1),
    lambda: ReplayBuffer(2, 1, 1).batch(1),
    lambda: ReplayBuffer.__new__(ReplayBuffer),
    lambda: Field("float32"),
    lambda: Schema({"obs": "float32"}),
]

odd_arrays = nps.arrays(
    st.one_of(
        nps.scalar_dtypes(),
        nps.array_dtypes(),
        nps.byte_string_dtypes(),
        nps.unicode_string_dtypes(),
    ),
    nps.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
)
junk = st.one_of(
    st.sampled_from(OBJECTS).map(lambda make: make()),
    st.sampled_from(INTEGERS),
    st.sampled_from(DTYPES),
    st.floats(),
    st.text(max_size=5),
    odd_arrays,
)
fuzz = settings(
    max_examples=examples(120),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def plain() -> Any:
    buffer = ReplayBuffer(8, 3, 1)
    for i in range(6):
        buffer.push([i] * 3, i, float(i), False, False, [i + 1] * 3)
    return buffer


def prioritized() -> Any:
    buffer = PrioritizedReplayBuffer(8, 3, 1, n_envs=1)
    for i in range(12):
        buffer.push([i] * 3, i, float(i), i % 5 == 4, False, [i + 1] * 3, priority=i + 1)
    return buffer


def nested() -> Any:
    space = ("float32", (2,))
    goals = {"observation": space, "achieved_goal": space, "desired_goal": space}
    fields = {"obs": goals, "reward": "float32", "pair": ("int8", "bool")}
    buffer = ReplayBuffer(8, fields=fields, n_envs=2)
    for i in range(6):
        obs, later = ({key: [n, n] for key in goals} for n in (i, i + 1))
        buffer.push(obs, 1.0, later, pair=(i, True), stream=i % 2)
    return buffer


some_buffer = st.sampled_from([plain, prioritized, nested]).map(lambda make: make())


def content(buffer: Any) -> Any:
    """Everything but the counters of draws."""
    state = snapshot.to_memory(buffer)
    return {**state, "counters": [state["counters"][i] for i in (0, 3)]}


@contextlib.contextmanager
def ordinary(*buffers: Any) -> Iterator[None]:
    """Ordinary errors pass, and leave the buffers as they were."""
    before = [content(buffer) for buffer in buffers]
    try:
        yield
    except ORDINARY as error:
        assert str(error), "an error without a message"  # noqa: PT017
        for buffer, state in zip(buffers, before, strict=True):
            assert content(buffer) == state, "half a change"


@fuzz
@given(some_buffer, st.data())
def test_push_and_push_batch(buffer: Any, data: Any) -> None:
    batch = data.draw(st.booleans())
    names = list(buffer.schema.fields)
    if batch:
        names = [{"action": "actions", "reward": "rewards"}.get(name, name) for name in names]
    optional = ["priorities", "streams"] if batch else ["priority", "stream"]
    good = {"obs": [1, 2, 3], "next_obs": [1, 2, 3]}
    arguments = {name: good.get(name, [1.0] if batch else 1.0) for name in names}
    spoilt = data.draw(st.lists(st.sampled_from(names + optional), min_size=1, max_size=3))
    arguments.update({name: data.draw(junk, label=name) for name in spoilt})
    with ordinary(buffer):
        (buffer.push_batch if batch else buffer.push)(**arguments)


@fuzz
@given(st.data())
def test_nested_observations(data: Any) -> None:
    buffer = nested()
    keys = ["observation", "achieved_goal", "desired_goal"]
    obs: dict[str, Any] = {key: [1, 1] for key in keys}
    obs[data.draw(st.sampled_from(keys))] = data.draw(junk)
    pair = data.draw(st.one_of(st.just((1, 1)), st.tuples(junk, junk), junk))
    with ordinary(buffer):
        buffer.push(obs, 1.0, {key: [1, 1] for key in keys}, pair=pair, stream=0)


@fuzz
@given(some_buffer, st.data())
def test_draws(buffer: Any, data: Any) -> None:
    arguments: dict[str, Any] = {"batch_size": 2, "seed": 1}
    names = ["batch_size", "seed", "view", "selector", "out", "indices"]
    for name in data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=2)):
        arguments[name] = data.draw(junk, label=name)
    with ordinary(buffer):
        buffer.sample(**arguments)
    size = arguments["batch_size"]  # a tensor may refuse to be compared
    with ordinary(buffer):
        buffer.batch(
            1 if isinstance(size, int) and size == 2**53 + 1 else size,
            view=arguments.get("view"),
            indices=arguments.get("indices", False),
        )
    with ordinary(buffer):
        next(buffer.epoch(arguments["batch_size"], arguments["seed"], view=arguments.get("view")))
    with ordinary(buffer):
        buffer.sample_recent(arguments["batch_size"], data.draw(junk), arguments["seed"])


@fuzz
@given(some_buffer, junk, junk, junk)
def test_gathers(buffer: Any, indices: Any, view: Any, out: Any) -> None:
    with ordinary(buffer):
        buffer.gather(indices)
    with ordinary(buffer):
        buffer.gather(buffer.indices()[:2], view=view)
    with ordinary(buffer):
        buffer.gather(buffer.indices()[:2], out=out)


@fuzz
@given(some_buffer, st.data())
def test_out_arrays(buffer: Any, data: Any) -> None:
    out = buffer.sample(2)
    out[data.draw(st.sampled_from([*sorted(out), "mask", "x"]))] = data.draw(junk)
    with ordinary(buffer):
        buffer.sample(2, out=out)


@fuzz
@given(junk, junk)
def test_priority_updates(indices: Any, priorities: Any) -> None:
    buffer = prioritized()
    good = buffer.indices()[:3]
    for arguments in ((indices, priorities), (good, priorities), (indices, [1.0, 2.0, 3.0])):
        with ordinary(buffer):
            buffer.update_priorities(*arguments)
    with ordinary(buffer):
        buffer.set_beta(priorities)


@fuzz
@given(st.sampled_from([ReplayBuffer, PrioritizedReplayBuffer]), st.data())
def test_construction(cls: Any, data: Any) -> None:
    arguments: dict[str, Any] = {"capacity": 4, "obs_dim": 2, "act_dim": 1}
    names = [*arguments, "n_envs", "seed", "fields"]
    if cls is PrioritizedReplayBuffer:
        names += ["alpha", "beta", "kind", "stratified", "weight_norm"]
    for name in data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=2)):
        arguments[name] = data.draw(junk, label=name)
    if "fields" in arguments:
        del arguments["obs_dim"], arguments["act_dim"]
    with ordinary():
        cls(**arguments)
    with ordinary():
        cls.for_env(data.draw(junk), 4)


@fuzz
@given(st.data())
def test_fields_and_schemas(data: Any) -> None:
    with ordinary():
        Field(data.draw(junk), data.draw(junk))
    options = {name: data.draw(junk) for name in ("stack", "axis", "finite")}
    with ordinary():
        field = Field("uint8", (4, 2), **options)
        ReplayBuffer(8, fields={"obs": field}, n_envs=1)
    with ordinary():
        Schema({data.draw(junk): "float32"})
    with ordinary():
        ReplayBuffer(4, fields={"obs": data.draw(junk)})


@fuzz
@given(st.data())
def test_views_and_selectors(data: Any) -> None:
    buffer = nested()
    views: list[Callable[[], Any]] = [
        lambda: Transition(data.draw(junk)),
        lambda: NStep(data.draw(junk), data.draw(junk)),
        lambda: NStep(2, fields=data.draw(junk)),
        lambda: Sequence(data.draw(st.one_of(st.just(2), junk)), data.draw(junk)),
        lambda: Sequence(2, pad=data.draw(junk), cross=data.draw(junk), gamma=data.draw(junk)),
        lambda: Hindsight(data.draw(junk), data.draw(st.one_of(st.just(4), junk))),
        lambda: Hindsight(lambda *_: data.draw(junk), achieved=data.draw(st.just("observation"))),
    ]
    for view in views:
        with ordinary(buffer):
            buffer.sample(2, 1, view=view())
    selectors: list[Callable[[], Any]] = [
        lambda: Recent(data.draw(junk)),
        lambda: Where(lambda _: data.draw(junk)),
        lambda: Mixture(data.draw(junk)),
        lambda: Mixture(((data.draw(junk), Uniform()),)),
        lambda: Mixture(((1.0, data.draw(junk)),)),
    ]
    for selector in selectors:
        with ordinary(buffer):
            buffer.sample(2, 1, selector=selector())


@fuzz
@given(st.data())
def test_datasets(data: Any) -> None:
    names = ["obs", "next_obs", "actions", "rewards", "terminated", "truncated"]
    arguments: dict[str, Any] = {name: np.zeros(3) for name in names}
    spoilt = data.draw(st.sampled_from([*names, "normalize", "seed"]))
    with ordinary():
        OfflineDatasetBuffer(**{**arguments, spoilt: data.draw(junk)})
    dataset = OfflineDatasetBuffer(**arguments)
    small = junk.filter(lambda value: not (isinstance(value, int) and value > 2**50))
    with ordinary():
        dataset.sample(data.draw(small), data.draw(junk))
    with ordinary():
        dataset.sample_trajectories(2, data.draw(junk), data.draw(junk), by=data.draw(junk))


@fuzz
@given(junk, junk)
def test_paths_and_writers(path: Any, mode: Any) -> None:
    buffer = plain()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        with ordinary(buffer):
            buffer.save(path)
        with ordinary(buffer):
            ReplayBuffer.load(path)
    with ordinary():
        VectorWriter(nested(), mode, mode=None)


@pytest.mark.long
@settings(max_examples=examples(600), deadline=None)
@given(st.sampled_from(DTYPES), st.sampled_from(DTYPES), st.data())
def test_values_are_kept_or_refused_as_in_the_reference(
    source: str, target: str, data: Any
) -> None:
    shape = data.draw(nps.array_shapes(max_dims=3, max_side=4))
    # Values near the limits of any dtype, which plain random bits seldom meet.
    limits = [0, 1, -1, 127, 128, 255, 256, 65504, 65520, 2**31, 2**32, 2**63, 2**64, 0.5, 1e-8]
    near = st.sampled_from([n for n in limits if _fits(n, source)]).map(np.dtype(source).type)
    elements = st.one_of(near, nps.from_dtype(np.dtype(source)))
    values = data.draw(nps.arrays(source, shape, elements=elements))
    given_form = data.draw(st.sampled_from(["plain", "swapped", "strided", "reversed", "torch"]))
    buffer = ReplayBuffer(2, fields={"x": (target, shape)})
    if given_form == "swapped":
        form: Any = values.astype(values.dtype.newbyteorder())
    elif given_form == "strided":
        form = np.repeat(values, 2, axis=-1)[..., ::2]
    elif given_form == "reversed":
        form = values[::-1].copy()[::-1]
    elif given_form == "torch" and source not in ("uint16", "uint32", "uint64"):
        form = torch.from_numpy(values.copy())
    else:
        form = values
    try:
        expected = casts.cast(values, target)
    except ValueError:
        with pytest.raises(ValueError, match=f"x must fit {target}, got"):
            buffer.push(x=form)
        with pytest.raises(ValueError, match=f"x must fit {target}, got"):
            buffer.push_batch(x=form[None])
        assert len(buffer) == 0
        return
    buffer.push(x=form)
    buffer.push_batch(x=form[None])
    stored = buffer.gather([0, 1])["x"]
    assert stored.dtype == np.dtype(target)
    np.testing.assert_array_equal(stored, np.stack([expected, expected]))


def _fits(number: float, dtype: str) -> bool:
    try:
        casts.cast_one(number, np.dtype(dtype))
    except ValueError:
        return False
    return True


@settings(max_examples=examples(300), deadline=None)
@given(
    st.sampled_from(DTYPES),
    st.one_of(st.integers(-(2**66), 2**66), st.floats(), st.booleans(), st.sampled_from(INTEGERS)),
)
def test_python_numbers_are_kept_or_refused_as_in_the_reference(dtype: str, value: Any) -> None:
    buffer = ReplayBuffer(1, fields={"x": dtype})
    expected = None
    if isinstance(value, float) or -(2**63) <= value < 2**64:
        with contextlib.suppress(ValueError):
            expected = casts.cast_one(value, np.dtype(dtype))
    if expected is None:
        with pytest.raises(ValueError, match=f"x must fit {dtype}, got"):
            buffer.push(x=value)
        return
    buffer.push(x=value)
    np.testing.assert_array_equal(buffer.sample(1)["x"], np.array([expected], dtype))
