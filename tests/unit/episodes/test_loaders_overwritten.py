"""Episodes that are overwritten while a dataset or an epoch lives."""

from __future__ import annotations

from typing import Any

import pytest

from tests.reference.episodes import ListedEpisodes
from tests.unit.episodes.listed import listed, more


def numbers(batch: Any) -> list[int]:
    """The numbers of the episodes of a batch of steps."""
    return [int(number) for number in batch["action"][..., 0].reshape(-1)]


def steps(batch: Any) -> list[tuple[int, int]]:
    return [(int(number), int(t)) for number, t in batch["action"]]


def test_steps_that_are_gone_are_left_out_and_batches_stay_full() -> None:
    buffer = listed((5, 5, 5, 5), room=4)
    loader = iter(buffer.dataloader(4, timestep_level=True))
    assert numbers(next(loader)) == [0, 0, 0, 0]
    more(buffer, 5)  # overwrites episode 0
    more(buffer, 5)  # and episode 1
    rest = [steps(batch) for batch in loader]
    assert rest == [
        [(2, 0), (2, 1), (2, 2), (2, 3)],
        [(2, 4), (3, 0), (3, 1), (3, 2)],
        [(3, 3), (3, 4)],
    ]


def test_nothing_is_left_when_all_is_gone() -> None:
    buffer = listed((5, 5), room=2)
    loader = iter(buffer.dataloader(4, timestep_level=True, shuffle=True))
    next(loader)
    more(buffer, 5)
    more(buffer, 5)
    assert list(loader) == []


def test_a_last_batch_that_lost_items_is_dropped_like_others_that_are_smaller() -> None:
    buffer = listed((5, 4), room=2)
    loader = iter(buffer.dataloader(4, timestep_level=True, drop_last=True))
    next(loader)
    more(buffer, 5)
    assert [numbers(batch) for batch in loader] == [[1, 1, 1, 1]]


@pytest.mark.parametrize("options", [{}, {"n_steps": 2}, {"window_length": 3}])
def test_every_level_leaves_out_what_is_gone(options: dict[str, Any]) -> None:
    buffer = listed((5, 5, 5), room=3)
    loader = buffer.dataloader(16, **options)
    more(buffer, 5)
    (batch,) = loader
    assert set(numbers(batch)) - {0} == {1, 2}  # 0 is padding
    assert {int(number) for number in batch["goal"][:, 0]} == {1, 2}


def test_a_dataset_leaves_out_items_that_are_gone() -> None:
    buffer = listed((3, 3, 3), room=3)
    dataset = buffer.dataset(timestep_level=True)
    more(buffer, 3)
    assert len(dataset) == 9
    assert steps(dataset.batch(range(9))) == [(n, t) for n in (1, 2) for t in range(3)]
    assert len(dataset.batch([0, 1])["reward"]) == 0
    assert len(dataset.__getitems__([0, 4, 1])) == 1
    assert len(list(dataset)) == 6
    with pytest.raises(IndexError, match=r"items \[0, 1\] are gone"):
        dataset.__getitems__([0, 1])
    with pytest.raises(IndexError, match=r"items \[2\] are gone"):
        dataset[2]


def test_a_dataset_does_not_grow() -> None:
    buffer = listed((3, 3))
    dataset = buffer.dataset(timestep_level=True)
    more(buffer, 3)
    assert len(dataset) == 6
    assert numbers(dataset.batch(range(6))) == [0, 0, 0, 1, 1, 1]
    assert len(buffer.dataset(timestep_level=True)) == 9


class Failing(ListedEpisodes):
    """Cannot read rows that are there."""

    def gather(self, *_: Any) -> Any:
        raise IndexError("broken")


def test_rows_that_cannot_be_read_although_they_are_there_raise() -> None:
    healthy = listed((3, 3))
    broken = Failing(healthy.fields, healthy.meta_fields, held=healthy.held)
    with pytest.raises(IndexError, match="cannot be read"):
        list(broken.dataloader(2, timestep_level=True))
    with pytest.raises(IndexError, match="cannot be read"):
        broken.dataset(timestep_level=True)[0]
