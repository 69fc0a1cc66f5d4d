"""Conditions on episodes and steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from sharpwave.episodes.loaders.filters import holds
from tests.reference.episodes import assert_equal, batches, n_step_transitions, passing, timesteps
from tests.unit.episodes.listed import listed

LENGTHS = (4, 1, 7, 2, 5, 3)


def tasks(condition: Any) -> list[int]:
    """The tasks of the episodes that a filter lets through."""
    dataset = listed(LENGTHS).dataset(filter_meta={"task": condition})
    return [int(item["task"]) for item in dataset]


@pytest.mark.parametrize(
    "condition",
    [[0, 2], (0, 2), {0, 2}, range(0, 3, 2), np.array([0, 2]), torch.tensor([0, 2]), {2: 0, 0: 0}],
)
def test_several_values_mean_any_of_them(condition: Any) -> None:
    if isinstance(condition, dict):
        condition = condition.keys()
    assert tasks(condition) == [0, 2, 0, 2]


def test_one_value_means_equality() -> None:
    assert tasks(1) == tasks(np.int64(1)) == tasks(1.0) == tasks(torch.tensor(1)) == [1, 1]
    assert tasks(1.5) == tasks(2**40 + 1) == tasks([]) == tasks(-1) == []


def test_a_bool_means_whether_values_are_zero() -> None:
    assert tasks(True) == [1, 2, 1, 2]
    assert tasks(False) == [0, 0]


def test_functions_are_asked_with_the_whole_column() -> None:
    assert tasks(lambda column: column > column.mean()) == [2, 2]
    with pytest.raises(ValueError, match="read-only"):
        tasks(lambda column: column.fill(0))


def test_filters_of_several_fields_must_all_hold() -> None:
    buffer = listed(LENGTHS)
    dataset = buffer.dataset(filter_meta={"task": 1, "goal": lambda goals: goals[:, 0] > 2})
    assert [item["goal"].tolist() for item in dataset] == [[4.0, -4.0]]


def test_values_of_a_shape_are_compared_as_a_whole() -> None:
    column = np.array([[1, 2], [3, 4], [1, 4]])
    assert holds("c", column, [1, 4]).tolist() == [False, False, True]
    assert holds("c", column, [[1, 4], [3, 4]]).tolist() == [False, True, True]
    assert holds("c", column, []).tolist() == [False, False, False]


def test_a_float_is_rounded_like_the_values_were() -> None:
    column = np.array([0.1, 0.2], np.float32)
    assert holds("c", column, 0.1).tolist() == [True, False]
    assert holds("c", column, [0.2, 0.3]).tolist() == [False, True]


def test_large_integers_are_compared_exactly() -> None:
    column = np.array([2**63 + 1, 2**63], np.uint64)
    assert holds("c", column, np.uint64(2**63)).tolist() == [False, True]
    assert holds("c", column, np.array([2**63 + 1], np.uint64)).tolist() == [True, False]
    assert holds("c", column, -1).tolist() == [False, False]


def test_filters_of_no_episodes_leave_nothing() -> None:
    assert holds("c", np.zeros((0, 2)), [1, 2]).shape == (0,)


def test_steps_are_filtered_by_their_fields() -> None:
    buffer = listed(LENGTHS)
    chosen = passing(buffer.held, lambda episode: episode.meta["task"] != 1)
    items = list(timesteps(chosen, lambda step: step["reward"] in (0, 2) and not step["done"]))
    got = list(
        buffer.dataloader(
            3,
            timestep_level=True,
            filter_meta={"task": [0, 2]},
            filter_fields={"reward": {0, 2}, "done": False},
            return_indices=True,
        )
    )
    for batch, expected in zip(got, batches(items, 3), strict=True):
        assert_equal(batch, expected)


def test_transitions_are_filtered_by_their_first_step() -> None:
    buffer = listed(LENGTHS)
    items = list(n_step_transitions(passing(buffer.held), 2, lambda step: step["reward"] > 0))
    loader = buffer.dataloader(
        3,
        n_steps=2,
        sequence_fields=list(buffer.fields),
        filter_fields={"reward": lambda rewards: rewards > 0},
        return_indices=True,
    )
    for batch, expected in zip(loader, batches(items, 3), strict=True):
        assert_equal(batch, expected)
