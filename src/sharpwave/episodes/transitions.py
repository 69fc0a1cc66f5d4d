"""Episodes as transitions, for training from a fixed dataset."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from sharpwave.episodes.buffer import EpisodeBuffer
from sharpwave.formats.dotted import by_role
from sharpwave.formats.spec import EpisodeSchema
from sharpwave.formats.stream import FINAL_OBS, EpisodeStream
from sharpwave.types import Array

_FLAGS = ("terminated", "truncated")


def transitions_of(
    episodes: Any,
    *,
    obs: str | None = None,
    action: str | None = None,
    aborted: bool = False,
    extra: Iterable[str] = (),
) -> dict[str, Array]:
    """The steps of all episodes with their successors, see `OfflineDatasetBuffer.from_episodes`.

    Args:
        episodes: An `EpisodeBuffer`, its folder, or an `EpisodeStream` of any format.
        obs: The field of the observations, where there are several.
        action: The field of the actions likewise.
        aborted: Take episodes, too, that were cut before their end.
        extra: Names of further fields of steps.

    Returns:
        obs, next_obs, actions, rewards, terminated and truncated, [N, ...], and further fields by
        their names.
    """
    if isinstance(episodes, str | os.PathLike):
        with EpisodeBuffer.from_folder(episodes, read_only=True) as buffer:
            return transitions_of(buffer, obs=obs, action=action, aborted=aborted, extra=extra)
    schema = episodes.schema
    roles = by_role(schema)
    names = {
        "obs": _the_field(schema, "obs", obs),
        "actions": _the_field(schema, "action", action),
        "rewards": _the_field(schema, "reward", None),
        **{flag: roles[flag] for flag in _FLAGS if flag in roles},
        **{name: _the_field(schema, "extra", name) for name in extra},
    }
    _, dot, rest = names["obs"].partition(".")
    final = FINAL_OBS + dot + rest
    meta = final if final in schema.meta_fields else None
    if isinstance(episodes, EpisodeStream):
        steps = _steps_of_stream(episodes, names, meta)
    else:
        steps = _steps_of_buffer(episodes, names, meta, aborted)

    arrays = dict(steps.columns)
    n_steps = len(arrays["rewards"])
    last = np.cumsum(steps.lengths) - 1
    for flag in _FLAGS:
        arrays[flag] = arrays.get(flag, np.zeros(n_steps, np.bool_)).astype(np.bool_)
    terminated, truncated = arrays["terminated"], arrays["truncated"]
    truncated[last] |= ~terminated[last]
    kept = np.ones(n_steps, np.bool_)
    if steps.final_obs is None:
        open_end = ~terminated[last]
        kept[last[open_end]] = False
        truncated[(last - 1)[open_end & (steps.lengths > 1)]] = True
        if not kept.any():
            raise ValueError(f"episodes of one step must have {final!r} or end by termination")
    following = np.arange(1, n_steps + 1)
    following[last] = last
    arrays["next_obs"] = arrays["obs"][following]
    if steps.final_obs is not None:
        arrays["next_obs"][last] = steps.final_obs
    return arrays if kept.all() else {name: values[kept] for name, values in arrays.items()}


class _Steps(NamedTuple):
    """The steps of episodes one after another."""

    columns: dict[str, Array]
    lengths: Array
    final_obs: Array | None


def _steps_of_buffer(
    episodes: EpisodeBuffer, names: dict[str, str], final_obs: str | None, aborted: bool
) -> _Steps:
    table = episodes.episodes(aborted=aborted)
    if not len(table):
        raise ValueError("episodes must hold at least one episode, got 0")
    first = np.cumsum(table.lengths) - table.lengths
    rows = np.arange(table.lengths.sum()) + np.repeat(table.starts - first, table.lengths)
    found = episodes.gather(rows, list(names.values()))
    columns = {argument: found[name] for argument, name in names.items()}
    return _Steps(columns, table.lengths, None if final_obs is None else table.meta[final_obs])


def _steps_of_stream(stream: EpisodeStream, names: dict[str, str], final_obs: str | None) -> _Steps:
    if not len(stream):
        raise ValueError(f"{stream.origin} must hold at least one episode, got 0")
    parts: dict[str, list[Array]] = {argument: [] for argument in names}
    finals = []
    for episode in stream:
        for argument, name in names.items():
            parts[argument].append(np.asarray(episode.steps[name]))
        if final_obs is not None:
            finals.append(np.asarray(episode.meta[final_obs]))
    columns = {argument: np.concatenate(each) for argument, each in parts.items()}
    return _Steps(columns, stream.lengths, np.stack(finals) if finals else None)


def _the_field(schema: EpisodeSchema, role: str, given: str | None) -> str:
    if given is not None:
        if given not in schema.fields:
            raise ValueError(f"{role} must be one of {list(schema.fields)}, got {given!r}")
        return given
    found = [name for name, field in schema.fields.items() if field.role == role]
    if not found:
        raise ValueError(f"episodes must have a field {role!r}, got {list(schema.fields)}")
    if len(found) > 1:
        raise ValueError(f"{role} must name one of the fields {found}")
    return found[0]
