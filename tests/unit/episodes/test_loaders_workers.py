"""Loaders with worker processes, and datasets under torch's own loader."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, RandomSampler, Subset, WeightedRandomSampler

from tests.reference.episodes import assert_equal, flat
from tests.unit.episodes.listed import listed

# Newer versions of Python warn of threads, which torch has.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")

LENGTHS = (4, 1, 7, 2, 5)

LEVELS: list[dict[str, Any]] = [
    {"return_mask": True},
    {"timestep_level": True, "filter_fields": {"reward": [0, 1]}},
    {"n_steps": 3, "sequence_fields": ["action"]},
    {"window_length": 3},
]


@pytest.mark.long(but=["options0"])
@pytest.mark.parametrize("options", LEVELS)
def test_workers_give_the_same_batches_in_every_epoch(options: dict[str, Any]) -> None:
    buffer = listed(LENGTHS)
    alone = buffer.dataloader(2, shuffle=True, **options)
    helped = buffer.dataloader(2, shuffle=True, num_workers=1, persistent_workers=True, **options)
    assert len(alone) == len(helped)
    for _ in range(2):
        for batch, want in zip(helped, alone, strict=True):
            assert_equal(batch, flat(want))


def test_workers_give_named_tuples_and_arrays() -> None:
    buffer = listed(LENGTHS)
    loader = buffer.dataloader(
        2, num_workers=1, to_named_tuple=("obs", "_lens"), as_numpy=True, drop_last=True
    )
    got = list(loader)
    assert len(got) == len(loader) == 2
    assert got[0]._fields == ("obs", "lens")
    assert isinstance(got[0].lens, np.ndarray)


def test_a_sampler_says_which_items_come() -> None:
    buffer = listed(LENGTHS)
    loader = buffer.dataloader(2, timestep_level=True, sampler=[3, 0, 5], as_numpy=True)
    assert len(loader) == 2
    assert [batch["action"].tolist() for batch in loader] == [[[0, 3], [0, 0]], [[2, 0]]]
    weights = [0.0] * 6 + [1.0] * 2 + [0.0] * 11
    drawn = WeightedRandomSampler(weights, 8)
    batches = list(buffer.dataloader(4, timestep_level=True, sampler=drawn))
    assert {tuple(row.tolist()) for batch in batches for row in batch["action"]} <= {(2, 1), (2, 2)}


@pytest.mark.parametrize("options", LEVELS[1:])
def test_datasets_work_under_the_loader_of_torch(options: dict[str, Any]) -> None:
    dataset = listed(LENGTHS).dataset(**options, seed=3)
    seen = 0
    for batch in DataLoader(dataset, batch_size=3):  # type: ignore[arg-type]
        assert isinstance(batch["reward"], torch.Tensor)
        assert isinstance(batch["obs"]["image"], torch.Tensor)
        seen += len(batch["task"])
    assert seen == len(dataset)


def test_parts_of_datasets_work_under_the_loader_of_torch() -> None:
    dataset = listed(LENGTHS).dataset(timestep_level=True)
    part: Any = Subset(dataset, [3, 5, 7])  # type: ignore[arg-type]
    (batch,) = DataLoader(part, batch_size=8, sampler=RandomSampler(part))
    assert len(batch["reward"]) == 3


@pytest.mark.long
def test_random_windows_differ_between_accesses_and_between_epochs_of_workers() -> None:
    dataset = listed((60, 60)).dataset(window_length=3, return_indices=True)
    assert len({int(dataset[0]["_start"]) for _ in range(20)}) > 5
    loader: Any = DataLoader(dataset, batch_size=2, num_workers=1)  # type: ignore[arg-type]
    starts = [tuple(batch["_start"].tolist()) for _ in range(4) for batch in loader]
    assert len(set(starts)) > 1


@pytest.mark.parametrize("options", LEVELS)
def test_datasets_can_be_pickled(options: dict[str, Any]) -> None:
    dataset = listed(LENGTHS).dataset(**options, to_named_tuple=("reward", "task"))
    again = pickle.loads(pickle.dumps(dataset))
    assert len(again) == len(dataset)
    for item, want in zip(again, dataset, strict=True):
        assert item._fields == want._fields
        if "window_length" not in options:
            assert_equal(item._asdict(), want._asdict())
