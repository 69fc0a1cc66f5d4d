"""Options of datasets and loaders that are refused, and what the errors say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.reference.episodes import ListedEpisodes
from tests.unit.episodes.listed import FIELDS, META, listed

STEPS: dict[str, Any] = {"timestep_level": True}

REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"n_steps": 2, **STEPS}, ValueError, "cannot specify both n_steps and timestep_level"),
    ({"n_steps": 2, "window_length": 3}, ValueError, "cannot specify both n_steps and window_leng"),
    ({"n_steps": 0}, ValueError, "n_steps must be at least 1, got 0"),
    ({"n_steps": 2.0}, TypeError, "n_steps must be an integer, got float"),
    ({"window_length": 0}, ValueError, "window_length must be at least 1"),
    ({"window_length": 3, "windows": "some"}, ValueError, "windows must be 'random' or 'all'"),
    ({"window_length": 3, "stride": 2}, ValueError, "stride is for windows='all'"),
    ({"window_length": 3, "windows": "all", "stride": 0}, ValueError, "stride must be at least 1"),
    ({"windows": "all"}, ValueError, "windows is only supported for window datasets"),
    ({"return_mask": True, **STEPS}, ValueError, "return_mask is only supported for trajectory"),
    ({"return_mask": True, "n_steps": 2}, ValueError, "return_mask is only supported for traje"),
    ({"filter_fields": {"reward": 1}}, ValueError, "filter_fields is only supported for timestep"),
    ({"fields": ("reward",), "n_steps": 2}, ValueError, "fields is only supported for trajectory"),
    ({"current_fields": ("reward",)}, ValueError, "current_fields is only supported for n-step"),
    ({"pad_to": 9, **STEPS}, ValueError, "pad_to is only supported for trajectory"),
    ({"fields": ("rewards",)}, ValueError, "has no field 'rewards' to take; did you mean 'reward'"),
    ({"fields": "reward"}, TypeError, "fields must be a tuple of names, got 'reward'"),
    ({"fields": (1,)}, TypeError, "fields must be a tuple of names, got 1 in it"),
    ({"fields": ("obs", "obs.image")}, ValueError, "fields must name a field once"),
    ({"meta_fields": ("tsk",)}, ValueError, "meta_fields has no field 'tsk' to take; did you mean"),
    ({"fieldname_map": {"rward": "r"}}, ValueError, "has no 'rward' to rename; did you mean 'rew"),
    ({"fieldname_map": {"reward": 3}}, ValueError, "fieldname_map must map to names, got 3"),
    ({"fieldname_map": {"reward": "done"}}, ValueError, "two values of a batch are called 'done'"),
    ({"fieldname_map": {"reward": "obs"}}, ValueError, "two values of a batch are called"),
    ({"fieldname_map": ["reward"]}, TypeError, "fieldname_map must be a dict, got list"),
    (
        {"fields": ("reward",), "to_named_tuple": ("reward",)},
        ValueError,
        "cannot specify both fields and to_named_tuple",
    ),
    (
        {"to_named_tuple": ("rewards",)},
        ValueError,
        "no value 'rewards' to take; did you mean 'rewa",
    ),
    ({"to_named_tuple": ("_lens", "_lens")}, ValueError, "to_named_tuple cannot be"),
    ({"to_named_tuple": ("class",)}, ValueError, "to_named_tuple has no value 'class'"),
    ({"filter_meta": {"tsk": 1}}, ValueError, "filter_meta has no field 'tsk' to look at; did you"),
    ({"filter_meta": [1]}, TypeError, "filter_meta must be a dict, got list"),
    ({"filter_meta": {"task": "one"}}, TypeError, r"filter_meta\['task'\] must be a number"),
    ({"filter_meta": {"task": None}}, TypeError, r"filter_meta\['task'\] must be a number"),
    ({"filter_meta": {"goal": 1.0}}, ValueError, r"must be a value of shape \(2,\)"),
    ({"filter_meta": {"task": [[1]]}}, ValueError, r"got shape \(1, 1\)"),
    ({"filter_meta": {"task": lambda _: True}}, ValueError, "must return a bool array of shape"),
    ({"filter_meta": {"task": lambda c: c}}, ValueError, "must return a bool array of shape"),
    ({"filter_fields": {"rward": 1}, **STEPS}, ValueError, "filter_fields has no field 'rward'"),
    ({"filter_fields": {"action": 1}, **STEPS}, ValueError, r"'action' has shape \(2,\)"),
    ({"min_episode_len": -1}, ValueError, "min_episode_len must be at least 0"),
    ({"seed": -1}, ValueError, "seed must be at least 0"),
    ({"seed": 1.5}, TypeError, "seed must be an integer"),
    ({"timestep_levle": True}, TypeError, "has no option 'timestep_levle'; did you mean 'timestep"),
]


@pytest.mark.parametrize(("options", "error", "message"), REFUSED)
def test_bad_options_are_named(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    buffer = listed((3, 4))
    with pytest.raises(error, match=message):
        buffer.dataset(**options)
    with pytest.raises(error, match=message):
        buffer.dataloader(2, **options)


def test_bad_options_of_loaders_are_named() -> None:
    buffer = listed((3, 4))
    with pytest.raises(ValueError, match="batch_size must be at least 1, got 0"):
        buffer.dataloader(0)
    with pytest.raises(TypeError, match="batch_size must be an integer, got float"):
        buffer.dataloader(2.0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="num_workers must be at least 0"):
        buffer.dataloader(2, num_workers=-1)
    with pytest.raises(ValueError, match="cannot specify both sampler and shuffle"):
        buffer.dataloader(2, sampler=[0], shuffle=True)
    with pytest.raises(ValueError, match="cannot specify both dataset and n_steps"):
        buffer.dataloader(2, dataset=buffer.dataset(), n_steps=2)
    with pytest.raises(TypeError, match="dataset must be an EpisodeDataset, got list"):
        buffer.dataloader(2, dataset=[1, 2])  # type: ignore[arg-type]


def test_an_empty_buffer_is_refused() -> None:
    empty = ListedEpisodes(FIELDS, META)
    with pytest.raises(ValueError, match="the buffer is empty"):
        empty.dataset()
    with pytest.raises(ValueError, match="the buffer is empty"):
        empty.dataloader(4, n_steps=2)


def test_filters_that_nothing_meets_give_an_empty_dataset() -> None:
    buffer = listed((3, 4))
    dataset = buffer.dataset(filter_meta={"task": 99})
    assert len(dataset) == 0
    assert list(dataset) == []
    assert list(buffer.dataloader(2, dataset=dataset, shuffle=True)) == []
    assert list(buffer.dataloader(2, timestep_level=True, filter_fields={"reward": 99})) == []


def test_numbers_of_items_are_checked() -> None:
    dataset = listed((3, 4)).dataset(timestep_level=True)
    with pytest.raises(IndexError, match=r"items must be in \[0, 7\), got 7"):
        dataset.batch([0, 7])
    with pytest.raises(IndexError, match="got -1"):
        dataset.__getitems__([-1])
    with pytest.raises(TypeError, match="items must be integers"):
        dataset.batch(np.array([0.5]))
