"""The options of datasets and loaders, and the level they ask for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypedDict

from sharpwave.buffers.replay import check_count
from sharpwave.episodes.loaders.cut import Level
from sharpwave.episodes.loaders.filters import Filters
from sharpwave.episodes.loaders.levels import (
    EveryWindow,
    NStepLevel,
    RandomWindow,
    Timestep,
    Trajectory,
)
from sharpwave.episodes.loaders.outputs import checked_names

__all__ = ["WORKER_OPTIONS", "DatasetOptions", "LoaderOptions", "level_of"]

Windows = Literal["random", "all"]

_LEVEL_OPTIONS = {
    "trajectory": {"fields", "pad_to", "return_mask"},
    "timestep": {"fields", "filter_fields"},
    "n-step": {"current_fields", "next_fields", "sequence_fields", "filter_fields"},
    "window": {"fields", "windows", "stride", "return_mask"},
}


class DatasetOptions(TypedDict, total=False):
    """Options of `EpisodeDataset` beside the buffer."""

    n_steps: int | None
    fields: Sequence[str] | None
    current_fields: Sequence[str] | None
    next_fields: Sequence[str] | None
    sequence_fields: Sequence[str] | None
    timestep_level: bool
    window_length: int | None
    windows: Windows | None
    stride: int | None
    pad_to: int | None
    filter_meta: Filters | None
    filter_fields: Filters | None
    min_episode_len: int
    aborted: bool
    meta_fields: Sequence[str] | None
    fieldname_map: Mapping[str, str] | None
    to_named_tuple: Sequence[str] | None
    return_mask: bool
    return_indices: bool
    return_episode_lens: bool
    as_numpy: bool
    seed: int


class LoaderOptions(DatasetOptions, total=False):
    """Options of `dataloader` for its dataset and for the workers of torch's DataLoader."""

    in_order: bool
    multiprocessing_context: Any
    persistent_workers: bool
    prefetch_factor: int | None
    timeout: float
    worker_init_fn: Callable[[int], object] | None


WORKER_OPTIONS = LoaderOptions.__annotations__.keys() - DatasetOptions.__annotations__.keys()


def level_of(
    *,
    n_steps: int | None,
    timestep_level: bool,
    window_length: int | None,
    **options: Any,
) -> Level:
    """The level that the options ask for.

    Args:
        n_steps: Asks for n-step transitions.
        timestep_level: Asks for steps.
        window_length: Asks for windows.
        **options: Those that only some levels have; None or False where not given.

    Raises:
        TypeError: A length is no integer, or names are no tuple of strings.
        ValueError: More than one level is asked for, or an option does not belong to the level.
    """
    asked = {
        "n_steps": n_steps is not None,
        "timestep_level": bool(timestep_level),
        "window_length": window_length is not None,
    }
    given = [name for name, there in asked.items() if there]
    if len(given) > 1:
        raise ValueError(f"cannot specify both {given[0]} and {given[1]}: they are levels")
    kinds = {"n_steps": "n-step", "timestep_level": "timestep", "window_length": "window"}
    kind = kinds[given[0]] if given else "trajectory"
    _check_fit(kind, options)
    names = {
        name: None if options[name] is None else checked_names(name, options[name])
        for name in ("fields", "current_fields", "next_fields", "sequence_fields")
    }
    if n_steps is not None:
        sequence = names["sequence_fields"] or ()
        n = check_count("n_steps", n_steps, 1)
        return NStepLevel(n, names["current_fields"], names["next_fields"], sequence)
    if timestep_level:
        return Timestep(names["fields"])
    if window_length is not None:
        length = check_count("window_length", window_length, 1)
        return _window(length, names["fields"], options["windows"], options["stride"])
    pad_to = options["pad_to"]
    return Trajectory(names["fields"], None if pad_to is None else check_count("pad_to", pad_to, 1))


def _check_fit(kind: str, options: Mapping[str, Any]) -> None:
    for name, value in options.items():
        if value is None or value is False or name in _LEVEL_OPTIONS[kind]:
            continue
        levels = [level for level, names in _LEVEL_OPTIONS.items() if name in names]
        raise ValueError(
            f"{name} is only supported for {' and '.join(levels)} datasets, this one is {kind}"
        )


def _window(length: int, fields: tuple[str, ...] | None, windows: object, stride: object) -> Level:
    if windows not in (None, "random", "all"):
        raise ValueError(f"windows must be 'random' or 'all', got {windows!r}")
    if windows == "all":
        return EveryWindow(
            length, fields, 1 if stride is None else check_count("stride", stride, 1)
        )
    if stride is not None:
        raise ValueError("stride is for windows='all': random windows have none")
    return RandomWindow(length, fields)
