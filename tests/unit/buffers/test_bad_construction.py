"""Buffers that make no sense are refused, by the name of the argument."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sharpwave import Field, PrioritizedReplayBuffer, ReplayBuffer, Schema
from tests.unit.buffers.inputs import CLASSES, INF, NAN, Unchanged, make, refused, step


class TestConstruction:
    @pytest.mark.parametrize("cls", CLASSES)
    @pytest.mark.parametrize("capacity", [0, -1, -(2**63), -(2**80)])
    def test_a_capacity_below_one_is_refused(self, cls: Any, capacity: int) -> None:
        refused(ValueError, "capacity must be at least 1, got -?[0-9]", lambda: cls(capacity, 3, 1))

    @pytest.mark.long
    @pytest.mark.parametrize("capacity", [2**61, 10**13, 2**63 - 1, 2**64, 2**100])
    @pytest.mark.parametrize("options", ["", ", n_envs=2", ", n_envs=2**31"])
    def test_a_capacity_beyond_memory_does_not_end_the_process(
        self, capacity: int, options: str
    ) -> None:
        script = f"""
from sharpwave import PrioritizedReplayBuffer, ReplayBuffer
for cls in (ReplayBuffer, PrioritizedReplayBuffer):
    try:
        cls({capacity}, 3, 1{options})
    except (MemoryError, ValueError) as error:
        assert "capacity" in str(error), error
    else:
        raise AssertionError("accepted")
print("alive")
"""
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        result = subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            timeout=60,
            env=environment,
            check=False,
        )
        assert result.stdout == "alive\n", result.stderr

    @pytest.mark.parametrize("capacity", [True, 1.0, "8", None, [8], np.float32(8)])
    def test_a_capacity_that_is_no_integer_is_refused(self, capacity: Any) -> None:
        refused(TypeError, "capacity must be an integer, got", lambda: ReplayBuffer(capacity, 3, 1))

    @pytest.mark.parametrize("name", ["obs_dim", "act_dim"])
    def test_dims_that_make_no_sense_are_refused(self, name: str) -> None:
        for value in (0, -1):
            dims: dict[str, Any] = {"obs_dim": 1, "act_dim": 1, name: value}
            refused(
                ValueError, f"{name} must be at least 1, got", lambda d=dims: ReplayBuffer(4, **d)
            )
        for wrong in (2.5, "3", True):
            dims = {"obs_dim": 1, "act_dim": 1, name: wrong}
            refused(TypeError, f"{name} must be an integer", lambda d=dims: ReplayBuffer(4, **d))
        refused(ValueError, "shape", lambda: ReplayBuffer(4, 2**40, 1))
        refused(TypeError, "obs_dim and act_dim must both be given", lambda: ReplayBuffer(4, 3))

    @pytest.mark.parametrize("several", [np.zeros(3), torch.zeros(3)])
    def test_what_says_neither_true_nor_false_is_refused(self, several: Any) -> None:
        refused(
            TypeError,
            "stratified must be True or False, got ",
            lambda: PrioritizedReplayBuffer(8, 3, 1, stratified=several),
        )
        refused(TypeError, "finite must be True or False", lambda: Field("float32", finite=several))

    def test_fields_exclude_dims(self) -> None:
        refused(TypeError, "fields must not be given", lambda: ReplayBuffer(4, 3, 1, fields={}))

    @pytest.mark.parametrize("seed", [-1, 2**64, 2**80])
    def test_a_seed_beyond_64_bits_is_refused(self, seed: int) -> None:
        refused(
            ValueError, "seed must be at (least|most)", lambda: ReplayBuffer(4, 3, 1, seed=seed)
        )
        refused(ValueError, "seed must be from 0 to", lambda: make().sample(1, seed=seed))
        refused(ValueError, "seed must be from 0 to", lambda: make().epoch(1, seed=seed))

    @pytest.mark.parametrize("seed", [1.5, True, "1", [1]])
    def test_a_seed_that_is_no_integer_is_refused(self, seed: Any) -> None:
        refused(TypeError, "seed must be an integer", lambda: ReplayBuffer(4, 3, 1, seed=seed))
        refused(TypeError, "seed must be an integer or None", lambda: make().sample(1, seed=seed))
        refused(TypeError, "seed must be an integer or None", lambda: make().epoch(1, seed=seed))

    def test_a_capacity_below_n_envs_is_refused(self) -> None:
        refused(
            ValueError,
            "capacity must be at least n_envs, 8, got 7",
            lambda: ReplayBuffer(7, 3, 1, n_envs=8),
        )
        refused(ValueError, "n_envs must be at least 1", lambda: ReplayBuffer(7, 3, 1, n_envs=0))
        refused(TypeError, "n_envs must be an integer", lambda: ReplayBuffer(7, 3, 1, n_envs=1.0))  # type: ignore[arg-type]

    def test_stacks_need_environments(self) -> None:
        fields = {"obs": Field("uint8", (4, 8, 8), stack=4)}
        refused(ValueError, "frame stacks need .* n_envs", lambda: ReplayBuffer(8, fields=fields))

    @pytest.mark.parametrize("value", [NAN, INF, -1.0, -(10**400), 10**400])
    def test_exponents_out_of_range_are_refused(self, value: float) -> None:
        for name in ("alpha", "beta"):
            options: Any = {name: value}
            refused(
                ValueError,
                f"{name} must be finite and at least 0",
                lambda o=options: PrioritizedReplayBuffer(4, 3, 1, **o),
            )
        refused(ValueError, "beta must be", lambda: make(PrioritizedReplayBuffer).set_beta(value))

    @pytest.mark.parametrize("value", ["0.5", None, True, [0.5], 1j, np.complex64(1)])
    def test_exponents_that_are_no_numbers_are_refused(self, value: Any) -> None:
        refused(
            TypeError,
            "alpha must be a number, got",
            lambda: PrioritizedReplayBuffer(4, 3, 1, alpha=value),
        )

    def test_unknown_kinds_are_refused(self) -> None:
        wrong: Any = "ranks"
        refused(ValueError, "kind must be", lambda: PrioritizedReplayBuffer(4, 3, 1, kind=wrong))
        refused(
            ValueError,
            "weight_norm must be",
            lambda: PrioritizedReplayBuffer(4, 3, 1, weight_norm=wrong),
        )

    def test_an_uninitialized_buffer_says_so(self) -> None:
        bare = ReplayBuffer.__new__(ReplayBuffer)
        calls: list[Callable[[], Any]] = [
            lambda: bare.sample(1),
            lambda: bare.gather([0]),
            lambda: bare.push(1),
            lambda: bare.push_batch(1),
            lambda: bare.batch(1),
            bare.stats,
            bare.clear,
            bare.indices,
            lambda: pickle.dumps(bare),
        ]
        for call in calls:
            refused(RuntimeError, "not initialized", call)
        assert len(bare) == 0
        assert repr(bare) == "ReplayBuffer(not initialized)"

    def test_a_second_initialization_is_refused_and_changes_nothing(self) -> None:
        buffer = make()
        with Unchanged(buffer):
            refused(RuntimeError, "initialized already", lambda: buffer.__init__(4, 7, 7))
        assert buffer.capacity == 16
        assert buffer.sample(1)["obs"].shape == (1, 3)

    def test_subclasses_have_attributes_of_their_own(self) -> None:
        class Named(ReplayBuffer):
            def __init__(self, name: str) -> None:
                super().__init__(4, 3, 1)
                self.name = name

        buffer = Named("east")
        buffer.push(**step())
        assert buffer.name == "east"
        assert len(buffer) == 1

    def test_pickles_keep_the_attributes_of_subclasses(self) -> None:
        buffer = Labeled(4, 3, 1)
        buffer.label = "west"
        buffer.push(**step())
        copy = pickle.loads(pickle.dumps(buffer))
        assert isinstance(copy, Labeled)
        assert copy.label == "west"
        assert len(copy) == 1


class Labeled(ReplayBuffer):
    label: str


class TestFields:
    @pytest.mark.parametrize("dtype", ["complex64", "object", "S3", "datetime64[s]", "float128"])
    def test_dtypes_that_cannot_be_stored_are_refused(self, dtype: str) -> None:
        refused(
            ValueError,
            "dtype must be bool, an integer",
            lambda: ReplayBuffer(4, fields={"x": dtype}),
        )

    @pytest.mark.parametrize("dtype", [None, 5, "no such dtype", [], 1.5])
    def test_what_is_no_dtype_is_refused(self, dtype: Any) -> None:
        refused(TypeError, "dtype must be a NumPy dtype", lambda: Field(dtype))

    @pytest.mark.parametrize("shape", [(3.7,), "34", None, ("3",), (None,), 2.0, ((1,),)])
    def test_shapes_that_are_no_integers_are_refused(self, shape: Any) -> None:
        refused(TypeError, "shape must be a tuple of integers", lambda: Field("float32", shape))

    @pytest.mark.parametrize("shape", [(0,), (-1,), (3, 0), (2**20, 2**20), (2**62,), (1,) * 70])
    def test_shapes_without_or_beyond_room_are_refused(self, shape: tuple[int, ...]) -> None:
        refused(ValueError, "shape", lambda: ReplayBuffer(4, fields={"x": Field("uint8", shape)}))

    @pytest.mark.parametrize(
        "name",
        [
            "priority",
            "priorities",
            "stream",
            "streams",
            "indices",
            "weights",
            "discounts",
            "mask",
            "actions",
            "rewards",
        ],
    )
    def test_reserved_names_are_refused(self, name: str) -> None:
        refused(
            ValueError,
            rf"must not use the reserved names \['{name}'\]",
            lambda: ReplayBuffer(4, fields={name: "float32"}),
        )

    @pytest.mark.parametrize("name", ["", "a.b", 5, None, ("a",), "\ud800"])
    def test_names_that_are_no_names_are_refused(self, name: Any) -> None:
        with pytest.raises(ValueError):  # noqa: PT011  (an encoding error for lone surrogates)
            ReplayBuffer(4, fields={name: "float32"})

    def test_stacks_must_fit_the_shape(self) -> None:
        fields = {"obs": Field("uint8", (3, 8), stack=4)}
        refused(ValueError, "expected 4, got 3", lambda: ReplayBuffer(8, fields=fields, n_envs=1))
        fields = {"obs": Field("uint8", (4, 8), stack=4, axis=7)}
        refused(
            ValueError, "axis must be an axis", lambda: ReplayBuffer(8, fields=fields, n_envs=1)
        )
        fields = {"reward": Field("float32", (4,), stack=4)}
        refused(ValueError, "only observations", lambda: ReplayBuffer(8, fields=fields, n_envs=1))
        refused(TypeError, "stack must be an integer", lambda: Field("uint8", (4,), stack=4.0))  # type: ignore[arg-type]

    @pytest.mark.parametrize("fields", [None, 5, ["obs"], "obs", {"obs"}])
    def test_fields_that_are_no_dict_are_refused(self, fields: Any) -> None:
        refused(TypeError, "fields must be a dict, got", lambda: Schema(fields))

    def test_no_fields_and_too_many_are_refused(self) -> None:
        refused(ValueError, "at least one field", lambda: ReplayBuffer(4, fields={}))
        refused(
            ValueError, "must not have an empty dict", lambda: ReplayBuffer(4, fields={"obs": {}})
        )
        many = {f"x{i}": "float32" for i in range(100)}
        refused(ValueError, "at most 60", lambda: ReplayBuffer(4, fields=many))

    def test_a_next_observation_unlike_the_observation_is_refused(self) -> None:
        fields = {"obs": ("float32", (3,)), "next_obs": ("float32", (4,))}
        refused(ValueError, "next_obs", lambda: ReplayBuffer(4, fields=fields))

    @pytest.mark.parametrize("env", [None, 5, "CartPole-v1"])
    def test_an_environment_without_spaces_is_refused(self, env: Any) -> None:
        refused(TypeError, "env must have spaces, got", lambda: ReplayBuffer.for_env(env, 4))

    def test_numpy_integers_save_and_load(self, tmp_path: Path) -> None:
        two: Any = np.int64(2)
        options: Any = {"n_envs": np.int32(2), "seed": np.uint64(3), "capacity": np.int64(8)}
        fields = {"obs": Field("uint8", (two, 4), stack=two)}
        ReplayBuffer(fields=fields, **options).save(tmp_path / "saved")
        assert ReplayBuffer.load(tmp_path / "saved").n_envs == 2
