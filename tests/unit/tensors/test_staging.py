"""Batches on their way to a device."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from sharpwave.tensors.staging import Staging

EXAMPLE: dict[str, Any] = {
    "obs": {"image": np.zeros((3, 2, 5), np.uint8), "speed": np.zeros(3, np.float64)},
    "flags": (np.zeros(3, np.bool_), np.zeros((3, 0), np.float32)),
    "actions": np.zeros((3, 7), np.int64),
}


def test_every_dtype_and_shape_arrives() -> None:
    staging = Staging(EXAMPLE, torch.device("cpu"))
    generator = np.random.default_rng(0)
    for _ in range(5):
        memory = staging.memory()
        memory["obs"]["image"][:] = generator.integers(0, 255, (3, 2, 5))
        memory["obs"]["speed"][:] = generator.normal(size=3)
        memory["flags"][0][:] = generator.integers(0, 2, 3)
        memory["actions"][:] = generator.integers(-9, 9, (3, 7))
        tensors = staging.send()
        np.testing.assert_array_equal(tensors["obs"]["image"], memory["obs"]["image"])
        np.testing.assert_array_equal(tensors["obs"]["speed"], memory["obs"]["speed"])
        np.testing.assert_array_equal(tensors["flags"][0], memory["flags"][0])
        np.testing.assert_array_equal(tensors["actions"], memory["actions"])
        assert tensors["flags"][1].shape == (3, 0)
        assert tensors["flags"][0].dtype == torch.bool


def test_a_batch_is_not_overwritten_while_the_next_one_is_written() -> None:
    staging = Staging({"x": np.zeros(4)}, torch.device("cpu"))
    staging.memory()["x"][:] = 1
    tensors = staging.send()
    staging.memory()["x"][:] = 2
    assert tensors["x"].tolist() == [1, 1, 1, 1]


def test_all_batches_lie_at_one_address() -> None:
    staging = Staging({"x": np.zeros(4)}, torch.device("cpu"))
    addresses = {staging.bring({"x": np.full(4, i)})["x"].data_ptr() for i in range(5)}
    assert len(addresses) == 1


def test_two_leaves_that_are_one_array_get_places_of_their_own() -> None:
    shared = np.zeros(4)
    staging = Staging({"a": shared, "b": shared}, torch.device("cpu"))
    memory = staging.memory()
    memory["a"][:], memory["b"][:] = 1, 2
    tensors = staging.send()
    assert (tensors["a"].tolist(), tensors["b"].tolist()) == ([1] * 4, [2] * 4)
