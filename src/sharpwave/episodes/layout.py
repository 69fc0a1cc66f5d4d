"""Layout of episodes in their folder: the header's entries, and the store made from them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from sharpwave import _native
from sharpwave.episodes.codecs import NAMES, rows_of_block
from sharpwave.formats.spec import EpisodeSchema
from sharpwave.storage.folder import StoreFolder, file_name
from sharpwave.storage.header import believing, check_column, identity_of, integer

INDEX = "_episodes"
"""The column that says where the steps of episodes lie; no field can have its name."""

DURABILITIES = ("process", "power")

_CODED_BYTES = 64 << 20  # makes chunks of 4 MiB
_DECODED_BYTES = 256 << 20  # memory for rows that were decompressed


def describe(
    schema: EpisodeSchema,
    *,
    max_episodes: int,
    max_timesteps: int,
    circular: bool,
    durability: str,
    codecs: Mapping[str, str],
) -> dict[str, Any]:
    """The entries of the header of a new folder."""
    max_steps = min(max_episodes * max_timesteps, 2**62)

    def column(group: str, name: str, row_bytes: int, max_rows: int) -> dict[str, Any]:
        codec = codecs.get(name) if group == "steps" else None
        if codec is not None:  # a chunk is compressed when it is full: it should not take long
            max_rows = min(max_rows, _CODED_BYTES // row_bytes + 1)
        return {
            "group": group,
            "name": name,
            "row_bytes": row_bytes,
            "chunk_rows": _native.choose_chunk_rows(row_bytes, max_rows),
            "codec": codec,
        }

    return {
        "schema": schema.to_json(),
        "options": {
            "max_episodes": max_episodes,
            "max_timesteps": max_timesteps,
            "circular": circular,
            "durability": durability,
        },
        "columns": [
            *(column("steps", n, f.row_bytes, max_steps) for n, f in schema.fields.items()),
            *(column("meta", n, f.row_bytes, max_episodes) for n, f in schema.meta_fields.items()),
            column("index", INDEX, _native.EPISODE_INDEX_ROW_BYTES, max_episodes),
        ],
    }


def schema_of(folder: StoreFolder) -> EpisodeSchema:
    """The schema of a folder, after a check of everything that its header says.

    Native code trusts these sizes.

    Raises:
        SharpwaveIOError: The entries contradict each other.
    """
    header = folder.header
    with believing(folder.path):
        schema = EpisodeSchema.from_json(header["schema"])
        options = header["options"]
        for name in ("max_episodes", "max_timesteps"):
            integer(options[name], 1, 2**48, name)
        for name, known in (("circular", (False, True)), ("durability", DURABILITIES)):
            if options[name] not in known or type(options[name]) is not type(known[0]):
                raise ValueError(f"{name} must be one of {known}, got {options[name]!r:.80}")
        expected = [
            *(("steps", name, field.row_bytes) for name, field in schema.fields.items()),
            *(("meta", name, field.row_bytes) for name, field in schema.meta_fields.items()),
            ("index", INDEX, _native.EPISODE_INDEX_ROW_BYTES),
        ]
        entries = header["columns"]
        if not isinstance(entries, list) or len(entries) != len(expected):
            raise ValueError(f"columns must be {len(expected)}, as the schema says")
        for entry, (group, name, row_bytes) in zip(entries, expected, strict=True):
            check_column(entry, {"group": group, "name": name, "row_bytes": row_bytes})
            codec = entry.get("codec")
            if codec is not None and (group != "steps" or codec not in NAMES):
                raise ValueError(f"column {name!r} must have a codec that there is, got {codec!r}")
    return schema


def open_engine(
    folder: StoreFolder, durability: str, *, write: bool, repair: bool = False
) -> _native.EpisodeEngine:
    """The store in a folder, which must be locked when it is to be written to."""
    options = folder.header["options"]

    def columns(group: str) -> list[tuple[str, int, int, int]]:
        return [
            (
                file_name(c["name"]),
                c["row_bytes"],
                c["chunk_rows"],
                rows_of_block(c["row_bytes"]) if c["codec"] else 0,
            )
            for c in folder.header["columns"]
            if c["group"] == group
        ]

    return _native.EpisodeEngine(
        os.fspath(folder.path),
        columns("steps"),
        columns("meta"),
        columns("index")[0][2],
        options["max_episodes"],
        options["max_timesteps"],
        options["circular"],
        durability == "power",
        _DECODED_BYTES,
        identity_of(folder.header),
        write,
        repair,
    )


def differences(header: Mapping[str, Any], given: Mapping[str, Any]) -> list[str]:
    """Differences between a folder and what was asked for, in words."""
    return list(_differences(header, given))


def _differences(header: Mapping[str, Any], given: Mapping[str, Any]) -> Iterator[str]:
    for name in ("max_episodes", "max_timesteps", "circular"):
        have, want = header["options"][name], given["options"][name]
        if have != want:
            yield f"{name} is {have} there and {want} here"
    for group in ("fields", "meta_fields"):
        have, want = header["schema"][group], given["schema"][group]
        for name in have.keys() | want.keys():
            if name not in want:
                yield f"{group} has {name!r} there and not here"
            elif name not in have:
                yield f"{group} has {name!r} here and not there"
            elif have[name] != want[name]:
                yield f"{group}[{name!r}] is {have[name]} there and {want[name]} here"
        if have == want and list(have) != list(want):
            yield f"{group} are in the order {list(have)} there and {list(want)} here"
