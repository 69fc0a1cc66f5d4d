"""The buffers under contract: a new one is one more line of CASES."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sharpwave import Field, MmapReplayBuffer, PrioritizedReplayBuffer, ReplayBuffer
from tests.reference.replay import ReplayOracle
from tests.reference.steps import Steps

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float16", "float32", "float64")
FLAGS: dict[str, Any] = {"reward": "float32", "terminated": "bool", "truncated": "bool"}
FLAT: dict[str, Any] = {"obs": ("float32", (3,)), "action": ("float32", (2,)), **FLAGS}
WITH_NEXT: dict[str, Any] = {**FLAT, "next_obs": ("float32", (3,))}
DICT_OBS: dict[str, Any] = {
    "image": ("uint8", (2, 3, 1)),
    "body": {"speed": "float64", "joints": ("float16", (5,))},
}
TUPLE_OBS: tuple[Any, ...] = (("int16", (7,)), "bool", ({"deep": ("float32", (1, 1))},))
FRAMES: dict[str, Any] = {"obs": Field("uint8", (3, 4, 5), stack=3), "action": "int64", **FLAGS}
LAST_AXIS: dict[str, Any] = {
    "obs": {"screen": Field("uint8", (4, 5, 3), stack=3, axis=-1), "speed": ("float32", (2,))},
    "action": "int64",
    **FLAGS,
}


def every_dtype(dtypes: tuple[str, ...]) -> dict[str, Any]:
    """One extra column of every dtype, in odd shapes."""
    shapes = [(), (1,), (3,), (2, 5), (7, 1, 3), (33,), (257,), (1, 1)]
    columns = {f"as_{d}": (d, shapes[i % len(shapes)]) for i, d in enumerate(dtypes)}
    return {**WITH_NEXT, **columns}


@dataclass(frozen=True)
class Case:
    """A way to make a buffer.

    Attributes:
        name: Of the test.
        make: From capacity and seed to the buffer.
        squeeze: A batch's actions of one dimension come without that axis.
        prioritized: It draws by priority.
        durable: Its rows are in a folder, so that a pickled copy is a read-only one of the same.
    """

    name: str
    make: Callable[..., Any]
    squeeze: bool = False
    prioritized: bool = False
    durable: bool = False

    def steps(self) -> Steps:
        buffer = self.make(capacity=30, seed=0)
        return Steps(buffer.schema, buffer.n_envs or 1, squeeze=self.squeeze)

    def oracle(self, capacity: int) -> ReplayOracle:
        buffer = self.make(capacity=capacity, seed=0)
        return ReplayOracle(capacity, buffer.schema, buffer.n_envs)


def uniform(name: str, squeeze: bool = False, **fixed: Any) -> Case:
    return Case(name, lambda **given: ReplayBuffer(**fixed, **given), squeeze)


def prioritized(name: str, **fixed: Any) -> Case:
    return Case(
        f"prioritized {name}",
        lambda **given: PrioritizedReplayBuffer(**fixed, **given),
        prioritized=True,
    )


def mapped(name: str, squeeze: bool = False, **fixed: Any) -> Case:
    def make(capacity: int, **given: Any) -> MmapReplayBuffer:
        folder = Path(_folders.name) / str(next(_numbers))
        return MmapReplayBuffer(max(capacity // 3, 1), capacity, cold_path=folder, **fixed, **given)

    return Case(f"mapped {name}", make, squeeze, "prioritized" in fixed, durable=True)


# In memory where there is such a folder: a disk that is waited for makes the tests slow.
_folders = tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
_numbers = itertools.count()


NESTED: dict[str, Any] = {"obs": DICT_OBS, "action": ("int64", (2,)), **FLAGS}
TUPLES: dict[str, Any] = {
    "obs": TUPLE_OBS,
    "next_obs": TUPLE_OBS,
    "action": {"move": "int8", "aim": ("float32", (2,))},
    **FLAGS,
}
EXTRAS: dict[str, Any] = {**FLAT, "log_prob": "float32", "memory": {"h": ("float16", (9,))}}

CASES = [
    uniform("dims", obs_dim=3, act_dim=2),
    uniform("dims of one", squeeze=True, obs_dim=1, act_dim=1),
    uniform("dims in order", squeeze=True, obs_dim=4, act_dim=1, n_envs=1),
    uniform("integers", fields=every_dtype(("bool", *INTEGERS))),
    uniform("floats", fields=every_dtype(FLOATS)),
    uniform("integers in streams", fields=every_dtype(("bool", *INTEGERS)), n_envs=2),
    uniform("dict obs", fields={**NESTED, "next_obs": DICT_OBS}),
    uniform("dict obs in streams", fields=NESTED, n_envs=3),
    uniform("tuple obs", fields=TUPLES),
    uniform("tuple obs in streams", fields=TUPLES, n_envs=2),
    uniform("one stream", fields=FLAT, n_envs=1),
    uniform("three streams", fields=FLAT, n_envs=3),
    uniform("extras in streams", fields=EXTRAS, n_envs=3),
    uniform("frames first", fields=FRAMES, n_envs=1),
    uniform("frames last", fields=LAST_AXIS, n_envs=3),
    prioritized("dims", obs_dim=3, act_dim=2),
    prioritized("independent draws", fields=WITH_NEXT, stratified=False, weight_norm="batch"),
    prioritized("rank", fields=WITH_NEXT, kind="rank"),
    prioritized("one stream", fields=FLAT, n_envs=1),
    prioritized("three streams", fields=FLAT, n_envs=3, stratified=False),
    prioritized("rank in streams", fields=FLAT, n_envs=3, kind="rank", stratified=False),
    prioritized("frames", fields=FRAMES, n_envs=2),
    prioritized("extras", fields={**EXTRAS, "next_obs": FLAT["obs"]}),
    mapped("dims", obs_dim=3, act_dim=2),
    mapped("dims of one", squeeze=True, obs_dim=1, act_dim=1),
    mapped("integers", fields=every_dtype(("bool", *INTEGERS))),
    mapped("dict obs in streams", fields=NESTED, n_envs=3),
    mapped("tuple obs", fields=TUPLES),
    mapped("one stream", fields=FLAT, n_envs=1),
    mapped("extras in streams", fields=EXTRAS, n_envs=3),
    mapped("frames", fields=LAST_AXIS, n_envs=3),
    mapped("prioritized dims", obs_dim=3, act_dim=2, prioritized=True),
    mapped(
        "prioritized streams", fields=FLAT, n_envs=3, prioritized={"stratified": False, "alpha": 1}
    ),
    mapped("prioritized frames", fields=FRAMES, n_envs=2, prioritized={"weight_norm": "batch"}),
]

each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
