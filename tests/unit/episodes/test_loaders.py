"""Batches of datasets and loaders of every level."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch

from tests.reference.episodes import (
    assert_equal,
    batches,
    flat,
    n_step_transitions,
    passing,
    timesteps,
    trajectories,
    window,
    windows,
)
from tests.unit.episodes.listed import FIELDS, listed

LENGTHS = (4, 1, 7, 2, 5)
SPANS = [*FIELDS, "_mask"]
EXTRAS: Any = {"return_indices": True}


def test_trajectories_are_padded_with_zeros_to_the_longest_of_a_batch() -> None:
    buffer = listed(LENGTHS)
    want = batches(list(trajectories(passing(buffer.held))), 2, SPANS)
    got = list(buffer.dataloader(2, return_mask=True, **EXTRAS))
    assert len(got) == 3
    for batch, expected in zip(got, want, strict=True):
        assert_equal(batch, expected)
    assert got[0]["obs"]["image"].shape == (2, 4, 2, 2)
    assert got[0]["action"].dtype == torch.int32


def test_trajectories_can_be_padded_to_a_fixed_width() -> None:
    buffer = listed(LENGTHS)
    for batch in buffer.dataloader(2, pad_to=9, return_mask=True):
        assert batch["reward"].shape[1] == batch["_mask"].shape[1] == 9
    with pytest.raises(ValueError, match="pad_to must be at least 7"):
        list(buffer.dataloader(5, pad_to=6))


def test_timesteps_come_episode_after_episode() -> None:
    buffer = listed(LENGTHS)
    want = batches(list(timesteps(passing(buffer.held))), 6)
    got = list(buffer.dataloader(6, timestep_level=True, **EXTRAS))
    for batch, expected in zip(got, want, strict=True):
        assert_equal(batch, expected)


def test_n_step_transitions_end_where_their_episode_does() -> None:
    buffer = listed(LENGTHS)
    items = list(n_step_transitions(passing(buffer.held), 3))
    assert len(items) == sum(length - 1 for length in LENGTHS)
    got = list(buffer.dataloader(4, n_steps=3, sequence_fields=list(FIELDS), **EXTRAS))
    for batch, expected in zip(got, batches(items, 4), strict=True):
        assert_equal(batch, expected)


def test_n_step_transitions_have_all_current_and_next_fields_and_no_sequences_by_default() -> None:
    batch = flat(next(iter(listed(LENGTHS).dataloader(4, n_steps=3))))
    assert set(batch) == {
        *FIELDS,
        *(f"next_{name}" for name in FIELDS),
        "task",
        "goal",
        "n_step_lens",
    }


@pytest.mark.parametrize("stride", [1, 2, 3, 5])
def test_all_windows_cover_episodes(stride: int) -> None:
    buffer = listed(LENGTHS)
    items = list(windows(passing(buffer.held), 3, stride))
    got = list(
        buffer.dataloader(
            4, window_length=3, windows="all", stride=stride, return_mask=True, **EXTRAS
        )
    )
    for batch, expected in zip(got, batches(items, 4), strict=True):
        assert_equal(batch, expected)


def test_random_windows_lie_anywhere_and_differ_between_epochs() -> None:
    buffer = listed((9, 2))
    loader = buffer.dataloader(2, window_length=4, return_mask=True, **EXTRAS)
    starts = set()
    for _ in range(60):
        (batch,) = loader
        for i, (index, start) in enumerate(zip(batch["_index"], batch["_start"], strict=True)):
            item = {name: np.asarray(value)[i] for name, value in flat(batch).items()}
            assert_equal(item, window(int(index), buffer.held[int(index)], int(start), 4))
        starts.add(int(batch["_start"][0]))
        assert int(batch["_start"][1]) == 0
    assert starts == set(range(6))


def test_items_are_those_of_batches_without_their_padding() -> None:
    buffer = listed(LENGTHS)
    dataset = buffer.dataset(return_mask=True, **EXTRAS)
    want = list(trajectories(passing(buffer.held)))
    assert len(dataset) == len(want)
    for i, expected in enumerate(want):
        item = flat(dataset[i])
        del item["_mask"]  # of its own batch of one
        del expected["_mask"]
        assert_equal(item, expected)
    assert_equal(dataset[-1], flat(dataset[len(dataset) - 1]))
    with pytest.raises(IndexError, match=r"item must be in \[-5, 5\), got 5"):
        dataset[5]


def test_items_may_be_read_together_and_in_a_loop() -> None:
    buffer = listed(LENGTHS)
    dataset = buffer.dataset(n_steps=2, sequence_fields=["reward"])
    want = list(dataset)
    assert len(want) == len(dataset) == 14
    for got, one in zip(dataset.__getitems__([3, 0, 3]), (3, 0, 3), strict=True):
        assert_equal(got, flat(want[one]))
    batch = dataset.batch(np.array([3, 0]))
    assert_equal(batch, batches([flat(want[3]), flat(want[0])], 2)[0])


def test_shuffling_visits_every_item_once_in_an_order_of_seed_and_epoch() -> None:
    buffer = listed((30, 20, 14))

    def orders(seed: int) -> list[list[int]]:
        loader = buffer.dataloader(8, timestep_level=True, shuffle=True, seed=seed, as_numpy=True)
        return [
            [int(100 * n + t) for batch in loader for n, t in batch["action"]] for _ in range(2)
        ]

    first, second = orders(0)
    assert (
        sorted(first)
        == sorted(second)
        == list(range(30)) + list(range(100, 120)) + list(range(200, 214))
    )
    assert first != second
    assert first != sorted(first)
    assert orders(0) == [first, second]
    assert orders(1)[0] not in (first, second)


def test_an_epoch_can_be_repeated() -> None:
    loader = listed((9, 9)).dataloader(4, timestep_level=True, shuffle=True)
    first = [flat(batch) for batch in loader]
    loader.epoch = 0
    for batch, again in zip(first, loader, strict=True):
        assert_equal(again, batch)


@pytest.mark.parametrize(("drop_last", "sizes"), [(False, [8, 8, 3]), (True, [8, 8])])
def test_the_last_batch_is_smaller_or_dropped(drop_last: bool, sizes: list[int]) -> None:
    loader = listed(LENGTHS).dataloader(8, timestep_level=True, drop_last=drop_last)
    assert [len(batch["reward"]) for batch in loader] == sizes
    assert len(loader) == len(sizes)


def test_fields_are_chosen_by_name_or_by_nest() -> None:
    buffer = listed(LENGTHS)
    batch = next(iter(buffer.dataloader(4, timestep_level=True, fields=("reward", "obs"))))
    assert set(flat(batch)) == {"reward", "obs.image", "obs.speed", "task", "goal"}
    batch = next(
        iter(
            buffer.dataloader(
                4, n_steps=2, current_fields=["obs.speed"], next_fields=["obs"], meta_fields=[]
            )
        )
    )
    assert set(flat(batch)) == {"obs.speed", "next_obs.image", "next_obs.speed", "n_step_lens"}


def test_values_are_renamed() -> None:
    names = {
        "seq_reward": "rewards",
        "next_obs": "later",
        "obs.speed": "v",
        "task": "label.task",
        "n_step_lens": "k",
    }
    batch = next(
        iter(
            listed(LENGTHS).dataloader(
                4, n_steps=2, sequence_fields=("reward",), fieldname_map=names, meta_fields=["task"]
            )
        )
    )
    assert set(flat(batch)) == {
        *("obs.image", "v", "action", "reward", "done", "rewards", "label.task", "k"),
        *("later.image", "later.speed", "next_action", "next_reward", "next_done"),
    }


def test_named_tuples_have_what_was_asked_for_in_that_order() -> None:
    buffer = listed(LENGTHS)
    batch = next(
        iter(buffer.dataloader(2, to_named_tuple=("_lens", "obs", "reward", "task", "_mask")))
    )
    assert type(batch).__name__ == "Batch"
    assert batch._fields == ("lens", "obs", "reward", "task", "mask")
    lens, obs, reward, _, mask = batch
    assert batch.obs["image"] is obs["image"]
    assert obs["image"].shape[:2] == reward.shape == mask.shape == (2, int(lens.max()))


def test_only_what_is_handed_out_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = listed(LENGTHS)
    read: list[str] = []
    gather = buffer.gather

    def watched(rows: Any, fields: Any = None, out: Any = None) -> Any:
        read.extend(fields)
        return gather(rows, fields, out)

    monkeypatch.setattr(buffer, "gather", watched)
    next(iter(buffer.dataloader(2, timestep_level=True, to_named_tuple=("reward", "task"))))
    assert read == ["reward"]


def test_arrays_instead_of_tensors() -> None:
    batch = next(iter(listed(LENGTHS).dataloader(2, as_numpy=True)))
    assert isinstance(batch["reward"], np.ndarray)
    with pytest.raises(ValueError, match="device and pin_memory are for tensors"):
        listed(LENGTHS).dataloader(2, as_numpy=True, device="cpu")


def test_tensors_are_moved_to_a_device() -> None:
    batch = next(iter(listed(LENGTHS).dataloader(2, device="meta")))
    assert batch["obs"]["image"].device.type == "meta"


def test_aborted_episodes_are_left_out_unless_asked_for() -> None:
    buffer = listed((3, 4))
    buffer.store_episode(aborted=True, **buffer.held[1].steps, **buffer.held[1].meta)
    assert len(buffer.dataset()) == 2
    assert len(buffer.dataset(timestep_level=True)) == 7
    assert len(buffer.dataset(aborted=True)) == 3
    assert len(buffer.dataset(timestep_level=True, aborted=True)) == 11


def test_short_episodes_can_be_left_out() -> None:
    buffer = listed(LENGTHS)
    assert len(buffer.dataset(min_episode_len=4)) == 3
    assert [int(n) for n in next(iter(buffer.dataloader(9, min_episode_len=4)))["_lens"]] == [
        4,
        7,
        5,
    ]


@pytest.mark.long
def test_torch_is_not_imported_for_arrays() -> None:
    program = """
import sys
from tests.unit.episodes.listed import listed
batches = list(listed((3, 4)).dataloader(2, timestep_level=True, shuffle=True, as_numpy=True))
assert len(batches) == 4
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
