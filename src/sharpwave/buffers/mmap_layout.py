"""Layout of a replay buffer in its folder: the header's entries about its columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sharpwave import _native
from sharpwave.buffers.replay import engine_arguments
from sharpwave.buffers.schema import Schema
from sharpwave.storage.header import check_column, integer


def describe_columns(schema: Schema, options: Mapping[str, Any]) -> tuple[list[Any], int]:
    """The header's entries about the columns, and the number of commit words."""
    fields, stream_rows, capacity, n_envs, *_ = engine_arguments(schema, options)
    row_bytes, chunk_rows, max_chunks, n_words = _native.Engine.describe_folder(
        fields, stream_rows, capacity, n_envs
    )
    columns = [
        {
            "name": f"rows-{stream}",
            "row_bytes": row_bytes,
            "chunk_rows": chunk_rows,
            "max_chunks": max_chunks,
            "codec": None,
        }
        for stream in range(max(n_envs, 1))
    ]
    return columns, n_words


def check_header(header: Mapping[str, Any], schema: Schema, options: Mapping[str, Any]) -> None:
    """Raise ValueError unless the sizes that native code trusts follow from the schema."""
    expected, _ = describe_columns(schema, options)
    columns = header["columns"]
    if not isinstance(columns, list) or len(columns) != len(expected):
        raise ValueError(f"columns must be {len(expected)}, as the options say")
    for column, described in zip(columns, expected, strict=True):
        check_column(column, {key: described[key] for key in ("name", "row_bytes", "codec")})
        # Others than these are chosen where pages have another size.
        kept = described["chunk_rows"] * (described["max_chunks"] - 2)
        most = 2 * (kept // column["chunk_rows"] + 4)
        integer(column.get("max_chunks"), 3, most, "max_chunks")
        if any(column[key] != columns[0][key] for key in ("chunk_rows", "max_chunks")):
            raise ValueError("columns must have equal sizes")
    integer(header["hot_capacity"], 1, options["capacity"], "hot_capacity")
    if header["durability"] not in ("process", "power"):
        raise ValueError(f"durability must be process or power, got {header['durability']!r:.80}")
