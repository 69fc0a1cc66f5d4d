"""Episodes as transitions, for training from a fixed dataset."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from sharpwave.episodes.buffer import EpisodeBuffer
from sharpwave.episodes.interchange.roles import by_role
from sharpwave.episodes.interchange.stream import FINAL_OBS
from sharpwave.episodes.spec import EpisodeSchema
from sharpwave.types import Array


def transitions_of(
    episodes: Any, *, obs: str | None = None, action: str | None = None, aborted: bool = False
) -> dict[str, Array]:
    """The steps of all episodes with their successors, see `OfflineDatasetBuffer.from_episodes`.

    Returns:
        obs, next_obs, actions, rewards, terminated and truncated, [N, ...].
    """
    if isinstance(episodes, str | os.PathLike):
        with EpisodeBuffer.from_folder(episodes, read_only=True) as buffer:
            return transitions_of(buffer, obs=obs, action=action, aborted=aborted)
    schema = episodes.schema
    roles = by_role(schema)
    names = {
        "obs": _the_field(schema, "obs", obs),
        "actions": _the_field(schema, "action", action),
        "rewards": _the_field(schema, "reward", None),
    }
    table = episodes.episodes(aborted=aborted)
    if not len(table):
        raise ValueError("episodes must hold at least one episode, got 0")
    last = np.cumsum(table.lengths) - 1
    n_steps = int(last[-1]) + 1
    rows = np.arange(n_steps) + np.repeat(table.starts - (last + 1 - table.lengths), table.lengths)
    columns = episodes.gather(rows, [*names.values(), *_flags(roles)])
    flags = {
        role: columns[roles[role]].astype(np.bool_)
        if role in roles
        else np.zeros(n_steps, np.bool_)
        for role in ("terminated", "truncated")
    }
    flags["truncated"][last] |= ~flags["terminated"][last]

    _, dot, rest = names["obs"].partition(".")
    following = rows + 1
    following[last] = rows[last]
    next_obs = episodes.gather(following, [names["obs"]])[names["obs"]]
    kept = np.ones(n_steps, np.bool_)
    final = FINAL_OBS + dot + rest
    if final in schema.meta_fields:
        next_obs[last] = table.meta[final]
    else:
        open_end = ~flags["terminated"][last]
        kept[last[open_end]] = False
        flags["truncated"][(last - 1)[open_end & (table.lengths > 1)]] = True
    if not kept.any():
        raise ValueError(f"episodes of one step must have {final!r} or end by termination")
    arrays = {argument: columns[name] for argument, name in names.items()}
    arrays |= {"next_obs": next_obs, **flags}
    return arrays if kept.all() else {name: values[kept] for name, values in arrays.items()}


def _flags(roles: dict[str, str]) -> list[str]:
    return [roles[role] for role in ("terminated", "truncated") if role in roles]


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
